//! Random traffic: bursts of a few connections, so that segments often follow each
//! other, and every kind of odd frame among them.

// Not every test that includes it uses all of it.
#![allow(dead_code)]

pub mod build;

use crate::slow::{Frame, Rules, Window};
use build::{Ip, Packet};
use fastrand::Rng;

/// One direction of a connection, as its sender sees it.
#[derive(Clone, Debug)]
struct Sender {
    next: Packet,
    /// Usual length of a payload.
    mss: usize,
}

/// A world of a few senders.
#[derive(Debug)]
pub struct Traffic {
    pub dice: Rng,
    senders: Vec<Sender>,
    link_type: u32,
    now_ns: u64,
    /// One in so many frames is odd.
    oddness: usize,
    snap: Option<usize>,
}

impl Traffic {
    pub fn new(seed: u64) -> Traffic {
        let mut dice = Rng::with_seed(seed);
        let count = dice.usize(1..8);
        let small = dice.bool();
        let senders = (0..count).map(|n| sender(&mut dice, n, small)).collect();
        let link_type = if dice.u8(..4) > 0 { 1 } else { [101, 113][dice.usize(..2)] };
        let snap = (dice.u8(..6) == 0).then(|| dice.usize(14..120));
        Traffic {
            senders,
            link_type,
            now_ns: dice.u64(..1 << 40),
            oddness: [4, 10, 50, 1000][dice.usize(..4)],
            snap,
            dice,
        }
    }

    /// The next frames: a burst of one sender.
    pub fn burst(&mut self, out: &mut Vec<Frame>) {
        let at = self.dice.usize(..self.senders.len());
        for _ in 0..self.dice.usize(1..9) {
            let frame = self.frame(at);
            out.push(frame);
        }
    }

    fn frame(&mut self, at: usize) -> Frame {
        self.now_ns = match self.dice.u8(..40) {
            0 => self.now_ns.saturating_sub(self.dice.u64(..100_000)),
            _ => self.now_ns + self.dice.u64(..20_000),
        };
        let sender = &mut self.senders[at];
        let dice = &mut self.dice;
        let mut packet = sender.next.clone();
        packet.payload = match dice.u8(..20) {
            0 => dice.usize(1..4),
            1 => dice.usize(..3 * sender.mss),
            _ => sender.mss,
        };
        packet.psh = dice.u8(..8) == 0;
        packet.ttl = packet.ttl.wrapping_add(u8::from(dice.u8(..10) == 0));
        packet.ip_id = dice.u16(..);
        packet.window = dice.u16(..);
        packet.seed = dice.u8(..);
        if dice.u8(..3) == 0 {
            packet.ack = packet.ack.wrapping_add(dice.u32(..3000));
        }
        if let Some((val, ecr)) = &mut packet.ts {
            *val = val.wrapping_add(dice.u32(..2));
            *ecr = dice.u32(..);
        }
        sender.next.follow(&packet);
        let odd = dice.usize(..self.oddness) == 0;
        if odd && dice.bool() {
            change_header(dice, &mut packet);
        }
        let mut bytes = packet.build(self.link_type);
        let mut wire_len = bytes.len();
        if odd && dice.u8(..3) == 0 {
            (bytes, wire_len) = damage(dice, bytes);
        }
        if let Some(snap) = self.snap {
            bytes.truncate(snap);
        }
        Frame { bytes, wire_len, time_ns: self.now_ns, link_type: self.link_type }
    }
}

fn sender(dice: &mut Rng, n: usize, small: bool) -> Sender {
    let ip = match dice.u8(..5) {
        0 | 1 => Ip::V6 { src: [n as u8; 16], dst: [0xfd; 16] },
        // IPv4-mapped: the same addresses as others', but for the version.
        2 => {
            let mapped = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
            Ip::V6 { src: mapped(n as u8 / 2), dst: mapped(200) }
        }
        _ => Ip::V4 { src: [10, 0, 0, n as u8 / 2], dst: [10, 0, 0, 200] },
    };
    let tags = match dice.u8(..6) {
        0 => vec![[0x81, 0, 0, dice.u8(..3)]],
        1 => vec![[0x88, 0xa8, 0, 7], [0x81, 0, dice.u8(..2) << 5, 9]],
        2 if dice.bool() => vec![[0x81, 0, 0, 1]; dice.usize(3..6)],
        _ => Vec::new(),
    };
    let next = Packet {
        ip,
        tags,
        src_port: 1000 + dice.u16(..2),
        dst_port: 80,
        // Often close to the end of the circle.
        seq: if dice.bool() { u32::MAX - dice.u32(..20_000) } else { dice.u32(..) },
        ack: if dice.bool() { u32::MAX - dice.u32(..5_000) } else { dice.u32(..) },
        ts: dice.bool().then(|| (u32::MAX - dice.u32(..4), 1)),
        ttl: 60 + dice.u8(..5),
        ..Packet::default()
    };
    let mss = match (small, dice.u8(..6)) {
        (true, _) => dice.usize(1..40),
        (_, 0) => dice.usize(2000..9001),
        (_, 1) => dice.usize(20_000..64_000),
        _ => [536, 1448, 1460][dice.usize(..3)],
    };
    Sender { next, mss }
}

