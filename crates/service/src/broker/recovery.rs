//! Recovery: the new broker takes over what a killed broker left with the guardian.
//!
//! It ends the predecessor's engines, which brings their connections home. A connection that was
//! being moved completes the move or goes back, as its [`Phase`] says. Programs are told where
//! their connections are now; they then say which connections they have and which answers they wait
//! for.

use super::clients::Client;
use super::connection::Connection;
use super::engine_slot::{BOTH_ENDS, EngineSlot, Memory, Owner, Process};
use super::pair::head_in_pair;
use super::state::{Arrival, Bringing, InEngine, InKernel, InPair, Place, Starting, State, Stranded};
use super::stay_reason::StayReason;
use super::{Broker, BrokerError};
use crate::checkpoints::Checkpoints;
use baton_consumer::memory::{SharedLedger, SharedMemory};
use baton_engine::region::EngineRegion;
use baton_ipc::message::Reply;
use baton_ipc::queues::read_two;
use baton_ipc::record::{self, Home, PairPlace, Phase, Record};
use baton_journal::{Kind, Level};
use baton_kernel::Captured;
use baton_kernel::hops::{Query, Way};
use baton_kernel::kernel_side::Plan;
use baton_policy::Reason;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// After this many brokers in a row that lived for less than a second, the next one discards each
/// program's first message, because that message may be what kills them.
const SHORT_LIVED: u32 = 2;

/// The number of no region. A program that did not take a connection's bytes in before will not do
/// so now.
const NO_REGION: u32 = 0;

type Fds = Vec<Arc<OwnedFd>>;

/// A predecessor's records, sorted by kind.
pub(super) struct RecoveredState {
    pub base: u64,
    pub generation: u32,
    pub short: u32,
    pub listener: Option<Arc<OwnedFd>>,
    /// The processes that the service runs for, and whether it runs for them only.
    pub members: BTreeMap<u32, Arc<OwnedFd>>,
    pub few: bool,
    /// The policy that a predecessor loaded, as text.
    policy: Option<Vec<u8>>,
    ledgers: BTreeMap<String, Arc<OwnedFd>>,
    engines: Vec<(String, Arc<OwnedFd>)>,
    rest: Vec<(Record, Fds)>,
    queues: BTreeMap<u64, (u32, u32, Arc<OwnedFd>)>,
    /// Where connections are in links, and their other ends.
    pairs: BTreeMap<u64, (u64, PairPlace, bool)>,
}

impl RecoveredState {
    /// Sorts the records. There are none for the first broker.
    pub fn of(checkpoints: &Checkpoints) -> RecoveredState {
        let mut recovered = RecoveredState {
            base: baton_ipc::engine::monotonic(),
            generation: 0,
            short: 0,
            listener: None,
            members: BTreeMap::new(),
            few: false,
            policy: None,
            ledgers: BTreeMap::new(),
            engines: Vec::new(),
            rest: Vec::new(),
            queues: BTreeMap::new(),
            pairs: BTreeMap::new(),
        };
        for (record, fds) in checkpoints.recovered() {
            match (record, fds.first()) {
                (Record::Born { base, generation, short }, _) => {
                    (recovered.base, recovered.generation, recovered.short) = (base, generation, short);
                }
                (Record::Listener {}, Some(fd)) => recovered.listener = Some(fd.clone()),
                (Record::Member { pid }, Some(fd)) => drop(recovered.members.insert(pid, fd.clone())),
                (Record::Few {}, _) => recovered.few = true,
                (Record::Policy { len }, Some(fd)) => {
                    let text = fd.try_clone().and_then(|file| read_two(Some(file), len, 0));
                    recovered.policy = text.ok().map(|(text, _)| text);
                }
                (Record::Ledger { interface }, Some(fd)) => drop(recovered.ledgers.insert(interface, fd.clone())),
                (Record::Engine { interface }, Some(fd)) => recovered.engines.push((interface, fd.clone())),
                (Record::Queues { id, send, unread }, Some(fd)) => {
                    recovered.queues.insert(id, (send, unread, fd.clone()));
                }
                (Record::Pair { id, peer, place, settled }, _) => {
                    recovered.pairs.insert(id, (peer, place, settled));
                }
                (record, _) => recovered.rest.push((record, fds)),
            }
        }
        recovered
    }

