//! The rule `predict`: connections move that are expected to send enough yet, and in a full engine the
//! one that gains least gives way to one that gains more.
//!
//! ```text
//!   sockets that end in the kernel (sock_diag) ──┐
//!   connections that end here ───────────────────┴─> life tables, by rule and port
//!   a program offers a connection ──> expected packets ──> too few | room | full: takes_over
//!                                                                            |
//!         the one that gains least ──> kernel (`gave-way`), for as long as the engine is full
//! ```
//!
//! The kernel counts the data segments of its sockets. An engine's ledger has bytes; as many of them
//! count as a packet as the connection carried for each before it moved.

use super::Broker;
use super::connection::Connection;
use super::engine_slot::EngineSlot;
use super::predicted::Predicted;
use super::state::{Goal, State};
use baton_ipc::engine::monotonic;
use baton_journal::{Kind, Level};
use baton_kernel::EndedSockets;
use baton_policy::Reason;
use baton_policy::conditions::Facts;
use baton_policy::places::MOVES_AT_MOST;
use baton_policy::survival::{Class, Expected, Lifetimes};
use baton_wire::addr::Tuple;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Life tables, of 2 KB each.
const CLASSES: usize = 256;

/// How many of those that have a place are compared with a newcomer.
const LOOKS: usize = 16;

/// How long a place is kept for the connection that it was vacated for. Its program asks again after
/// some requests to send.
const RESERVED: Duration = Duration::from_secs(2);

/// Sockets in the kernel whose ends are expected and do not count: their connections were counted here.
const COUNTED: usize = 1024;

impl Connection {
    /// The packets that it has sent so far, if somebody counts them.
    fn packets(&self, slots: &[EngineSlot]) -> Option<u64> {
        let predicted = self.predicted?;
        match self.state {
            State::Engine(_) | State::Closing(_) => {
                let (sent, received) = self.carried_or_sampled(slots);
                Some(predicted.before_engine + (sent + received) / predicted.bytes_each)
            }
            // The kernel counts a rebuilt socket from 0 on.
            State::Kernel(_) | State::Preparing(_) if self.moves > 0 => {
                Some(predicted.before_kernel + baton_kernel::known(&*self.fd).ok()?.sends.unwrap_or(0))
            }
            State::Leaving(_) | State::Standing(_) | State::Stranded(_) => Some(predicted.before_kernel),
            _ => Some(predicted.before_engine),
        }
    }

    /// It is about to leave the kernel or an engine, which count each for itself.
    pub fn keep_packets(&mut self, slots: &[EngineSlot]) {
        let (packets, is_home) = (self.packets(slots), matches!(self.state, State::Kernel(_)));
        if let (Some(predicted), Some(packets)) = (&mut self.predicted, packets) {
            *(if is_home { &mut predicted.before_engine } else { &mut predicted.before_kernel }) = packets;
        }
    }

    /// True if it waits in the kernel for a place in a full engine.
    fn gave_way(&self) -> bool {
        matches!(self.state, State::Kernel(_))
            && self.why == Reason::GaveWay
            && self.moves < 2 * u64::from(MOVES_AT_MOST)
            && self.since.elapsed() > RESERVED
    }
}

/// The life tables, and the connections that are to have the next places.
#[derive(Default)]
pub(super) struct Prediction {
    lifetimes: Option<Lifetimes>,
    /// While some rule is `predict`.
    sockets: Option<EndedSockets>,
    counted: VecDeque<Tuple>,
    /// Places by their slots, with the connections that they are kept for, and until when.
    reserved: Vec<(usize, Tuple, Instant)>,
    /// Where the next look among those that have a place begins.
    hand: usize,
}

impl Prediction {
    /// The sockets that end, if that is of interest.
    pub fn sockets(&self) -> Option<&EndedSockets> {
        self.sockets.as_ref()
    }

    fn expected(&self, predicted: &Predicted, packets: u64) -> Option<Expected> {
        Some(self.lifetimes.as_ref()?.expected(predicted.class, packets))
    }

