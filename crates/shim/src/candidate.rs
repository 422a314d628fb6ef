//! A connection in the kernel that may move: decides when it moves, and records why it has not
//! moved yet.
//!
//! The policy is asked only when its answer can change: when the connection is established, after
//! the number of requests to send that the policy names, and after every [`RETRY_SENDS`] requests
//! from then on. A connection whose other end may be on this machine is looked at once more, at [`JOIN_AGE`].

use crate::config::{Pairs, config};
use crate::os::socket::{self, Name};
use crate::sharing::Sharing;
use crate::turned_away::{ALONE, FULL};
use baton_ipc::message::Told;
use baton_policy::conditions::{Direction, Facts};
use baton_policy::rules::{Decision, History, Room, Rule, Ruling, Stay, Wait};
use baton_policy::{Reason, Refusal};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The number of requests to send after which a connection that could not move is tried again.
const RETRY_SENDS: u64 = 64;

/// The age from which a connection whose other end may be on this machine is joined with it, if the policy does not
/// move it before. One that ends sooner does not pay for that.
const JOIN_AGE: Duration = Duration::from_millis(20);

/// How often that number doubles for a connection that went home for load, while it is refused.
const MOST_DOUBLINGS: u32 = 2;

/// A connection in the kernel that may move.
pub struct Candidate {
    /// Device and inode of the socket, to detect that the descriptor names another one.
    pub identity: (u64, u64),
    origin: Origin,
    stage: Stage,
    /// The number of requests to send at which the policy is asked again.
    ask_at: u64,
    /// When it is old enough to be joined with its other end, until the policy has been asked then.
    join_at: Option<Instant>,
    /// Why it has not moved, as of the last time the policy was asked.
    reason: Option<Reason>,
    /// It was in an engine before.
    moved: bool,
    /// How often it was refused since for the load.
    refused: u32,
    /// The groups of children that share it.
    pub shared: Vec<Sharing>,
}

/// Facts about a connection that hold from its beginning on.
#[derive(Clone, Copy)]
pub struct Origin {
    local: (Option<IpAddr>, u16),
    remote: (Option<IpAddr>, u16),
    direction: Direction,
    established: Instant,
}

impl Origin {
    fn new(local: &Name, remote: &Name, direction: Direction) -> Option<Origin> {
        let end = |name: &Name| Some((name.ip(), name.port()?));
        Some(Origin { local: end(local)?, remote: end(remote)?, direction, established: Instant::now() })
    }

    /// True if the other end may be on this machine, and may be joined.
    pub fn is_between(&self) -> bool {
        match config().pair {
            Pairs::None => false,
            Pairs::Here => self.is_loopback() || self.local.0.is_some_and(|ip| self.remote.0 == Some(ip)),
            Pairs::All => true,
        }
    }

    fn is_loopback(&self) -> bool {
        self.local.0.is_some_and(|ip| ip.to_canonical().is_loopback())
    }

    /// The service's end of it: of all connections with the same one, either each or none can be joined with
    /// its other end.
    pub fn service(&self) -> (Option<IpAddr>, u16) {
        if self.direction == Direction::Accepted { self.local } else { self.remote }
    }

    /// For the service's policy.
    pub fn told(&self, sends: u64) -> Told {
        let accepted = Some(self.direction == Direction::Accepted);
        Told { accepted, age_us: Some(self.age().as_micros() as u64), sends: Some(sends) }
    }

    fn age(&self) -> Duration {
        self.established.elapsed()
    }
}

/// The progress of a candidate towards a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A socket without a connection that was added to an epoll set.
    Fresh,
    /// `connect` is in progress.
    Connecting,
    Connected,
}

/// Whether a candidate may move now.
pub enum Ready {
    Go,
    NotYet,
    Never(Reason),
}

impl Candidate {
    fn new(identity: (u64, u64), origin: Origin, stage: Stage) -> Candidate {
        Candidate {
            identity,
            origin,
            stage,
            ask_at: 0,
            join_at: None,
            reason: None,
            moved: false,
            refused: 0,
            shared: Vec::new(),
        }
    }

