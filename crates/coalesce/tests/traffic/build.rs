//! A frame's bytes from what they are to say, right or wrong.

// Not every test that includes it uses all of it.
#![allow(dead_code)]

/// Addresses of either version.
#[derive(Clone, Copy, Debug)]
pub enum Ip {
    V4 { src: [u8; 4], dst: [u8; 4] },
    V6 { src: [u8; 16], dst: [u8; 16] },
}

/// Header fields and payload of a frame to build.
#[derive(Clone, Debug)]
pub struct Packet {
    pub ip: Ip,
    pub tags: Vec<[u8; 4]>,
    /// Of IPv4 or IPv6 by itself if 0.
    pub ether_type: u16,
    pub class: u8,
    pub ttl: u8,
    pub ip_id: u16,
    /// Length of IPv4 options.
    pub ip_options: usize,
    /// The flags and offset field of IPv4.
    pub fragment: Option<u16>,
    /// IPv6 extension headers, by their numbers.
    pub extensions: Vec<u8>,
    pub protocol: u8,
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u16,
    pub psh: bool,
    pub window: u16,
    pub ts: Option<(u32, u32)>,
    /// In place of timestamps, if there are any.
    pub options: Vec<u8>,
    /// Length of the payload.
    pub payload: usize,
    /// Seed of the payload's bytes.
    pub seed: u8,
    pub bad_ip_sum: bool,
    pub bad_tcp_sum: bool,
}

impl Default for Packet {
    fn default() -> Packet {
        Packet {
            ip: Ip::V4 { src: [10, 0, 0, 1], dst: [10, 0, 0, 2] },
            tags: Vec::new(),
            ether_type: 0,
            class: 0,
            ttl: 64,
            ip_id: 0,
            ip_options: 0,
            fragment: None,
            extensions: Vec::new(),
            protocol: 6,
            src_port: 1000,
            dst_port: 80,
            seq: 1,
            ack: 1,
            flags: 0x10,
            psh: false,
            window: 500,
            ts: None,
            options: Vec::new(),
            payload: 100,
            seed: 0,
            bad_ip_sum: false,
            bad_tcp_sum: false,
        }
    }
}

fn sum(parts: &[&[u8]]) -> u16 {
    let all = parts.concat();
    let total: u64 = all.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
    let folded = (total & 0xffff) + (total >> 16 & 0xffff) + (total >> 32);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

impl Packet {
    /// Makes this what comes after `sent`.
    pub fn follow(&mut self, sent: &Packet) {
        self.seq = sent.seq.wrapping_add(sent.payload as u32);
        (self.ack, self.ttl, self.ts) = (sent.ack, sent.ttl, sent.ts);
    }

    /// The payload's bytes.
    pub fn payload(&self) -> Vec<u8> {
        (0..self.payload).map(|at| self.seed.wrapping_add(at as u8).wrapping_mul(31)).collect()
    }

    /// The bytes, behind the link header of this type: 1, 101 or 113.
    pub fn build(&self, link_type: u32) -> Vec<u8> {
        let (ip, v6) = self.build_ip();
        let mut frame = match link_type {
            1 => vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2],
            113 => vec![0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0],
            _ => return ip,
        };
        for tag in &self.tags {
            frame.extend(tag);
        }
        frame.extend(
            match (self.ether_type, v6) {
                (0, true) => 0x86dd_u16,
                (0, false) => 0x0800,
                (other, _) => other,
            }
            .to_be_bytes(),
        );
        frame.extend(ip);
        frame
    }

    fn build_ip(&self) -> (Vec<u8>, bool) {
        let tcp = self.build_tcp();
        match self.ip {
            Ip::V4 { src, dst } => {
                let header = 20 + self.ip_options;
                let mut ip = vec![0x40 | (header / 4) as u8, self.class];
                ip.extend(((header + tcp.len()) as u16).to_be_bytes());
                ip.extend(self.ip_id.to_be_bytes());
                ip.extend(self.fragment.unwrap_or(0x4000).to_be_bytes());
                ip.extend([self.ttl, self.protocol, 0, 0]);
                ip.extend(src.iter().chain(&dst));
                ip.resize(header, 1);
                let sum = sum(&[&ip]) ^ u16::from(self.bad_ip_sum);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                ip.extend(tcp);
                (ip, false)
            }
            Ip::V6 { src, dst } => {
                let mut chain = Vec::new();
                for (at, kind) in self.extensions.iter().enumerate() {
                    let next = self.extensions.get(at + 1).copied().unwrap_or(self.protocol);
                    chain.extend([next, 0, 0, u8::from(self.seed == 1) * 8, 0, 0, 0, 0]);
                    // The shortest authentication header has 12 bytes.
                    if *kind == 51 {
                        let last = chain.len() - 7;
                        chain[last] = 1;
                        chain.extend([0; 4]);
                    }
                }
                let first = self.extensions.first().copied().unwrap_or(self.protocol);
                let mut ip = vec![0x60 | self.class >> 4, self.class << 4 | (self.ip_id & 0xf) as u8, 0, self.seed];
                ip.extend(((chain.len() + tcp.len()) as u16).to_be_bytes());
                ip.extend([first, self.ttl]);
                ip.extend(src.iter().chain(&dst).chain(&chain));
                ip.extend(tcp);
                (ip, true)
            }
        }
    }

    fn build_tcp(&self) -> Vec<u8> {
        let mut options = self.options.clone();
        if let (true, Some((val, ecr))) = (options.is_empty(), self.ts) {
            options.extend([1, 1, 8, 10]);
            options.extend(val.to_be_bytes().iter().chain(&ecr.to_be_bytes()));
        }
        options.resize(options.len().next_multiple_of(4), 0);
        let flags = self.flags | if self.psh { 8 } else { 0 };
        let mut tcp = [self.src_port.to_be_bytes(), self.dst_port.to_be_bytes()].concat();
        tcp.extend(self.seq.to_be_bytes().iter().chain(&self.ack.to_be_bytes()));
        tcp.extend((((20 + options.len()) as u16 / 4) << 12 | flags).to_be_bytes());
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(options);
        tcp.extend(self.payload());
        let pseudo = match self.ip {
            Ip::V4 { src, dst } => [src, dst].concat(),
            Ip::V6 { src, dst } => [src, dst].concat(),
        };
        let sum = sum(&[&pseudo, &(tcp.len() as u32).to_be_bytes(), &[0, 0, 0, 6], &tcp]) ^ u16::from(self.bad_tcp_sum);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        tcp
    }
}
