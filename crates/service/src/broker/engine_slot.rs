//! A slot for an engine on an interface: the engine's process, its ledger, and what the broker
//! keeps for both. Each interface has a slot for its own engine; engines inside programs have
//! further ones.

use super::config::Config;
use super::load_reports::{self, Load};
use super::observed::Observed;
use super::{Broker, BrokerError};
use crate::checkpoints::Checkpoints;
use crate::guardian;
use baton_consumer::memory::{SharedLedger, SharedMemory};
use baton_engine::region::EngineRegion;
use baton_engine::tuning::EngineTuning;
use baton_ipc::begin::Begin;
use baton_ipc::channel::Channel;
use baton_ipc::message::{Reply, Sizes};
use baton_ipc::order::{Order, RunAs};
use baton_ipc::record::{self, Record};
use baton_journal::{Kind, Level};
use baton_kernel::hops::Link;
use baton_kernel::kernel_side::KernelSide;
use baton_kernel::steer;
use baton_port::{SteeredPort, Tap};
use baton_wire::addr::Tuple;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn new_ledger(connections: u32) -> Result<SharedLedger, BrokerError> {
    SharedLedger::create(connections).map_err(|e| BrokerError::System("making the ledger", e))
}

/// An engine that dies sooner than this after its start is not restarted at once.
const TOO_SOON: Duration = Duration::from_secs(1);

/// An engine's number, and the program that contains the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    /// `None` if a predecessor gave the engine away.
    pub client: Option<u32>,
    /// As in [`Steering::open_engine`](baton_kernel::steer::Steering::open_engine).
    pub number: u32,
}

/// A program's memory in an engine.
pub(super) struct Memory {
    pub region: u32,
    pub memory: EngineRegion,
    /// Where the points of its connections are stamped, while somebody observes them.
    pub observed: Option<Observed>,
}

/// An engine's process, or the program that contains the engine.
pub(super) struct Process {
    /// `None` if a predecessor started the process.
    child: Option<Child>,
    /// `None` for a program, which the broker must not end.
    pidfd: Option<Arc<OwnedFd>>,
    /// `None` if a predecessor started the engine, which is then only to be reaped.
    channel: Option<Channel>,
    pub started: bool,
    /// The interface's MTU when the engine started.
    pub mtu: u32,
    /// Watchdog checks since the engine last sent a message.
    pub silent: u32,
    /// Timeout checks since the engine last settled a connection.
    pub unanswering: u32,
    /// The program that contains the engine has closed its channel.
    pub hung_up: bool,
    /// The exit status of an engine that this broker started, once the engine has ended.
    pub status: Option<ExitStatus>,
    born: Instant,
    /// The number by which the program that contains the engine knows it, which is higher than those of
    /// all engines before; 0 if the program numbers none.
    pub given: u64,
    /// The programs' memory, by the program's number.
    pub consumers: BTreeMap<u32, Memory>,
}

impl Process {
    /// A process that a predecessor started.
    pub fn inherited(pidfd: Option<Arc<OwnedFd>>) -> Process {
        let (child, channel, consumers) = (None, None, BTreeMap::new());
        Process {
            child,
            pidfd,
            channel,
            started: false,
            mtu: 0,
            silent: 0,
            unanswering: 0,
            hung_up: false,
            status: None,
            born: Instant::now(),
            given: 0,
            consumers,
        }
    }

    /// An engine inside a program.
    pub fn in_program(channel: Channel, mtu: u32, given: u64) -> Process {
        Process { channel: Some(channel), mtu, given, ..Process::inherited(None) }
    }

    /// The process id, if this broker started the process.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Notes that the engine will send nothing more.
    pub fn hang_up(&mut self) {
        (self.channel, self.hung_up) = (None, true);
    }

    pub fn channel(&self) -> Option<&Channel> {
        self.channel.as_ref()
    }

    /// Kills the process if it still runs. From then on it writes nothing.
    fn end(&mut self) {
        let Some(pidfd) = &self.pidfd else { return };
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
        match &mut self.child {
            Some(child) => self.status = child.wait().ok(),
            // Its new parent reaps it.
            None => while poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {},
        }
    }
}

