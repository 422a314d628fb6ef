//! The broker: the one process with privileges.
//!
//! ```text
//!   Bringing --Brought--> Starting --Adopted--> Engine
//!      ^                                          | Restore, Home, death of the program
//!      | Held                                     v
//!   Holding <--- Kernel <---------------------- Leaving --Suspended--> Standing (whole)
//!                  ^                               |                     | LeftBehind
//!                  +---------- rebuild ------------+---------------------+
//! ```
//!
//! The broker runs on one thread, which never blocks on a program or on the engine. A connection's
//! state (`state`) says whose message the connection waits for, and has what is known of it there.
//! A step has one name everywhere: the broker has the engine `hold` a connection's frames, will
//! `capture` it, `bring` it to its program, and have the engine adopt it; or it will `evict` it
//! from the engine and `rebuild` it in the kernel. If the program does not take it in, the broker
//! will `undo` the capture.
//!
//! A connection comes home in one way only: the
//! broker reads it from the ledger and the program's memory (`from_ledger`) while it stands still,
//! whether its engine lives or not. If an engine has died and the kernel has no route for a
//! connection, the broker keeps the connection (`stranded`).
//!
//! Before each step that it could not otherwise undo, the broker hands what it knows to its
//! guardian: see [`baton_ipc::record`]. A broker that is started with a predecessor's records
//! (`recovery`) ends the predecessor's engines and brings every connection home, as after the death
//! of an engine.

mod admin;
mod clients;
mod config;
mod connection;
mod connections;
mod death;
mod departure;
mod direct;
mod discard;
mod draining;
mod engine_slot;
mod evict;
mod facing;
mod follow;
mod from_ledger;
mod hand_off;
mod host;
mod links;
mod load;
mod load_reports;
mod log;
mod members;
mod observe;
mod observed;
mod pair;
mod pair_home;
mod pair_recovery;
mod policy;
mod predict;
mod predicted;
mod put_back;
mod recovery;
mod reports;
mod rules;
mod sent_home;
mod state;
mod stay_reason;
mod stranded;
mod timeouts;
mod transfer;
mod watchdog;

pub use config::{Config, Interface, PairUsers, PolicySource};

use crate::checkpoints::Checkpoints;
use crate::priority;
use baton_engine::tuning::TuningError;
use baton_ipc::record::{self, Record};
use baton_journal::{Journal, Kind, Level};
use baton_kernel::kernel_side::{KernelError, KernelSide};
use baton_policy::Reason;
use baton_port::wait::WaitSet;
use clients::Client;
use connections::Connections;
use discard::Closers;
use engine_slot::{EngineSlot, Process};
use members::Members;
use recovery::RecoveredState;
use rustix::event::{EventfdFlags, eventfd};
use state::Goal;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval at which the broker looks for changes that it is not notified of.
const TICK: Duration = Duration::from_millis(200);

/// The interval at which the broker checks whether a connection's gap has closed.
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
    /// No engine can follow the configuration.
    #[error(transparent)]
    Tuning(#[from] TuningError),
    /// The engine's process cannot be started.
    #[error("{0}")]
    Engine(String),
}

impl From<baton_kernel::Failed> for BrokerError {
    fn from(error: baton_kernel::Failed) -> BrokerError {
        BrokerError::Kernel(error.into())
    }
}

/// Stops a broker from elsewhere. The broker first returns every connection to the kernel.
#[derive(Clone)]
pub struct Stopper(Arc<OwnedFd>);