    /// An interface's ledger.
    pub fn ledger(&self, interface: &str) -> Result<Option<SharedLedger>, BrokerError> {
        let open = |file: &Arc<OwnedFd>| SharedLedger::open(file.try_clone()?);
        let ledger = self.ledgers.get(interface).map(open).transpose();
        ledger.map_err(|e| BrokerError::System("opening a predecessor's ledger", e))
    }

    /// Adds slots for the engines that a predecessor gave to programs.
    pub fn inherit(&self, slots: &mut Vec<EngineSlot>) -> Result<(), BrokerError> {
        for name in self.ledgers.keys() {
            let Some((interface, number)) = name.split_once('/') else { continue };
            let own = slots.iter().find(|slot| slot.name == interface);
            let (Some(own), Ok(number), Some(ledger)) = (own, number.parse(), self.ledger(name)?) else { continue };
            let slot = EngineSlot::inherited(own, slots.len(), Owner { client: None, number }, ledger);
            slots.push(slot);
        }
        Ok(())
    }

    /// The state of a connection that was recorded at `phase`. If the record cannot be read, the
    /// state is [`State::Between`].
    fn state(&self, id: u64, phase: Phase, closed: bool, head: &[u8]) -> State {
        let head = Captured::head_from_bytes(head).map(Box::new);
        let (recall, place) = (None, Place { region: NO_REGION, conn: None });
        match phase {
            Phase::Kernel => State::Kernel(InKernel { head, home: None, slot: None }),
            Phase::Rebuilt(home) => State::Kernel(InKernel { head, home, slot: None }),
            Phase::Captured if self.is_in_slot(id) => self.paired(id, phase, head),
            Phase::Captured => match self.captured(id, head) {
                Some(captured) => State::Bringing(Bringing { captured, region: NO_REGION, home: None, recall }),
                None => State::Between,
            },
            Phase::Brought => match (self.captured(id, head.clone()), head) {
                (Some(captured), _) => State::Starting(Starting { captured, region: NO_REGION, home: None, recall }),
                // The ledger may have it nevertheless.
                (None, Some(head)) => State::Engine(InEngine { head, place, unsettled: None }),
                (None, None) => State::Between,
            },
            Phase::Engine => match head {
                Some(head) if closed => State::Closing(InEngine { head, place, unsettled: None }),
                Some(head) => State::Engine(InEngine { head, place, unsettled: None }),
                None => State::Between,
            },
            Phase::Left(home, unread) => match (self.captured(id, head.clone()), head) {
                (Some(captured), Some(head)) => {
                    let arrival = Arrival::Home { home, head, suspended: false };
                    State::Stranded(Stranded { captured, unread, arrival })
                }
                _ => State::Between,
            },
            Phase::Paired => self.paired(id, phase, head),
        }
    }

    /// True if a slot has what was captured of both ends.
    fn is_in_slot(&self, id: u64) -> bool {
        let Some((peer, place, _)) = self.pairs.get(&id) else { return false };
        self.pairs.get(peer).is_some_and(|(other, there, _)| (*other, there.number) == (id, place.number))
    }

    /// One end of a pair, which may have been recorded before it was joined.
    fn paired(&self, id: u64, phase: Phase, head: Option<Box<Captured>>) -> State {
        let (Some(head), Some(&(peer, place, settled))) = (head, self.pairs.get(&id)) else { return State::Between };
        let peer_unread = self.queues.get(&peer).map_or(0, |(_, unread, _)| *unread as usize);
        let head = if phase == Phase::Captured { head_in_pair(&head, peer_unread) } else { head };
        State::Paired(InPair { head, place, peer, settled, declined: false, recall: None })
    }

