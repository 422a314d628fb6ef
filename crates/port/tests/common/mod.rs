//! A toy host on a port, for tests against the kernel: answers ARP, ICMP echo,
//! and one TCP connection, byte by byte. It shares no code with the engine, so
//! that it can tell when a port changes what it carries.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use baton_port::{FrameIo, FrameSink, RxFrame, RxMeta, TxMeta, WaitSet, Waitable};

/// Frames answered at once: fewer than may wait to be sent (512 on an AF_XDP port).
const BATCH: usize = 256;

/// The toy host's addresses.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const IP: [u8; 4] = [10, 77, 0, 2];

const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const ICMP: u8 = 1;
const TCP: u8 = 6;

/// RFC 1071's sum of 16-bit words, folded, not complemented.
pub fn sum(bytes: &[u8], start: u32) -> u32 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Sum of the TCP pseudo-header of an IPv4 or IPv6 frame.
pub fn pseudo(frame: &[u8]) -> u32 {
    let (addresses, tcp) = if frame[12..14] == IPV4 { (&frame[26..34], 34) } else { (&frame[22..54], 54) };
    sum(addresses, u32::from(TCP) + (frame.len() - tcp) as u32)
}

/// Whether the TCP checksum of a frame without IP options is right.
pub fn tcp_checksum_is_right(frame: &[u8]) -> bool {
    let tcp = if frame[12..14] == IPV4 { 34 } else { 54 };
    sum(&frame[tcp..], pseudo(frame)) == 0xffff
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    let value = value.to_be_bytes();
    bytes[at..at + 4].copy_from_slice(&value);
}

