//! A toy engine behind a steered port. It continues a connection that two kernels opened: it
//! receives, acknowledges each segment, and sends. It shares no code with the real engine. The
//! connection must have neither timestamps nor SACK.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use baton_port::{FrameIo, FrameSink, RxFrame, SteeredPort, TxMeta, WaitSet, Waitable};

use super::LONG;

/// Headers and payload of one segment that arrived.
pub struct Seen {
    /// The headers up to TCP's, as received.
    pub headers: Vec<u8>,
    pub l2: usize,
    pub ports: [u16; 2],
    pub seq: u32,
    pub ack: u32,
    pub payload: Vec<u8>,
}

/// Collects segments, and counts frames that are not segments.
#[derive(Default)]
pub struct Sink {
    pub seen: Vec<Seen>,
    /// Frames that are not TCP.
    pub strangers: usize,
    pub longest: usize,
    /// Segments with a wrong checksum that the port did not vouch for.
    pub wrong_checksums: usize,
    pub vouched: usize,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn double(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

/// The sum of RFC 1071, folded but not complemented.
fn sum(bytes: &[u8], start: u32) -> u32 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum = words.fold(start, |sum, word| sum + word);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// The length of the Ethernet header, including its tags.
pub fn l2_len(frame: &[u8]) -> usize {
    let mut len = 14;
    while matches!(word(frame, len - 2), 0x8100 | 0x88a8) {
        len += 4;
    }
    len
}

/// The sum of the pseudo-header of a `frame` whose IP header is at `l2`.
fn pseudo(frame: &[u8], l2: usize, tcp_len: usize) -> u32 {
    let addresses = if frame[l2] >> 4 == 4 { l2 + 12..l2 + 20 } else { l2 + 8..l2 + 40 };
    sum(&frame[addresses], 6 + tcp_len as u32)
}

impl FrameSink for Sink {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        for frame in frames {
            let f = frame.data;
            let l2 = l2_len(f);
            let (l4, end, protocol) = match word(f, l2 - 2) {
                0x0800 => (l2 + 4 * usize::from(f[l2] & 15), l2 + usize::from(word(f, l2 + 2)), f[l2 + 9]),
                0x86dd => (l2 + 40, l2 + 40 + usize::from(word(f, l2 + 4)), f[l2 + 6]),
                _ => (0, 0, 0),
            };
            if protocol != 6 {
                self.strangers += 1;
                continue;
            }
            self.longest = self.longest.max(f.len());
            if frame.meta.checksum_verified {
                self.vouched += 1;
            } else if sum(&f[l4..end], pseudo(f, l2, end - l4)) != 0xffff {
                self.wrong_checksums += 1;
                continue;
            }
            self.seen.push(Seen {
                headers: f[..l4].to_vec(),
                l2,
                ports: [word(f, l4), word(f, l4 + 2)],
                seq: double(f, l4 + 4),
                ack: double(f, l4 + 8),
                payload: f[l4 + 4 * usize::from(f[l4 + 12] >> 4)..end].to_vec(),
            });
        }
    }
}

/// One end of a connection. It knows nothing before the first segment from the peer.
pub struct Toy {
    pub port: SteeredPort,
    pub sink: Sink,
    pub received: Vec<u8>,
    /// Segments that arrived too early. Without this, each loss would cost the peer a timeout.
    early: BTreeMap<u32, Vec<u8>>,
    /// The headers towards the peer, the ports, and both sequence numbers.
    pub state: Option<State>,
    /// Whether segments are answered.
    pub answers: bool,
}

#[derive(Clone)]
pub struct State {
    headers: Vec<u8>,
    l2: usize,
    pub ports: [u16; 2],
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub rcv_nxt: u32,
}

impl Toy {
    pub fn new(port: SteeredPort) -> Toy {
        Toy { port, sink: Sink::default(), received: Vec::new(), early: BTreeMap::new(), state: None, answers: true }
    }

    /// Takes what has arrived and answers it.
    pub fn poll(&mut self) {
        self.port.receive(1000, &mut self.sink).unwrap();
        if !self.answers {
            return;
        }
        for seen in std::mem::take(&mut self.sink.seen) {
            let state = self.state.get_or_insert_with(|| State {
                headers: turned_around(&seen.headers, seen.l2),
                l2: seen.l2,
                ports: [seen.ports[1], seen.ports[0]],
                snd_una: seen.ack,
                snd_nxt: seen.ack,
                rcv_nxt: seen.seq,
            });
            assert_eq!(seen.ports, [state.ports[1], state.ports[0]], "a segment of another connection");
            if seen.ack.wrapping_sub(state.snd_una) < 1 << 31 {
                state.snd_una = seen.ack;
            }
            if seen.payload.is_empty() {
                continue;
            }
            if seen.seq.wrapping_sub(state.rcv_nxt) < 1 << 31 {
                self.early.insert(seen.seq, seen.payload);
            }
            while let Some(payload) = self.early.remove(&state.rcv_nxt) {
                state.rcv_nxt = state.rcv_nxt.wrapping_add(payload.len() as u32);
                self.received.extend(&payload);
            }
            self.send(&[], 0);
        }
    }

