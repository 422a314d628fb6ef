//! Measures the cost of the bare device: a responder that only reads and writes the frames of a load.
//! The cost of an engine beyond this is the engine's own.
//!
//! It keeps no connection state except for port 19. Sequence numbers are mirrored: an answer starts at
//! the segment's acknowledgment number and acknowledges the end of the segment. Received payload is
//! neither copied nor checksummed, nothing is ever retransmitted, and a lost frame stalls the load.
//!
//! ```text
//!   port 7   each segment is sent back
//!   port 9   the last segment of a burst is acknowledged
//!   port 19  segments of zeros are sent, as the peer's window and WINDOW allow
//! ```

use baton_port::{
    Capabilities, FrameIo, FrameSink, OpenError, PayloadPart, PortError, RxFrame, Tap, TapOptions, TxMeta, WaitSet,
    Waitable,
};
use baton_wire::arp;
use baton_wire::eth::MacAddr;
use baton_wire::packet::{Link, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::header::{Header, fill_checksum};
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::{Flags, SackBlocks};
use baton_wire::template::{Emit, MAX_HEADERS, Route, Template};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::world::serve::port;

/// Our Ethernet address.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Most bytes in flight.
const WINDOW: u32 = 1 << 20;
/// The window that we advertise, before scaling.
const OFFER: u16 = 0xffff;
/// Our window scale, which makes the window slightly more than 4 MB.
const SCALE: u8 = 6;
/// Most frames per receive call.
const LIMIT: usize = 256;
/// Ethernet, IPv4 and TCP header without options.
const HEADERS: usize = 54;

/// A connection to port 19: the next sequence number to send, and the limit set by the peer.
struct Source {
    snd_nxt: Seq,
    wscale: u8,
}

/// Answers requests with bare segments, without a TCP stack.
pub struct Bare {
    tap: Tap,
    wait: WaitSet,
    work: Work,
}

/// The answers that a burst of frames requires.
struct Work {
    capabilities: Capabilities,
    addr: Ipv4Addr,
    answers: Vec<Answer>,
    /// By the peer's port.
    sources: HashMap<u16, Source>,
    zeros: Vec<u8>,
}

/// A frame to write.
enum Answer {
    /// A complete frame.
    Whole(Vec<u8>),
    /// Headers, and the payload that an echo sends back.
    Echo(Packet, Vec<u8>),
    /// An acknowledgment of everything up to the end of this segment.
    Ack(Packet, [u8; 14]),
    /// The peer's window has opened.
    Open(Packet, [u8; 14]),
}

impl Bare {
    /// Makes a responder for `addr` on the TAP device `name`.
    ///
    /// # Errors
    /// The errors of [`Tap::open`].
    pub fn open(name: &str, options: TapOptions, addr: Ipv4Addr) -> Result<Bare, OpenError> {
        let tap = Tap::open(name, options)?;
        let mut wait = WaitSet::new();
        tap.poll_fds(&mut wait);
        let capabilities = tap.capabilities();
        let zeros = vec![0; 1 << 16];
        Ok(Bare { tap, wait, work: Work { capabilities, addr, answers: Vec::new(), sources: HashMap::new(), zeros } })
    }

    /// Waits for frames for at most `wait`, and answers them.
    ///
    /// # Errors
    /// [`PortError`] if the device has disappeared.
    pub fn turn(&mut self, wait: Duration) -> Result<(), PortError> {
        if self.tap.receive(LIMIT, &mut self.work)? == 0 {
            // An interrupted wait counts as a short one.
            let _ = self.wait.wait(Some(wait));
            return Ok(());
        }
        for answer in std::mem::take(&mut self.work.answers) {
            self.work.send(&mut self.tap, answer);
        }
        self.tap.flush()
    }
}

impl FrameSink for Work {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        for frame in frames {
            let Ok(packet) = Packet::parse(frame.data, Link::Ethernet) else {
                self.answers.extend(self.arp(frame.data).map(Answer::Whole));
                continue;
            };
            let link = frame.data.first_chunk().copied().unwrap_or_default();
            if packet.flags.contains(Flags::SYN) {
                let answer = self.syn_ack(&packet, frame.data);
                self.answers.push(Answer::Whole(answer));
            } else if packet.flags.intersects(Flags::FIN | Flags::RST) {
                self.sources.remove(&packet.src_port);
            } else if packet.payload_len > 0 && packet.dst_port == port::ECHO {
                self.answers.push(Answer::Echo(packet, frame.data.to_vec()));
            } else if packet.payload_len > 0 {
                self.answers.retain(|a| !matches!(a, Answer::Ack(earlier, _) if earlier.src_port == packet.src_port));
                self.answers.push(Answer::Ack(packet, link));
            } else if packet.dst_port == port::CHARGEN {
                self.answers.retain(|a| !matches!(a, Answer::Open(earlier, _) if earlier.src_port == packet.src_port));
                self.answers.push(Answer::Open(packet, link));
            }
        }
    }
}

impl Work {
    /// The reply to an ARP request for our address.
    fn arp(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let request = arp::Packet::parse(frame.get(14..)?).ok()?;
        if request.operation != arp::Operation::Request || request.target_ip != self.addr {
            return None;
        }
        let reply = arp::Packet {
            operation: arp::Operation::Reply,
            sender_mac: MacAddr(MAC),
            sender_ip: self.addr,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        };
        let mut out = vec![0; 14 + arp::LEN];
        out[..6].copy_from_slice(&request.sender_mac.0);
        out[6..12].copy_from_slice(&MAC);
        out[12..14].copy_from_slice(&[8, 6]);
        reply.write(&mut out[14..]).ok()?;
        Some(out)
    }

