//! Two hosts, a link each way, and virtual time.
//!
//! ```text
//!   safety     faults as the seed has them; programs stall and sleep
//!   liveness   from `safety` on no faults, no stalls: all dialogues must end
//!   silence    nothing to do: TIME-WAIT runs out, and nothing may be left
//! ```

use crate::agenda::Agenda;
use crate::app::{Directory, Violation};
use crate::chance::up_to;
use crate::check;
pub use crate::config::WorldConfig;
use crate::fins::Fins;
use crate::forge::forge;
use crate::host::{Host, Part};
use crate::link::{Link, LinkCounters};
use crate::path::{Passage, pass};
use crate::trace::describe;
use baton_tcp::time::{Duration, Instant};
use baton_wire::packet::Link as PacketLink;

/// Results of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Virtual time until all dialogues had ended.
    pub took: Duration,
    /// Frames given to the links, and what became of them.
    pub links: LinkCounters,
    /// Segments that neither end sent.
    pub forged: u64,
    /// Turns given.
    pub turns: u64,
    /// Connections that the server's engine made.
    pub accepted: u64,
    /// Connections that moved from one engine of a host to the other.
    pub moved: u64,
    /// Connections that went on after their engine's death.
    pub survived: u64,
    /// Payload bytes received by programs.
    pub bytes: u64,
    /// Payload bytes that engines placed in a buffer that the program had lent.
    pub lent: u64,
    /// Payload bytes that were sent again.
    pub retransmitted: u64,
    /// Frames that were handled in a run, behind its first.
    pub coalesced: u64,
    /// Digest of every frame and its time: two runs of a seed have the same.
    pub digest: u64,
}

/// Longest liveness phase: several times the longest backed-off timeout.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Turns of one run, at most; a run of the largest workload takes a tenth.
const TURNS: u64 = 3_000_000;
/// Pause between turns of a part that always has work.
const BREATH: Duration = Duration(200);

#[derive(Debug)]
enum Happening {
    Frame(usize, Vec<u8>),
    Turn(usize, Part),
    Calm,
}

/// A world at work.
pub struct World {
    config: WorldConfig,
    now: Instant,
    calm: bool,
    hosts: [Host; 2],
    links: [Link; 2],
    agenda: Agenda<Happening>,
    directory: Directory,
    fins: Fins,
    rng: fastrand::Rng,
    trace: bool,
    summary: Summary,
}

impl World {
    /// The world of `config`, at time 0.
    ///
    /// # Errors
    /// [`Violation::Leak`] if the configuration is invalid.
    pub fn new(config: WorldConfig) -> Result<World, Violation> {
        let mut rng = fastrand::Rng::with_seed(config.seed ^ 0x5eed);
        let host = |i: usize| {
            Host::new(i == 0, config.hosts[i].clone(), config.seed).map_err(|e| Violation::Leak(e.to_string()))
        };
        let mut hosts = [host(0)?, host(1)?];
        let link_header = if config.hosts[0].port.capabilities.ethernet { 14 } else { 0 };
        let links = [0, 1].map(|i| Link::new(config.links[i], link_header, rng.fork()));
        let mut agenda = Agenda::default();
        agenda.plan(Instant(0) + config.safety, Happening::Calm);
        for &port in &config.listen.0 {
            hosts[1].app.listen(!config.addresses[1].is_v4(), port, config.listen.1, 0);
        }
        for (id, dialogue) in config.dialogues.iter().enumerate() {
            hosts[0].app.open_at(Instant(0) + dialogue.start, id);
            if dialogue.crossed {
                hosts[1].app.open_at(Instant(0) + dialogue.start, id);
            }
        }
        let mut world = World {
            config,
            now: Instant(0),
            calm: false,
            hosts,
            links,
            agenda,
            directory: Directory::new(),
            fins: Fins::default(),
            rng,
            trace: false,
            summary: Summary::default(),
        };
        world.hosts[1].app.stir();
        for host in 0..2 {
            world.plan(host, Part::App, Instant(0));
            world.plan(host, Part::Streamer, Instant(0));
        }
        Ok(world)
    }