    /// Polls until `done`.
    #[track_caller]
    pub fn run(&mut self, what: &str, mut done: impl FnMut(&Toy) -> bool) {
        let end = Instant::now() + LONG;
        let mut set = WaitSet::new();
        self.port.poll_fds(&mut set);
        self.poll();
        while !done(self) {
            assert!(Instant::now() < end, "{what} does not arrive; {} bytes did", self.received.len());
            if self.port.prepare_wait() {
                set.wait(Some(Duration::from_millis(5))).unwrap();
                self.port.finish_wait();
            }
            self.poll();
        }
    }

    /// Sends `payload` as one frame. If `mss` is not 0, the port cuts it into segments of that many
    /// bytes.
    pub fn send(&mut self, payload: &[u8], mss: u16) {
        let state = self.state.as_mut().expect("something was received before");
        let (frame, meta) = segment(state, payload, mss);
        state.snd_nxt = state.snd_nxt.wrapping_add(payload.len() as u32);
        self.send_frame(&frame, meta);
    }

    /// Sends all of `bytes` in frames of up to `piece` bytes, within the peer's first window, until
    /// the peer has acknowledged them. Frames lost on the way are sent again.
    #[track_caller]
    pub fn send_all(&mut self, bytes: &[u8], piece: usize, mss: u16) {
        let end = Instant::now() + LONG;
        let start = self.state.as_ref().expect("something was received before").snd_nxt;
        let (mut acked, mut since) = (0, Instant::now());
        while acked < bytes.len() {
            assert!(Instant::now() < end, "{acked} of {} bytes were acknowledged", bytes.len());
            self.poll();
            let state = self.state.as_mut().expect("the state stays");
            let now = state.snd_una.wrapping_sub(start) as usize;
            if now > acked {
                (acked, since) = (now, Instant::now());
            }
            let mut next = (state.snd_nxt.wrapping_sub(start) as usize).max(acked);
            if since.elapsed() > Duration::from_millis(100) {
                (next, since) = (acked, Instant::now());
            }
            state.snd_nxt = start.wrapping_add(next as u32);
            let len = piece.min(bytes.len() - next);
            if len != 0 && next + len - acked <= 60_000 {
                self.send(&bytes[next..next + len], mss);
            }
        }
    }

    pub fn send_frame(&mut self, frame: &[u8], meta: TxMeta) {
        assert!(self.try_send_frame(frame, meta), "the device has gone");
    }

    /// Like `send_frame`, but returns false if the device is gone.
    pub fn try_send_frame(&mut self, frame: &[u8], meta: TxMeta) -> bool {
        self.port.slot(frame.len()).expect("room").copy_from_slice(frame);
        self.port.commit(frame.len(), meta);
        self.port.flush().is_ok()
    }
}

/// The headers for the opposite direction.
fn turned_around(headers: &[u8], l2: usize) -> Vec<u8> {
    let mut back = headers.to_vec();
    let mut swap = |a: usize, b: usize, len: usize| {
        back[a..a + len].copy_from_slice(&headers[b..b + len]);
        back[b..b + len].copy_from_slice(&headers[a..a + len]);
    };
    swap(0, 6, 6);
    if headers[l2] >> 4 == 4 {
        swap(l2 + 12, l2 + 16, 4)
    } else {
        swap(l2 + 8, l2 + 24, 16)
    }
    back
}

/// A segment that acknowledges everything and carries `payload`.
pub fn segment(state: &State, payload: &[u8], mss: u16) -> (Vec<u8>, TxMeta) {
    let (l2, l4) = (state.l2, state.headers.len());
    let mut frame = state.headers.clone();
    let tcp_len = 20 + payload.len();
    let ipv6 = frame[l2] >> 4 == 6;
    if ipv6 {
        frame[l2 + 4..l2 + 6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
    } else {
        frame[l2 + 2..l2 + 4].copy_from_slice(&((l4 - l2 + tcp_len) as u16).to_be_bytes());
        frame[l2 + 10..l2 + 12].fill(0);
        let check = !(sum(&frame[l2..l4], 0) as u16);
        frame[l2 + 10..l2 + 12].copy_from_slice(&check.to_be_bytes());
    }
    for port in state.ports {
        frame.extend(port.to_be_bytes());
    }
    frame.extend(state.snd_nxt.to_be_bytes());
    frame.extend(state.rcv_nxt.to_be_bytes());
    // A window (64 KB to 512 KB with Linux's scales) that fits into the device's queue.
    frame.extend([0x50, 0x18, 0x02, 0, 0, 0, 0, 0]);
    frame.extend(payload);
    let start = pseudo(&frame, l2, tcp_len);
    let (check, meta) = if mss == 0 {
        (!(sum(&frame[l4..], start) as u16), TxMeta::default())
    } else {
        let gso_size = if payload.len() > usize::from(mss) { mss } else { 0 };
        (
            start as u16,
            TxMeta { checksum_start: l4 as u16, gso_size, header_len: (l4 + 20) as u16, ipv6, follows: false },
        )
    };
    frame[l4 + 16..l4 + 18].copy_from_slice(&check.to_be_bytes());
    (frame, meta)
}