    fn syn_ack(&mut self, packet: &Packet, frame: &[u8]) -> Vec<u8> {
        let wscale = packet.options(frame).find_map(|option| match option {
            Ok(TcpOption::WindowScale(shift)) => Some(shift),
            _ => None,
        });
        if packet.dst_port == port::CHARGEN {
            self.sources.insert(packet.src_port, Source { snd_nxt: Seq(1), wscale: wscale.unwrap_or(0) });
        }
        let mss = self.capabilities.mtu - 40;
        let header = Header {
            src_port: packet.dst_port,
            dst_port: packet.src_port,
            seq: Seq(0),
            ack: packet.seq + 1,
            flags: Flags::SYN | Flags::ACK,
            window: OFFER,
            checksum: 0,
            urgent: 0,
        };
        let options = [TcpOption::Mss(mss), TcpOption::WindowScale(SCALE)];
        let mut out = vec![0; 14 + 20 + 60];
        let len = header.write(&options, &mut out[34..]).expect("room for 60 bytes");
        // The Ethernet and IP headers are those of any segment of this length.
        let plain = Emit { payload_len: len as u32 - 20, payload_sum: Some(0), ..emit(Seq(0), Seq(0)) };
        let mut headers = [0; MAX_HEADERS];
        template(packet, frame.first_chunk().expect("a parsed frame")).emit(&mut headers, &plain);
        out[..34].copy_from_slice(&headers[..34]);
        out.truncate(34 + len);
        fill_checksum(&mut out[34..], packet.dst, packet.src).expect("a TCP header");
        out
    }

    fn send(&mut self, tap: &mut Tap, answer: Answer) {
        match answer {
            Answer::Whole(frame) => {
                if let Some(slot) = tap.slot(frame.len()) {
                    slot[..frame.len()].copy_from_slice(&frame);
                    tap.commit(frame.len(), TxMeta::default());
                }
            }
            Answer::Echo(packet, frame) => {
                let payload = packet.payload(&frame);
                let link = frame.first_chunk().expect("a parsed frame");
                let segment = emit(packet.ack, packet.seq + packet.payload_len);
                self.write(tap, &packet, link, Emit { payload_len: packet.payload_len, ..segment }, payload);
            }
            Answer::Ack(packet, link) => {
                let segment = emit(packet.ack, packet.seq + packet.payload_len);
                self.write(tap, &packet, &link, segment, &[]);
            }
            Answer::Open(packet, link) => self.fill(tap, &packet, &link),
        }
    }

    /// Sends as much as the window allows.
    fn fill(&mut self, tap: &mut Tap, packet: &Packet, link: &[u8; 14]) {
        let Some(source) = self.sources.get(&packet.src_port) else { return };
        let mss = u32::from(self.capabilities.mtu) - 40;
        let most = match self.capabilities.tx_gso_max {
            0 => mss,
            max => (max - MAX_HEADERS as u32) / mss * mss,
        };
        let edge = packet.ack + (u32::from(packet.window) << source.wscale).min(WINDOW);
        let mut at = source.snd_nxt;
        let zeros = std::mem::take(&mut self.zeros);
        // Avoid silly windows: do not send small frames as the window opens in small steps.
        while edge.since(at) >= most as i32 {
            let segment = Emit { payload_len: most, ..emit(at, packet.seq) };
            self.write(tap, packet, link, segment, &zeros[..most as usize]);
            at += most;
        }
        self.zeros = zeros;
        if let Some(source) = self.sources.get_mut(&packet.src_port) {
            source.snd_nxt = at;
        }
    }

    fn write(&self, tap: &mut Tap, packet: &Packet, link: &[u8; 14], segment: Emit<'_>, payload: &[u8]) {
        let mss = u32::from(self.capabilities.mtu) - 40;
        let offload = self.capabilities.tx_checksum;
        // Zeros do not change the checksum; the few bytes of an echo are summed.
        let sum = if packet.dst_port == port::ECHO { baton_wire::checksum::sum(payload) } else { 0 };
        let segment = Emit { payload_sum: (!offload).then_some(sum), ..segment };
        let mut headers = [0; MAX_HEADERS];
        let len = template(packet, link).emit(&mut headers, &segment);
        let meta = TxMeta {
            checksum_start: if offload { 34 } else { 0 },
            gso_size: if segment.payload_len > mss { mss as u16 } else { 0 },
            header_len: HEADERS as u16,
            ipv6: false,
            follows: packet.dst_port != port::ECHO,
        };
        if offload || payload.len() > 256 {
            tap.gather(&headers[..len], &[PayloadPart { ptr: payload.as_ptr(), len: payload.len() }], meta);
        } else if let Some(slot) = tap.slot(len + payload.len()) {
            slot[..len].copy_from_slice(&headers[..len]);
            slot[len..len + payload.len()].copy_from_slice(payload);
            tap.commit(len + payload.len(), meta);
        }
    }
}

/// Headers for an answer to the sender of this segment.
fn template(packet: &Packet, link: &[u8; 14]) -> Template {
    let mut back = *link;
    back[..6].copy_from_slice(&link[6..12]);
    back[6..12].copy_from_slice(&MAC);
    let route = Route {
        link: &back,
        src: packet.dst,
        dst: packet.src,
        src_port: packet.dst_port,
        dst_port: packet.src_port,
        ttl: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    Template::new(&route).expect("an Ethernet header is one of the lengths")
}

fn emit(seq: Seq, ack: Seq) -> Emit<'static> {
    Emit {
        seq,
        ack,
        flags: Flags::ACK,
        window: OFFER,
        urgent: 0,
        ts: None,
        sack: &SackBlocks::EMPTY,
        payload_len: 0,
        payload_sum: None,
        ip_id: 0,
        ecn: 0,
    }
}