/// How an engine is to start.
pub(super) struct EngineStart {
    pub tuning: EngineTuning,
    /// The engine's time 0, in nanoseconds of `CLOCK_MONOTONIC`.
    pub base: u64,
    /// The user and group that its process becomes, if it is to change them.
    pub run_as: Option<RunAs>,
    pub link: Link,
    /// Whether AF_XDP runs in the driver; `None` for a TAP device.
    pub xdp: Option<bool>,
}

/// The name of the slot of connections whose both ends are on this machine. No interface has it: the longest
/// has 15 bytes, and none a blank.
pub(super) const BOTH_ENDS: &str = "both ends";

pub(super) struct EngineSlot {
    /// Its name in the broker's records: the interface's name, with a number for a program's
    /// engine.
    pub name: String,
    pub interface: String,
    pub index: u32,
    pub engine: Option<Process>,
    pub ledger: SharedLedger,
    pub load: Load,
    /// `None` for the interface's own engine.
    pub owner: Option<Owner>,
    /// Its index among the slots.
    at: usize,
    /// The TAP device, kept open so that it outlives engines. AF_XDP sockets belong to the engine.
    tap: Option<SteeredPort>,
    /// The earliest time at which an engine may be started again.
    not_before: Instant,
}

impl EngineSlot {
    /// Steers the interface, without starting an engine. If `ledger` is given, continues with what
    /// a predecessor left.
    pub fn attach(
        kernel: &mut KernelSide,
        at: usize,
        config: &Config,
        outlive: bool,
        ledger: Option<SharedLedger>,
    ) -> Result<EngineSlot, BrokerError> {
        let interface = &config.interfaces[at];
        let options = steer::Options { tuples_max: config.tuning.connections, outlive };
        let kernel_error = |e: steer::SteerError| BrokerError::Kernel(e.into());
        if outlive && ledger.is_none() {
            // Every process of that service was killed, so nobody can bring its connections home.
            steer::Steering::reap_all(&interface.name).map_err(kernel_error)?;
        }
        let index = kernel.add_interface(&interface.name, interface.kind, options).map_err(kernel_error)?;
        let tap = match kernel.mode(index) {
            Some(steer::Mode::Xdp { .. }) => None,
            _ => Some(kernel.open_port(index)?),
        };
        let ledger = match ledger {
            Some(ledger) => ledger,
            None => new_ledger(config.tuning.entries())?,
        };
        let (name, interface, owner) = (interface.name.clone(), interface.name.clone(), None);
        Ok(EngineSlot {
            name,
            interface,
            index,
            engine: None,
            ledger,
            load: Load::default(),
            owner,
            at,
            tap,
            not_before: Instant::now(),
        })
    }

    /// The slot of connections whose both ends are on this machine. It never has an engine.
    ///
    /// # Errors
    /// If there is no memory for a ledger.
    pub fn both_ends(at: usize) -> Result<EngineSlot, BrokerError> {
        Ok(EngineSlot {
            name: BOTH_ENDS.to_owned(),
            interface: "-".to_owned(),
            index: 0,
            engine: None,
            ledger: new_ledger(1)?,
            load: Load::default(),
            owner: Some(Owner { client: None, number: 0 }),
            at,
            tap: None,
            not_before: Instant::now(),
        })
    }

    /// True for the slot of [`EngineSlot::both_ends`].
    pub fn is_between(&self) -> bool {
        self.name == BOTH_ENDS
    }

    /// The slot for a program's engine on the interface of `own`.
    pub fn of_program(
        own: &EngineSlot,
        at: usize,
        owner: Owner,
        config: &Config,
        checkpoints: &mut Checkpoints,
    ) -> io::Result<EngineSlot> {
        let ledger = SharedLedger::create(config.consumer.connections.saturating_mul(2).next_power_of_two())?;
        let file = ledger.as_fd().try_clone_to_owned()?;
        let slot = EngineSlot::inherited(own, at, owner, ledger);
        checkpoints.keep(slot.ledger_key(), &Record::Ledger { interface: slot.name.clone() }, &[&Arc::new(file)]);
        Ok(slot)
    }

    /// The slot for a program's engine that presumably still runs.
    pub fn inherited(own: &EngineSlot, at: usize, owner: Owner, ledger: SharedLedger) -> EngineSlot {
        EngineSlot {
            name: format!("{}/{}", own.name, owner.number),
            interface: own.interface.clone(),
            index: own.index,
            engine: Some(Process::inherited(None)),
            ledger,
            load: Load::default(),
            owner: Some(owner),
            at,
            tap: None,
            not_before: Instant::now(),
        }
    }

