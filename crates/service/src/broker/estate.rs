//! What a broker that was killed left with the guardian, taken up.
//!
//! Its engines are buried, which brings home what they had; what was on its way goes on or
//! back, by its [`Phase`]; programs are told where their connections are now, and say which
//! they have and what they wait for.

use super::clients::Client;
use super::direct::Owner;
use super::lines::{Line, State};
use super::side::{Memory, Process, Side};
use super::{Broker, BrokerError};
use crate::vault::Vault;
use baton_consumer::memory::{SharedLedger, SharedMemory};
use baton_engine::region::EngineRegion;
use baton_ipc::message::Reply;
use baton_ipc::queues::read_two;
use baton_ipc::record::{self, Phase, Record};
use baton_journal::{Kind, Level};
use baton_kernel::Captured;
use baton_kernel::hops::{Query, Way};
use baton_kernel::kernel_side::Plan;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Brokers that lived for less than a second, one after the other, after which a program's
/// first message is not heard: it may be what kills them.
const POISON: u32 = 2;

type Fds = Vec<Arc<OwnedFd>>;

/// A predecessor's records, sorted.
pub(super) struct Estate {
    pub base: u64,
    pub generation: u32,
    pub short: u32,
    pub listener: Option<Arc<OwnedFd>>,
    /// The processes that the service is there for, and whether it is for them only.
    pub members: BTreeMap<u32, Arc<OwnedFd>>,
    pub few: bool,
    ledgers: BTreeMap<String, Arc<OwnedFd>>,
    engines: Vec<(String, Arc<OwnedFd>)>,
    rest: Vec<(Record, Fds)>,
    queues: BTreeMap<u64, (u32, u32, Arc<OwnedFd>)>,
}

impl Estate {
    /// What there is; nothing, for the first broker.
    pub fn of(vault: &Vault) -> Estate {
        let mut estate = Estate {
            base: baton_ipc::engine::monotonic(),
            generation: 0,
            short: 0,
            listener: None,
            members: BTreeMap::new(),
            few: false,
            ledgers: BTreeMap::new(),
            engines: Vec::new(),
            rest: Vec::new(),
            queues: BTreeMap::new(),
        };
        for (record, fds) in vault.estate() {
            match (record, fds.first()) {
                (Record::Born { base, generation, short }, _) => {
                    (estate.base, estate.generation, estate.short) = (base, generation, short);
                }
                (Record::Listener {}, Some(fd)) => estate.listener = Some(fd.clone()),
                (Record::Member { pid }, Some(fd)) => drop(estate.members.insert(pid, fd.clone())),
                (Record::Few {}, _) => estate.few = true,
                (Record::Ledger { interface }, Some(fd)) => drop(estate.ledgers.insert(interface, fd.clone())),
                (Record::Engine { interface }, Some(fd)) => estate.engines.push((interface, fd.clone())),
                (Record::Queues { id, send, unread }, Some(fd)) => {
                    estate.queues.insert(id, (send, unread, fd.clone()));
                }
                (record, _) => estate.rest.push((record, fds)),
            }
        }
        estate
    }

    /// An interface's ledger.
    pub fn ledger(&self, interface: &str) -> Result<Option<SharedLedger>, BrokerError> {
        let open = |file: &Arc<OwnedFd>| SharedLedger::open(file.try_clone()?);
        let ledger = self.ledgers.get(interface).map(open).transpose();
        ledger.map_err(|e| BrokerError::System("opening a predecessor's ledger", e))
    }

    /// Engines that a predecessor gave to programs, beside the interfaces' own.
    pub fn inherit(&self, sides: &mut Vec<Side>) -> Result<(), BrokerError> {
        for name in self.ledgers.keys() {
            let Some((interface, number)) = name.split_once('/') else { continue };
            let own = sides.iter().find(|side| side.name == interface);
            let (Some(own), Ok(number), Some(ledger)) = (own, number.parse(), self.ledger(name)?) else { continue };
            let side = Side::inherited(own, sides.len(), Owner { client: None, number }, ledger);
            sides.push(side);
        }
        Ok(())
    }

