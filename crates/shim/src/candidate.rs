//! A connection in the kernel that may move: decides when it moves, and records why it has not
//! moved yet.
//!
//! The policy is asked only when its answer can change: when the connection is established, after
//! the number of requests to send that the policy names, and after every [`RETRY_SENDS`] requests
//! from then on.

use crate::config::config;
use crate::os::socket;
use crate::sharing::Sharing;
use baton_policy::rules::{Decision, History, Known, Room, Rule, Wait};
use baton_policy::{Reason, Refusal};
use std::os::fd::RawFd;

/// The number of requests to send after which a connection that could not move is tried again.
const RETRY_SENDS: u64 = 64;

/// A connection in the kernel that may move.
pub struct Candidate {
    /// Device and inode of the socket, to detect that the descriptor names another one.
    pub identity: (u64, u64),
    ports: (u16, u16),
    stage: Stage,
    /// The number of requests to send at which the policy is asked again.
    ask_at: u64,
    /// Why it has not moved, as of the last time the policy was asked.
    reason: Option<Reason>,
    /// The groups of children that share it.
    pub shared: Vec<Sharing>,
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
    fn new(identity: (u64, u64), ports: (u16, u16), stage: Stage) -> Candidate {
        Candidate { identity, ports, stage, ask_at: 0, reason: None, shared: Vec::new() }
    }

    /// A socket without a connection.
    pub fn fresh(identity: (u64, u64)) -> Candidate {
        Candidate::new(identity, (0, 0), Stage::Fresh)
    }

    /// A connection that has just moved home for a fork, after `sends` requests to send. It has been
    /// counted as moved.
    pub fn parked(identity: (u64, u64), ports: (u16, u16), sends: u64, sharing: Sharing) -> Candidate {
        Candidate { ask_at: sends + 1, shared: vec![sharing], ..Candidate::new(identity, ports, Stage::Connected) }
    }

    /// A new connection.
    ///
    /// # Errors
    /// The reason why it stays in the kernel, or `None` if it is not an IP connection.
    pub fn begin(fd: RawFd, connecting: bool) -> Result<Candidate, Option<Reason>> {
        let local = socket::name(fd, false).ok_or(None)?;
        let peer = if connecting { local } else { socket::name(fd, true).ok_or(None)? };
        let ports = (local.port().ok_or(None)?, peer.port().ok_or(None)?);
        if local.is_loopback() {
            return Err(Some(Reason::Loopback));
        }
        let identity = socket::identity(fd).ok_or(None)?;
        if connecting {
            return Ok(Candidate::new(identity, ports, Stage::Connecting));
        }
        let mut candidate = Candidate::new(identity, ports, Stage::Connected);
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
            Stage::Connected => sends >= self.ask_at,
        }
    }

    /// The policy's rule for it.
    pub fn rule(&self) -> Rule {
        config().policy.rule(&self.known(0, 0))
    }

    fn known(&self, sends: u64, bytes: u64) -> Known {
        let (local_port, remote_port) = self.ports;
        Known { local_port, remote_port, sends, bytes, history: History::New }
    }

    /// Asks the policy and records when to ask again. `sends` is its number of requests to send,
    /// `bytes` gives the number of bytes that it has carried.
    fn ask(&mut self, sends: u64, bytes: impl FnOnce() -> u64) -> Decision {
        let decision = config().policy.decide(&self.known(sends, bytes()), Room { connections: 0, at_most: 1 });
        self.reason = decision.reason();
        match decision {
            Decision::NotYet(Wait::Sends(more)) => self.ask_at = sends + more.get(),
            Decision::NotYet(_) => self.ask_at = sends + RETRY_SENDS,
            // If it does not move after this, the cause is a call in the kernel at each attempt.
            Decision::Move => self.reason = Some(Reason::InUse),
            Decision::Never(_) => {}
        }
        decision
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
            self.ask_at = sends + RETRY_SENDS;
            return Ready::NotYet;
        }
        if socket::identity(fd) != Some(self.identity) {
            return Ready::Never(Reason::ClosedUnseen);
        }
        if self.stage == Stage::Connecting {
            if socket::is_connecting(fd) {
                return Ready::NotYet;
            }
            let port = |peer| socket::name(fd, peer).and_then(|name| name.port());
            let (Some(ours), Some(theirs)) = (port(false), port(true)) else {
                return Ready::Never(Reason::Refused(Refusal::NotConnected));
            };
            (self.ports, self.stage) = ((ours, theirs), Stage::Connected);
        }
        let bytes = || baton_kernel::known(socket::borrow(fd), History::New).map_or(0, |known| known.bytes);
        match self.ask(sends, bytes) {
            Decision::Move => Ready::Go,
            Decision::NotYet(_) => Ready::NotYet,
            Decision::Never(stay) => Ready::Never(stay.reason()),
        }
    }

    /// Called when the service has refused it, after `sends` requests to send. Returns true if the
    /// reason may pass, so that it is tried again later.
    pub fn retries_after(&mut self, why: Reason, sends: u64) -> bool {
        if why.may_pass() {
            (self.reason, self.ask_at) = (Some(why), sends + RETRY_SENDS);
        }
        why.may_pass()
    }

    /// Called when it ends. Returns why it never moved, for the counters. If processes share it, only
    /// the last one reports.
    pub fn why_it_stayed(&self) -> Option<Reason> {
        let was_asked = self.stage == Stage::Connected;
        self.reason.filter(|_| was_asked && !self.shared.iter().any(Sharing::lasts))
    }
}
