//! The mover: it moves connections of a host between its two engines, as the service, the
//! kernel and the steering program do in a real one.
//!
//! ```text
//!   to the second    steer, hold there -> suspend here -> adopt there -> let go here
//!   to the first     suspend here -> adopt there -> let go here -> steer
//! ```
//!
//! Either way frames that come meanwhile are kept or lost, never half taken in, and no engine
//! answers for a connection of the other's. A rebuilding that fails leaves the connection where
//! it was.

use crate::app::App;
use crate::config::{HostConfig, Moves};
use crate::machine::Machine;
use baton_engine::event::ConnId;
use baton_engine::ledger::Recovered;
use baton_engine::region::{ConsumerRegion, EngineRegion, Region};
use baton_engine::streamer::{Adopt, AdoptError, ConsumerId, Moved, SuspendError, Suspended};
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use baton_wire::packet::{Link, Packet};
use std::collections::{BTreeMap, BTreeSet};

const PROGRAM: ConsumerId = ConsumerId(0);

/// The step that a moving connection has reached.
enum Stage {
    /// Its engine was told to stop it.
    Stopping,
    /// It stands still and is to be rebuilt.
    Stopped(Box<Suspended>),
    /// The other engine was told to adopt it.
    Adopting(Box<Suspended>),
    /// It is there, on this queue pair.
    Adopted(Box<Suspended>, u32),
    /// It could not be rebuilt.
    Back(ConnId),
    /// Its engine died: what is known of it, and its bytes.
    Wreck(Box<Recovered>, Vec<u8>),
    /// The other engine was told to adopt it; it has once there is a queue pair.
    Salvaged(Box<Recovered>, Vec<u8>, Option<u32>),
}

/// A moving connection.
struct Trip {
    from: usize,
    qp: u32,
    conn: ConnId,
    stage: Stage,
}

/// Moves connections between the two engines of a host.
pub struct Mover {
    moves: Moves,
    rng: fastrand::Rng,
    turns: u64,
    trips: BTreeMap<Tuple, Trip>,
    /// Tuples whose frames go to the second engine.
    steered: BTreeSet<Tuple>,
    /// Tuples that need not be held once the engine has seen the frames on their way to it.
    loose: Vec<(usize, Tuple)>,
    /// The program's side of the engine that replaces a dead one, until the dead one's region
    /// is empty.
    spare: Option<ConsumerRegion>,
    /// Moves that succeeded.
    pub moved: u64,
    /// Connections that went on after their engine's death.
    pub survived: u64,
}

impl Mover {
    /// A mover with no connection under way.
    pub fn new(moves: Moves, seed: u64) -> Mover {
        Mover {
            moves,
            rng: fastrand::Rng::with_seed(seed ^ 0x6d6f_7665),
            turns: 0,
            trips: BTreeMap::new(),
            steered: BTreeSet::new(),
            loose: Vec::new(),
            spare: None,
            moved: 0,
            survived: 0,
        }
    }

    /// True if a connection is moving.
    pub fn is_busy(&self) -> bool {
        !self.trips.is_empty() || !self.loose.is_empty() || self.spare.is_some()
    }

