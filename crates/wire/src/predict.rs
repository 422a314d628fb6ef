//! Header prediction (LA §3.2): most segments of a bulk transfer have the headers
//! of the one before, but for a few fields.
//!
//! ```text
//!   | Ethernet | IPv4: id, checksum vary | TCP: seq, checksum, PSH vary | options |
//!   |----------------- all else is compared, eight bytes at a time ---------------|
//! ```
//!
//! A frame that matches needs no parse: what it is, is what its predecessor was.
//! The two checksums are carried on from sums over the fields that do not vary.

use crate::checksum::{fold, fold64, header_sum};
use crate::packet::Packet;
use crate::seq::Seq;
use crate::tcp::Flags;

/// Bytes compared at most: Ethernet, IPv6, TCP and timestamps, in whole words.
const SPAN: usize = 88;
const WORDS: usize = SPAN / 8;

/// Words that hold the headers of an IPv4 segment with timestamps.
const WORDS_V4: usize = 9;

/// The headers expected of the next frame.
#[derive(Clone, Debug)]
pub struct HeaderPrediction {
    expected: [u64; WORDS],
    mask: [u64; WORDS],
    v6: bool,
    tcp_offset: u8,
    /// Frame length up to the end of the IP packet.
    end: u32,
    /// Sum of the IPv4 header without identification and checksum.
    ip_sum: u32,
    /// Sum of pseudo header and TCP header without sequence number, checksum and PSH.
    tcp_sum: u32,
}

/// The varying fields of a frame whose headers are otherwise as predicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Predicted {
    /// Sequence number.
    pub seq: Seq,
    /// As [`Packet::header_sum`].
    pub header_sum: u32,
    /// The PSH bit.
    pub push: bool,
}

impl HeaderPrediction {
    /// A prediction from a frame on Ethernet and what it was parsed to; `None` if
    /// its headers are longer than predictions are made for.
    pub fn new(frame: &[u8], packet: &Packet) -> Option<HeaderPrediction> {
        let headers = usize::from(packet.payload_offset);
        let v6 = packet.is_v6();
        let reach = if v6 { SPAN } else { WORDS_V4 * 8 };
        let end = headers as u32 + packet.payload_len;
        let plain = packet.ip_offset == 14 && packet.plain_options && !packet.ip_options;
        if !plain || headers > reach || frame.len() < SPAN || frame.len() < end as usize {
            return None;
        }
        let mut bytes = [0; SPAN];
        let mut mask = [0; SPAN];
        bytes[..headers].copy_from_slice(&frame[..headers]);
        mask[..headers].fill(0xff);
        let (ip, tcp) = (usize::from(packet.ip_offset), usize::from(packet.tcp_offset));
        if !v6 {
            mask[ip + 4..ip + 6].fill(0);
            mask[ip + 10..ip + 12].fill(0);
        }
        mask[tcp + 4..tcp + 8].fill(0);
        mask[tcp + 13] = !(Flags::PSH.0 as u8);
        mask[tcp + 16..tcp + 18].fill(0);
        for (byte, mask) in bytes.iter_mut().zip(mask) {
            *byte &= mask;
        }
        // Varying fields are zero in `bytes`, so these sums are over the rest.
        let ip_sum = if v6 { 0 } else { u32::from(fold64(header_sum(&bytes[ip..ip + 20]))) };
        let pseudo = crate::checksum::pseudo(
            packet.src,
            packet.dst,
            crate::packet::PROTOCOL_TCP,
            (headers - tcp) as u32 + packet.payload_len,
        );
        let tcp_sum = u32::from(fold64(header_sum(&bytes[tcp..headers]))) + pseudo;
        Some(HeaderPrediction {
            expected: words(&bytes),
            mask: words(&mask),
            v6,
            tcp_offset: packet.tcp_offset as u8,
            end,
            ip_sum,
            tcp_sum,
        })
    }

    /// The varying fields of `frame`, if its headers are as predicted and its IPv4
    /// header's checksum is right.
    #[inline]
    pub fn matches(&self, frame: &[u8]) -> Option<Predicted> {
        let head = frame.first_chunk::<SPAN>()?;
        if frame.len() < self.end as usize {
            return None;
        }
        if self.v6 { self.compare::<WORDS, true>(head) } else { self.compare::<WORDS_V4, false>(head) }
    }