    /// Returns true if the engine belongs to this program.
    pub fn is_of(&self, client: u32) -> bool {
        self.owner.is_some_and(|owner| owner.client == Some(client))
    }

    /// The engine's number in the steering.
    pub fn number(&self) -> u32 {
        self.owner.map_or(0, |owner| owner.number)
    }

    /// The key of the ledger's record.
    pub fn ledger_key(&self) -> record::Key {
        match self.owner {
            None => record::ledger(self.at),
            Some(owner) => record::programs_ledger(owner.number),
        }
    }

    /// Starts an engine, with a new ledger.
    pub fn start_engine(
        &mut self,
        kernel: &mut KernelSide,
        config: &Config,
        base: u64,
        checkpoints: &mut Checkpoints,
    ) -> Result<(), BrokerError> {
        let system = |what| move |e: io::Error| BrokerError::System(what, e);
        let link = kernel.link(self.index)?;
        let xdp = match kernel.mode(self.index) {
            Some(steer::Mode::Xdp { driver }) => Some(driver),
            _ => None,
        };
        let tap = self.tap.as_ref().and_then(SteeredPort::device);
        self.ledger = new_ledger(self.ledger.ledger().len())?;
        let file = self.ledger.as_fd().try_clone_to_owned().map_err(system("duplicating"))?;
        checkpoints.keep(self.ledger_key(), &Record::Ledger { interface: self.name.clone() }, &[&Arc::new(file)]);
        let (ours, theirs) = guardian::pair().map_err(system("making a socket pair"))?;
        let child = guardian::start(&config.engine, theirs).map_err(system("starting the engine"))?;
        let pid = Pid::from_raw(child.id() as i32).expect("a process has a number");
        let pidfd =
            pidfd_open(pid, PidfdFlags::empty()).map_err(|e| BrokerError::System("opening a pidfd", e.into()))?;
        let pidfd = Arc::new(pidfd);
        checkpoints.keep(record::engine(self.at), &Record::Engine { interface: self.name.clone() }, &[&pidfd]);
        let mut channel = Channel::new(ours);
        let tap = tap.map(|(tap, _)| tap);
        let start = EngineStart { tuning: config.tuning, base, run_as: config.engine_user, link, xdp };
        self.send_start(&mut channel, tap, &start).map_err(system("telling the engine how to start"))?;
        let (child, channel, mtu) = (Some(child), Some(channel), link.mtu);
        self.engine = Some(Process { child, channel, mtu, ..Process::inherited(Some(pidfd)) });
        self.load = Load::default();
        if let Some(order) = load_reports::order(config.load) {
            self.tell(&order, Vec::new());
        }
        Ok(())
    }

    /// Tells an engine how to start.
    pub fn send_start(&self, channel: &mut Channel, tap: Option<&Tap>, start: &EngineStart) -> io::Result<()> {
        let EngineStart { tuning, base, run_as, link, xdp } = *start;
        tuning.check().map_err(io::Error::other)?;
        let begin = Begin { mtu: link.mtu.min(u16::MAX.into()) as u16, mac: link.mac, base, tuning };
        let device = tap.map_or(self.name.as_str(), Tap::name).to_owned();
        let start = Order::Start { device, xdp, begin, run_as };
        let fds = [Some(self.ledger.as_fd()), tap.map(AsFd::as_fd)].into_iter().flatten();
        let fds = fds.map(|fd| fd.try_clone_to_owned()).collect::<io::Result<_>>()?;
        channel.send(start.to_bytes(), fds)
    }

    /// Sends an order to the engine, if there is one. If the engine does not read, the next receive
    /// from it shows that it is dead.
    pub fn tell(&mut self, order: &Order, fds: Vec<OwnedFd>) {
        if let Some(channel) = self.engine.as_mut().and_then(|engine| engine.channel.as_mut()) {
            let _ = channel.send(order.to_bytes(), fds);
        }
    }

    pub fn flush(&mut self) {
        if let Some(channel) = self.engine.as_mut().and_then(|engine| engine.channel.as_mut()) {
            let _ = channel.flush();
        }
    }

