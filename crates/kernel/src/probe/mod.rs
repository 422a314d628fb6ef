//! What is believed about this kernel, tried out.
//!
//! Each belief that a move rests on is one small program, run on real sockets over
//! loopback in a network namespace of its own. `baton doctor` shows the verdicts; the
//! tests demand that all hold.
//!
//! A belief that is *needed* must hold, or connections cannot be moved. The others say
//! why something is done as it is: where one does not hold, what is done is needless.

pub(crate) mod bench;
mod capture;
mod conntrack;
mod husk;
mod restore;

use crate::error::{During, Failed};
use baton_port::doctor::Finding;
use bench::Bench;
use std::fmt;
use std::thread::JoinHandle;

/// Whether a belief holds here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It does.
    Ok,
    /// It does not: what was seen instead.
    No(String),
}

/// A belief and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// A short name, the same for ever.
    pub name: &'static str,
    /// What is believed.
    pub believed: &'static str,
    /// Connections cannot be moved if it does not hold.
    pub needed: bool,
    /// Whether it holds.
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
                "use another kernel: on this one connections cannot be moved",
            ),
            Outcome::No(why) => {
                Finding::no(name, format!("not so: {believed}: {why}"), "nothing: what is done about it does no harm")
            }
        };
        found.needed(needed)
    }
}

/// What `baton doctor` says of the beliefs; of all of them at once where none can be tried.
///
/// # Panics
/// If no thread can be started.
pub fn findings() -> Vec<Finding> {
    match all() {
        Ok(verdicts) => verdicts.into_iter().map(Finding::from).collect(),
        Err(failed) => {
            let remedy = "run as root, or in a container with CAP_SYS_ADMIN";
            vec![Finding::no("probes", format!("cannot be tried: {failed}"), remedy).needed(true)]
        }
    }
}

/// What a probe saw that it did not believe, or a system call that failed.
#[derive(Debug)]
pub(crate) struct Otherwise(String);

impl<E: std::error::Error> From<E> for Otherwise {
    fn from(e: E) -> Otherwise {
        Otherwise(e.to_string())
    }
}

/// Fails a probe unless what is believed is seen.
pub(crate) fn expect(seen: bool, otherwise: impl Into<String>) -> Result<(), Otherwise> {
    if seen { Ok(()) } else { Err(Otherwise(otherwise.into())) }
}

/// A belief and the program that tries it.
pub(crate) struct Belief {
    pub name: &'static str,
    pub believed: &'static str,
    pub needed: bool,
    pub probe: fn(&Bench) -> Result<(), Otherwise>,
}

/// Tries all beliefs, each on a connection and in a network namespace of its own.
///
/// # Errors
/// If no network namespace can be made, which takes CAP_SYS_ADMIN.
///
/// # Panics
/// If no thread can be started.
pub fn all() -> Result<Vec<Verdict>, Failed> {
    let beliefs = [capture::BELIEFS, husk::BELIEFS, restore::BELIEFS, conntrack::BELIEFS];
    // All at once: most of the time is waiting for timers of the kernel.
    let tried: Vec<_> = beliefs.into_iter().flatten().map(try_apart).collect();
    tried.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
}

fn try_apart(belief: &'static Belief) -> JoinHandle<Result<Verdict, Failed>> {
    let work = move || {
        crate::sys::enter_private_network().during("making a network namespace")?;
        bench::set_loopback_up().during("setting its loopback device up")?;
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