    #[inline(always)]
    fn compare<const N: usize, const V6: bool>(&self, head: &[u8; SPAN]) -> Option<Predicted> {
        let mut differences = 0;
        for at in 0..N {
            differences |= (word(head, at) ^ self.expected[at]) & self.mask[at];
        }
        if differences != 0 {
            return None;
        }
        let half = |at: usize| u32::from(u16::from_be_bytes([head[at], head[at + 1]]));
        if !V6 && fold(self.ip_sum + half(18) + half(24)) != 0xffff {
            return None;
        }
        let tcp = if V6 { 54 } else { 34 };
        debug_assert_eq!(tcp, usize::from(self.tcp_offset));
        let push = head[tcp + 13] & Flags::PSH.0 as u8 != 0;
        let header_sum = self.tcp_sum
            + half(tcp + 4)
            + half(tcp + 6)
            + half(tcp + 16)
            + if push { u32::from(Flags::PSH.0) } else { 0 };
        Some(Predicted { seq: Seq(half(tcp + 4) << 16 | half(tcp + 6)), header_sum, push })
    }
}

#[inline(always)]
fn word(bytes: &[u8; SPAN], at: usize) -> u64 {
    u64::from_ne_bytes(bytes.as_chunks::<8>().0[at])
}

fn words(bytes: &[u8; SPAN]) -> [u64; WORDS] {
    core::array::from_fn(|at| word(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Addr;
    use crate::checksum;
    use crate::packet::Link;
    use crate::tcp::{SackBlocks, Timestamps};
    use crate::template::{Emit, Route, Template};

    fn frame(v6: bool, seq: u32, flags: Flags, ip_id: u16, payload: &[u8]) -> Vec<u8> {
        let (src, dst) = if v6 {
            (Addr::v6([1; 16]), Addr::v6([2; 16]))
        } else {
            (Addr::v4([10, 0, 0, 1]), Addr::v4([10, 0, 0, 2]))
        };
        let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0];
        let route = Route { link: &link, src, dst, src_port: 1, dst_port: 2, ttl: 64, traffic_class: 0, flow_label: 0 };
        let emit = Emit {
            seq: Seq(seq),
            ack: Seq(77),
            flags,
            window: 500,
            urgent: 0,
            ts: Some(Timestamps { val: 5, ecr: 6 }),
            sack: &SackBlocks::EMPTY,
            payload_len: payload.len() as u32,
            payload_sum: Some(checksum::sum(payload)),
            ip_id,
            ecn: 0,
        };
        let mut out = vec![0; 200];
        let len = Template::new(&route).unwrap().emit(&mut out, &emit);
        out.truncate(len);
        out.extend_from_slice(payload);
        out
    }

    fn predict(v6: bool) -> HeaderPrediction {
        let first = frame(v6, 1000, Flags::ACK, 1, &[7; 100]);
        HeaderPrediction::new(&first, &Packet::parse(&first, Link::Ethernet).unwrap()).unwrap()
    }

    #[test]
    fn a_match_says_what_a_parse_would_have_said() {
        for v6 in [false, true] {
            let prediction = predict(v6);
            for (seq, flags) in [(1100, Flags::ACK), (u32::MAX - 3, Flags::ACK | Flags::PSH), (0xffff, Flags::ACK)] {
                let next = frame(v6, seq, flags, seq as u16 ^ 0xabc, &[9; 100]);
                let packet = Packet::parse(&next, Link::Ethernet).unwrap();
                let hit = prediction.matches(&next).expect("as predicted");
                assert_eq!((hit.seq, hit.push), (packet.seq, flags.contains(Flags::PSH)));
                assert_eq!(checksum::fold(hit.header_sum), checksum::fold(packet.header_sum(&next)));
            }
        }
    }

    #[test]
    fn any_other_difference_is_not_a_match() {
        for v6 in [false, true] {
            let prediction = predict(v6);
            let good = frame(v6, 1100, Flags::ACK, 2, &[9; 100]);
            let headers = good.len() - 100;
            let tcp = headers - 32;
            let varies = |at: usize| {
                let ip = 14;
                let ip_varies = !v6 && (ip + 4..ip + 6).contains(&at);
                ip_varies || (tcp + 4..tcp + 8).contains(&at) || (tcp + 16..tcp + 18).contains(&at)
            };
            for at in (0..headers).filter(|&at| !varies(at)) {
                let mut bad = good.clone();
                bad[at] ^= if at == tcp + 13 { 1 } else { 0x10 };
                assert_eq!(prediction.matches(&bad), None, "byte {at}, v6 {v6}");
            }
            assert_eq!(prediction.matches(&good[..good.len() - 1]), None, "cut off");
        }
    }
}