/// Something that a well-formed frame may have and a run may not.
fn change_header(dice: &mut Rng, packet: &mut Packet) {
    match dice.u8(..20) {
        0 => packet.seq = packet.seq.wrapping_add(dice.u32(..3)).wrapping_sub(1),
        1 => packet.seq = packet.seq.wrapping_sub(dice.u32(..5000)),
        2 => packet.ack = packet.ack.wrapping_sub(dice.u32(..5000)),
        3 => packet.ts = packet.ts.map(|(val, ecr)| (val.wrapping_sub(dice.u32(..9)), ecr)),
        4 => packet.ts = packet.ts.xor(Some((7, 7))),
        5 => packet.class = dice.u8(..),
        6 => packet.flags = dice.u16(..0x1000),
        7 => packet.flags |= 1 << dice.u8(..12),
        8 => {
            packet.options =
                [&[1, 1, 1, 1][..], &[0, 9, 9, 9], &[2, 4, 5, 0xb4], &[5, 2, 1, 1], &[8, 9, 0, 0], &[1, 1, 8]]
                    [dice.usize(..6)]
                .to_vec()
        }
        9 => packet.options = (0..dice.usize(..11) * 4).map(|_| [0, 1, 8, 10, 5, 2][dice.usize(..6)]).collect(),
        10 => packet.payload = 0,
        11 => packet.payload = dice.usize(60_000..66_000),
        12 => packet.ip_options = dice.usize(1..11) * 4,
        13 => packet.fragment = Some([0x2000, 0x2001, 0x00b9, 0x4000, 0x8000][dice.usize(..5)]),
        14 => packet.protocol = [17, 1, 58, 41][dice.usize(..4)],
        15 => packet.extensions = (0..dice.usize(1..11)).map(|_| [0, 43, 44, 51, 60, 135][dice.usize(..6)]).collect(),
        16 => packet.tags = vec![[0x81, 0, dice.u8(..), dice.u8(..)]; dice.usize(..3)],
        17 => packet.bad_ip_sum = true,
        18 => packet.bad_tcp_sum = true,
        _ => packet.ether_type = [0x0806, 0x0100, 0x86dd, 0x0800][dice.usize(..4)],
    }
}

/// Bytes changed or cut off; the frame's length on the wire then.
fn damage(dice: &mut Rng, mut bytes: Vec<u8>) -> (Vec<u8>, usize) {
    let wire_len = bytes.len();
    let headers = bytes.len().min(80);
    match dice.u8(..6) {
        0 | 1 => {
            let at = dice.usize(..headers);
            bytes[at] = dice.u8(..);
        }
        2 => bytes.truncate(dice.usize(..headers + 1)),
        3 => {
            bytes.truncate(dice.usize(..headers + 1));
            return (bytes.clone(), bytes.len());
        }
        // The IP length: 0, or something near.
        4 => {
            let at = if bytes.get(14).is_some_and(|first| first >> 4 == 4) { 16 } else { 18 };
            if let Some(field) = bytes.get_mut(at..at + 2) {
                field.copy_from_slice(&[0, if dice.bool() { 0 } else { dice.u8(..80) }]);
            }
        }
        // Padding.
        _ => bytes.extend((0..dice.usize(1..40)).map(|_| 0xee)),
    }
    let wire_len = wire_len.max(bytes.len());
    (bytes, wire_len)
}

/// Random rules.
pub fn rules(dice: &mut Rng) -> Rules {
    Rules {
        rsc: dice.bool(),
        cache: [1, 2, 3, 4, 4, 4, 7, 64][dice.usize(..8)],
        buffer: [1, 500, 1448, 4096, 8192, 8192, 16_384, 65_536, 1 << 20][dice.usize(..9)],
        limit: [None, None, Some(1), Some(2), Some(3), Some(20)][dice.usize(..6)],
        window: match dice.u8(..4) {
            0 => Window::Nanos([1, 50_000, 250_000, 10_000_000][dice.usize(..4)]),
            1 => Window::End,
            _ => Window::Frames([1, 2, 5, 20, 20, 33][dice.usize(..6)]),
        },
        verify: dice.bool(),
    }
}
