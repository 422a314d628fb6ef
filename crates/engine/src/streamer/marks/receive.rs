//! Points of messages on their way in.

use super::super::context::{Flow, bits};
use super::{ConnId, Marks, Streamer, Target, UNDER_WAY};
use crate::arrival::Arrival;
use crate::seam::event::Event;
use baton_latency::{Course, Layer, Sampler, Side, Stamps};
use baton_wire::packet::Packet;

/// The points of the burst and run at hand.
#[derive(Default)]
pub(super) struct RunMarks {
    /// When the run's first frame arrived, as the port says it.
    arrived: Arrival,
    taken: u64,
    parsed: u64,
    /// The run's turn came.
    begun: u64,
    /// Its connection was found; 0 if that is not watched.
    found: u64,
    /// How much the connection had when it was found.
    received: u64,
    parked: u32,
    out_of_order: u64,
}

/// A message that the consumer was not told of yet.
struct Message {
    /// Stream position just past its last byte.
    end: u64,
    /// Time that it waited in the device; `None` if that is not known.
    waited: Option<u64>,
    taken: u64,
    parse: u64,
    lookup: u64,
    place: u64,
    /// It lies in the reassembly area, and the TCE has not decided.
    parked: bool,
    /// Time until the TCE had decided; 0 if the message did not wait for that.
    decide: u64,
    /// The last point.
    last: u64,
}

impl Message {
    /// How it came until its consumer is told at `now`.
    fn course(&self, now: u64, flow: &Flow) -> Course {
        let tell = now.saturating_sub(self.last);
        let parts = [self.waited.unwrap_or(0), self.parse, self.lookup, self.place, self.decide, tell];
        let after = flow.rx.rcv_pos.wrapping_sub(self.end) as u32;
        Course { parts, end: flow.rx.rcv_nxt.0.wrapping_sub(after) }
    }
}

/// Messages of a watched connection that its consumer was not told of.
pub(super) struct Incoming {
    target: Target,
    messages: Vec<Message>,
}

impl Incoming {
    pub(super) fn new(target: Target) -> Incoming {
        Incoming { target, messages: Vec::new() }
    }

    /// Adds a message; false if there are too many.
    fn add(&mut self, message: Message) -> bool {
        if self.messages.len() < UNDER_WAY {
            self.messages.push(message);
            return true;
        }
        self.target.memory.miss(Side::Engine);
        false
    }

    /// The parked messages before `received` are in place now.
    fn decided(&mut self, received: u64) {
        let now = (self.target.clock)();
        for message in self.messages.iter_mut().filter(|message| message.parked && message.end <= received) {
            message.parked = false;
            message.decide = now.saturating_sub(message.last);
            message.last = now;
        }
    }

    /// The consumer is told of the bytes that its connection received. If every message is recorded it expects that
    /// of each, else a flag says so. True if other messages are left.
    fn told(&mut self, flow: &Flow) -> bool {
        let Incoming { target, messages } = self;
        let Some(slot) = target.slot() else { return false };
        let own = target.own();
        let now = (target.clock)();
        let received = flow.rx.rcv_pos;
        // They are few, and most often one. The consumer takes them in the order of the stream.
        messages.sort_by_key(|message| message.end);
        let done = messages.partition_point(|message| message.end <= received);
        for message in messages.drain(..done) {
            let first = message.taken.saturating_sub(message.waited.unwrap_or(0));
            let stamps = Stamps { end: message.end, first, last: now };
            let course = own.map(|_| message.course(now, flow));
            if !slot.tell(&stamps, course.as_ref()) {
                target.memory.miss(Side::Engine);
                continue;
            }
            let record = |layer, ns| target.record(own, layer, ns);
            if let Some(waited) = message.waited {
                record(Layer::ReceiveDevice, waited);
            }
            record(Layer::Parse, message.parse);
            record(Layer::Lookup, message.lookup);
            record(Layer::Place, message.place);
            if message.decide > 0 {
                record(Layer::Decide, message.decide);
            }
            record(Layer::Tell, now.saturating_sub(message.last));
            record(Layer::Stack, now.saturating_sub(first));
        }
        if done > 0 && !flow.has(bits::WATCHED_WHOLLY) {
            target.memory.told.raise(usize::from(target.slot));
        }
        !messages.is_empty()
    }
}

impl Marks {
    /// The time, if a message of the next burst may be recorded; else 0.
    #[inline(never)]
    fn burst(&mut self) -> u64 {
        let mut any = self.wholly > 0;
        for watching in self.consumers.iter_mut().flatten() {
            watching.samples = watching.sampler.as_mut().is_some_and(Sampler::chooses);
            any |= watching.samples;
        }
        if any { (self.clock)() } else { 0 }
    }

