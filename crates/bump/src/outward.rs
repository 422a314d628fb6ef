//! From the host to the wire.

use crate::counters::Counters;
use crate::senders::Senders;
use baton_coalesce::{AckTemplate, Checksums, Class, Frame, Link, Unacked, classify};
use baton_port::PortError;
use baton_port::vnet::{NEEDS_CSUM, Vnet, VnetFrame, VnetIo, VnetSink};
use baton_wire::packet::{Checks, Packet};
use baton_wire::tcp::Acks;
use std::collections::VecDeque;
use std::io::IoSlice;

/// The longest ACK: link header with four VLAN tags, IP header, TCP header with options.
const ACK_MAX: usize = 14 + 16 + 60 + 60;

/// The way from the host to the wire.
pub struct Outward {
    acks: Acks,
    bare: bool,
    /// Frames that the full wire did not take, from at most one frame of the host.
    stuck: VecDeque<(Vnet, Vec<u8>)>,
}

impl Outward {
    pub fn new(acks: Acks, bare: bool) -> Outward {
        Outward { acks, bare, stuck: VecDeque::new() }
    }

    pub fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }

    /// Carries up to `limit` waiting frames, as far as the wire takes it; false if there was
    /// nothing.
    pub fn pump<H: VnetIo, W: VnetIo>(
        &mut self,
        host: &mut H,
        wire: &mut W,
        senders: &mut Senders,
        counters: &mut Counters,
        limit: usize,
    ) -> Result<bool, PortError> {
        let mut busy = false;
        while let Some((vnet, bytes)) = self.stuck.front() {
            if !wire.send(*vnet, &[IoSlice::new(bytes)]) {
                return Ok(busy);
            }
            counters.wire_out += 1;
            self.stuck.pop_front();
            busy = true;
        }
        for _ in 0..limit {
            let mut to = ToWire {
                acks: self.acks,
                bare: self.bare,
                senders,
                out: WireOut { wire, stuck: &mut self.stuck, counters },
            };
            if host.receive(1, &mut to)? == 0 {
                break;
            }
            busy = true;
            if self.is_stuck() {
                break;
            }
        }
        Ok(busy)
    }
}

/// The wire's port, counted; behind what is stuck, if anything is.
struct WireOut<'a, W> {
    wire: &'a mut W,
    stuck: &'a mut VecDeque<(Vnet, Vec<u8>)>,
    counters: &'a mut Counters,
}

impl<W: VnetIo> WireOut<'_, W> {
    fn send(&mut self, vnet: Vnet, bytes: &[u8]) {
        if self.stuck.is_empty() && self.wire.send(vnet, &[IoSlice::new(bytes)]) {
            self.counters.wire_out += 1;
            return;
        }
        self.counters.wire_full += u64::from(self.stuck.is_empty());
        self.stuck.push_back((vnet, bytes.to_vec()));
    }
}

struct ToWire<'a, W> {
    acks: Acks,
    bare: bool,
    senders: &'a mut Senders,
    out: WireOut<'a, W>,
}

impl<W: VnetIo> VnetSink for ToWire<'_, W> {
    fn burst(&mut self, frames: &[VnetFrame<'_>]) {
        for frame in frames {
            self.out.counters.host_out += 1;
            self.out.counters.host_out_bytes += frame.data.len() as u64;
            if self.bare || self.acks == Acks::PerRun {
                self.out.send(frame.vnet, frame.data);
                continue;
            }
            match sender_of(frame, self.senders) {
                Some((packet, unacked)) => expand(frame, &packet, unacked, &mut self.out),
                None => self.out.send(frame.vnet, frame.data),
            }
        }
    }
}

/// The remembered state of the flow that a segment of the host acknowledges.
fn sender_of<'a>(frame: &VnetFrame<'_>, senders: &'a mut Senders) -> Option<(Packet, &'a mut Unacked)> {
    let seen = Frame { vouched: true, ..Frame::whole(frame.data, Link::Ethernet) };
    let flow = match classify(&seen, Checksums::Trust) {
        Class::Data(segment) => segment.flow,
        Class::Bypass { flow, .. } => flow?,
    };
    let unacked = senders.get(&flow.reversed())?;
    let checks = Checks { ip_checksum: false, whole: true };
    let packet = Packet::parse_with(frame.data, baton_wire::packet::Link::Ethernet, checks).ok()?;
    Some((packet, unacked))
}

/// Sends a segment, and before it the ACKs that it stands for, if it is nothing else.
fn expand<W: VnetIo>(frame: &VnetFrame<'_>, packet: &Packet, unacked: &mut Unacked, out: &mut WireOut<'_, W>) {
    let filled = frame.vnet.flags & NEEDS_CSUM == 0;
    let template = AckTemplate::new(frame.data, packet, filled).filter(|ack| ack.len() <= ACK_MAX);
    let Some(template) = template else {
        // It still acknowledges.
        unacked.expand(packet.ack, Acks::PerRun, |_| ());
        out.send(frame.vnet, frame.data);
        return;
    };
    let mut made = 0;
    unacked.expand(packet.ack, Acks::EverySecond, |ack| {
        let mut bytes = [0; ACK_MAX];
        if let Some(len) = template.write(ack, &mut bytes) {
            out.send(frame.vnet, &bytes[..len]);
            made += 1;
        }
    });
    out.counters.acks_expanded += u64::from(made > 1);
    out.counters.acks_made += made - 1;
}
