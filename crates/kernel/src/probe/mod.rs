//! Tests what is believed about this kernel.
//!
//! Each belief that a move depends on is a small program. It runs on real sockets over loopback, in
//! a network namespace of its own. `baton doctor` shows the results, and the tests demand that all
//! beliefs hold.
//!
//! A belief that is *needed* must hold, or connections cannot be moved. The others explain why
//! something is done in a certain way: if one does not hold, that effort is unnecessary.

pub(crate) mod bench;
mod capture;
mod conntrack;
mod husk;
mod restore;

use crate::error::{During, Failed};
use crate::otherwise::Otherwise;
use baton_port::doctor::Finding;
use bench::Bench;
use std::fmt;
use std::thread::JoinHandle;

/// Whether a belief holds on this kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It holds.
    Ok,
    /// It does not hold. The string says what was observed instead.
    No(String),
}

/// The result of testing a belief.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// A short name, which never changes.
    pub name: &'static str,
    /// The behaviour that Baton relies on, as a sentence.
    pub believed: &'static str,
    /// Connections cannot be moved if the belief does not hold.
    pub needed: bool,
    /// Whether the belief holds.
    pub outcome: Outcome,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Ok => write!(f, "ok    {}: {}", self.name, self.believed),
            Outcome::No(why) => write!(f, "no    {}: {}: {why}", self.name, self.believed),
        }
    }
}

impl From<Verdict> for Finding {
    fn from(verdict: Verdict) -> Finding {
        let Verdict { name, believed, needed, outcome } = verdict;
        let found = match outcome {
            Outcome::Ok => Finding::yes(name, believed),
            Outcome::No(why) if needed => Finding::no(
                name,
                format!("not so: {believed}: {why}"),
                "use another kernel: connections cannot be moved on this one",
            ),
            Outcome::No(why) => Finding::no(
                name,
                format!("not so: {believed}: {why}"),
                "nothing: the precaution against it does no harm",
            ),
        };
        found.needed(needed)
    }
}

/// Findings of `baton doctor` about the beliefs, or one finding for all of them if none can be
/// tested.
///
/// # Panics
/// If no thread can be started.
pub fn findings() -> Vec<Finding> {
    match all() {
        Ok(verdicts) => verdicts.into_iter().map(Finding::from).collect(),
        Err(failed) => {
            let remedy = "run as root, or in a container with CAP_SYS_ADMIN";
            vec![Finding::no("probes", format!("cannot be tested: {failed}"), remedy).needed(true)]
        }
    }
}

/// A belief and the program that tests it.
pub(crate) struct Belief {
    pub name: &'static str,
    pub believed: &'static str,
    pub needed: bool,
    pub probe: fn(&Bench) -> Result<(), Otherwise>,
}

/// Tests all beliefs, each on a connection and in a network namespace of its own.
///
/// # Errors
/// If no network namespace can be created, which needs CAP_SYS_ADMIN.
///
/// # Panics
/// If no thread can be started.
pub fn all() -> Result<Vec<Verdict>, Failed> {
    let beliefs = [capture::BELIEFS, husk::BELIEFS, restore::BELIEFS, conntrack::BELIEFS];
    // All at once, because most of the time is spent on waiting for timers of the kernel.
    let tried: Vec<_> = beliefs.into_iter().flatten().map(try_apart).collect();
    tried.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
}

fn try_apart(belief: &'static Belief) -> JoinHandle<Result<Verdict, Failed>> {
    let work = move || {
        crate::sys::enter_private_network().during("creating a network namespace")?;
        bench::set_loopback_up().during("bringing its loopback device up")?;
        Ok(try_one(belief))
    };
    std::thread::Builder::new().name(belief.name.into()).spawn(work).expect("a thread starts")
}

fn try_one(belief: &Belief) -> Verdict {
    let tried = Bench::new().map_err(Otherwise::from).and_then(|bench| (belief.probe)(&bench));
    let outcome = match tried {
        Ok(()) => Outcome::Ok,
        Err(Otherwise(why)) => Outcome::No(why),
    };
    Verdict { name: belief.name, believed: belief.believed, needed: belief.needed, outcome }
}