    /// True if the messages of the burst at hand are recorded for this connection.
    fn takes(&mut self, flow: &Flow) -> bool {
        let samples = |marks: &mut Marks| marks.watching(flow.consumer).is_some_and(|watching| watching.samples);
        flow.has(bits::WATCHED) && (flow.has(bits::WATCHED_WHOLLY) || samples(self))
    }
}

impl Streamer {
    /// The time, if a message of the next burst may be recorded; else 0.
    #[inline]
    pub(in super::super) fn stamp(&mut self) -> u64 {
        match &mut self.marks {
            None => 0,
            Some(marks) => marks.burst(),
        }
    }

    /// A burst that was taken at `taken` is parsed and coalesced.
    #[cold]
    pub(in super::super) fn mark_parsed(&mut self, taken: u64) {
        let Some(marks) = &mut self.marks else { return };
        let now = (marks.clock)();
        marks.run = RunMarks { taken, parsed: now, begun: now, ..RunMarks::default() };
    }

    /// The connection of a run was found, or there is none. `arrived`: when its first frame did, as the port
    /// says it.
    #[cold]
    pub(in super::super) fn mark_found(&mut self, conn: Option<ConnId>, arrived: Arrival) {
        let Some(marks) = &mut self.marks else { return };
        let flow = conn.and_then(|conn| self.flows.get(conn.0)).filter(|flow| marks.takes(flow));
        marks.run.found = 0;
        if let Some(flow) = flow {
            marks.run.found = (marks.clock)();
            marks.run.arrived = arrived;
            (marks.run.received, marks.run.parked) = (flow.rx.rcv_pos, flow.rx.parked_bytes);
            marks.run.out_of_order = self.counters.rx_out_of_order;
        }
    }

    /// A run was validated, and its payload placed or parked. `packet`: its first segment.
    #[cold]
    pub(in super::super) fn mark_placed(&mut self, conn: Option<ConnId>, packet: &Packet) {
        let Some(marks) = &mut self.marks else { return };
        let now = (marks.clock)();
        let begun = std::mem::replace(&mut marks.run.begun, now);
        let run = &marks.run;
        let (Some(conn), 1..) = (conn, run.found) else { return };
        let Some(flow) = self.flows.get_mut(conn.0) else { return };
        let in_order = flow.rx.rcv_pos > run.received;
        let parked = !in_order && flow.rx.parked_bytes > run.parked;
        if !in_order && !parked && self.counters.rx_out_of_order == run.out_of_order {
            // An acknowledgment alone, a duplicate, or nothing that counts.
            return;
        }
        let ahead = (packet.seq + packet.payload_len).since(flow.rx.rcv_nxt).max(0) as u64;
        let message = Message {
            end: if in_order { flow.rx.rcv_pos } else { flow.rx.rcv_pos + ahead },
            waited: run.arrived.waited(run.taken),
            taken: run.taken,
            parse: run.parsed.saturating_sub(run.taken),
            lookup: run.found.saturating_sub(begun),
            place: now.saturating_sub(run.found),
            parked,
            decide: 0,
            last: now,
        };
        let Some(watched) = marks.watched(conn) else { return };
        let target = &watched.incoming.target;
        let (consumer, slot) = (watched.consumer, target.own().map(|_| target.slot));
        if watched.incoming.add(message) {
            flow.bits |= bits::MARKED_IN;
        }
        if !parked {
            self.event(Event::Mark { consumer, slot, placed: now });
        }
    }

    /// Parked payload of a connection was placed by order of the TCE.
    pub(in super::super) fn mark_decided(&mut self, conn: ConnId) {
        let flow = &self.flows[conn.0];
        if !flow.has(bits::MARKED_IN) {
            return;
        }
        let received = flow.rx.rcv_pos;
        if let Some(watched) = self.marks.as_mut().and_then(|marks| marks.watched(conn)) {
            watched.incoming.decided(received);
        }
    }
}

/// The consumer of a connection is about to be told that bytes came, and points of some are recorded.
#[cold]
pub(in super::super) fn mark_told(marks: &mut Option<Box<Marks>>, conn: ConnId, flow: &mut Flow) {
    if let Some(watched) = marks.as_mut().and_then(|marks| marks.watched(conn))
        && !watched.incoming.told(flow)
    {
        flow.bits &= !bits::MARKED_IN;
    }
}