    /// The same world, which prints every frame as it is sent and as it arrives.
    #[must_use]
    pub fn traced(self) -> World {
        World { trace: true, ..self }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first thing that must not happen.
    pub fn run(mut self) -> Result<Summary, Violation> {
        let deadline = Instant(0) + self.config.safety + PATIENCE;
        while !self.is_settled() {
            let Some((at, what)) = self.agenda.pop() else { return Err(self.stuck("nothing is planned any more")) };
            if at > deadline {
                return Err(self.stuck("patience ran out"));
            }
            if self.summary.turns > TURNS {
                return Err(self.stuck("too many turns"));
            }
            self.now = self.now.max(at);
            self.happen(what)?;
        }
        self.summary.links = self.links[0].counters() + self.links[1].counters();
        for machine in self.hosts.iter_mut().flat_map(|host| &mut host.machines) {
            let counters = machine.streamer().counters();
            self.summary.retransmitted += counters.tx_retransmitted_bytes;
            self.summary.coalesced += counters.rx_coalesced;
        }
        self.summary.lent = self.hosts.iter().map(|host| host.app.lent).sum();
        self.summary.moved = self.hosts.iter().map(Host::moved).sum();
        self.summary.survived = self.hosts.iter().map(Host::survived).sum();
        let reports = self.hosts.iter().flat_map(|host| host.app.reports.values());
        self.summary.bytes = reports.map(|report| report.received).sum();
        let tce = *self.hosts[1].machines[0].tce().counters();
        self.summary.accepted = tce.passive_opens + tce.cookies_accepted;
        check::endings(&self.config, &self.hosts)?;
        check::nothing_left(&mut self.hosts)?;
        Ok(self.summary)
    }

    /// All programs are done, and the engines have forgotten everything.
    fn is_settled(&mut self) -> bool {
        if !self.hosts.iter().all(|host| host.app.is_done()) {
            return false;
        }
        if self.summary.took == Duration::ZERO {
            self.summary.took = self.now.since(Instant(0));
        }
        self.calm && self.hosts.iter_mut().all(Host::is_at_rest)
    }

    fn happen(&mut self, what: Happening) -> Result<(), Violation> {
        match what {
            Happening::Calm => {
                self.calm = true;
                for (i, link) in self.links.iter_mut().enumerate() {
                    link.reconfigure(self.config.links[i].calm());
                }
                for host in 0..2 {
                    self.hosts[host].app.stir();
                    self.plan(host, Part::App, self.now);
                }
            }
            Happening::Frame(host, frame) => {
                self.digest(host as u64, &frame);
                self.tell(host, "   got", &frame);
                self.hosts[host].arrive(frame);
                let wake = up_to(&mut self.rng, self.config.hosts[host].wake);
                self.plan(host, Part::Streamer, self.now + wake);
            }
            Happening::Turn(host, part) => {
                if self.hosts[host].planned[part as usize] == Some(self.now) {
                    self.hosts[host].planned[part as usize] = None;
                    self.turn(host, part)?;
                }
            }
        }
        Ok(())
    }

    fn turn(&mut self, host: usize, part: Part) -> Result<(), Violation> {
        self.summary.turns += 1;
        let now = self.now;
        match part {
            Part::Streamer => self.hosts[host].turn_streamer(now, self.calm),
            Part::Tce => self.hosts[host].turn_tce(now),
            Part::App => {
                let (peer, dialogues) = (self.config.addresses[1 - host], &self.config.dialogues);
                self.hosts[host].app.run(now, self.calm, peer, dialogues, &mut self.directory)?;
                let wake = up_to(&mut self.rng, self.config.hosts[host].wake);
                self.plan(host, Part::Streamer, now + wake);
            }
        }
        if part == Part::Streamer {
            self.carry_off(host)?;
        }
        self.plan_wanted(host);
        check::bounds(&mut self.hosts[host])
    }

    /// Plans what each part of a host wants after one of them had its turn.
    fn plan_wanted(&mut self, host: usize) {
        let now = self.now;
        for part in Part::ALL {
            let Some(at) = self.hosts[host].wants(part, now) else { continue };
            let at = if at > now {
                at
            } else {
                let longest = match part {
                    Part::App => self.config.hosts[host].program,
                    Part::Streamer | Part::Tce => self.config.hosts[host].wake,
                };
                now + BREATH + up_to(&mut self.rng, longest)
            };
            self.plan(host, part, at);
        }
    }

    fn plan(&mut self, host: usize, part: Part, at: Instant) {
        let planned = &mut self.hosts[host].planned[part as usize];
        if planned.is_none_or(|earlier| at < earlier) {
            *planned = Some(at);
            self.agenda.plan(at, Happening::Turn(host, part));
        }
    }

    /// Carries what a port sent over its link.
    fn carry_off(&mut self, from: usize) -> Result<(), Violation> {
        let (now, to) = (self.now, 1 - from);
        let mut sent = Vec::new();
        let limit = self.config.hosts[from].carry;
        for machine in &mut self.hosts[from].machines {
            machine.port.carry_off(limit, &mut |frame| sent.push(frame));
        }
        let link = self.hosts[from].link();
        for frame in sent {
            self.fins.check(&frame, link)?;
            if let Some(narrow) = self.config.path_mtu {
                match pass(&frame, link, narrow) {
                    Passage::Passes => {}
                    Passage::Dropped => continue,
                    Passage::Refused(complaint) => {
                        self.agenda.plan(now + narrow.delay, Happening::Frame(from, complaint));
                        continue;
                    }
                }
            }
            self.tell(from, "sent", &frame);
            self.forge_one(to, &frame, link);
            let agenda = &mut self.agenda;
            self.links[from].send(now, frame, &mut |at, frame| agenda.plan(at, Happening::Frame(to, frame)));
        }
        Ok(())
    }

    /// At times sends a forged segment after `frame`.
    fn forge_one(&mut self, to: usize, frame: &[u8], link: PacketLink) {
        if self.calm || !self.config.forged.draw(&mut self.rng) {
            return;
        }
        if let Some(forged) = forge(frame, link, &mut self.rng) {
            self.summary.forged += 1;
            let at = self.now + up_to(&mut self.rng, self.config.links[to].delay);
            self.agenda.plan(at, Happening::Frame(to, forged));
        }
    }

    fn tell(&self, host: usize, what: &str, frame: &[u8]) {
        if self.trace {
            let seconds = self.now.0 as f64 / 1e9;
            let name = ["client", "server"][host];
            println!("{seconds:13.6} {name} {what} {}", describe(frame, self.hosts[host].link()));
        }
    }

    /// Takes a frame and its time into the run's digest.
    fn digest(&mut self, host: u64, frame: &[u8]) {
        let mut mix = |word: u64| {
            self.summary.digest = (self.summary.digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        };
        mix(self.now.0 << 1 | host);
        for word in frame.chunks(8) {
            mix(word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn stuck(&mut self, why: &str) -> Violation {
        let what = self.hosts.each_mut().map(|host| {
            let wants = Part::ALL.map(|part| host.wants(part, self.now));
            let connections: u32 = host.machines.iter_mut().map(|machine| machine.tce().connections()).sum();
            let counters = check::counters(host);
            format!("{}\n  connections {connections}, wants {wants:?}\n  {counters}", host.app.describe())
        });
        Violation::Stuck(format!("{why}, at {:?}\nclient: {}\nserver: {}", self.now, what[0], what[1]))
    }
}