    /// A socket without a connection.
    pub fn fresh(identity: (u64, u64)) -> Candidate {
        let (end, direction) = ((None, 0), Direction::Connected);
        let origin = Origin { local: end, remote: end, direction, established: Instant::now() };
        Candidate::new(identity, origin, Stage::Fresh)
    }

    /// A connection that has just moved home, after `sends` requests to send: for a fork, or because of its
    /// engine's load.
    pub fn returned(identity: (u64, u64), origin: Origin, sends: u64, sharing: Option<Sharing>) -> Candidate {
        let ask_at = sends + if sharing.is_some() { 1 } else { RETRY_SENDS };
        let shared = sharing.into_iter().collect();
        Candidate { ask_at, moved: true, shared, ..Candidate::new(identity, origin, Stage::Connected) }
    }

    /// True if it was in an engine before, and was counted then.
    pub fn has_moved(&self) -> bool {
        self.moved
    }

    /// A new connection, which `connect` may not have established yet.
    ///
    /// # Errors
    /// The reason why it stays in the kernel, or `None` if it is not an IP connection.
    pub fn begin(fd: RawFd, direction: Direction, connecting: bool) -> Result<Candidate, Option<Reason>> {
        let local = socket::name(fd, false).ok_or(None)?;
        let peer = if connecting { local } else { socket::name(fd, true).ok_or(None)? };
        let origin = Origin::new(&local, &peer, direction).ok_or(None)?;
        if origin.is_loopback() && config().pair == Pairs::None {
            return Err(Some(Reason::Loopback));
        }
        let identity = socket::identity(fd).ok_or(None)?;
        if connecting {
            return Ok(Candidate::new(identity, origin, Stage::Connecting));
        }
        let mut candidate = Candidate::new(identity, origin, Stage::Connected);
        match candidate.ask(0, || 0) {
            Decision::Never(stay) => Err(Some(stay.reason())),
            _ => Ok(candidate),
        }
    }

    pub fn is_fresh(&self) -> bool {
        self.stage == Stage::Fresh
    }

    /// True if, after `sends` requests to send, it is time to check whether it may move.
    pub fn is_due(&self, sends: u64) -> bool {
        match self.stage {
            Stage::Fresh => false,
            Stage::Connecting => true,
            Stage::Connected => sends >= self.ask_at || self.join_at.is_some_and(|at| Instant::now() >= at),
        }
    }