fn get(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put_checksum(bytes: &mut [u8], at: usize, sum: u32) {
    bytes[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Contents and faults of the segments that arrived on the TCP connection.
#[derive(Default)]
pub struct TcpSeen {
    pub bytes: Vec<u8>,
    pub closed: bool,
    pub out_of_order: usize,
    pub wrong_checksums: usize,
    pub longest_frame: usize,
    pub metas: Vec<RxMeta>,
}

/// The toy host.
#[derive(Default)]
pub struct Host {
    pub tcp: TcpSeen,
    pub echoes: usize,
    rcv_nxt: u32,
    /// Segments that came before their turn, by sequence number: a kernel that gets no SACK and
    /// has seen reordering sends what is lost again by timer, a segment each, with longer and
    /// longer times between.
    early: BTreeMap<u32, Vec<u8>>,
    replies: Vec<Vec<u8>>,
}

impl FrameSink for Host {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        for frame in frames {
            let reply = match frame.data {
                f if f[12..14] == ARP && f[20..22] == [0, 1] && f[38..42] == IP => Some(answer_arp(f)),
                f if f[12..14] == IPV4 && f[30..34] == IP && f[23] == ICMP && f[34] == 8 => {
                    self.echoes += 1;
                    Some(answer_echo(f))
                }
                f if f[12..14] == IPV4 && f[30..34] == IP && f[23] == TCP => self.handle_tcp(f, frame.meta),
                _ => None,
            };
            self.replies.extend(reply);
        }
    }
}

impl Host {
    /// Serves `port` until `done` or 30 s are over; false if it was the time. A peer whose
    /// segments are lost six times in a row comes back after 12 s.
    pub fn run<P: FrameIo + Waitable>(&mut self, port: &mut P, mut done: impl FnMut(&Host) -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(30);
        let mut set = WaitSet::new();
        port.poll_fds(&mut set);
        while !done(self) {
            if Instant::now() > end {
                return false;
            }
            port.receive(BATCH, self).expect("the device is there");
            for reply in self.replies.drain(..) {
                port.slot(reply.len()).expect("room").copy_from_slice(&reply);
                port.commit(reply.len(), TxMeta::default());
            }
            port.flush().expect("the device is there");
            if !done(self) && port.prepare_wait() {
                set.wait(Some(Duration::from_millis(50))).expect("ppoll");
                port.finish_wait();
            }
        }
        true
    }

    /// Accepts any connection, acknowledges what comes in order, answers FIN with FIN.
    fn handle_tcp(&mut self, frame: &[u8], meta: RxMeta) -> Option<Vec<u8>> {
        let total = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let frame = &frame[..total];
        if !meta.checksum_verified && !tcp_checksum_is_right(frame) {
            self.tcp.wrong_checksums += 1;
            return None;
        }
        let (seq, flags) = (get(frame, 38), frame[47]);
        let payload = &frame[34 + 4 * usize::from(frame[46] >> 4)..];
        let (syn, fin) = (flags & 2 != 0, flags & 1 != 0);
        if syn {
            self.rcv_nxt = seq.wrapping_add(1);
            return Some(self.segment(frame, 1000, 0x12));
        }
        if !payload.is_empty() {
            self.tcp.metas.push(meta);
            self.tcp.longest_frame = self.tcp.longest_frame.max(frame.len());
        }
        if seq != self.rcv_nxt {
            self.tcp.out_of_order += 1;
            if !payload.is_empty() && !fin && (seq.wrapping_sub(self.rcv_nxt) as i32) > 0 {
                self.early.insert(seq, payload.to_vec());
            }
            return Some(self.segment(frame, 1001, 0x10));
        }
        self.tcp.bytes.extend(payload);
        self.rcv_nxt = self.rcv_nxt.wrapping_add(payload.len() as u32 + u32::from(fin));
        if payload.is_empty() && !fin {
            return None;
        }
        while let Some(next) = self.early.remove(&self.rcv_nxt) {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(next.len() as u32);
            self.tcp.bytes.extend(next);
        }
        self.tcp.closed |= fin;
        Some(self.segment(frame, 1001, if fin { 0x11 } else { 0x10 }))
    }

    /// A segment without payload back to where `to` came from.
    fn segment(&self, to: &[u8], seq: u32, flags: u8) -> Vec<u8> {
        let syn = flags & 2 != 0;
        let tcp_len = if syn { 28 } else { 20 };
        let mut f = vec![0; 34 + tcp_len];
        f[0..6].copy_from_slice(&to[6..12]);
        f[6..12].copy_from_slice(&MAC);
        f[12..14].copy_from_slice(&IPV4);
        f[14] = 0x45;
        f[16..18].copy_from_slice(&((20 + tcp_len) as u16).to_be_bytes());
        f[22] = 64;
        f[23] = TCP;
        f[26..30].copy_from_slice(&to[30..34]);
        f[30..34].copy_from_slice(&to[26..30]);
        let header = sum(&f[14..34], 0);
        put_checksum(&mut f, 24, header);
        f[34..36].copy_from_slice(&to[36..38]);
        f[36..38].copy_from_slice(&to[34..36]);
        put(&mut f, 38, seq);
        put(&mut f, 42, self.rcv_nxt);
        f[46] = (tcp_len as u8 / 4) << 4;
        f[47] = flags;
        f[48..50].copy_from_slice(&u16::MAX.to_be_bytes());
        if syn {
            // MSS 1460, no-operation, window scale 7.
            f[54..62].copy_from_slice(&[2, 4, 0x05, 0xb4, 1, 3, 3, 7]);
        }
        let total = sum(&f[34..], pseudo(&f));
        put_checksum(&mut f, 50, total);
        f
    }
}

fn answer_arp(request: &[u8]) -> Vec<u8> {
    let mut f = request[..42].to_vec();
    f[0..6].copy_from_slice(&request[6..12]);
    f[6..12].copy_from_slice(&MAC);
    f[21] = 2;
    f[22..28].copy_from_slice(&MAC);
    f[28..32].copy_from_slice(&IP);
    f[32..42].copy_from_slice(&request[22..32]);
    f
}

fn answer_echo(request: &[u8]) -> Vec<u8> {
    let mut f = request.to_vec();
    f[0..6].copy_from_slice(&request[6..12]);
    f[6..12].copy_from_slice(&MAC);
    f[26..30].copy_from_slice(&request[30..34]);
    f[30..34].copy_from_slice(&request[26..30]);
    f[34] = 0;
    f[36..38].fill(0);
    let total = sum(&f[34..], 0);
    put_checksum(&mut f, 36, total);
    f
}

/// A frame of one TCP segment with a partial checksum, as a port with
/// `tx_checksum` takes it: 54 or 74 bytes of headers (no options) and `payload`.
pub fn tcp_frame(to: [u8; 6], ipv6: bool, payload: &[u8]) -> (Vec<u8>, TxMeta) {
    let tcp = if ipv6 { 54 } else { 34 };
    let mut f = vec![0; tcp + 20];
    f.extend(payload);
    f[0..6].copy_from_slice(&to);
    f[6..12].copy_from_slice(&MAC);
    if ipv6 {
        f[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        let len = (f.len() - tcp) as u16;
        f[18..20].copy_from_slice(&len.to_be_bytes());
        f[20] = TCP;
        f[21] = 64;
        f[22..24].copy_from_slice(&[0xfd, 0x77]);
        f[37] = 2;
        f[38..40].copy_from_slice(&[0xfd, 0x77]);
        f[53] = 3;
    } else {
        f[12..14].copy_from_slice(&IPV4);
        f[14] = 0x45;
        let len = (f.len() - 14) as u16;
        f[16..18].copy_from_slice(&len.to_be_bytes());
        f[22] = 64;
        f[23] = TCP;
        f[26..30].copy_from_slice(&IP);
        f[30..34].copy_from_slice(&[10, 77, 0, 3]);
        let header = sum(&f[14..34], 0);
        put_checksum(&mut f, 24, header);
    }
    f[tcp..tcp + 4].copy_from_slice(&[0x10, 0, 0x20, 0]);
    put(&mut f, tcp + 4, 5000);
    f[tcp + 12] = 5 << 4;
    f[tcp + 13] = 0x10;
    f[tcp + 14..tcp + 16].fill(0xff);
    let partial = pseudo(&f) as u16;
    f[tcp + 16..tcp + 18].copy_from_slice(&partial.to_be_bytes());
    let meta = TxMeta { checksum_start: tcp as u16, header_len: tcp as u16 + 20, ipv6, ..TxMeta::default() };
    (f, meta)
}

/// Keeps every frame that is TCP.
#[derive(Default)]
pub struct TcpFrames(pub Vec<(Vec<u8>, RxMeta)>);

impl FrameSink for TcpFrames {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        let tcp = |f: &RxFrame<'_>| {
            f.data[12..14] == IPV4 && f.data[23] == TCP || f.data[12..14] == [0x86, 0xdd] && f.data[20] == TCP
        };
        self.0.extend(frames.iter().filter(|f| tcp(f)).map(|f| (f.data.to_vec(), f.meta)));
    }
}
