//! A simulated host: the real engine, a port, and a program.
//!
//! A host whose connections move has two engines of the same code. The first opens, listens and
//! holds all connections at the beginning, as a kernel does; see `mover.rs`.

use crate::app::App;
pub use crate::config::{HostConfig, Moves};
use crate::machine::Machine;
use crate::mover::Mover;
use baton_engine::region::{ConsumerRegion, LayoutError, Region};
use baton_tcp::time::Instant;
use baton_wire::packet::Link;

/// A part of a host that gets turns of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The whole engine, or its Streamer if the TCE has turns of its own.
    Streamer,
    /// The engine's TCP Control Engine.
    Tce,
    /// The host's program.
    App,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Streamer, Part::Tce, Part::App];
}

/// A host at work.
pub struct Host {
    /// Configuration that the host was made from.
    pub config: HostConfig,
    /// The program that runs on the host.
    pub app: App,
    /// Its engines: one, or two between which connections move.
    pub machines: Vec<Machine>,
    mover: Option<Mover>,
    /// The next turn of each part, if it is planned.
    pub planned: [Option<Instant>; Part::ALL.len()],
}

impl Host {
    /// The client's host, or the server's, with nothing to do yet.
    ///
    /// # Errors
    /// If the layout of its region is invalid.
    pub fn new(client: bool, config: HostConfig, seed: u64) -> Result<Host, LayoutError> {
        let layout = config.layout();
        let (mut machines, mut regions) = (Vec::new(), Vec::new());
        for _ in 0..1 + usize::from(config.moves.is_some()) {
            let region = Region::heap(layout)?;
            machines.push(Machine::new(&config, region.clone()));
            regions.push(ConsumerRegion::new(region));
        }
        Ok(Host {
            app: App::new(client, regions, config.buffers, config.lends.then_some(seed)),
            machines,
            mover: config.moves.map(|moves| Mover::new(moves, seed ^ u64::from(client))),
            planned: [None; Part::ALL.len()],
            config,
        })
    }

    /// The link layer of its frames.
    pub fn link(&self) -> Link {
        self.machines[0].port.link()
    }

    /// A frame arrived from the link.
    pub fn arrive(&mut self, frame: Vec<u8>) {
        match &self.mover {
            None => self.machines[0].arrive(frame),
            Some(mover) => {
                let to = mover.steer(&frame, self.link());
                if to.contains(&1) {
                    self.machines[1].arrive(frame.clone());
                }
                if to.contains(&0) {
                    self.machines[0].arrive(frame);
                }
            }
        }
    }

    /// The engines' turn, or their Streamers'; `calm`: nothing new begins to move.
    pub fn turn_streamer(&mut self, now: Instant, calm: bool) {
        for (side, machine) in self.machines.iter_mut().enumerate() {
            match self.app.lend(side) {
                Some((qp, position, mut buf)) => {
                    let placed = machine.turn_streamer_into(now, qp, position, &mut buf);
                    self.app.take_placed((side, qp), &buf[..placed]);
                }
                None => machine.turn_streamer(now),
            }
        }
        if let Some(mover) = &mut self.mover {
            mover.turn(now, calm, &mut self.machines, &mut self.app);
            mover.let_die(now, calm, &self.config, &mut self.machines, &mut self.app);
        }
    }

    /// The TCEs' turn, if they have turns of their own.
    pub fn turn_tce(&mut self, now: Instant) {
        for machine in &mut self.machines {
            machine.turn_tce(now);
        }
    }

    /// When a part wants its next turn; a time in the past if at once.
    pub fn wants(&mut self, part: Part, now: Instant) -> Option<Instant> {
        let busy = self.mover.as_ref().is_some_and(Mover::is_busy);
        match part {
            Part::App if self.app.has_completion() => Some(now),
            Part::App => self.app.alarm(now),
            Part::Streamer if busy => Some(now),
            Part::Streamer => self.machines.iter_mut().filter_map(|machine| machine.streamer_wants(now)).min(),
            Part::Tce => self.machines.iter_mut().filter_map(|machine| machine.tce_wants(now)).min(),
        }
    }

    /// True if there is no connection, and nothing waits between the halves.
    pub fn is_at_rest(&mut self) -> bool {
        self.machines.iter_mut().all(Machine::is_at_rest) && !self.mover.as_ref().is_some_and(Mover::is_busy)
    }

    /// Connections that went on after their engine's death.
    pub fn survived(&self) -> u64 {
        self.mover.as_ref().map_or(0, |mover| mover.survived)
    }

    /// Moves of connections that succeeded.
    pub fn moved(&self) -> u64 {
        self.mover.as_ref().map_or(0, |mover| mover.moved)
    }
}
