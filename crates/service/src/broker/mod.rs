//! The broker: the one process with privileges.
//!
//! ```text
//!   Bringing --Brought--> Starting --Adopted--> Engine
//!      ^                                          | Restore, Home, death of the program
//!      | Held                                     v
//!   Holding <--- Kernel <---------------------- Leaving --Suspended--> Standing (whole)
//!                  ^                               |                     | LeftBehind
//!                  +-------- come_home ------------+---------------------+
//! ```
//!
//! One thread, which never waits for a program, nor for the engine. A connection's state
//! says whose word it waits for. What comes home is read from the ledger and the program's
//! memory (`recover`) while it stands still, whether the engine lives or not: there is one
//! way home. What the kernel has no route for after an engine's death is kept (`left`).
//!
//! What it has it keeps with a guardian, before each step that could not be undone without
//! it: see [`baton_ipc::record`]. A broker that is started with such an estate
//! (`estate`) buries its predecessor's engines and brings everything home, as after an
//! engine's death.

mod admin;
mod clients;
mod config;
mod death;
mod direct;
mod discard;
mod estate;
mod home;
mod left;
mod lines;
mod log;
mod members;
mod patience;
mod put_back;
mod recover;
mod rules;
mod side;
mod take;
mod watchdog;

pub use config::{Config, Interface};

use crate::priority;
use crate::vault::Vault;
use baton_ipc::record::{self, Record};
use baton_journal::{Journal, Kind, Level};
use baton_kernel::hops::Change;
use baton_kernel::kernel_side::{KernelError, KernelSide};
use baton_port::wait::WaitSet;
use baton_wire::addr::Tuple;
use clients::Client;
use discard::Closers;
use estate::Estate;
use lines::Line;
use members::Members;
use rustix::event::{EventfdFlags, eventfd};
use side::{Process, Side};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks at what nobody tells of.
const TICK: Duration = Duration::from_millis(200);

/// Time between two looks at a gap.
const GAP_LOOK: Duration = Duration::from_millis(1);

/// Why a broker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// A system call failed.
    #[error("{0}: {1}")]
    System(&'static str, #[source] io::Error),
    /// An interface cannot be steered, or netlink failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The engine's process cannot be started.
    #[error("{0}")]
    Engine(String),
}

impl From<baton_kernel::Failed> for BrokerError {
    fn from(error: baton_kernel::Failed) -> BrokerError {
        BrokerError::Kernel(error.into())
    }
}