    /// Which engines get a frame: both, if it is no TCP segment.
    pub fn steer(&self, frame: &[u8], link: Link) -> &'static [usize] {
        let Ok(packet) = Packet::parse(frame, link) else { return &[0, 1] };
        let tuple =
            Tuple { local: packet.dst, remote: packet.src, local_port: packet.dst_port, remote_port: packet.src_port };
        if self.steered.contains(&tuple) { &[1] } else { &[0] }
    }

    /// The mover's turn, after the engines had theirs.
    pub fn turn(&mut self, now: Instant, calm: bool, machines: &mut [Machine], app: &mut App) {
        self.turns += 1;
        for (side, machine) in machines.iter_mut().enumerate() {
            while let Some(moved) = machine.streamer().poll_moved() {
                self.hear(side, moved, app);
            }
        }
        for tuple in self.trips.keys().copied().collect::<Vec<_>>() {
            self.go_on(now, tuple, machines, app);
        }
        self.let_loose(machines);
        let all = self.moves.at_turn == Some(self.turns);
        if all || (!calm && self.moves.often.draw(&mut self.rng)) {
            let places = app.movable();
            let one = if places.is_empty() { 0 } else { self.rng.usize(..places.len()) };
            for (index, (side, qp, tuple)) in places.into_iter().enumerate() {
                if all || index == one {
                    self.begin(side, qp, tuple, machines, app);
                }
            }
        }
    }

    fn begin(&mut self, from: usize, qp: u32, tuple: Tuple, machines: &mut [Machine], app: &mut App) {
        let Some(conn) = machines[from].streamer().connection(PROGRAM, qp) else { return };
        if self.trips.contains_key(&tuple) || self.spare.is_some() {
            return;
        }
        let to = 1 - from;
        if to == 1 {
            if !machines[to].streamer().hold(tuple) {
                return;
            }
            self.loose.retain(|loose| *loose != (to, tuple));
            self.steered.insert(tuple);
        }
        app.freeze(from, qp);
        match machines[from].streamer().suspend(conn, &tuple) {
            Ok(()) => {
                self.trips.insert(tuple, Trip { from, qp, conn, stage: Stage::Stopping });
            }
            Err(SuspendError::Busy | SuspendError::NotOpen | SuspendError::Filling) => {
                self.stay(from, qp, tuple, app);
            }
        }
    }

    /// The connection goes on where it was.
    fn stay(&mut self, from: usize, qp: u32, tuple: Tuple, app: &mut App) {
        if from == 0 {
            self.steered.remove(&tuple);
            self.loose.push((1, tuple));
        }
        app.thaw(from, qp);
    }

    fn hear(&mut self, side: usize, moved: Moved, app: &mut App) {
        let on_trip = |trips: &BTreeMap<Tuple, Trip>, conn: ConnId| {
            trips.iter().find(|(_, trip)| trip.from == side && trip.conn == conn).map(|(tuple, _)| *tuple)
        };
        match moved {
            Moved::Suspended(suspended) => {
                let tuple = suspended.tuple;
                if let Some(trip) = self.trips.get_mut(&tuple) {
                    app.check_parcel(trip.from, trip.qp, &suspended);
                    trip.stage = Stage::Stopped(suspended);
                }
            }
            Moved::Stays { conn } | Moved::Ended { conn } => {
                if let Some(tuple) = on_trip(&self.trips, conn)
                    && let Some(trip) = self.trips.remove(&tuple)
                {
                    self.stay(trip.from, trip.qp, tuple, app);
                }
            }
            Moved::Adopted { token, qp, .. } => {
                for trip in self.trips.values_mut() {
                    let here = trip.token() == token;
                    if let Stage::Salvaged(_, _, adopted) = &mut trip.stage
                        && here
                    {
                        *adopted = Some(qp);
                    }
                }
                self.settle(token, |suspended| Stage::Adopted(suspended, qp));
            }
            Moved::AdoptRefused { token, .. } => self.settle(token, |suspended| Stage::Back(suspended.conn)),
            // These engines are no guests.
            Moved::Reopened { .. } | Moved::Urgent { .. } => {}
        }
    }

    fn settle(&mut self, token: u64, next: impl FnOnce(Box<Suspended>) -> Stage) {
        let mut trips = self.trips.values_mut();
        // One adoption at a time has a token: the number of its connection's queue pair.
        let Some(trip) = trips.find(|trip| matches!(trip.stage, Stage::Adopting(_)) && trip.token() == token) else {
            return;
        };
        if let Stage::Adopting(suspended) = std::mem::replace(&mut trip.stage, Stage::Stopping) {
            trip.stage = next(suspended);
        }
    }

    fn go_on(&mut self, now: Instant, tuple: Tuple, machines: &mut [Machine], app: &mut App) {
        let Some(mut trip) = self.trips.remove(&tuple) else { return };
        let (from, to, token) = (trip.from, 1 - trip.from, trip.token());
        trip.stage = match trip.stage {
            Stage::Stopping | Stage::Adopting(_) => trip.stage,
            Stage::Stopped(suspended) if self.moves.fails.draw(&mut self.rng) => Stage::Back(suspended.conn),
            Stage::Stopped(suspended) => {
                let adopt = Adopt {
                    consumer: PROGRAM,
                    token,
                    tuple,
                    snapshot: &suspended.snapshot,
                    ip: suspended.ip,
                    via: None,
                    options: &suspended.options,
                };
                let streamer = machines[to].streamer();
                match streamer.adopt(now, &adopt) {
                    Ok(_) => Stage::Adopting(suspended),
                    Err(AdoptError::Busy) => Stage::Stopped(suspended),
                    Err(_) => Stage::Back(suspended.conn),
                }
            }
            Stage::Adopted(suspended, qp) => {
                let bytes = machines[from].streamer().read_send_queue(&suspended);
                match machines[from].streamer().let_go(now, suspended.conn, &tuple) {
                    Ok(wishes) => {
                        app.change_sides((from, trip.qp), (to, qp), suspended.una_pos, bytes, wishes);
                        if to == 0 {
                            self.steered.remove(&tuple);
                            self.loose.push((1, tuple));
                        }
                        self.moved += 1;
                        return;
                    }
                    Err(_) => Stage::Adopted(suspended, qp),
                }
            }
            Stage::Wreck(wreck, bytes) => {
                let (snapshot, ip) = (&wreck.snapshot, wreck.ip);
                let adopt = Adopt { consumer: PROGRAM, token, tuple, snapshot, ip, via: None, options: &[] };
                match machines[to].streamer().adopt(now, &adopt) {
                    Ok(_) => Stage::Salvaged(wreck, bytes, None),
                    Err(AdoptError::Busy) => Stage::Wreck(wreck, bytes),
                    Err(error) => panic!("{error}: {wreck:?}"),
                }
            }
            Stage::Salvaged(wreck, bytes, Some(qp)) => {
                let shut = wreck.snapshot.has_our_fin();
                app.change_sides((from, trip.qp), (to, qp), wreck.una_pos, bytes, Vec::new());
                app.wish_again((to, qp), shut);
                self.steered.remove(&tuple);
                self.loose.push((1, tuple));
                self.survived += 1;
                return;
            }
            Stage::Salvaged(..) => trip.stage,
            Stage::Back(conn) => match machines[from].streamer().resume(conn, &tuple) {
                Ok(()) => return self.stay(from, trip.qp, tuple, app),
                Err(SuspendError::Busy) => Stage::Back(conn),
                // It ended meanwhile, and its program was told.
                Err(_) => return self.stay(from, trip.qp, tuple, app),
            },
        };
        self.trips.insert(tuple, trip);
    }

    /// The second engine dies at times, and its connections go on at the first.
    pub fn let_die(&mut self, now: Instant, calm: bool, config: &HostConfig, machines: &mut [Machine], app: &mut App) {
        if self.spare.is_some() && self.trips.is_empty() && self.loose.is_empty() {
            self.spare.take().into_iter().for_each(|region| app.use_region(1, region));
        }
        if calm || self.is_busy() || !self.moves.dies.draw(&mut self.rng) {
            return;
        }
        let wreck = EngineRegion::new(app.regions[1].region().clone());
        let ledger = machines[1].ledger.clone();
        let all: Vec<Recovered> =
            (0..ledger.len()).filter_map(|index| ledger.recover(index, now, |_| Some(&wreck))).collect();
        // A connection that both sides had closed would leave its peer to wait for a timeout.
        let (movable, others) = app.at(1);
        let whole = all.len() == movable.len() && all.iter().all(|found| movable.contains(&found.qp));
        if all.is_empty() || !whole || others > 0 || machines[1].tce().connections() as usize != all.len() {
            return;
        }
        let region = Region::heap(config.layout()).expect("it was made before");
        machines[1].die(config, region.clone());
        self.spare = Some(ConsumerRegion::new(region));
        for found in all {
            self.salvage(found, &wreck, machines, app);
        }
    }

    fn salvage(&mut self, found: Recovered, wreck: &EngineRegion, machines: &mut [Machine], app: &mut App) {
        let (tuple, qp) = (found.tuple, found.qp);
        assert!(machines[1].streamer().hold(tuple), "an engine that has just begun has no connection");
        app.freeze(1, qp);
        let mut bytes = Vec::new();
        for extent in &found.send {
            let at = bytes.len();
            bytes.resize(at + extent.len() as usize, 0);
            wreck.copy_out(*extent, &mut bytes[at..]);
        }
        let stage = Stage::Wreck(Box::new(found), bytes);
        self.trips.insert(tuple, Trip { from: 1, qp, conn: ConnId::NONE, stage });
    }

    /// Releases tuples that need not be held any more.
    fn let_loose(&mut self, machines: &mut [Machine]) {
        self.loose.retain(|(side, tuple)| {
            let done = machines[*side].is_drained();
            if done {
                machines[*side].streamer().unhold(tuple);
            }
            !done
        });
        // The connection has ended on the second engine: its tuple is free on both.
        let ended: Vec<Tuple> = self
            .steered
            .iter()
            .copied()
            .filter(|tuple| !self.trips.contains_key(tuple) && !machines[1].streamer().knows(tuple))
            .collect();
        for tuple in ended {
            self.steered.remove(&tuple);
            machines[0].streamer().unhold(&tuple);
        }
    }
}

impl Trip {
    fn token(&self) -> u64 {
        u64::from(self.qp) << 1 | self.from as u64
    }
}
