//! When less than a full segment may leave: Nagle's algorithm and the sender's
//! half of silly-window avoidance (RFC 9293 §3.7.4, §3.8.6.2.1).
//!
//! As in Linux (`tcp_nagle_check`), a partial segment waits only for another partial segment
//! (Minshall's modification). Otherwise the end of an answer would wait for the ACK of its last
//! full segment, which a receiver that delays ACKs (RFC 9293 §3.8.6.3) sends 40 ms later if the
//! number of segments is odd.
//!
//! The Streamer asks this each time it cuts the end of what is queued, so it is
//! a function of a few numbers that it has at hand.

/// A segment smaller than the MSS that could be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// Its payload in bytes.
    pub bytes: u32,
    /// It holds the last queued byte; otherwise the window cuts it off.
    pub last: bool,
    /// A segment smaller than the MSS was sent and is not acknowledged.
    pub small_in_flight: bool,
    /// Largest window that the peer ever offered, in bytes.
    pub max_wnd: u32,
    /// Nagle's algorithm is off.
    pub nodelay: bool,
    /// Only full segments are wanted.
    pub cork: bool,
}

/// True if the partial segment may be sent now. A segment held back here leaves
/// when an ACK comes, when more is queued, or when the override timer of the
/// TCE fires ((4) of RFC 9293 §3.8.6.2.1).
pub const fn may_send_partial(partial: &Partial) -> bool {
    // MUST-38 (RFC 9293 §3.8.6.2.1): (3) at least half of the largest window.
    if partial.bytes >= partial.max_wnd / 2 && partial.max_wnd > 0 && !partial.cork {
        return true;
    }
    // (2) all that is queued, and no partial segment unacknowledged or Nagle is off.
    // SHLD-7, MUST-17 (RFC 9293 §3.7.4): Nagle's algorithm, and a way to turn it off.
    partial.last && !partial.cork && (!partial.small_in_flight || partial.nodelay)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Partial =
        Partial { bytes: 100, last: true, small_in_flight: true, max_wnd: 65_535, nodelay: false, cork: false };

    // tests: MUST-17, MUST-38
    #[test]
    fn partial_segments_leave_only_for_a_reason() {
        assert!(!may_send_partial(&HELD));
        assert!(may_send_partial(&Partial { small_in_flight: false, ..HELD }));
        assert!(may_send_partial(&Partial { nodelay: true, ..HELD }));
        assert!(!may_send_partial(&Partial { nodelay: true, last: false, ..HELD }), "cut off by the window");
        assert!(may_send_partial(&Partial { max_wnd: 200, last: false, ..HELD }), "half of the largest window");
        assert!(!may_send_partial(&Partial { small_in_flight: false, cork: true, ..HELD }));
    }
}
