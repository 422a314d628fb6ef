//! Takes buffers back from idle streams, and gives larger ones to fast streams.
//!
//! Streams with buffers are on a list, each once. Every [`IDLE_LOOK`] a round over the list begins,
//! which checks a few streams per poll. A stream that moved no byte since the last round is asked
//! for its buffers, by a request that the engine grants or refuses. A stream that posted more than
//! [`FAST_LAPS`] laps since the last round began gets large buffers without waiting for the next
//! round.

use super::Consumer;
use baton_engine::region::Request;
use baton_tcp::time::{Duration, Instant};

/// Interval between two checks of a stream that has buffers. A stream that moved no byte in between
/// returns them.
pub const IDLE_LOOK: Duration = Duration::from_millis(200);

/// A stream is fast if it uses more laps of a small buffer than this between two checks. Over a
/// path with a round-trip time of [`IDLE_LOOK`], such a window limits it; over a short path it
/// needs a window of several bursts, or both ends would take turns waiting.
pub const FAST_LAPS: u32 = 4;

/// Most streams checked in one poll, and most pending requests for buffers: a fraction of the
/// request ring.
const LOOKS: usize = 64;

/// Marks the token of a request to take a stream's buffers back. The other bits are its queue pair.
const RETIRE: u64 = 1 << 63;

/// True if the token belongs to such a request.
pub(super) fn is_answer(token: u64) -> bool {
    token & RETIRE != 0
}

impl Consumer {
    /// Returns when [`Consumer::poll`] next checks for idle streams, if there may be any.
    pub fn next_look(&self) -> Option<Instant> {
        match self.round_left {
            // The rest of a round continues at once, unless too many answers are pending.
            1.. if self.retiring < LOOKS => Some(Instant(0)),
            _ => (!self.holders.is_empty()).then_some(self.look_at),
        }
    }

    /// Number of stream buffers in use.
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

    /// Requests an idle stream's buffers. Returns false if it has none.
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

    /// Handles the engine's answer to [`Request::Unpost`].
    pub(super) fn on_retired(&mut self, qp: u32, forgot: bool) {
        self.retiring = self.retiring.saturating_sub(1);
        if let Some(Some(stream)) = self.streams.get_mut(qp as usize)
            && stream.is_retiring()
        {
            stream.on_retired(&self.region, qp, forgot, &mut self.pool);
        }
    }
}
