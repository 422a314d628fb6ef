//! When an acknowledgment goes out (RFC 9293 §3.8.6.3, RFC 5681 §4.2, RA §3.4).
//!
//! In-order data is acknowledged at the latest with the second full segment, so a run of two or
//! more gets one ACK right away; less waits for more data, at most `Config::delayed_ack`. At
//! the start of a connection a number of ACKs do not wait at all, so that they do not slow the
//! peer's slow start (as Linux's quick ACKs do), until the consumer is seen to answer what it
//! gets: its data will carry the acknowledgments.

use crate::segment::Lengths;

/// ACKs that do not wait, at the start.
const QUICK: u8 = 16;

/// The least that counts as a full segment, in bytes.
const LEAST_FULL: u16 = 536;

/// When in-order data is to be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// An ACK now.
    Now,
    /// An ACK before long.
    Delayed,
}

/// ACK policy of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckPolicy {
    /// Payload of the peer's full segments, as far as seen.
    pub rcv_mss: u16,
    last_size: u16,
    quick: u8,
    /// Data came, and the consumer has sent none since.
    unanswered: bool,
}

impl AckPolicy {
    pub fn new() -> AckPolicy {
        AckPolicy { rcv_mss: LEAST_FULL, last_size: 0, quick: QUICK, unanswered: false }
    }

    /// The policy of a connection that has been open for a while; `rcv_mss` as far
    /// as the stack before us had seen.
    pub fn adopt(rcv_mss: u16) -> AckPolicy {
        AckPolicy { rcv_mss: rcv_mss.max(1), quick: 0, ..AckPolicy::new() }
    }

    /// In-order data came; `pending` bytes are not acknowledged, it included.
    #[inline]
    pub fn on_data(&mut self, lengths: &Lengths, pending: u32) -> Need {
        let size = if lengths.count > 1 { lengths.size } else { lengths.len.min(0xffff) as u16 };
        if size != self.rcv_mss {
            self.learn(size, lengths.count);
        }
        self.unanswered = true;
        // SHLD-19 (RFC 9293 §3.8.6.3): each second full segment, counted in bytes
        // of the peer's own segment size, so that a run counts as its segments.
        if self.quick > 0 || pending >= 2 * u32::from(self.rcv_mss) { Need::Now } else { Need::Delayed }
    }

    /// The peer's segment size is the largest seen, or a smaller one seen twice
    /// in a row: its path may have shrunk.
    #[cold]
    fn learn(&mut self, size: u16, count: u16) {
        let again = size == self.last_size || count > 1;
        if size > self.rcv_mss || (again && size >= LEAST_FULL) {
            self.rcv_mss = size;
        }
        self.last_size = size;
    }

    /// An ACK without data goes out.
    #[inline]
    pub fn on_pure_ack(&mut self) {
        self.quick = self.quick.saturating_sub(1);
    }

    /// The consumer's data goes out, and carries an acknowledgment.
    #[inline]
    pub fn on_data_sent(&mut self) {
        if self.unanswered {
            self.unanswered = false;
            self.quick = 0;
        }
    }

    /// The consumer's choice (`TCP_QUICKACK`).
    pub fn set_quick(&mut self, on: bool) {
        self.quick = if on { QUICK } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled() -> AckPolicy {
        let mut policy = AckPolicy::new();
        policy.set_quick(false);
        policy.on_data(&Lengths::single(1448), 1448);
        policy
    }

    #[test]
    fn every_second_full_segment_is_acknowledged() {
        let mut policy = settled();
        assert_eq!(policy.on_data(&Lengths::single(1448), 1448), Need::Delayed);
        assert_eq!(policy.on_data(&Lengths::single(1448), 2896), Need::Now);
        assert_eq!(policy.on_data(&Lengths { len: 2896, size: 1448, count: 2 }, 2896), Need::Now);
        assert_eq!(policy.on_data(&Lengths { len: 128, size: 64, count: 2 }, 128), Need::Delayed);
    }

    #[test]
    fn a_peer_whose_segments_shrink_is_noticed() {
        let mut policy = settled();
        policy.on_data(&Lengths::single(1000), 1000);
        assert_eq!(policy.rcv_mss, 1448);
        policy.on_data(&Lengths::single(1000), 1000);
        assert_eq!(policy.rcv_mss, 1000);
        assert_eq!(policy.on_data(&Lengths::single(1000), 2000), Need::Now);
    }

    #[test]
    fn quick_acks_end_by_number_or_by_an_answer() {
        let mut policy = AckPolicy::new();
        for _ in 0..QUICK {
            assert_eq!(policy.on_data(&Lengths::single(10), 10), Need::Now);
            policy.on_pure_ack();
        }
        assert_eq!(policy.on_data(&Lengths::single(10), 10), Need::Delayed);
        let mut policy = AckPolicy::new();
        policy.on_data(&Lengths::single(10), 10);
        policy.on_data_sent();
        assert_eq!(policy.on_data(&Lengths::single(10), 10), Need::Delayed);
    }
}
