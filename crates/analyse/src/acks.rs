//! Acknowledgments in the direction that the data does not take: as they were captured, as a stack sends them, and
//! as templates that a driver expands (RA §4).

use crate::receiver;
use crate::tally::Tally;
use baton_coalesce::Reason;
use serde::Serialize;

/// Bytes of an ACK with timestamps on Ethernet, over IPv4 and over IPv6: 14 of the link, 20 or 40 of IP, 20 of TCP,
/// and 12 of options (RFC 7323 Appendix A).
const USUAL_BYTES: [f64; 2] = [66.0, 86.0];

/// The origin of the size of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeFrom {
    /// The mean of those in the captures.
    Captured,
    /// 66 bytes over IPv4 and 86 over IPv6: Ethernet, with timestamps.
    Usual,
}

/// Acknowledgments of all data segments: of every second one in order, and of each that is not
/// ([`receiver`]).
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Acks {
    /// How many a stack makes without coalescing.
    pub without: u64,
    /// How many it makes for the runs: with ACK offload each is a template.
    pub with: u64,
    /// Acknowledgments that the coalesced receiver does not make.
    pub saved: u64,
    /// Frames in the captures that only acknowledge, those with SACK blocks left out.
    pub captured: u64,
    /// Their bytes on the wire.
    pub captured_bytes: u64,
    /// Frames that a driver makes of the templates: for a run, one for every second segment and one for a last that
    /// has no second. A segment that is not in order has one.
    pub expanded: u64,
    /// Bytes of one ACK on the wire, as all that were not captured are counted.
    pub frame_bytes: f64,
    /// The origin of `frame_bytes`.
    pub frame_bytes_from: SizeFrom,
    /// Bytes of those that a stack makes without coalescing.
    pub without_bytes: u64,
    /// Bytes of those that it makes for the runs.
    pub with_bytes: u64,
    /// Bytes that the coalesced receiver does not send.
    pub saved_bytes: u64,
    /// Bytes of those that a driver makes of templates.
    pub expanded_bytes: u64,
}

impl Acks {
    /// The acknowledgments of a tally.
    pub fn of(tally: &Tally) -> Acks {
        let [v4, v6] = tally.acks;
        let mut all = v4;
        all += v6;
        let receiver::Acks { without, with, expanded } = all;
        let captured = tally.reasons.get(Reason::NoPayload.name()).copied().unwrap_or(0);
        let (frame_bytes, frame_bytes_from) = if captured > 0 {
            (tally.ack_bytes as f64 / captured as f64, SizeFrom::Captured)
        } else {
            let bytes = v4.without as f64 * USUAL_BYTES[0] + v6.without as f64 * USUAL_BYTES[1];
            let usual = if without > 0 { bytes / without as f64 } else { USUAL_BYTES[0] };
            (usual, SizeFrom::Usual)
        };
        let bytes = |frames: u64| (frames as f64 * frame_bytes).round() as u64;
        let saved = without.saturating_sub(with);
        Acks {
            without,
            with,
            saved,
            captured,
            captured_bytes: tally.ack_bytes,
            expanded,
            frame_bytes,
            frame_bytes_from,
            without_bytes: bytes(without),
            with_bytes: bytes(with),
            saved_bytes: bytes(saved),
            expanded_bytes: bytes(expanded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_ack_is_as_large_as_those_captured_or_as_is_usual() {
        let v4 = receiver::Acks { without: 300, with: 100, expanded: 350 };
        let v6 = receiver::Acks { without: 100, with: 50, expanded: 100 };
        let mut tally = Tally { acks: [v4, v6], ..Tally::default() };
        let acks = Acks::of(&tally);
        assert_eq!((acks.without, acks.with, acks.saved, acks.expanded), (400, 150, 250, 450));
        assert_eq!((acks.frame_bytes, acks.frame_bytes_from), (71.0, SizeFrom::Usual));
        assert_eq!((acks.without_bytes, acks.with_bytes, acks.saved_bytes), (28_400, 10_650, 17_750));
        (tally.reasons, tally.ack_bytes) = (BTreeMap::from([("no_payload", 4)]), 250);
        let acks = Acks::of(&tally);
        assert_eq!((acks.captured, acks.captured_bytes), (4, 250));
        assert_eq!((acks.frame_bytes, acks.frame_bytes_from), (62.5, SizeFrom::Captured));
        assert_eq!(acks.saved_bytes, 15_625);
        assert_eq!(Acks::of(&Tally::default()).frame_bytes, 66.0);
    }
}