    /// The policy's rule for it, after `sends` requests to send. The service decides where this library
    /// cannot.
    pub fn rule(&self, sends: u64) -> Rule {
        match config().policy.ruling(&self.facts(sends, None)) {
            Ruling::By { rule, .. } => rule,
            Ruling::Unknown(_) => Rule::FirstCome,
        }
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    fn facts(&self, sends: u64, bytes: Option<u64>) -> Facts {
        let Origin { local, remote, direction, .. } = self.origin;
        let own = config().own();
        Facts {
            local,
            remote,
            direction: Some(direction),
            user: own.user,
            program: own.program.clone(),
            cgroup: own.cgroup.clone(),
            sends: Some(sends),
            bytes,
            age_us: Some(self.origin.age().as_micros() as u64),
            interface: None,
            round_trip_us: None,
            expected: None,
        }
    }

    /// Asks the policy and records when to ask again. `sends` is its number of requests to send,
    /// `bytes` gives the number of bytes that it has carried.
    fn ask(&mut self, sends: u64, bytes: impl FnOnce() -> u64) -> Decision {
        let facts = self.facts(sends, Some(bytes()));
        // The service knows what this library does not.
        let decision = config().policy.decide(&facts, History::New, Room { connections: 0, at_most: 1, load_limit: 1 });
        let decision = decision.unwrap_or(Decision::Move);
        // The rules weigh an engine against the kernel. Memory that two programs share costs less than both.
        let (between, old) = (self.origin.is_between(), self.origin.age() >= JOIN_AGE);
        let decision = match decision {
            Decision::NotYet(_) | Decision::Never(Stay::OnlyPairs) if between && old => Decision::Move,
            Decision::Never(Stay::OnlyPairs) if between => Decision::NotYet(Wait::Condition),
            decision => decision,
        };
        self.reason = decision.reason();
        match decision {
            Decision::NotYet(wait) => {
                let more = if let Wait::Sends(more) = wait { more.get() } else { RETRY_SENDS };
                self.ask_after(sends + more);
                self.join_at = between.then(|| self.origin.established + JOIN_AGE);
            }
            // If it does not move after this, the cause is a call in the kernel at each attempt.
            Decision::Move => self.reason = Some(Reason::InUse),
            Decision::Never(_) => {}
        }
        decision
    }

    /// Asks the policy again after so many requests to send, and not before.
    fn ask_after(&mut self, sends: u64) {
        (self.ask_at, self.join_at) = (sends, None);
    }

    /// Whether it may move now, after `sends` requests to send. No call in the kernel may be waiting on
    /// it.
    pub fn is_ready(&mut self, fd: RawFd, sends: u64) -> Ready {
        let (_, inode) = self.identity;
        self.shared.retain(|sharing| sharing.lasts() || sharing.took(inode));
        if self.shared.iter().any(|sharing| sharing.took(inode)) {
            return Ready::Never(Reason::Inherited);
        }
        if !self.shared.is_empty() {
            self.ask_after(sends + RETRY_SENDS);
            return Ready::NotYet;
        }
        if socket::identity(fd) != Some(self.identity) {
            return Ready::Never(Reason::ClosedUnseen);
        }
        if self.stage == Stage::Connecting {
            if socket::is_connecting(fd) {
                return Ready::NotYet;
            }
            let ends = socket::name(fd, false).zip(socket::name(fd, true));
            let origin = ends.and_then(|(ours, theirs)| Origin::new(&ours, &theirs, self.origin.direction));
            let Some(origin) = origin else { return Ready::Never(Reason::Refused(Refusal::NotConnected)) };
            (self.origin, self.stage) = (origin, Stage::Connected);
        }
        if self.origin.is_between() && ALONE.lately(self.origin.service()) {
            return Ready::Never(if self.origin.is_loopback() { Reason::Loopback } else { Reason::PeerNotServed });
        }
        if FULL.lately(self.origin.local.0) {
            self.ask_after(sends + RETRY_SENDS);
            return Ready::NotYet;
        }
        let bytes = || baton_kernel::known(socket::borrow(fd)).ok().and_then(|facts| facts.bytes).unwrap_or(0);
        match self.ask(sends, bytes) {
            Decision::Move => Ready::Go,
            Decision::NotYet(_) => Ready::NotYet,
            Decision::Never(stay) => Ready::Never(stay.reason()),
        }
    }

    /// Called when the service has refused it, after `sends` requests to send. Returns true if the
    /// reason may pass, so that it is tried again later.
    pub fn retries_after(&mut self, why: Reason, sends: u64) -> bool {
        if matches!(why, Reason::WaitsForRoom | Reason::WaitsForLoad) {
            FULL.note(self.origin.local.0);
        }
        // An engine that sent it home takes it back after seconds, not after a few requests.
        self.refused = if why == Reason::Load { self.refused + 1 } else { 0 };
        if why.may_pass() {
            self.reason = Some(why);
            self.ask_after(sends + (RETRY_SENDS << self.refused.min(MOST_DOUBLINGS)));
        }
        why.may_pass()
    }

    /// Called when it ends. Returns why it never moved, for the counters. If processes share it, only
    /// the last one reports.
    pub fn why_it_stayed(&self) -> Option<Reason> {
        let was_asked = self.stage == Stage::Connected;
        self.reason.filter(|_| was_asked && !self.moved && !self.shared.iter().any(Sharing::lasts))
    }
}
