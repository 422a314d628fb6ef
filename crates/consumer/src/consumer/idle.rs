//! Buffers of idle streams go back to the pool, and fast streams get larger ones.
//!
//! Streams with buffers stand on a list, each once. It is gone through every
//! [`IDLE_LOOK`], a few streams a poll: who moved no byte since the last time is
//! asked for its buffers, by a request that the engine grants or refuses. Who posted more
//! than [`FAST_LAPS`] since the last round began is to have large ones, and does not wait
//! for the next.

use super::Consumer;
use baton_engine::region::Request;
use baton_tcp::time::{Duration, Instant};

/// Time between two looks at the streams that have buffers. One that moved no byte
/// from one look to the next gives them back.
pub const IDLE_LOOK: Duration = Duration::from_millis(200);

/// Laps of a small buffer from one look to the next beyond which a stream is fast. Over a
/// path of [`IDLE_LOOK`] such a window is what holds it up; over a short one it needs a
/// window of several bursts, lest both ends take turns at waiting.
pub const FAST_LAPS: u32 = 4;

/// Streams looked at in one poll, and streams that wait for an answer, at most: a
/// fraction of the request ring.
const LOOKS: usize = 64;

/// Marks the token of a request to take a stream's buffers back; the rest is its
/// queue pair.
const RETIRE: u64 = 1 << 63;

/// True if the token is of such a request.
pub(super) fn is_answer(token: u64) -> bool {
    token & RETIRE != 0
}

impl Consumer {
    /// When [`Consumer::poll`] looks for idle streams next, if there may be any.
    pub fn next_look(&self) -> Option<Instant> {
        match self.round_left {
            // The rest of a round goes on at once, unless answers are to come first.
            1.. if self.retiring < LOOKS => Some(Instant(0)),
            _ => (!self.holders.is_empty()).then_some(self.look_at),
        }
    }

    /// Stream buffers in use.
    pub fn buffers_in_use(&self) -> usize {
        self.pool.in_use()
    }

    pub(super) fn look_for_idle(&mut self, now: Instant) {
        if self.round_left == 0 {
            if now < self.look_at {
                return;
            }
            self.look_at = now + IDLE_LOOK;
            self.round_left = self.holders.len();
            self.laps.clear();
        }
        let looks = self.round_left.min(LOOKS - self.retiring);
        for _ in 0..looks {
            let Some(qp) = self.holders.pop_front() else { break };
            self.round_left -= 1;
            if self.look_at_holder(qp) {
                self.holders.push_back(qp);
            }
        }
    }

    /// Asks for an idle stream's buffers; false if it has none.
    fn look_at_holder(&mut self, qp: u32) -> bool {
        let Some(Some(stream)) = self.streams.get_mut(qp as usize) else { return false };
        if stream.holds_nothing() {
            return false;
        }
        if !stream.was_active() && stream.retire(&self.region, qp) {
            let token = RETIRE | u64::from(qp);
            match self.region.request(&Request::Unpost { token, qp }) {
                Ok(()) => self.retiring += 1,
                Err(_) => stream.cancel_retiring(&self.region, qp),
            }
        }
        true
    }

    /// The engine's answer to [`Request::Unpost`].
    pub(super) fn on_retired(&mut self, qp: u32, forgot: bool) {
        self.retiring = self.retiring.saturating_sub(1);
        if let Some(Some(stream)) = self.streams.get_mut(qp as usize)
            && stream.is_retiring()
        {
            stream.on_retired(&self.region, qp, forgot, &mut self.pool);
        }
    }
}
