//! The headers of segments that follow one another: made once, then stamped.
//!
//! Within a turn of a connection the full segments differ in sequence number, IP
//! identification, PSH and what the checksums make of these. All else is copied,
//! in moves of a fixed size.

use crate::checksum::finish;
use crate::seq::Seq;
use crate::tcp::Flags;
use crate::template::{Emit, Template};

/// Bytes that a stamp covers, whatever of them are headers.
pub const SPAN: usize = 96;

/// Headers ready but for the fields that vary.
#[derive(Clone, Debug)]
pub struct Stamp {
    bytes: [u8; SPAN],
    len: u8,
    ip_at: u8,
    tcp_at: u8,
    v6: bool,
    /// The checksum field varies too; else the port completes it, or there is a mark in its place.
    summed: bool,
    ip_sum: u32,
    tcp_sum: u32,
}

impl Stamp {
    /// A stamp for segments like `emit`, whose `seq`, `ip_id` and PSH do not
    /// matter; `None` if the headers are longer than [`SPAN`] or do not fit IP.
    pub fn new(template: &Template, emit: &Emit<'_>) -> Option<Stamp> {
        let mut room = [0; crate::template::MAX_HEADERS];
        let blank = Emit {
            seq: Seq(0),
            ip_id: 0,
            flags: emit.flags.without(Flags::PSH),
            payload_sum: emit.payload_sum.map(|_| 0),
            ..*emit
        };
        let len = template.emit(&mut room, &blank);
        if len == 0 || len > SPAN {
            return None;
        }
        let (tcp_at, v6) = (template.tcp_offset(), template.is_v6());
        let ip_at = tcp_at - if v6 { 40 } else { 20 };
        let mut bytes = [0; SPAN];
        bytes[..len].copy_from_slice(&room[..len]);
        let field = |at: usize| u32::from(!u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let (ip_sum, tcp_sum) = (if v6 { 0 } else { field(ip_at + 10) }, field(tcp_at + 16));
        let summed = emit.payload_sum.is_some();
        Some(Stamp { bytes, len: len as u8, ip_at: ip_at as u8, tcp_at: tcp_at as u8, v6, summed, ip_sum, tcp_sum })
    }

    /// Length of the headers in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "there are always headers")]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Offset of the TCP header, from which the port sums if it completes the
    /// checksum.
    #[inline]
    pub fn checksum_start(&self) -> u16 {
        u16::from(self.tcp_at)
    }

    /// True for IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Puts the headers' constant part at the start of `frame`. It covers
    /// [`SPAN`] bytes, so it goes before the payload.
    #[inline]
    pub fn lay(&self, frame: &mut [u8; SPAN]) {
        *frame = self.bytes;
    }

    /// Fills in what varies, once the payload's sum is known.
    #[inline]
    pub fn fill(&self, frame: &mut [u8; SPAN], seq: Seq, ip_id: u16, push: bool, payload_sum: u32) {
        let mut put = |at: usize, value: u16| frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        let tcp = usize::from(self.tcp_at).min(SPAN - 18);
        if !self.v6 {
            let ip = usize::from(self.ip_at).min(SPAN - 12);
            put(ip + 4, ip_id);
            put(ip + 10, finish(self.ip_sum + u32::from(ip_id)));
        }
        let (high, low) = ((seq.0 >> 16) as u16, seq.0 as u16);
        put(tcp + 4, high);
        put(tcp + 6, low);
        let pushed = if push { u32::from(Flags::PSH.0) } else { 0 };
        if self.summed {
            put(tcp + 16, finish(self.tcp_sum + u32::from(high) + u32::from(low) + pushed + payload_sum));
        }
        frame[tcp + 13] |= pushed as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Addr;
    use crate::checksum;
    use crate::tcp::{SackBlocks, Timestamps};
    use crate::template::Route;

    #[test]
    fn a_stamped_segment_is_the_emitted_one() {
        let table = [(false, true, true), (true, true, true), (false, false, false), (true, false, true)];
        for (unsummed, (v6, summed, ts)) in [false, true].into_iter().flat_map(|u| table.map(|row| (u, row))) {
            let (src, dst) = if v6 {
                (Addr::v6([1; 16]), Addr::v6([2; 16]))
            } else {
                (Addr::v4([10, 0, 0, 1]), Addr::v4([10, 0, 0, 2]))
            };
            let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0];
            let route =
                Route { link: &link, src, dst, src_port: 1, dst_port: 2, ttl: 64, traffic_class: 0, flow_label: 0 };
            let template = Template::new(&route).unwrap();
            let template = if unsummed { template.unsummed() } else { template };
            let payload = [0xa5; 77];
            for (seq, ip_id, push) in [(0, 0, false), (u32::MAX, 0xffff, true), (0x1234_5678, 9, false)] {
                let flags = Flags::ACK | if push { Flags::PSH } else { Flags::NONE };
                let emit = Emit {
                    seq: Seq(seq),
                    ack: Seq(99),
                    flags,
                    window: 7,
                    urgent: 0,
                    ts: ts.then_some(Timestamps { val: 1, ecr: 2 }),
                    sack: &SackBlocks::EMPTY,
                    payload_len: 77,
                    payload_sum: summed.then(|| checksum::sum(&payload)),
                    ip_id,
                    ecn: 2,
                };
                let mut expected = [0; SPAN];
                let len = template.emit(&mut expected, &emit);
                let stamp = Stamp::new(&template, &emit).unwrap();
                let mut got = [0; SPAN];
                stamp.lay(&mut got);
                stamp.fill(&mut got, Seq(seq), ip_id, push, checksum::sum(&payload));
                assert_eq!((stamp.len(), &got[..len]), (len, &expected[..len]));
            }
        }
    }
}