    /// A captured connection, with its queues.
    fn captured(&self, id: u64, head: Option<Box<Captured>>) -> Option<Box<Captured>> {
        let mut captured = head?;
        if let Some((send, unread, file)) = self.queues.get(&id) {
            let queues = read_two(Some(file.try_clone().ok()?), *send, *unread);
            (captured.send_queue, captured.receive_queue) = queues.ok()?;
        }
        Some(captured)
    }
}

impl Broker {
    pub(super) fn take_up(&mut self, recovered: RecoveredState) {
        let text = recovered.policy.as_ref().and_then(|text| std::str::from_utf8(text).ok());
        if let Some(policy) = text.and_then(|text| text.parse().ok()) {
            self.config.policy = policy;
        }
        for (interface, pidfd) in &recovered.engines {
            if let Some(slot) = self.slots.iter_mut().find(|slot| slot.name == *interface) {
                slot.engine = Some(Process::inherited(Some(pidfd.clone())));
            }
        }
        let mut connections = Vec::new();
        for (record, fds) in &recovered.rest {
            match (record, &fds[..]) {
                (Record::Client { client, pid, uid, raw, direct, version }, [channel, bell @ ..]) => {
                    let Ok(mut program) = Client::new(channel.clone(), *pid, *uid, *version) else { continue };
                    (program.raw, program.direct, program.told) = (*raw, *direct, true);
                    program.bell = bell.first().cloned();
                    self.take_up_client(*client, program, recovered.short >= SHORT_LIVED);
                }
                (Record::Region { region, client, interface }, [file]) => {
                    self.take_up_region(*region, *client, interface, file);
                }
                (Record::Link { link, clients }, files) => self.take_up_link(*link, *clients, files),
                (Record::Connection { id, phase, .. }, [socket]) => {
                    if self.take_up_connection(&recovered, record, socket).is_some() {
                        connections.push((*id, *phase));
                    } else {
                        // Its interface is no longer served.
                        self.checkpoints.forget(record::connection(*id));
                    }
                }
                _ => {}
            }
        }
        if recovered.generation > 0 {
            let (programs, connections) = (self.clients.len(), connections.len());
            self.log(Level::Error, Kind::BROKER, |event| {
                let text =
                    format!("the broker before this one died; {programs} programs and {connections} connections");
                event.reason(Reason::BrokerDied).text(text + " are taken up")
            });
        }
        for at in 0..self.slots.len() {
            self.on_engine_dead(at, Reason::BrokerDied);
        }
        let done = self.take_up_pairs();
        for (id, phase) in connections.into_iter().filter(|(id, _)| !done.contains(id)) {
            self.take_up_move(id, phase);
        }
    }

    fn take_up_client(&mut self, client: u32, program: Client, skip_message: bool) {
        if skip_message {
            program.channel.consume();
        }
        self.clients.insert(client, program);
        self.tell_client(client, &Reply::Restarted {}, Vec::new());
    }

    fn take_up_region(&mut self, region: u32, client: u32, interface: &str, file: &Arc<OwnedFd>) {
        let engine = self.slots.iter_mut().find(|slot| slot.name == interface).and_then(|slot| slot.engine.as_mut());
        let memory = file.try_clone().and_then(SharedMemory::open);
        if let (Some(engine), Ok(memory)) = (engine, memory) {
            let memory = EngineRegion::new(memory.region().clone());
            engine.consumers.insert(client, Memory { region, memory, observed: None });
        }
    }

