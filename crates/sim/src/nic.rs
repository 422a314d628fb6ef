//! The work of a network card with offloads: it fills in checksums, cuts
//! super-frames into segments on their way out, and joins segments into
//! super-frames on their way in.
//!
//! ```text
//!   out   | headers | a | b | c |   -->  | headers a |  | headers b |  | headers c |
//!   in    the reverse, for segments of one flow in sequence, plain, one ACK number
//! ```

use baton_engine::frame_io::{Arrival, RxMeta, TxMeta};
use baton_wire::checksum;
use baton_wire::packet::{Link, PROTOCOL_TCP, Packet};
use baton_wire::tcp::Flags;

/// Adds the sum over everything from `start` on to the pseudo header's sum that
/// stands in the TCP checksum field.
pub fn fill_checksum(frame: &mut [u8], start: usize) {
    let sum = checksum::rfc1071(&frame[start..]);
    frame[start + 16..start + 18].copy_from_slice(&(!sum).to_be_bytes());
}

/// The segments of a frame as they go on the wire, checksums complete.
///
/// # Panics
/// If `meta` does not describe this frame: an error of the Streamer.
pub fn cut(mut frame: Vec<u8>, meta: TxMeta, link: Link, emit: &mut dyn FnMut(Vec<u8>)) {
    let start = usize::from(meta.checksum_start);
    if meta.gso_size == 0 {
        if start != 0 {
            fill_checksum(&mut frame, start);
        }
        return emit(frame);
    }
    let packet = Packet::parse(&frame, link).expect("a super-frame is a whole TCP segment");
    let header_len = usize::from(packet.payload_offset);
    assert_eq!(header_len, usize::from(meta.header_len), "the header ends where the payload begins");
    assert_eq!(start, usize::from(packet.tcp_offset), "the checksum starts with the TCP header");
    let (headers, payload) = frame.split_at(header_len);
    let pieces = payload.chunks(usize::from(meta.gso_size));
    let last = pieces.len().saturating_sub(1);
    for (i, piece) in pieces.enumerate() {
        let mut flags = packet.flags;
        if i != 0 {
            flags = flags.without(Flags::CWR);
        }
        if i != last {
            flags = flags.without(Flags::FIN | Flags::PSH);
        }
        let seq = packet.seq + (i * usize::from(meta.gso_size)) as u32;
        let mut out = [headers, piece].concat();
        let tcp = usize::from(packet.tcp_offset);
        out[tcp + 4..tcp + 8].copy_from_slice(&seq.0.to_be_bytes());
        out[tcp + 13] = flags.0 as u8;
        seal(&mut out, &packet, i as u16);
        emit(out);
    }
}

