//! Points of messages on their way out.

use super::super::context::{Flow, bits};
use super::{ConnId, Marks, Streamer, Target, UNDER_WAY};
use baton_latency::{Direction, Exemplar, Layer, PARTS, Side, Slot, Stamps};

/// A write of the consumer of which bytes are left to send.
struct Message {
    points: Stamps,
    /// Time in which it waited for its turns.
    queue: u64,
    segment: u64,
    copy: u64,
    output: u64,
    /// The last point.
    last: u64,
    /// The beginning of the turn that it was last part of.
    turn: u64,
}

/// The points of the frame at hand.
#[derive(Default)]
struct Frame {
    begun: u64,
    copying: u64,
    copied: u64,
    built: u64,
}

/// Messages of a watched connection that are on their way out.
pub(in super::super) struct Outgoing {
    target: Target,
    /// When the turn began.
    turn: u64,
    frame: Frame,
    message: Option<Message>,
    /// Messages that the port has and did not flush yet.
    handed: Vec<Message>,
}

impl Outgoing {
    pub(super) fn new(target: Target) -> Outgoing {
        Outgoing { target, turn: 0, frame: Frame::default(), message: None, handed: Vec::new() }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    fn now(&self) -> u64 {
        (self.target.clock)()
    }

    /// A frame is about to be built.
    #[cold]
    pub(in super::super) fn begin(&mut self) {
        let now = self.now();
        self.frame = Frame { begun: now, copying: now, copied: now, built: now };
    }

    /// Its payload is about to be copied.
    #[cold]
    pub(in super::super) fn copying(&mut self) {
        self.frame.copying = self.now();
    }

    /// Its payload is copied, and summed where the port does not.
    #[cold]
    pub(in super::super) fn copied(&mut self) {
        self.frame.copied = self.now();
    }

    /// It is about to be handed to the port.
    #[cold]
    pub(in super::super) fn built(&mut self) {
        self.frame.built = self.now();
    }

    /// The port has it, with the stream bytes `[from, to)`.
    #[cold]
    pub(in super::super) fn handed(&mut self, from: u64, to: u64) {
        let now = self.now();
        let frame = std::mem::take(&mut self.frame);
        loop {
            let Some(mut message) = self.message.take().or_else(|| self.next_message()) else { return };
            let end = message.points.end;
            if end <= from {
                // Its bytes went by order of the TCE, or before the connection was watched.
                self.target.memory.miss(Side::Engine);
                continue;
            }
            if message.turn != self.turn {
                message.turn = self.turn;
                message.queue += self.turn.saturating_sub(message.last);
            }
            message.segment += frame.built.saturating_sub(frame.begun);
            message.copy += frame.copied.saturating_sub(frame.copying);
            message.output += now.saturating_sub(frame.built);
            message.last = now;
            if end > to {
                self.message = Some(message);
                return;
            }
            if self.handed.len() < UNDER_WAY {
                self.handed.push(message);
            } else {
                self.target.memory.miss(Side::Engine);
            }
            if end == to {
                return;
            }
        }
    }

    /// True if no message is on its way whose points are recorded.
    fn is_idle(&self) -> bool {
        let is_empty = |slot: &Slot| slot.sent.peek().is_none();
        self.message.is_none() && self.handed.is_empty() && self.target.slot().is_none_or(is_empty)
    }

    fn next_message(&self) -> Option<Message> {
        let points = self.target.slot()?.sent.take()?;
        Some(Message { points, queue: 0, segment: 0, copy: 0, output: 0, last: points.last, turn: 0 })
    }

    /// The port was flushed at `now`: the messages are on their way.
    fn flushed(&mut self, now: u64, flow: &Flow) {
        let Outgoing { target, handed, .. } = self;
        let own = target.own();
        let record = |layer, ns| target.record(own, layer, ns);
        for message in handed.drain(..) {
            let Stamps { first, last, end } = message.points;
            let write = last.saturating_sub(first);
            let send_device = now.saturating_sub(message.last);
            let whole = now.saturating_sub(first);
            record(Layer::Write, write);
            record(Layer::SendQueue, message.queue);
            record(Layer::Segment, message.segment);
            record(Layer::SegmentCopy, message.copy);
            record(Layer::Output, message.output);
            record(Layer::SendDevice, send_device);
            record(Layer::Transmit, whole);
            if let Some(slowest) = own.map(|slot| slot.slowest(Direction::Transmit)).filter(|all| all.takes(whole)) {
                let layers = [write, message.queue, message.segment, message.copy, message.output, send_device];
                let mut parts = [0; PARTS];
                parts[..layers.len()].copy_from_slice(&layers);
                let end = flow.tx.snd_una.0.wrapping_add(end.wrapping_sub(flow.tx.una_pos) as u32);
                slowest.keep(&Exemplar::new(Direction::Transmit, first, whole, end, parts));
            }
        }
    }
}

impl Marks {
    /// True if connections had a turn since the port was flushed last.
    #[inline]
    pub(in super::super) fn awaits_flush(&self) -> bool {
        !self.to_flush.is_empty()
    }

    /// True if a consumer may have recorded a write that [`Streamer::mark_writes`] has not seen.
    #[inline]
    pub(in super::super) fn has_writes(&self) -> bool {
        self.consumers.iter().flatten().any(|watching| watching.memory.sent.any())
    }

    /// The marks of a connection whose turn to send begins.
    #[cold]
    pub(in super::super) fn turn(&mut self, conn: ConnId) -> Option<&mut Outgoing> {
        self.to_flush.push(conn);
        let outgoing = &mut self.watched(conn)?.outgoing;
        outgoing.turn = outgoing.now();
        Some(outgoing)
    }
}

impl Streamer {
    /// Learns for which connections the consumers have recorded a write since.
    #[cold]
    pub(in super::super) fn mark_writes(&mut self) {
        let Some(marks) = &mut self.marks else { return };
        for (id, watching) in (0..).zip(&marks.consumers) {
            let Some(watching) = watching.as_ref().filter(|watching| watching.sampler.is_some()) else { continue };
            watching.memory.sent.take(|slot| {
                let flow = watching.conns.get(slot).and_then(|conn| self.flows.get_mut(conn.0));
                if let Some(flow) = flow.filter(|flow| flow.has(bits::WATCHED) && flow.consumer == id) {
                    flow.bits |= bits::MARKED_OUT;
                }
            });
        }
    }

    /// The port was flushed.
    #[cold]
    pub(in super::super) fn mark_flushed(&mut self) {
        let Some(marks) = &mut self.marks else { return };
        let now = (marks.clock)();
        let mut conns = std::mem::take(&mut marks.to_flush);
        for conn in conns.drain(..) {
            let (Some(watched), Some(flow)) = (marks.watched(conn), self.flows.get_mut(conn.0)) else { continue };
            let wholly = flow.has(bits::WATCHED_WHOLLY);
            watched.outgoing.flushed(now, flow);
            if !wholly && watched.outgoing.is_idle() {
                flow.bits &= !bits::MARKED_OUT;
            }
        }
        marks.to_flush = conns;
    }
}