impl Stopper {
    /// Asks the broker to stop.
    pub fn stop(&self) {
        // The write fails only if the counter is at its maximum, and then the broker wakes as well.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The broker: see the module's documentation.
pub struct Broker {
    config: Config,
    journal: Journal,
    /// Moves since the last event that summed them up.
    sum: log::Sum,
    kernel: KernelSide,
    listener: Arc<OwnedFd>,
    stop: Stopper,
    /// The processes that the service runs for.
    members: Members,
    clients: BTreeMap<u32, Client>,
    slots: Vec<EngineSlot>,
    checkpoints: Checkpoints,
    connections: Connections,
    jobs: Vec<admin::Job>,
    observers: observe::Observers,
    followers: follow::Followers,
    closers: Closers,
    /// Programs that did not read what the broker sent them.
    deaf: Vec<u32>,
    /// Connections that leave the kernel once it holds nothing of them beyond a gap.
    gaps: Vec<u64>,
    links: links::Links,
    churn: rules::Churn,
    prediction: predict::Prediction,
    sent_home: sent_home::SentHome,
    next_client: u32,
    next_connection: u64,
    next_region: u32,
    /// The engines' time 0, in nanoseconds of `CLOCK_MONOTONIC`.
    base: u64,
    tick_at: Instant,
    /// All engines run, so programs may connect.
    serving: bool,
    stopping: bool,
}

/// The parts of a broker whose creation can fail.
struct Parts {
    kernel: KernelSide,
    slots: Vec<EngineSlot>,
    listener: Arc<OwnedFd>,
    stop: OwnedFd,
    closers: Closers,
    recovered: RecoveredState,
}

impl Broker {
    /// Steers the interfaces, starts their engines, and listens. Call it in the interfaces' network
    /// namespace. If `checkpoints` holds the records of a predecessor, the broker continues in its
    /// place.
    ///
    /// # Errors
    /// [`BrokerError`]. The broker then leaves nothing of its own behind, and keeps the
    /// predecessor's records for another attempt.
    pub fn start(config: Config, mut checkpoints: Checkpoints) -> Result<Broker, BrokerError> {
        priority::go_first();
        let fresh = checkpoints.recovered().is_empty();
        let (mut broker, recovered) = match Broker::prepare(&config, &checkpoints) {
            Ok(Parts { kernel, slots, listener, stop, closers, recovered }) => {
                let generation = recovered.generation;
                let stop = Stopper(Arc::new(stop));
                let members = Members::new(config.descendants_of, &recovered);
                let journal = Journal::after(u64::from(generation) << 32);
                checkpoints.tell_to(journal.clone());
                let broker = Broker {
                    config,
                    sum: log::Sum::default(),
                    kernel,
                    listener,
                    stop,
                    members,
                    clients: BTreeMap::new(),
                    slots,
                    checkpoints,
                    connections: Connections::new(journal.clone()),
                    journal,
                    jobs: Vec::new(),
                    observers: observe::Observers::default(),
                    followers: follow::Followers::default(),
                    closers,
                    deaf: Vec::new(),
                    gaps: Vec::new(),
                    links: links::Links::default(),
                    churn: rules::Churn::default(),
                    prediction: predict::Prediction::default(),
                    sent_home: sent_home::SentHome::default(),
                    // No two connections, programs or regions get the same number, even from
                    // different brokers.
                    next_client: generation << 20,
                    next_connection: u64::from(generation) << 32,
                    next_region: generation << 20,
                    base: recovered.base,
                    tick_at: Instant::now(),
                    serving: false,
                    stopping: false,
                };
                (broker, recovered)
            }
            Err(error) => {
                if fresh {
                    checkpoints.end(1);
                }
                return Err(error);
            }
        };
        match broker.begin(recovered) {
            Ok(()) => Ok(broker),
            Err(error) => {
                broker.give_up(fresh);
                Err(error)
            }
        }
    }

    fn prepare(config: &Config, checkpoints: &Checkpoints) -> Result<Parts, BrokerError> {
        config.tuning.check()?;
        let mut kernel = KernelSide::open()?;
        kernel.set_rules(config.rules);
        let recovered = RecoveredState::of(checkpoints);
        let mut slots = Vec::new();
        for (at, interface) in config.interfaces.iter().enumerate() {
            let ledger = recovered.ledger(&interface.name)?;
            slots.push(EngineSlot::attach(&mut kernel, at, config, checkpoints.is_guarded(), ledger)?);
        }
        recovered.inherit(&mut slots)?;
        slots.push(EngineSlot::both_ends(slots.len())?);
        let listener = match &recovered.listener {
            Some(listener) => listener.clone(),
            None => Arc::new(clients::listen(config).map_err(|e| BrokerError::System("listening", e))?),
        };
        let failed = |error| BrokerError::System("making an eventfd", error);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
        let closers = Closers::new().map_err(failed)?;
        Ok(Parts { kernel, slots, listener, stop, closers, recovered })
    }

    fn begin(&mut self, recovered: RecoveredState) -> Result<(), BrokerError> {
        let (base, generation, short) = (self.base, recovered.generation + 1, recovered.short + 1);
        self.checkpoints.keep(record::LISTENER, &Record::Listener {}, &[&self.listener]);
        self.checkpoints.keep(record::BORN, &Record::Born { base, generation, short }, &[]);
        self.members.keep_all(&mut self.checkpoints);
        self.take_up(recovered);
        self.predict_by_policy();
        let Broker { slots, kernel, config, checkpoints, .. } = self;
        for slot in slots.iter_mut().filter(|slot| slot.engine.is_none() && slot.owner.is_none()) {
            slot.start_engine(kernel, config, base, checkpoints)?;
        }
        kernel.load_programs();
        let deadline = Instant::now() + watchdog::START;
        let runs =
            |slot: &EngineSlot| slot.owner.is_some() || slot.engine.as_ref().is_some_and(|engine| engine.started);
        while !self.slots.iter().all(runs) {
            if Instant::now() > deadline {
                return Err(BrokerError::Engine("the engine's process did not start".into()));
            }
            self.turn()?;
        }
        self.checkpoints.keep(record::BORN, &Record::Born { base, generation, short: 0 }, &[]);
        self.serving = true;
        self.log_serving();
        Ok(())
    }

    /// The broker cannot continue. Unless there is `nothing` to lose, it leaves everything as if it
    /// had been killed, so that another broker can continue.
    fn give_up(mut self, nothing: bool) {
        if self.checkpoints.is_guarded() && !nothing {
            return std::mem::forget(self);
        }
        let checkpoints = std::mem::replace(&mut self.checkpoints, Checkpoints::none());
        drop(self);
        checkpoints.end(1);
    }

    /// The handle that stops this broker.
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// The process ids of the interfaces' engines, in the order of the interfaces.
    pub fn engines(&self) -> Vec<Option<u32>> {
        let own = self.slots.iter().filter(|slot| slot.owner.is_none());
        own.map(|slot| slot.engine.as_ref()?.pid()).collect()
    }

    /// Serves until the broker is stopped. By then every connection is in the kernel, and the
    /// guardian ends as well.
    ///
    /// # Errors
    /// [`BrokerError`]; a guardian then starts another broker.
    pub fn run(mut self) -> Result<(), BrokerError> {
        while !self.has_stopped() {
            if let Err(error) = self.turn() {
                self.log(Level::Error, Kind::BROKER, |event| event.text(format!("cannot go on: {error}")));
                self.give_up(false);
                return Err(error);
            }
        }
        self.log_end();
        let checkpoints = std::mem::replace(&mut self.checkpoints, Checkpoints::none());
        drop(self);
        checkpoints.end(0);
        Ok(())
    }

    /// Waits for an event and handles it.
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
        self.prediction.sockets().into_iter().for_each(|sockets| set.add(&sockets.as_fd()));
        let heard = self.clients.iter().filter(|(id, _)| self.may_speak(**id));
        heard.for_each(|(_, client)| set.add(&client.channel));
        let engines = self.slots.iter().filter_map(|slot| slot.engine.as_ref());
        engines.filter_map(Process::channel).for_each(|channel| set.add(channel));
        self.checkpoints.channel().into_iter().for_each(|channel| set.add(channel));
        let guardian = self.checkpoints.channel().map(AsRawFd::as_raw_fd);
        let longest = if self.gaps.is_empty() && !self.links.has_meetings() { TICK } else { GAP_LOOK };
        set.wait(Some(longest)).map_err(|e| BrokerError::System("waiting", e))?;
        for at in 0..self.slots.len() {
            let channel = self.slots[at].engine.as_ref().and_then(Process::channel);
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
        let told = guardian.is_some_and(|guardian| set.is_ready(guardian)) && self.checkpoints.hear();
        if self.members.have_ended(&set, &mut self.checkpoints) {
            self.stop.stop();
        }
        if set.is_ready(self.stop.0.as_raw_fd()) || told {
            let _ = rustix::io::read(&*self.stop.0, &mut [0; 8]);
            self.begin_stop(None);
        }
        self.capture_settled();
        self.try_meetings();
        self.count_ended_sockets();
        if self.tick_at.elapsed() >= TICK {
            self.tick_at = Instant::now();
            // Some changes do not make the netlink socket readable.
            self.follow_changes()?;
            self.tick();
        }
        self.closers.flush();
        Ok(())
    }

    /// Handles what happens without notification.
    fn tick(&mut self) {
        for client in self.clients.values_mut() {
            let _ = client.channel.flush();
        }
        for slot in &mut self.slots {
            slot.flush();
        }
        self.reap_hung_up();
        self.look_after_engines();
        self.revive();
        self.checkpoints.tend();
        self.check_timeouts();
        self.close_orphans();
        self.end_waits();
        self.try_again();
        let Broker { connections, slots, links, kernel, .. } = self;
        let (now, mut settled, mut bypassed) = (Instant::now(), Vec::new(), Vec::new());
        for connection in connections.all_mut() {
            connection.sample(slots, links, now);
            if let Some(ending) = connection.ending(slots).filter(|_| !connection.state.has_queues()) {
                kernel.end_tracked(&connection.plan, ending);
            }
            settled.extend(connection.is_settled(slots).then_some(connection.id));
            bypassed.extend(connection.is_bypassed(now).then_some(connection.id));
        }
        settled.into_iter().for_each(|id| self.note(id));
        bypassed.into_iter().for_each(|id| self.evict(id, Goal::Home, Reason::Bypassed));
        for (net, tuple) in self.kernel.keep_tracked(now) {
            if let Some(id) = self.connections.id_in(net, &tuple) {
                self.evict(id, Goal::Home, Reason::Untracked);
            }
        }
        if self.kernel.has_others() {
            self.kernel.leave_unused(&self.connections.all().map(|connection| connection.plan.net()).collect());
        }
        self.return_by_new_rules();
        (0..self.slots.len()).for_each(|slot| self.return_by_load(slot));
        self.follow_paces();
        self.log_sum(false);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // Remove the socket file only if this broker made it and nobody else listens on it.
        if !self.checkpoints.is_guarded() {
            let _ = std::fs::remove_file(&self.config.socket);
        }
    }
}