/// Writes lengths, IPv4 identification and checksums to fit the frame.
pub(crate) fn seal(frame: &mut [u8], packet: &Packet, number: u16) {
    let (ip, tcp) = (usize::from(packet.ip_offset), usize::from(packet.tcp_offset));
    let len = frame.len() - ip;
    if packet.is_v6() {
        frame[ip + 4..ip + 6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    } else {
        frame[ip + 2..ip + 4].copy_from_slice(&(len as u16).to_be_bytes());
        let id = u16::from_be_bytes([frame[ip + 4], frame[ip + 5]]).wrapping_add(number);
        frame[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
        frame[ip + 10..ip + 12].fill(0);
        let sum = checksum::rfc1071(&frame[ip..tcp]);
        frame[ip + 10..ip + 12].copy_from_slice(&(!sum).to_be_bytes());
    }
    let pseudo = checksum::pseudo(packet.src, packet.dst, PROTOCOL_TCP, (frame.len() - tcp) as u32);
    frame[tcp + 16..tcp + 18].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
    fill_checksum(frame, tcp);
}

/// Joins segments into super-frames, one flow's run at a time.
#[derive(Debug)]
pub struct Joiner {
    link: Link,
    run: Option<Run>,
}

#[derive(Debug)]
struct Run {
    frame: Vec<u8>,
    head: Packet,
    size: u32,
    next: u32,
    closed: bool,
}

/// Largest IP packet that a run grows to, in bytes.
const RUN_MAX: usize = 65_535;

impl Joiner {
    /// Nothing joined yet.
    pub fn new(link: Link) -> Joiner {
        Joiner { link, run: None }
    }

    /// Takes a frame as it came; `emit` is given what is complete.
    pub fn push(&mut self, frame: Vec<u8>, emit: &mut dyn FnMut(Vec<u8>, RxMeta)) {
        let Some(packet) = joinable(&frame, self.link) else {
            self.flush(emit);
            return emit(frame, RxMeta::default());
        };
        match &mut self.run {
            Some(run) if run.accepts(&frame, &packet) => run.extend(&frame, &packet),
            _ => {
                self.flush(emit);
                let next = packet.seq.0.wrapping_add(packet.payload_len);
                let closed = packet.flags.contains(Flags::PSH);
                self.run = Some(Run { frame, size: packet.payload_len, next, closed, head: packet });
            }
        }
    }

    /// Gives out what is joined so far.
    pub fn flush(&mut self, emit: &mut dyn FnMut(Vec<u8>, RxMeta)) {
        let Some(Run { mut frame, head, size, next, .. }) = self.run.take() else { return };
        let many = next.wrapping_sub(head.seq.0) > size;
        if many {
            seal(&mut frame, &head, 0);
        }
        // The card has verified each segment's checksum before it joined them.
        emit(
            frame,
            RxMeta {
                checksum_verified: true,
                gso_size: if many { size as u16 } else { 0 },
                arrived: Arrival::default(),
            },
        );
    }
}

/// A data segment that may be part of a run: whole, right, plain.
fn joinable(frame: &[u8], link: Link) -> Option<Packet> {
    let packet = Packet::parse(frame, link).ok()?;
    let payload = packet.payload(frame);
    let sum = checksum::combine(packet.header_sum(frame), 0, u32::from(checksum::rfc1071(payload)));
    let right = checksum::fold(sum) == 0xffff;
    let plain = packet.plain_options && !packet.ip_options && packet.flags.without(Flags::PSH) == Flags::ACK;
    let padded = frame.len() != usize::from(packet.payload_offset) + payload.len();
    (right && plain && !padded && !payload.is_empty()).then_some(packet)
}

impl Run {
    fn accepts(&self, frame: &[u8], packet: &Packet) -> bool {
        let head = &self.head;
        let same_flow = (head.src, head.dst, head.src_port, head.dst_port)
            == (packet.src, packet.dst, packet.src_port, packet.dst_port);
        let same_headers = head.ack == packet.ack
            && head.window == packet.window
            && head.traffic_class == packet.traffic_class
            && head.ttl == packet.ttl
            && head.vlan == packet.vlan
            && head.timestamps == packet.timestamps;
        let fits = packet.payload_len <= self.size && self.frame.len() + frame.len() <= RUN_MAX;
        !self.closed && same_flow && same_headers && packet.seq.0 == self.next && fits
    }

    fn extend(&mut self, frame: &[u8], packet: &Packet) {
        self.frame.extend_from_slice(packet.payload(frame));
        self.next = self.next.wrapping_add(packet.payload_len);
        // A short segment or a push ends a run.
        self.closed = packet.payload_len < self.size || packet.flags.contains(Flags::PSH);
        if packet.flags.contains(Flags::PSH) {
            let flags = usize::from(self.head.tcp_offset) + 13;
            self.frame[flags] |= Flags::PSH.0 as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_wire::addr::Addr;
    use baton_wire::seq::Seq;
    use baton_wire::tcp::{SackBlocks, Timestamps};
    use baton_wire::template::{Emit, MAX_HEADERS, Route, Template};

    fn super_frame(v6: bool, len: usize) -> (Vec<u8>, TxMeta) {
        let addr = |last| if v6 { Addr::v6([last; 16]) } else { Addr::v4([10, 0, 0, last]) };
        let route = Route {
            link: &[0; 14],
            src: addr(1),
            dst: addr(2),
            src_port: 1000,
            dst_port: 80,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        let emit = Emit {
            seq: Seq(u32::MAX - 2000),
            ack: Seq(7),
            flags: Flags::ACK | Flags::PSH,
            window: 100,
            urgent: 0,
            ts: Some(Timestamps { val: 1, ecr: 2 }),
            sack: &SackBlocks::new(),
            payload_len: len as u32,
            payload_sum: None,
            ip_id: 5,
            ecn: 0,
        };
        let mut headers = [0; MAX_HEADERS];
        let header_len = Template::new(&route).expect("a template").emit(&mut headers, &emit);
        let mut frame = headers[..header_len].to_vec();
        frame.extend((0..len).map(|i| (i % 251) as u8));
        let checksum_start = 14 + if v6 { 40 } else { 20 };
        (frame, TxMeta { checksum_start, gso_size: 1000, header_len: header_len as u16, ipv6: v6, follows: false })
    }

    #[test]
    fn what_is_cut_is_right_and_joins_to_the_same() {
        for v6 in [false, true] {
            let (frame, meta) = super_frame(v6, 4_500);
            let mut segments = Vec::new();
            cut(frame.clone(), meta, Link::Ethernet, &mut |segment| segments.push(segment));
            assert_eq!(segments.len(), 5);
            let pushes =
                segments.iter().map(|s| joinable(s, Link::Ethernet).expect("right").flags.contains(Flags::PSH));
            assert_eq!(pushes.collect::<Vec<_>>(), [false, false, false, false, true]);
            let mut joiner = Joiner::new(Link::Ethernet);
            let mut joined = Vec::new();
            for segment in segments {
                joiner.push(segment, &mut |frame, meta| joined.push((frame, meta)));
            }
            joiner.flush(&mut |frame, meta| joined.push((frame, meta)));
            let [(back, back_meta)] = &joined[..] else { panic!("{} frames", joined.len()) };
            assert_eq!(*back_meta, RxMeta { checksum_verified: true, gso_size: 1000, arrived: Arrival::default() });
            assert_eq!(back[usize::from(meta.header_len)..], frame[usize::from(meta.header_len)..]);
            assert_eq!(
                Packet::parse(back, Link::Ethernet).map(|p| (p.seq, p.flags)),
                Ok((Seq(u32::MAX - 2000), Flags::ACK | Flags::PSH))
            );
        }
    }

    #[test]
    fn damaged_and_strange_frames_pass_as_they_are() {
        let (frame, meta) = super_frame(false, 2_000);
        let mut segments = Vec::new();
        cut(frame, meta, Link::Ethernet, &mut |segment| segments.push(segment));
        segments[1][700] ^= 1;
        let mut joiner = Joiner::new(Link::Ethernet);
        let mut out = Vec::new();
        for segment in segments.iter().cloned().chain([vec![1, 2, 3]]) {
            joiner.push(segment, &mut |frame, meta| out.push((frame, meta.checksum_verified)));
        }
        assert_eq!(out, [(segments[0].clone(), true), (segments[1].clone(), false), (vec![1, 2, 3], false)]);
    }
}
