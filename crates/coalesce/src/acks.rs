//! ACK offload (RA §4): one template stands for the ACKs that a receiver would have
//! sent had nothing been coalesced, and is expanded at the port's edge.
//!
//! ```text
//!   segments of a run     | 1 | 2 | 3 | 4 | 5 |
//!   the stack's one ACK                       ^    template
//!   every second                  ^       ^   ^    frames
//! ```

use baton_wire::checksum;
use baton_wire::packet::Packet;
use baton_wire::seq::Seq;
use baton_wire::tcp::{Acks, Flags};

/// The ends of the segments in one direction of a connection that its receiver has not
/// acknowledged.
#[derive(Clone, Debug)]
pub struct Unacked {
    /// A ring; its entries are in order of sequence numbers, modulo 2^32.
    ends: [Seq; Unacked::MAX],
    first: usize,
    len: usize,
}

impl Default for Unacked {
    fn default() -> Unacked {
        Unacked::new()
    }
}

impl Unacked {
    /// The most ends that are kept: a kernel whose program reads slowly acknowledges hundreds
    /// of segments at once. Beyond that the oldest are forgotten and their ACKs are not made: a
    /// stretch ACK instead is correct, but unlike a receiver's.
    pub const MAX: usize = 1024;

    /// No segments.
    pub const fn new() -> Unacked {
        Unacked { ends: [Seq(0); Unacked::MAX], first: 0, len: 0 }
    }

    /// Notes a segment that goes to the receiver, by the sequence number after its
    /// last byte. One that does not lie after those before it (sent again, or filling
    /// a gap) is not noted: its receiver answers at once, and that is no template.
    pub fn on_segment(&mut self, end: Seq) {
        if self.last().is_some_and(|last| !end.after(last)) {
            return;
        }
        if self.len == Unacked::MAX {
            self.drop_first();
        }
        self.ends[(self.first + self.len) % Unacked::MAX] = end;
        self.len += 1;
    }

    /// Expands an ACK of the receiver: calls `emit` with the acknowledgment number of each
    /// frame to be sent, in order, the last one `ack` itself. An ACK of nothing new is emitted
    /// alone.
    pub fn expand(&mut self, ack: Seq, acks: Acks, mut emit: impl FnMut(Seq)) {
        let mut second = false;
        while let Some(end) = self.first().filter(|end| end.before_eq(ack)) {
            self.drop_first();
            if second && end != ack && acks == Acks::EverySecond {
                emit(end);
            }
            second = !second;
        }
        emit(ack);
    }

    fn first(&self) -> Option<Seq> {
        (self.len > 0).then(|| self.ends[self.first])
    }

    fn last(&self) -> Option<Seq> {
        (self.len > 0).then(|| self.ends[(self.first + self.len - 1) % Unacked::MAX])
    }

    fn drop_first(&mut self) {
        self.first = (self.first + 1) % Unacked::MAX;
        self.len -= 1;
    }
}

/// A pure ACK as its sender wrote it, of which others can be made.
#[derive(Clone, Copy, Debug)]
pub struct AckTemplate<'a> {
    frame: &'a [u8],
    tcp_offset: usize,
    /// The acknowledgment number as it stands, if the checksum covers it.
    summed: Option<u32>,
}

impl<'a> AckTemplate<'a> {
    /// The template of a frame that was parsed to `packet`; `None` unless it is an ACK without
    /// payload, other flags, or options but timestamps (SACK blocks belong to the one
    /// ACK that carries them). `checksum_filled` says that the TCP checksum is
    /// complete, not left to the port.
    pub fn new(frame: &'a [u8], packet: &Packet, checksum_filled: bool) -> Option<AckTemplate<'a>> {
        let pure = packet.payload_len == 0 && packet.flags == Flags::ACK && packet.plain_options;
        let frame = frame.get(..usize::from(packet.payload_offset))?;
        pure.then_some(AckTemplate {
            frame,
            tcp_offset: usize::from(packet.tcp_offset),
            summed: checksum_filled.then_some(packet.ack.0),
        })
    }

    /// Length of each frame in bytes.
    pub const fn len(&self) -> usize {
        self.frame.len()
    }

    /// Never true: a template has headers.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the ACK of `ack` to the start of `out` and returns its length; `None`
    /// if `out` is too short. Acknowledgment number and checksum differ from the
    /// template, nothing else (RA §4.2).
    pub fn write(&self, ack: Seq, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.frame.len())?;
        out.copy_from_slice(self.frame);
        let tcp = out.get_mut(self.tcp_offset..)?.first_chunk_mut::<20>()?;
        tcp[8..12].copy_from_slice(&ack.0.to_be_bytes());
        if let Some(old) = self.summed {
            let field = u16::from_be_bytes([tcp[16], tcp[17]]);
            tcp[16..18].copy_from_slice(&checksum::update32(field, old, ack.0).to_be_bytes());
        }
        Some(self.frame.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(unacked: &mut Unacked, ack: u32, acks: Acks) -> Vec<u32> {
        let mut out = Vec::new();
        unacked.expand(Seq(ack), acks, |seq| out.push(seq.0));
        out
    }

    fn brought(ends: &[u32]) -> Unacked {
        let mut unacked = Unacked::new();
        ends.iter().for_each(|end| unacked.on_segment(Seq(*end)));
        unacked
    }

    #[test]
    fn a_template_stands_for_every_second_segment_and_itself() {
        for (ends, ack, all) in [
            (&[10, 20, 30, 40, 50][..], 50, &[20, 40, 50][..]),
            (&[10, 20, 30, 40], 40, &[20, 40]),
            (&[10], 10, &[10]),
            (&[], 10, &[10]),
            // Part of the segments, ending within one.
            (&[10, 20, 30, 40], 30, &[20, 30]),
            (&[10, 20, 30, 40], 35, &[20, 35]),
            // An old one, and one around the end of the circle.
            (&[10, 20], 5, &[5]),
            (&[u32::MAX - 9, u32::MAX, 9, 19], 19, &[u32::MAX, 19]),
        ] {
            assert_eq!(expanded(&mut brought(ends), ack, Acks::EverySecond), all, "{ends:?} {ack}");
            assert_eq!(expanded(&mut brought(ends), ack, Acks::PerRun), [ack]);
        }
    }

    #[test]
    fn what_was_acknowledged_is_not_acknowledged_again() {
        let mut unacked = brought(&[10, 20, 30, 40, 50, 60]);
        assert_eq!(expanded(&mut unacked, 30, Acks::EverySecond), [20, 30]);
        assert_eq!(expanded(&mut unacked, 30, Acks::EverySecond), [30]);
        unacked.on_segment(Seq(25));
        unacked.on_segment(Seq(60));
        assert_eq!(expanded(&mut unacked, 60, Acks::EverySecond), [50, 60]);
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let ends: Vec<u32> = (1..=Unacked::MAX as u32 + 6).map(|n| n * 10).collect();
        let all = expanded(&mut brought(&ends), ends[ends.len() - 1], Acks::EverySecond);
        assert_eq!(all.len(), Unacked::MAX / 2);
        assert_eq!((all[0], all[all.len() - 1]), (80, ends[ends.len() - 1]));
    }
}