    /// Places of a slot that are kept for others than this connection.
    fn reserved(&self, slot: usize, tuple: &Tuple) -> u64 {
        let now = Instant::now();
        let others = |(at, of, until): &&(usize, Tuple, Instant)| *at == slot && of != tuple && *until > now;
        self.reserved.iter().filter(others).count() as u64
    }

    fn reserve(&mut self, slot: usize, tuple: Tuple) {
        let now = Instant::now();
        self.reserved.retain(|(_, of, until)| *until > now && *of != tuple);
        self.reserved.push((slot, tuple, now + RESERVED));
    }

    /// A connection has ended, or its program has taken it back.
    pub fn count(&mut self, connection: &Connection, slots: &[EngineSlot]) {
        let Some((predicted, lifetimes)) = connection.predicted.zip(self.lifetimes.as_mut()) else { return };
        // The kernel reports those that never moved.
        let Some(packets) = connection.packets(slots).filter(|_| connection.moves > 0) else { return };
        if connection.state.is_away() {
            return lifetimes.ended(predicted.class, packets);
        }
        self.counted.truncate(COUNTED - 1);
        self.counted.push_front(connection.tuple());
        match connection.why {
            Reason::AskedFor => lifetimes.left(predicted.class, packets),
            _ => lifetimes.ended(predicted.class, packets),
        }
    }
}

impl Broker {
    /// Begins to count lifetimes by the policy, or ends it.
    pub(super) fn predict_by_policy(&mut self) {
        self.prediction = Prediction::default();
        if self.config.policy.predicts() {
            self.prediction.lifetimes = Some(Lifetimes::new(CLASSES));
            self.prediction.sockets = EndedSockets::listen()
                .inspect_err(|error| {
                    self.log(Level::Warn, Kind::HOST, |event| {
                        event.text(format!("lifetimes are known of moved connections only: {error}"))
                    });
                })
                .ok();
        }
        for connection in self.connections.all_mut() {
            let new = Predicted::of(&self.config.policy, &connection.facts);
            connection.predicted = new.map(|new| {
                let Predicted { class, prices, .. } = new;
                connection.predicted.map_or(new, |before| Predicted { class, prices, ..before })
            });
        }
    }

    /// The view of a rule `predict` on a connection that is offered.
    pub(super) fn predicted(&self, facts: &Facts) -> Option<Predicted> {
        self.prediction.lifetimes.as_ref()?;
        Predicted::of(&self.config.policy, facts)
    }

    /// The packets that a connection is expected to send yet, if a rule `predict` is for it.
    pub(super) fn expected(&self, facts: &Facts) -> Option<Expected> {
        let predicted = self.predicted(facts)?;
        self.prediction.expected(&predicted, predicted.before_engine)
    }

    /// Places of a slot that are not for this connection: taken ones, and those kept for others.
    pub(super) fn places_for(&self, slot: usize, tuple: &Tuple) -> u64 {
        self.places(slot) + self.prediction.reserved(slot, tuple)
    }

    /// The engine is full. If this connection gains enough by a place there, the one that gains least
    /// goes home, and its place is kept for this one.
    pub(super) fn make_room_for(&mut self, slot: usize, tuple: Tuple, facts: &Facts) {
        let Some(predicted) = self.predicted(facts).filter(|_| !self.has_reserved(&tuple)) else { return };
        if let Some(expected) = self.prediction.expected(&predicted, predicted.before_engine) {
            self.take_over(slot, tuple, &predicted, expected);
        }
    }

    /// The packets that a connection of a class is expected to send yet, if somebody counts.
    pub(super) fn expected_of(&self, class: Class, packets: u64) -> Option<Expected> {
        Some(self.prediction.lifetimes.as_ref()?.expected(class, packets))
    }

    fn has_reserved(&self, tuple: &Tuple) -> bool {
        self.prediction.reserved.iter().any(|(_, of, until)| of == tuple && *until > Instant::now())
    }

