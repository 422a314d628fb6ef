//! A buffer of a call that waits, as the place of its connection's next bytes (posted receives, LC §3.3.1): payload is
//! copied once, from the frame to the program.
//!
//! This module upholds: the address is that of a buffer that [`Streamer::poll_receive_into`] has borrowed. It is lent
//! to the Streamer within that call alone, and is taken away on each way out of it, that of a panic too.
#![allow(unsafe_code)]

use super::context::bits;
use super::{ConnId, ConsumerId, Streamer};
use crate::frame_io::{FrameIo, PortError};
use crate::region::SEGMENT;
use baton_tcp::time::Instant;
use baton_wire::checksum::copy_and_sum_raw;
use baton_wire::copy_unsafe::copy_raw;

/// A buffer for the next bytes of a connection, which its reader has read so far.
#[derive(Debug)]
pub struct PostedReceive<'a> {
    /// The connection's consumer.
    pub consumer: ConsumerId,
    /// Its queue pair.
    pub qp: u32,
    /// Stream position of the first byte of `buf`. Nothing is placed if the connection has received more than that
    /// and what was placed.
    pub position: u64,
    /// Where the bytes go.
    pub buf: &'a mut [u8],
    /// Bytes that have been placed, and count as received. The queue pair's own buffer has other bytes there, so the
    /// consumer has to skip them.
    pub placed: usize,
}

/// The same, while frames are handled.
pub(super) struct Posted {
    conn: ConnId,
    /// Stream position of `start`.
    position: u64,
    start: *mut u8,
    len: usize,
    placed: usize,
}

// SAFETY: the buffer is borrowed exclusively, and used only by the call that has lent it.
unsafe impl Send for Posted {}
// SAFETY: nothing is done with the address through a shared reference.
unsafe impl Sync for Posted {}

impl Posted {
    /// How many of a connection's bytes from `position` on fit.
    #[inline]
    pub fn room(&self, conn: ConnId, position: u64) -> usize {
        let next = self.conn == conn && position == self.position + self.placed as u64;
        if next { self.len - self.placed } else { 0 }
    }

    /// Copies `payload`, which fits, behind what is there, and returns its sum if that was asked for. It counts once
    /// it is [kept](Posted::keep).
    #[inline]
    pub fn copy(&mut self, payload: &[u8], sum: bool) -> u32 {
        assert!(payload.len() <= self.len - self.placed);
        // SAFETY: `len` bytes from `start` on are borrowed exclusively while this value exists, so `payload` is not
        // among them; `placed` and the length of `payload` are at most `len` together.
        unsafe {
            let to = self.start.add(self.placed);
            if sum || payload.len() <= SEGMENT {
                return copy_and_sum_raw(to, payload.as_ptr(), payload.len());
            }
            copy_raw(to, payload.as_ptr(), payload.len());
        }
        0
    }

    /// The first `len` bytes of what was copied last are received.
    #[inline]
    pub fn keep(&mut self, len: usize) {
        self.placed = self.len.min(self.placed + len);
    }
}

/// Takes the buffer away.
struct Lent<'a>(&'a mut Streamer);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.posted = None;
    }
}

impl Streamer {
    /// As [`Streamer::poll_receive`]. The next bytes of one connection are placed in a buffer of its reader, as far as
    /// they fit.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone; then nothing counts as received.
    pub fn poll_receive_into<P: FrameIo>(
        &mut self,
        now: Instant,
        port: &mut P,
        limit: usize,
        to: &mut PostedReceive<'_>,
    ) -> Result<usize, PortError> {
        let conn = self.connection(to.consumer, to.qp).filter(|conn| {
            let flow = self.flows.get(conn.0);
            flow.is_some_and(|flow| flow.has(bits::ATTACHED) && flow.rx.rcv_pos == to.position + to.placed as u64)
        });
        let Some(conn) = conn else { return self.poll_receive(now, port, limit) };
        let &mut PostedReceive { position, ref mut buf, placed, .. } = to;
        assert!(placed <= buf.len());
        self.posted = Some(Posted { conn, position, start: buf.as_mut_ptr(), len: buf.len(), placed });
        let lent = Lent(self);
        let frames = lent.0.poll_receive(now, port, limit)?;
        to.placed = lent.0.posted.as_ref().map_or(placed, |posted| posted.placed);
        Ok(frames)
    }
}