    /// A captured connection, with its queues.
    fn captured(&self, id: u64, head: &[u8]) -> Option<Captured> {
        let mut captured = Captured::head_from_bytes(head)?;
        if let Some((send, unread, file)) = self.queues.get(&id) {
            let queues = read_two(Some(file.try_clone().ok()?), *send, *unread);
            (captured.send_queue, captured.receive_queue) = queues.ok()?;
        }
        Some(captured)
    }
}

impl Broker {
    pub(super) fn take_up(&mut self, estate: Estate) {
        for (interface, pidfd) in &estate.engines {
            if let Some(side) = self.sides.iter_mut().find(|side| side.name == *interface) {
                side.engine = Some(Process::inherited(Some(pidfd.clone())));
            }
        }
        let mut lines = Vec::new();
        for (record, fds) in &estate.rest {
            match (record, &fds[..]) {
                (Record::Client { client, pid, uid, raw, direct }, [channel]) => {
                    let Ok(mut program) = Client::new(channel.clone(), *pid, *uid, true) else { continue };
                    (program.raw, program.direct, program.told) = (*raw, *direct, true);
                    self.take_up_client(*client, program, estate.short >= POISON);
                }
                (Record::Region { region, client, interface }, [file]) => {
                    self.take_up_region(*region, *client, interface, file);
                }
                (Record::Line { id, phase, .. }, [socket]) => {
                    if self.take_up_line(&estate, record, socket).is_some() {
                        lines.push((*id, *phase));
                    } else {
                        // Of an interface that is not ours any more.
                        self.vault.forget(record::line(*id));
                    }
                }
                _ => {}
            }
        }
        if estate.generation > 0 {
            let (programs, connections) = (self.clients.len(), lines.len());
            self.log(Level::Error, Kind::BROKER, |event| {
                let text =
                    format!("the broker before this one died; {programs} programs and {connections} connections");
                event.reason("broker-died").text(text + " are taken up")
            });
        }
        for at in 0..self.sides.len() {
            self.on_engine_dead(at, "broker-died");
        }
        for (id, phase) in lines {
            self.take_up_move(id, phase);
        }
    }

    fn take_up_client(&mut self, client: u32, program: Client, poisoned: bool) {
        if poisoned {
            program.channel.consume();
        }
        self.clients.insert(client, program);
        self.tell_client(client, &Reply::Restarted {}, Vec::new());
    }

    fn take_up_region(&mut self, region: u32, client: u32, interface: &str, file: &Arc<OwnedFd>) {
        let engine = self.sides.iter_mut().find(|side| side.name == interface).and_then(|side| side.engine.as_mut());
        let memory = file.try_clone().and_then(SharedMemory::open);
        if let (Some(engine), Ok(memory)) = (engine, memory) {
            let memory = EngineRegion::new(memory.region().clone());
            engine.consumers.insert(client, Memory { region, memory });
        }
    }