    /// Takes over a connection as it was recorded. Returns `None` if its interface is not served.
    fn take_up_connection(&mut self, recovered: &RecoveredState, record: &Record, socket: &Arc<OwnedFd>) -> Option<()> {
        let Record::Connection { id, client, program, seq, tuple, interface, query, way, phase, closed, moves, head } =
            record
        else {
            return None;
        };
        let slot = self.slots.iter().position(|slot| slot.name == *interface)?;
        // The route is not followed any more, because every connection comes home.
        let between = *interface == BOTH_ENDS;
        let plan = Plan {
            query: Query { tuple: *tuple, mark: query.0, device: query.1, uid: 0, tos: 0 },
            way: Way { interface: way.0, via: way.1 },
            mac: None,
            engine: self.slots[slot].number(),
            tracked: None,
            cgroup: 0,
            between: None,
        };
        let plan = if between { self.kernel.inherit_between(socket, plan) } else { plan };
        let mut connection = Connection::new(*id, *client, *program, socket.clone(), plan, slot);
        connection.adoption = Some(*seq).filter(|seq| *seq != 0);
        (connection.closed, connection.moves, connection.confirmed) = (*closed, *moves, false);
        connection.state = recovered.state(*id, *phase, *closed, head);
        if connection.state.is_away() {
            self.kernel.inherit_tracked(&plan);
        }
        if matches!(phase, Phase::Left(..)) {
            connection.stop();
        }
        if let Some(program) = self.clients.get_mut(client) {
            program.connections += 1;
            program.heard = program.heard.max(connection.adoption);
        }
        self.connections.insert(connection);
        Some(())
    }

    /// Completes or undoes the moves of connections that no engine had.
    fn take_up_move(&mut self, id: u64, phase: Phase) {
        // The engine's death may have ended it.
        let Some(connection) = self.connections.get(id) else { return };
        let there = self.clients.contains_key(&connection.client);
        match (&connection.state, phase) {
            (State::Paired(_), _) => self.take_up_pair(id),
            (State::Between, _) => self.lost(id, "the captured state of the connection cannot be read"),
            (_, Phase::Kernel | Phase::Rebuilt(_)) => {
                let waits = connection.adoption.is_some();
                if connection.plan.between.is_some() {
                    self.checkpoints.forget(record::pair(id));
                }
                self.finish_in_kernel(id, matches!(phase, Phase::Rebuilt(_)));
                if !there {
                    self.forget(id);
                } else if waits {
                    self.stays_in_kernel(id, StayReason::new(Reason::BrokerDied, "the broker died during the move"));
                } else {
                    self.tell_home(id);
                }
            }
            (_, Phase::Captured) if !there => {
                self.undo_bringing(id, StayReason::new(Reason::ProgramGone, "the program has gone"))
            }
            // The program may not have been told of it.
            (_, Phase::Captured) => self.bring_again(id),
            // The engine's death has brought them home.
            (_, Phase::Brought | Phase::Engine | Phase::Paired) => {}
            // The next tick handles it.
            (_, Phase::Left(..)) => {}
        }
    }

    /// Takes the last steps for a connection that the kernel already has, `rebuilt` or not.
    fn finish_in_kernel(&mut self, id: u64, rebuilt: bool) {
        let Broker { connections, kernel, .. } = self;
        let Some(connection) = connections.known(id) else { return };
        // The interface may be gone, and its map with it. If the socket is no longer valid, nobody
        // uses the connection.
        let _ = kernel.unsteer(&connection.plan);
        let fd = connection.fd.as_fd();
        let _ = match connection.state.captured().filter(|_| rebuilt) {
            Some(head) if baton_kernel::is_captured(fd).is_ok_and(|captured| captured) => kernel.resume(fd, head),
            Some(_) => Ok(()),
            None => baton_kernel::abandon(fd).map_err(Into::into),
        };
    }

    /// Tells the program again where its connection is.
    pub(super) fn tell_home(&mut self, id: u64) {
        let Some(connection) = self.connections.known(id) else { return };
        let (client, home) = (connection.client, connection.state.home());
        let reply = match home {
            Some(Home { rcv_pos, tail_pos, whole }) => Reply::Home { id, rcv_pos, tail_pos, whole },
            None => {
                let text = "the broker died during the move".to_owned();
                Reply::Stays { seq: 0, id, code: Reason::BrokerDied.to_string(), text }
            }
        };
        self.tell_client(client, &reply, Vec::new());
    }

    /// Brings the connection to its program again.
    fn bring_again(&mut self, id: u64) {
        let Some((_, bringing)) = self.connections.take(id, State::bringing) else { return };
        self.bring(id, bringing, None);
    }
}
