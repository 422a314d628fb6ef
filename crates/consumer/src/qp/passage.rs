//! Queue pairs whose connections arrive from other stacks or leave for them.

use super::{Pair, PostError, QpEvent, QueuePairs};
use baton_engine::region::Extent;

/// Buffers that were posted on a queue pair that the engine has again.
pub(super) struct Parted {
    qp: u32,
    pair: Box<Pair>,
    /// Stream position up to which the engine received bytes.
    rcv_done: u64,
}

impl QueuePairs {
    /// Posts the queued bytes of a connection that arrived with [`QpEvent::Adopted`], before
    /// anything else is posted: received bytes that were not read, and bytes that the peer has not
    /// acknowledged. `Received` is reported for the first at once.
    ///
    /// # Errors
    /// Those of [`QueuePairs::post_send`].
    pub fn post_brought(&mut self, qp: u32, unread: (Extent, u64), unsent: (Extent, u64)) -> Result<(), PostError> {
        let ((received, id), (sent, send_id)) = (unread, unsent);
        if !received.is_empty() {
            self.post_receive(qp, received, id)?;
            if let Some(Some(pair)) = self.pairs.get_mut(qp as usize) {
                pair.receive.posted.iter_mut().for_each(|posted| posted.told = true);
            }
            self.events.push_back(QpEvent::Received { qp, id, buffer: received });
            self.region.qp(qp).set_rcv_read(received.len().into());
        }
        if !sent.is_empty() {
            self.post_send(qp, sent, send_id)?;
        }
        Ok(())
    }

    /// Handles the move of a queue pair's connection to another stack, which has received bytes up
    /// to `rcv_pos` and has the written bytes up to `tail_pos`. Events free all posted buffers.
    /// Returns the bytes posted for sending after `tail_pos`. The queue pair is closed once the
    /// engine has released it.
    pub fn depart(&mut self, qp: u32, rcv_pos: u64, tail_pos: u64) -> Vec<u8> {
        if let Some(at) = self.parted.iter().position(|parted| parted.qp == qp) {
            let Parted { mut pair, rcv_done, .. } = self.parted.remove(at).expect("the position was found above");
            return self.free(qp, &mut pair, rcv_done.max(rcv_pos), tail_pos);
        }
        let Some(mut pair) = self.pairs.get_mut(qp as usize).and_then(Option::take) else { return Vec::new() };
        let rest = self.free(qp, &mut pair, self.region.qp(qp).rcv_done().max(rcv_pos), tail_pos);
        pair.left = true;
        self.leaving.extend(pair.moved.then_some(qp));
        self.pairs[qp as usize] = Some(pair);
        rest
    }

    fn free(&mut self, qp: u32, pair: &mut Pair, rcv_done: u64, tail_pos: u64) -> Vec<u8> {
        let mut rest = Vec::new();
        for posted in &pair.send.posted {
            let buffer = posted.after(tail_pos);
            let at = rest.len();
            rest.resize(at + buffer.len() as usize, 0);
            self.region.read(buffer, &mut rest[at..]);
        }
        pair.end_receive(qp, rcv_done, &mut self.events);
        pair.end_send(qp, &mut self.events);
        rest
    }

    /// Handles a queue pair that the engine has given back. If its connection moved, how many bytes
    /// its new location has may be announced only later.
    pub(super) fn on_released(&mut self, qp: u32, rcv_done: u64) {
        match self.pairs[qp as usize].take() {
            Some(pair) if pair.moved => self.parted.push_back(Parted { qp, pair, rcv_done }),
            _ => self.events.push_back(QpEvent::Released { qp }),
        }
    }
}