    /// The connection as it was known; `None` if there is no such interface.
    fn take_up_line(&mut self, estate: &Estate, record: &Record, socket: &Arc<OwnedFd>) -> Option<()> {
        let Record::Line { id, client, program, seq, tuple, interface, query, way, phase, closed, moves, head } =
            record
        else {
            return None;
        };
        let side = self.sides.iter().position(|side| side.name == *interface)?;
        let mut line = Line::new(*id, *client, *program, *seq, socket.clone(), *tuple);
        // It is followed no more: all come home.
        let query = Query { tuple: *tuple, mark: query.0, device: query.1, uid: 0, tos: 0 };
        line.plan = Some(Plan {
            query,
            way: Way { interface: way.0, via: way.1 },
            mac: None,
            engine: self.sides[side].number(),
            tracked: None,
            cgroup: 0,
        });
        (line.side, line.closed, line.moves) = (side, *closed, *moves);
        line.shell = Captured::head_from_bytes(head);
        line.state = match phase {
            Phase::Kernel | Phase::Rebuilt(_) => State::Kernel,
            Phase::Captured => State::Bringing,
            Phase::Brought => State::Starting,
            Phase::Engine if *closed => State::Closing,
            Phase::Engine => State::Engine,
            Phase::Left(told, unread) => State::Left { told: Some(*told), unread: *unread },
        };
        if line.is_away() {
            self.kernel.inherit_tracked(line.plan.as_ref().expect("it was set just now"));
        }
        if matches!(phase, Phase::Captured | Phase::Brought | Phase::Left(..)) {
            line.captured = estate.captured(*id, head);
        }
        if matches!(phase, Phase::Left(..)) {
            line.stop();
        }
        if let Phase::Rebuilt(home) = phase {
            line.home = *home;
        }
        if let Some(program) = self.clients.get_mut(client) {
            program.lines += 1;
            program.heard = program.heard.max(Some(*seq).filter(|seq| *seq != 0));
        }
        self.tuples.insert(*tuple, *id);
        self.lines.insert(*id, line);
        Some(())
    }

    /// What the engines did not have: back, or on.
    fn take_up_move(&mut self, id: u64, phase: Phase) {
        let Some(line) = self.lines.get(&id) else { return };
        let (client, seq) = (line.client, line.seq);
        let there = self.clients.contains_key(&client);
        match phase {
            Phase::Kernel | Phase::Rebuilt(_) => {
                let rebuilt = line.shell.clone().filter(|_| matches!(phase, Phase::Rebuilt(_)));
                self.finish_in_kernel(id, rebuilt.as_ref());
                if !there {
                    self.forget(id);
                } else if seq != 0 {
                    self.stays(id, ("broker-died", "the broker died on the way".into()));
                } else {
                    self.tell_home(id);
                }
            }
            Phase::Captured if !there => self.give_back_whole(id, ("program-gone", "the program has gone".into())),
            // It may not have heard of it.
            Phase::Captured => self.bring_again(id),
            // The engine's death has brought them home.
            Phase::Brought | Phase::Engine => {}
            // The next look takes it on.
            Phase::Left(..) => {}
        }
    }

    /// The kernel has it, but for the last steps.
    fn finish_in_kernel(&mut self, id: u64, rebuilt: Option<&Captured>) {
        let Broker { lines, kernel, .. } = self;
        let Some(line) = lines.get(&id) else { return };
        let Some(plan) = &line.plan else { return };
        // The interface, it may be, has gone, and its map with it; what is no socket any
        // more is nobody's.
        let _ = kernel.unsteer(plan);
        let fd = line.fd.as_fd();
        let _ = match rebuilt {
            Some(rebuilt) if baton_kernel::is_captured(fd).is_ok_and(|captured| captured) => {
                baton_kernel::resume(fd, rebuilt)
            }
            Some(_) => Ok(()),
            None => baton_kernel::abandon(fd),
        };
    }

    /// Tells its program once more where it is.
    pub(super) fn tell_home(&mut self, id: u64) {
        let Some(line) = self.lines.get(&id) else { return };
        let (client, home) = (line.client, line.home);
        let reply = match home {
            Some((rcv_pos, tail_pos, whole)) => Reply::Home { id, rcv_pos, tail_pos, whole },
            None => {
                let text = "the broker died on the way".to_owned();
                Reply::Stays { seq: 0, id, code: "broker-died".into(), text }
            }
        };
        self.tell_client(client, &reply, Vec::new());
    }

    /// Brings it to its program once more.
    fn bring_again(&mut self, id: u64) {
        let Some(captured) = self.lines.get(&id).and_then(|line| line.captured.clone()) else {
            return self.lost(id, "what was captured of it cannot be read");
        };
        // Of an engine that is dead: whoever has not taken it in does not.
        self.bring(id, 0, captured, None);
    }
}