    fn take_over(&mut self, slot: usize, tuple: Tuple, newcomer: &Predicted, expected: Expected) {
        let (now, prices) = (monotonic(), newcomer.prices);
        let is_there =
            |it: &Connection| it.slot == slot && matches!(it.state, State::Engine(_)) && it.predicted.is_some();
        let there = self.connections.ids(is_there);
        let first = self.prediction.hand;
        let looked = (0..LOOKS.min(there.len())).map(|step| there[(first + step) % there.len()]);
        let gains = looked.filter_map(|id| {
            let Predicted { pace, prices, .. } = self.connections.known(id)?.predicted?;
            Some((id, prices.gain_there(pace.per_second(now))))
        });
        let gain = prices.gain(expected.packets, newcomer.pace.per_second(now));
        let loser = prices.takes_over(gain, gains);
        self.prediction.hand = first.wrapping_add(LOOKS);
        if let Some(loser) = loser {
            self.prediction.reserve(slot, tuple);
            self.evict(loser, Goal::Home, Reason::GaveWay);
        }
    }

    /// Counts the sockets that have ended in the kernel.
    pub(super) fn count_ended_sockets(&mut self) {
        let Broker { prediction: Prediction { lifetimes, sockets, counted, .. }, connections, config, .. } = self;
        let Some((lifetimes, sockets)) = lifetimes.as_mut().zip(sockets.as_mut()) else { return };
        let drained = sockets.drain(|ended| {
            let Tuple { local_port, remote_port, .. } = ended.tuple;
            if let Some(at) = counted.iter().position(|tuple| *tuple == ended.tuple) {
                counted.remove(at);
            } else if connections.id_of(&ended.tuple).is_none() {
                let ends = (ended.tuple.local_addr(), ended.tuple.remote_addr());
                let facts = Facts {
                    local: (Some(ends.0.ip()), local_port),
                    remote: (Some(ends.1.ip()), remote_port),
                    sends: Some(ended.packets.into()),
                    ..Facts::default()
                };
                if let Some(predicted) = Predicted::of(&config.policy, &facts) {
                    lifetimes.ended(predicted.class, predicted.before_engine);
                }
            }
        });
        if let Err(error) = drained {
            self.prediction.sockets = None;
            self.log(Level::Warn, Kind::HOST, |event| event.text(format!("lifetimes are no longer counted: {error}")));
        }
    }

    /// Follows the pace of connections, and lets one that gave way return if it gains enough. Call it
    /// once per [`TICK`](super::TICK).
    pub(super) fn follow_paces(&mut self) {
        if self.prediction.lifetimes.is_none() || self.stopping {
            return;
        }
        let Broker { connections, slots, .. } = self;
        for connection in connections.all_mut() {
            let packets = connection.packets(slots);
            if let Some((predicted, packets)) = connection.predicted.as_mut().zip(packets) {
                predicted.follow(packets);
            }
        }
        (0..self.slots.len()).for_each(|slot| self.return_by_gain(slot));
    }

    fn return_by_gain(&mut self, slot: usize) {
        let now = monotonic();
        let gain = |connection: &Connection| {
            let predicted = connection.predicted.filter(|_| connection.slot == slot && connection.gave_way())?;
            let expected = self.prediction.expected(&predicted, predicted.pace.packets())?;
            let gain = predicted.prices.gain(expected.packets, predicted.pace.per_second(now));
            (gain > 0).then_some((gain, connection.id, connection.tuple(), predicted, expected))
        };
        let best = self.connections.all().filter_map(gain).max_by_key(|(gain, id, ..)| (*gain, *id));
        let Some((_, id, tuple, predicted, expected)) = best else { return };
        let limit = self.slots[slot].load.limit().min(self.config.tuning.connections.into());
        if self.places_for(slot, &tuple) < limit {
            self.prepare_again(vec![id]);
        } else if !self.has_reserved(&tuple) {
            self.take_over(slot, tuple, &predicted, expected);
        }
    }
}
