//! A connection that is in the kernel, and may move: when it is time, and why it is not yet.
//!
//! The policy is asked as seldom as it can change its mind: when the connection is there,
//! after as many requests to send as it says, and every [`PATIENCE`] after that.

use crate::config::config;
use crate::os::socket;
use crate::sharing::Sharing;
use crate::table::Slot;
use baton_policy::rules::{Decision, History, Known, Room, Rule, Wait};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

/// Requests to send after which what did not move then is tried again.
const RETRY_SENDS: u64 = 64;

/// See the file's head.
pub struct Candidate {
    /// Device and inode: whether the descriptor is the socket still.
    pub identity: (u64, u64),
    ports: (u16, u16),
    stage: Stage,
    /// Requests to send before it is asked again whether it moves.
    ask_at: u64,
    /// Why it has not moved, as far as that was asked.
    reason: &'static str,
    /// Children have it too.
    pub shared: Vec<Sharing>,
}

/// How far a candidate has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No connection yet: a socket that was put into an epoll set before.
    Fresh,
    /// `connect` has not ended yet.
    Connecting,
    Connected,
}

/// Whether a candidate may go now.
pub enum Ready {
    Go,
    NotYet,
    Never(&'static str),
}

impl Candidate {
    fn new(identity: (u64, u64), ports: (u16, u16), stage: Stage) -> Candidate {
        Candidate { identity, ports, stage, ask_at: 0, reason: "", shared: Vec::new() }
    }

    /// What is no connection yet.
    pub fn fresh(identity: (u64, u64)) -> Candidate {
        Candidate::new(identity, (0, 0), Stage::Fresh)
    }

    /// What has just moved home for a fork, after so many requests to send. It was counted as
    /// one that moved.
    pub fn parked(identity: (u64, u64), ports: (u16, u16), sends: u64, sharing: Sharing) -> Candidate {
        Candidate { ask_at: sends + 1, shared: vec![sharing], ..Candidate::new(identity, ports, Stage::Connected) }
    }

    /// A new connection; why it stays, or none for what is no connection of IP.
    pub fn begin(fd: RawFd, connecting: bool) -> Result<Candidate, Option<&'static str>> {
        let local = socket::name(fd, false).ok_or(None)?;
        let peer = if connecting { local } else { socket::name(fd, true).ok_or(None)? };
        let ports = (local.port().ok_or(None)?, peer.port().ok_or(None)?);
        if local.is_loopback() {
            return Err(Some("loopback"));
        }
        let identity = socket::identity(fd).ok_or(None)?;
        if connecting {
            return Ok(Candidate::new(identity, ports, Stage::Connecting));
        }
        let mut candidate = Candidate::new(identity, ports, Stage::Connected);
        match candidate.ask(0, || 0) {
            never @ Decision::Never(_) => Err(Some(never.code())),
            _ => Ok(candidate),
        }
    }

    pub fn is_fresh(&self) -> bool {
        self.stage == Stage::Fresh
    }

    /// True if it is time to see whether it may go, after so many requests to send.
    pub fn is_due(&self, sends: u64) -> bool {
        match self.stage {
            Stage::Fresh => false,
            Stage::Connecting => true,
            Stage::Connected => sends >= self.ask_at,
        }
    }

    /// The rule that it moves by.
    pub fn rule(&self) -> Rule {
        config().policy.rule(&self.known(0, 0))
    }

    fn known(&self, sends: u64, bytes: u64) -> Known {
        let (local_port, remote_port) = self.ports;
        Known { local_port, remote_port, sends, bytes, history: History::New }
    }

    /// Asks the policy, and if it is not to move yet, when to ask again. It has made so many
    /// requests to send, and carried so many bytes.
    fn ask(&mut self, sends: u64, bytes: impl FnOnce() -> u64) -> Decision {
        let decision = config().policy.decide(&self.known(sends, bytes()), Room { connections: 0, at_most: 1 });
        self.reason = decision.code();
        match decision {
            Decision::NotYet(Wait::Sends(more)) => self.ask_at = sends + more.get(),
            Decision::NotYet(_) => self.ask_at = sends + RETRY_SENDS,
            // If it does not, there was no moment without a call on it.
            Decision::Move => self.reason = "in-use",
            Decision::Never(_) => {}
        }
        decision
    }

    /// Whether it may go now.
    pub fn is_ready(&mut self, fd: RawFd, slot: &Slot) -> Ready {
        if slot.kernel_calls.load(Ordering::Relaxed) > 0 {
            return Ready::NotYet;
        }
        let sends = slot.sends.load(Ordering::Relaxed);
        let (_, inode) = self.identity;
        self.shared.retain(|sharing| sharing.lasts() || sharing.took(inode));
        if self.shared.iter().any(|sharing| sharing.took(inode)) {
            return Ready::Never("inherited");
        }
        if !self.shared.is_empty() {
            self.ask_at = sends + RETRY_SENDS;
            return Ready::NotYet;
        }
        if socket::identity(fd) != Some(self.identity) {
            return Ready::Never("closed-unseen");
        }
        if self.stage == Stage::Connecting {
            if socket::is_connecting(fd) {
                return Ready::NotYet;
            }
            let port = |peer| socket::name(fd, peer).and_then(|name| name.port());
            let (Some(ours), Some(theirs)) = (port(false), port(true)) else { return Ready::Never("not-connected") };
            (self.ports, self.stage) = ((ours, theirs), Stage::Connected);
        }
        let bytes = || baton_kernel::known(socket::borrow(fd), History::New).map_or(0, |known| known.bytes);
        match self.ask(sends, bytes) {
            Decision::Move => Ready::Go,
            Decision::NotYet(_) => Ready::NotYet,
            never @ Decision::Never(_) => Ready::Never(never.code()),
        }
    }

    /// The service has refused it after so many requests to send, for this reason; true if it
    /// may be tried again.
    pub fn retries_after(&mut self, why: &str, sends: u64) -> bool {
        const RETRYABLE: [&str; 5] =
            ["waits-for-sends", "waits-for-room", "large-transfers", "no-buffers", "rules-changed"];
        let later = RETRYABLE.into_iter().find(|later| *later == why);
        if let Some(why) = later {
            (self.reason, self.ask_at) = (why, sends + RETRY_SENDS);
        }
        later.is_some()
    }

    /// It has come to its end: why it never moved, if that is to be told here, by the last of
    /// those that had it.
    pub fn why_it_stayed(&self) -> Option<&'static str> {
        let told = self.stage == Stage::Connected && !self.reason.is_empty();
        (told && !self.shared.iter().any(Sharing::lasts)).then_some(self.reason)
    }
}