/// Ends a broker from elsewhere: everything goes back to the kernel first.
#[derive(Clone)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Asks for the end.
    pub fn stop(&self) {
        // Only a counter at its maximum refuses, and that wakes as well.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// See the file's head.
pub struct Broker {
    config: Config,
    journal: Journal,
    /// Moves since the journal was told of their sum.
    sum: log::Sum,
    kernel: KernelSide,
    listener: Arc<OwnedFd>,
    stop: Stopper,
    /// The processes that it is there for.
    members: Members,
    clients: BTreeMap<u32, Client>,
    sides: Vec<Side>,
    vault: Vault,
    lines: BTreeMap<u64, Line>,
    tuples: BTreeMap<Tuple, u64>,
    jobs: Vec<admin::Job>,
    closers: Closers,
    /// Programs that did not read what was said to them.
    deaf: Vec<u32>,
    /// Connections that are taken out of the kernel once it has nothing beyond a gap.
    gaps: Vec<u64>,
    churn: rules::Churn,
    next_client: u32,
    next_line: u64,
    next_region: u32,
    /// The engines' time 0.
    base: u64,
    tick_at: Instant,
    /// Engines run: whoever connects is welcome.
    serving: bool,
    stopping: bool,
}

impl Broker {
    /// Steers the interfaces, starts their engines, and listens. In the network namespace of
    /// the interfaces. With what a predecessor left in `vault`, goes on in its place.
    ///
    /// # Errors
    /// [`BrokerError`]; then nothing is left behind, but what a predecessor left is left to
    /// another try.
    pub fn start(config: Config, mut vault: Vault) -> Result<Broker, BrokerError> {
        priority::go_first();
        let fresh = vault.estate().is_empty();
        let (mut broker, estate) = match Broker::prepare(&config, &vault) {
            Ok((kernel, sides, listener, (stop, closers), estate)) => {
                let generation = estate.generation;
                let stop = Stopper(Arc::new(stop));
                let members = Members::new(config.descendants_of, &estate);
                let journal = Journal::after(u64::from(generation) << 32);
                vault.tell_to(journal.clone());
                let broker = Broker {
                    config,
                    journal,
                    sum: log::Sum::default(),
                    kernel,
                    listener,
                    stop,
                    members,
                    clients: BTreeMap::new(),
                    sides,
                    vault,
                    lines: BTreeMap::new(),
                    tuples: BTreeMap::new(),
                    jobs: Vec::new(),
                    closers,
                    deaf: Vec::new(),
                    gaps: Vec::new(),
                    churn: rules::Churn::default(),
                    // No name is given twice, also by different brokers.
                    next_client: generation << 20,
                    next_line: u64::from(generation) << 32,
                    next_region: generation << 20,
                    base: estate.base,
                    tick_at: Instant::now(),
                    serving: false,
                    stopping: false,
                };
                (broker, estate)
            }
            Err(error) => {
                if fresh {
                    vault.bye(1);
                }
                return Err(error);
            }
        };
        match broker.begin(estate) {
            Ok(()) => Ok(broker),
            Err(error) => {
                broker.give_up(fresh);
                Err(error)
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "parts of a broker, taken apart at once")]
    fn prepare(
        config: &Config,
        vault: &Vault,
    ) -> Result<(KernelSide, Vec<Side>, Arc<OwnedFd>, (OwnedFd, Closers), Estate), BrokerError> {
        let mut kernel = KernelSide::open()?;
        kernel.set_rules(config.rules);
        let estate = Estate::of(vault);
        let mut sides = Vec::new();
        for (at, interface) in config.interfaces.iter().enumerate() {
            let ledger = estate.ledger(&interface.name)?;
            sides.push(Side::attach(&mut kernel, at, config, vault.is_guarded(), ledger)?);
        }
        estate.inherit(&mut sides)?;
        let listener = match &estate.listener {
            Some(listener) => listener.clone(),
            None => Arc::new(clients::listen(config).map_err(|e| BrokerError::System("listening", e))?),
        };
        let failed = |error| BrokerError::System("making an eventfd", error);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
        let closers = Closers::new().map_err(failed)?;
        Ok((kernel, sides, listener, (stop, closers), estate))
    }

    fn begin(&mut self, estate: Estate) -> Result<(), BrokerError> {
        let (base, generation, short) = (self.base, estate.generation + 1, estate.short + 1);
        self.vault.keep(record::LISTENER, &Record::Listener {}, &[&self.listener]);
        self.vault.keep(record::BORN, &Record::Born { base, generation, short }, &[]);
        self.members.keep_all(&mut self.vault);
        self.take_up(estate);
        let Broker { sides, kernel, config, vault, .. } = self;
        for side in sides.iter_mut().filter(|side| side.engine.is_none() && side.owner.is_none()) {
            side.start_engine(kernel, config, base, vault)?;
        }
        kernel.load_programs();
        let deadline = Instant::now() + watchdog::START;
        let runs = |side: &Side| side.owner.is_some() || side.engine.as_ref().is_some_and(|engine| engine.started);
        while !self.sides.iter().all(runs) {
            if Instant::now() > deadline {
                return Err(BrokerError::Engine("the engine's process does not start".into()));
            }
            self.turn()?;
        }
        self.vault.keep(record::BORN, &Record::Born { base, generation, short: 0 }, &[]);
        self.serving = true;
        self.log_serving();
        Ok(())
    }

    /// It cannot go on. Unless there is `nothing` to be lost, all is left as if it had been
    /// killed, for another.
    fn give_up(mut self, nothing: bool) {
        if self.vault.is_guarded() && !nothing {
            return std::mem::forget(self);
        }
        let vault = std::mem::replace(&mut self.vault, Vault::none());
        drop(self);
        vault.bye(1);
    }

    /// What ends it.
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Process ids of the engines, in the order of the interfaces.
    pub fn engines(&self) -> Vec<Option<u32>> {
        let own = self.sides.iter().filter(|side| side.owner.is_none());
        own.map(|side| side.engine.as_ref()?.pid()).collect()
    }

    /// Serves until it is stopped: then everything is in the kernel, and the guardian ends
    /// too.
    ///
    /// # Errors
    /// [`BrokerError`]: then a guardian starts another broker.
    pub fn run(mut self) -> Result<(), BrokerError> {
        while !self.has_stopped() {
            if let Err(error) = self.turn() {
                self.log(Level::Error, Kind::BROKER, |event| event.text(format!("cannot go on: {error}")));
                self.give_up(false);
                return Err(error);
            }
        }
        self.log_end();
        let vault = std::mem::replace(&mut self.vault, Vault::none());
        drop(self);
        vault.bye(0);
        Ok(())
    }

    /// Waits for something, and does what it asks for.
    fn turn(&mut self) -> Result<(), BrokerError> {
        let mut set = WaitSet::new();
        if self.serving {
            set.add(&self.listener);
        }
        set.add(&*self.stop.0);
        self.members.processes().for_each(|process| set.add(&process));
        let netlink = self.kernel.as_fd().as_raw_fd();
        set.add(&self.kernel.as_fd());
        set.add(self.closers.fewer());
        let heard = self.clients.iter().filter(|(id, _)| self.may_speak(**id));
        heard.for_each(|(_, client)| set.add(&client.channel));
        let engines = self.sides.iter().filter_map(|side| side.engine.as_ref());
        engines.filter_map(Process::channel).for_each(|channel| set.add(channel));
        self.vault.channel().into_iter().for_each(|channel| set.add(channel));
        let guardian = self.vault.channel().map(AsRawFd::as_raw_fd);
        let longest = if self.gaps.is_empty() { TICK } else { GAP_LOOK };
        set.wait(Some(longest)).map_err(|e| BrokerError::System("waiting", e))?;
        for at in 0..self.sides.len() {
            let channel = self.sides[at].engine.as_ref().and_then(Process::channel);
            if channel.is_some_and(|channel| set.is_ready(channel.as_raw_fd())) {
                self.hear_engine(at);
            }
        }
        let talking: Vec<u32> =
            self.clients.iter().filter(|(_, c)| set.is_ready(c.channel.as_raw_fd())).map(|c| *c.0).collect();
        talking.into_iter().for_each(|client| self.hear_client(client));
        for client in std::mem::take(&mut self.deaf) {
            self.log_client(Level::Warn, Kind::DENIED, client, |event| {
                event.reason("deaf").text("it does not read its messages, and is cut off")
            });
            self.on_client_gone(client);
        }
        if set.is_ready(self.listener.as_raw_fd()) {
            self.accept();
        }
        if set.is_ready(netlink) {
            self.follow_changes()?;
        }
        let told = guardian.is_some_and(|guardian| set.is_ready(guardian)) && self.vault.hear();
        if self.members.have_ended(&set, &mut self.vault) {
            self.stop.stop();
        }
        if set.is_ready(self.stop.0.as_raw_fd()) || told {
            let _ = rustix::io::read(&*self.stop.0, &mut [0; 8]);
            self.begin_stop(None);
        }
        self.go_on_taking();
        if self.tick_at.elapsed() >= TICK {
            self.tick_at = Instant::now();
            // Not all that changes makes netlink readable.
            self.follow_changes()?;
            self.tick();
        }
        self.closers.flush();
        Ok(())
    }

    /// What nobody tells of.
    fn tick(&mut self) {
        for client in self.clients.values_mut() {
            let _ = client.channel.flush();
        }
        for side in &mut self.sides {
            side.flush();
        }
        self.bury_hung_up();
        self.look_after_engines();
        self.revive();
        self.vault.tend();
        self.lose_patience();
        self.close_orphans();
        self.try_again();
        let Broker { lines, sides, kernel, .. } = self;
        let (now, mut settled, mut bypassed) = (Instant::now(), Vec::new(), Vec::new());
        for line in lines.values_mut() {
            line.sample(sides, now);
            let ending = line.ending(sides).filter(|_| line.captured.is_none());
            if let Some((ending, plan)) = ending.zip(line.plan) {
                kernel.end_tracked(&plan, ending);
            }
            settled.extend(line.is_settled(sides).then_some(line.id));
            bypassed.extend(line.is_bypassed(now).then_some(line.id));
        }
        settled.into_iter().for_each(|id| self.note(id));
        bypassed.into_iter().for_each(|id| self.leave(id, lines::Goal::Home, "bypassed"));
        for tuple in self.kernel.keep_tracked(now) {
            if let Some(&id) = self.tuples.get(&tuple) {
                self.leave(id, lines::Goal::Home, "untracked");
            }
        }
        self.return_by_new_rules();
        self.log_sum(false);
    }

    fn follow_changes(&mut self) -> Result<(), BrokerError> {
        let mut changes = Vec::new();
        self.kernel.poll(|change| changes.push(change))?;
        for change in changes {
            match change {
                Change::Neighbour { interface, neighbour, mac: Some(mac) } => {
                    self.tell_side(interface, &baton_ipc::order::Order::Neighbour { neighbour, mac });
                }
                Change::Link(link) => {
                    self.tell_side(link.index, &baton_ipc::order::Order::Mac { mac: link.mac });
                    self.on_mtu(link.index, link.mtu);
                }
                Change::LinkGone(index) => {
                    let gone = |line: &&Line| line.plan.is_some_and(|plan| plan.way.interface == index);
                    let homeless: Vec<u64> = self.lines.values().filter(gone).map(|line| line.id).collect();
                    self.log(Level::Warn, Kind::HOST, |event| {
                        let text = format!("interface {index} has gone; {} connections come home", homeless.len());
                        event.reason("homeless").text(text)
                    });
                    homeless.into_iter().for_each(|id| self.leave(id, lines::Goal::Home, "homeless"));
                }
                Change::Way { tuple, way } => self.change_way(tuple, way),
                Change::Rules => self.on_rules_changed(),
                Change::Refused { tuple, why } => self.on_refused(tuple, why),
                // Its questions find out; the kernel could do no better.
                Change::Neighbour { mac: None, .. } => {}
            }
        }
        Ok(())
    }

    /// An engine has the MTU that its interface had when it was started.
    fn on_mtu(&mut self, interface: u32, mtu: u32) {
        let here = self.sides.iter_mut().filter(|side| side.index == interface);
        let engine = here.filter_map(|side| side.engine.as_mut()).find(|engine| engine.mtu != mtu);
        if let Some(engine) = engine.filter(|_| !self.stopping) {
            engine.mtu = mtu;
            self.log(Level::Info, Kind::HOST, |event| {
                event.reason("mtu-changed").text(format!("interface {interface} has an MTU of {mtu} bytes now"))
            });
            self.replace_engines(None, "mtu-changed");
        }
    }

    fn change_way(&mut self, tuple: Tuple, way: baton_kernel::hops::Way) {
        let Some(&id) = self.tuples.get(&tuple) else { return };
        let Some(line) = self.lines.get_mut(&id) else { return };
        let Some(plan) = &mut line.plan else { return };
        if plan.way.interface != way.interface {
            return self.leave(id, lines::Goal::Home, "homeless");
        }
        plan.way = way;
        self.tell_side(way.interface, &baton_ipc::order::Order::Reroute { id, via: way.via });
    }

    fn tell_side(&mut self, interface: u32, order: &baton_ipc::order::Order) {
        for side in self.sides.iter_mut().filter(|side| side.index == interface) {
            side.tell(order, Vec::new());
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Only a socket of ours, and that nobody else listens on.
        if !self.vault.is_guarded() {
            let _ = std::fs::remove_file(&self.config.socket);
        }
    }
}
