//! Captures made of frames, in every form that there is.

// Not every test that includes it uses all of it.
#![allow(dead_code)]

/// Writes numbers in one byte order.
#[derive(Clone, Copy)]
pub struct Order {
    pub big: bool,
}

impl Order {
    pub fn half(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn word(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn words(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|&value| self.word(value)).collect()
    }
}

pub const MICROS: u32 = 0xa1b2_c3d4;
pub const NANOS: u32 = 0xa1b2_3c4d;

/// A pcap file's header.
pub fn pcap_header(order: Order, magic: u32, link: u32) -> Vec<u8> {
    let mut out = order.word(magic).to_vec();
    out.extend(order.half(2));
    out.extend(order.half(4));
    out.extend(order.words(&[0, 0, 262_144, link]));
    out
}

/// A pcap record.
pub fn pcap_record(order: Order, seconds: u32, fraction: u32, wire_len: u32, data: &[u8]) -> Vec<u8> {
    let mut out = order.words(&[seconds, fraction, data.len() as u32, wire_len]);
    out.extend(data);
    out
}

/// A little-endian pcap file of whole frames, a microsecond apart.
pub fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let order = Order { big: false };
    let mut out = pcap_header(order, MICROS, link);
    for (at, frame) in frames.iter().enumerate() {
        out.extend(pcap_record(order, 1, at as u32, frame.len() as u32, frame));
    }
    out
}

/// A pcapng block; the body is padded.
pub fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let len = 12 + body.len().next_multiple_of(4) as u32;
    let mut out = order.words(&[kind, len]);
    out.extend(body);
    out.resize(len as usize - 4, 0);
    out.extend(order.word(len));
    out
}

pub fn section(order: Order) -> Vec<u8> {
    let mut body = order.word(0x1a2b_3c4d).to_vec();
    body.extend(order.half(1));
    body.extend(order.half(0));
    body.extend([0xff; 8]);
    block(order, 0x0a0d_0d0a, &body)
}

pub fn interface(order: Order, link: u16, snapshot: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = [order.half(link), order.half(0)].concat();
    body.extend(order.word(snapshot));
    for (code, value) in options {
        body.extend([order.half(*code), order.half(value.len() as u16)].concat());
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    block(order, 1, &body)
}

pub fn enhanced(order: Order, interface: u32, time: u64, wire_len: u32, data: &[u8]) -> Vec<u8> {
    let mut body = order.words(&[interface, (time >> 32) as u32, time as u32, data.len() as u32, wire_len]);
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
    // A comment, to be left out.
    body.extend([order.half(1), order.half(4)].concat());
    body.extend(b"text");
    body.extend([0; 4]);
    block(order, 6, &body)
}

pub fn simple(order: Order, wire_len: u32, data: &[u8]) -> Vec<u8> {
    let mut body = order.word(wire_len).to_vec();
    body.extend(data);
    block(order, 3, &body)
}

pub fn old_packet(order: Order, interface: u16, time: u64, wire_len: u32, data: &[u8]) -> Vec<u8> {
    let mut body = [order.half(interface), order.half(0)].concat();
    body.extend(order.words(&[(time >> 32) as u32, time as u32, data.len() as u32, wire_len]));
    body.extend(data);
    block(order, 2, &body)
}

/// An IPv4 TCP data segment of a sender on port `port`, as an IP packet.
pub fn segment(port: u16, seq: u32, payload: usize) -> Vec<u8> {
    let total = (40 + payload) as u16;
    let mut out = vec![0x45, 0];
    out.extend(total.to_be_bytes());
    out.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    out.extend(port.to_be_bytes());
    out.extend([0, 80]);
    out.extend(seq.to_be_bytes());
    out.extend([0, 0, 0, 9, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    out.resize(usize::from(total), 0xab);
    out
}

/// The same over IPv6.
pub fn segment_v6(port: u16, seq: u32, payload: usize) -> Vec<u8> {
    let v4 = segment(port, seq, payload);
    let mut out = vec![0x60, 0, 0, 0];
    out.extend((20 + payload as u16).to_be_bytes());
    out.extend([6, 64]);
    for host in [1, 2] {
        out.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    out.extend(&v4[20..]);
    out
}

/// An IP packet in an Ethernet frame.
pub fn ethernet(tags: &[[u8; 4]], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    out.extend(tags.concat());
    out.extend(ether_type.to_be_bytes());
    out.extend(packet);
    out
}