    /// Ends the engine if it still runs, and returns what is left of it.
    pub fn reap(&mut self) -> Option<Process> {
        let mut engine = self.engine.take()?;
        engine.end();
        if engine.born.elapsed() < TOO_SOON {
            self.not_before = Instant::now() + TOO_SOON;
        }
        Some(engine)
    }

    /// A program's memory in this engine.
    pub fn memory(&self, client: u32) -> Option<&Memory> {
        self.engine.as_ref()?.consumers.get(&client)
    }

    /// The same, to change it.
    pub fn memory_mut(&mut self, client: u32) -> Option<&mut Memory> {
        self.engine.as_mut()?.consumers.get_mut(&client)
    }

    /// The programs that have memory in this engine, by number, and that memory.
    pub fn memories(&self) -> impl Iterator<Item = (u32, &Memory)> {
        self.engine.iter().flat_map(|engine| &engine.consumers).map(|(client, memory)| (*client, memory))
    }
}

/// A program's word that its engines hold a connection's frames.
pub(super) struct Held {
    /// The connection's addresses and ports.
    pub tuple: Tuple,
    /// The number of the last engine that it had heard of.
    pub engine: u64,
}

impl Held {
    /// True if the engine of this slot was among them and gets the frames that are led to it, and if
    /// those that it holds are the frames of `tuple`.
    pub fn covers(&self, slot: &EngineSlot, tuple: &Tuple) -> bool {
        let knew = |engine: &Process| engine.started && (1..=self.engine).contains(&engine.given);
        self.tuple == *tuple && slot.engine.as_ref().is_some_and(knew)
    }
}

impl Drop for EngineSlot {
    fn drop(&mut self) {
        self.reap();
    }
}

impl Broker {
    /// Starts the missing engines.
    pub(super) fn revive(&mut self) {
        let Broker { slots, kernel, config, base, stopping, checkpoints, journal, .. } = self;
        for slot in slots.iter_mut().filter(|slot| slot.engine.is_none() && slot.owner.is_none() && !*stopping) {
            if Instant::now() >= slot.not_before
                && let Err(error) = slot.start_engine(kernel, config, *base, checkpoints)
            {
                journal.tell(Level::Warn, Kind::ENGINE, |event| {
                    event.text(format!(
                        "the engine of {} cannot be started; another attempt follows: {error}",
                        slot.name
                    ))
                });
                slot.not_before = Instant::now() + TOO_SOON;
            }
        }
    }

    /// The number of a program's region in an engine. Creates the region if there is none.
    pub(super) fn region(&mut self, at: usize, client: u32) -> io::Result<u32> {
        let Broker { slots, clients, config, next_region, checkpoints, .. } = self;
        let engine = slots[at].engine.as_ref().ok_or(ErrorKind::NotConnected)?;
        if let Some(memory) = engine.consumers.get(&client) {
            return Ok(memory.region);
        }
        let process = engine.pidfd.as_ref().map(|pidfd| pidfd.try_clone()).transpose()?;
        let program = clients.get_mut(&client).ok_or(ErrorKind::NotConnected)?;
        let memory = SharedMemory::create(program.layout(config))?;
        let eventfd = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (doorbell, completions) = (eventfd()?, eventfd()?);
        *next_region += 1;
        let region = *next_region;
        let copies = || -> io::Result<Vec<OwnedFd>> {
            [memory.as_fd(), doorbell.as_fd(), completions.as_fd()].iter().map(|fd| fd.try_clone_to_owned()).collect()
        };
        let kept = Record::Region { region, client, interface: slots[at].name.clone() };
        let file = Arc::new(memory.as_fd().try_clone_to_owned()?);
        checkpoints.keep(record::region(region), &kept, &[&file]);
        slots[at].tell(&Order::Consumer { key: region }, copies()?);
        let sizes = program.raw.map_or_else(|| Sizes::of(&config.consumer), Sizes::of_raw);
        let theirs = copies()?.into_iter().chain(process).collect();
        program.channel.send(Reply::Region { region, sizes }.to_bytes(), theirs)?;
        let memory = EngineRegion::new(memory.region().clone());
        let engine = slots[at].engine.as_mut().expect("it was checked above");
        engine.consumers.insert(client, Memory { region, memory, observed: None });
        self.follow_observers(at, client);
        Ok(region)
    }
}
