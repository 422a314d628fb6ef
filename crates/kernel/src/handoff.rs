//! The order of a move, and the way back from every step of it.
//!
//! ```text
//!            Begin            Captured           Started
//!   Kernel --------> Quiescing --------> Captured --------> Engine
//!     ^ ^               | Failed            | Failed          | Stop
//!     | |               v                   v                 v
//!     | +- InKernel -- Aborted <------------+------------- Restoring
//!     |                 |    |                Failed          |
//!     |        InEngine |    | Lost                           |
//!     |        (Engine) v    v                                |
//!     +------------------- Resumed ---------------------------+
//! ```
//!
//! [`Handoff::hand_off`] and [`Handoff::restore`] do the steps in their order and, if one fails, undo what
//! was done. What the steps do is the caller's ([`Steps`]): a real socket, a map and an
//! engine in the service, anything in a test. A step that undoes another is tried twice.
//! Afterwards the connection is whole on one side, or [`Outcome::Lost`] says why not, and
//! gives the captured connection to whoever can still do something with it.
//!
//! Frames: from `steer` on they are held for the engine; `start` gives them to it, and
//! once it has stopped they are lost as if by the network. They reach the kernel again
//! from `unsteer` on: the socket must be connected by then, or it would answer with a
//! reset. It is in repair mode still, which keeps the program out but not the frames: a
//! restore that fails from here on reads the connection anew.

use crate::captured::Captured;
use core::fmt;

/// Where a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The kernel runs it.
    Kernel,
    /// Its frames are held, the kernel has it still.
    Quiescing,
    /// Nobody runs it; what it is lies in memory.
    Captured,
    /// The engine runs it.
    Engine,
    /// The engine has stopped, the kernel does not run it yet.
    Restoring,
    /// A step failed, and those before it are being undone.
    Aborted,
    /// Neither side can run it.
    Lost,
}

/// What moves a connection from phase to phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A handoff begins.
    Begin,
    /// Everything was read.
    Captured,
    /// The engine runs it.
    Started,
    /// A restore begins.
    Stop,
    /// The kernel runs it.
    Resumed,
    /// A step failed.
    Failed,
    /// It was undone: the kernel runs it.
    InKernel,
    /// It was undone: the engine runs it.
    InEngine,
    /// It could not be undone.
    Lost,
}

impl Phase {
    /// All.
    pub const ALL: [Phase; 7] = [
        Phase::Kernel,
        Phase::Quiescing,
        Phase::Captured,
        Phase::Engine,
        Phase::Restoring,
        Phase::Aborted,
        Phase::Lost,
    ];

    /// The phase after `event`, or `None` where the event has no place.
    pub const fn next(self, event: Event) -> Option<Phase> {
        Some(match (self, event) {
            (Phase::Kernel, Event::Begin) => Phase::Quiescing,
            (Phase::Quiescing, Event::Captured) => Phase::Captured,
            (Phase::Captured, Event::Started) => Phase::Engine,
            (Phase::Engine, Event::Stop) => Phase::Restoring,
            (Phase::Restoring, Event::Resumed) => Phase::Kernel,
            (Phase::Quiescing | Phase::Captured | Phase::Restoring, Event::Failed) => Phase::Aborted,
            (Phase::Aborted, Event::InKernel) => Phase::Kernel,
            (Phase::Aborted, Event::InEngine) => Phase::Engine,
            (Phase::Aborted, Event::Lost) => Phase::Lost,
            _ => return None,
        })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Kernel => "kernel",
            Phase::Quiescing => "quiescing",
            Phase::Captured => "captured",
            Phase::Engine => "engine",
            Phase::Restoring => "restoring",
            Phase::Aborted => "aborted",
            Phase::Lost => "lost",
        })
    }
}

/// A step of a move.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// [`Steps::steer`]
    Steer,
    /// [`Steps::capture`]
    Capture,
    /// [`Steps::make_husk`]
    MakeHusk,
    /// [`Steps::start`]
    Start,
    /// [`Steps::stop`]
    Stop,
    /// [`Steps::rebuild`]
    Rebuild,
    /// [`Steps::unsteer`]
    Unsteer,
    /// [`Steps::resume`]
    Resume,
}

/// What each step does. A step may fail before or after it did its work, and may be
/// called again.
pub trait Steps {
    /// Why a step failed.
    type Error;

    /// Keeps the connection's frames from the kernel and holds them for the engine.
    ///
    /// # Errors
    /// Then none or all are kept; [`Steps::unsteer`] makes it none.
    fn steer(&mut self) -> Result<(), Self::Error>;

    /// Reads the connection, as [`capture`](crate::capture).
    ///
    /// # Errors
    /// Then the socket is as it was.
    fn capture(&mut self) -> Result<Captured, Self::Error>;

    /// As [`make_husk`](crate::make_husk).
    ///
    /// # Errors
    /// Then the socket is anything, and in repair mode.
    fn make_husk(&mut self, captured: &Captured) -> Result<(), Self::Error>;

    /// Lets the engine run the connection, held frames first.
    ///
    /// # Errors
    /// Then the engine has nothing of it, and has sent nothing.
    fn start(&mut self, captured: &Captured) -> Result<(), Self::Error>;

    /// Stops the engine for this connection.
    ///
    /// # Errors
    /// Then the engine runs it still.
    fn stop(&mut self) -> Result<Captured, Self::Error>;

    /// As [`rebuild`](crate::rebuild).
    ///
    /// # Errors
    /// Then the socket is anything, and in repair mode.
    fn rebuild(&mut self, captured: &Captured) -> Result<(), Self::Error>;

    /// Lets the connection's frames go to the kernel.
    ///
    /// # Errors
    /// Then none or all go there; [`Steps::steer`] makes it none.
    fn unsteer(&mut self) -> Result<(), Self::Error>;

    /// Reads a rebuilt connection that was not resumed, as [`recapture`](crate::recapture).
    ///
    /// # Errors
    /// Then the socket is as it was.
    fn recapture(&mut self, previous: &Captured) -> Result<Captured, Self::Error>;

    /// As [`resume`](crate::resume).
    ///
    /// # Errors
    /// Then the socket is in repair mode still.
    fn resume(&mut self, captured: &Captured) -> Result<(), Self::Error>;
}

/// Where the connection is after a move that failed.
#[derive(Debug)]
pub enum Outcome<E> {
    /// In the kernel, whole.
    InKernel,
    /// In the engine, whole.
    InEngine,
    /// Nowhere: undoing failed too, twice.
    Lost {
        /// At this step.
        step: Step,
        /// For this reason.
        cause: E,
        /// What it was, unless the kernel has it still; for another try.
        captured: Option<Box<Captured>>,
    },
}

/// A move failed.
#[derive(Debug)]
pub struct Aborted<E> {
    /// At this step.
    pub step: Step,
    /// For this reason.
    pub cause: E,
    /// The connection is there.
    pub outcome: Outcome<E>,
}

impl<E: fmt::Display> fmt::Display for Aborted<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}; ", self.step, self.cause)?;
        match &self.outcome {
            Outcome::InKernel => f.write_str("the connection is in the kernel"),
            Outcome::InEngine => f.write_str("the connection is in the engine"),
            Outcome::Lost { step, cause, .. } => write!(f, "the connection is lost: {step:?}: {cause}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for Aborted<E> {}

/// One connection's way between the sides.
#[derive(Debug)]
pub struct Handoff {
    phase: Phase,
}

/// A step's failure on the way back.
type Undone<E> = Result<(), (Step, E)>;

impl Handoff {
    /// A connection that the kernel runs.
    pub fn new() -> Handoff {
        Handoff { phase: Phase::Kernel }
    }

    /// A connection that the engine runs: of a predecessor, say.
    pub fn in_engine() -> Handoff {
        Handoff { phase: Phase::Engine }
    }

    /// Where it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    fn on(&mut self, event: Event) {
        self.phase = self.phase.next(event).expect("moves follow the table");
    }

    /// From the kernel to the engine.
    ///
    /// # Errors
    /// At which step it failed, why, and where the connection is now: in the kernel, or
    /// lost.
    ///
    /// # Panics
    /// If the connection is not in the kernel ([`Handoff::phase`]).
    pub fn hand_off<S: Steps>(&mut self, steps: &mut S) -> Result<(), Aborted<S::Error>> {
        self.on(Event::Begin);
        if let Err(cause) = steps.steer() {
            let undone = twice(Step::Unsteer, || steps.unsteer());
            return Err(self.back_in_kernel(Step::Steer, cause, undone, None));
        }
        let captured = match steps.capture() {
            Ok(captured) => captured,
            Err(cause) => {
                let undone = twice(Step::Unsteer, || steps.unsteer());
                return Err(self.back_in_kernel(Step::Capture, cause, undone, None));
            }
        };
        self.on(Event::Captured);
        let begun = steps.make_husk(&captured).map_err(|cause| (Step::MakeHusk, cause));
        let begun = begun.and_then(|()| steps.start(&captured).map_err(|cause| (Step::Start, cause)));
        if let Err((step, cause)) = begun {
            let undone = into_kernel(steps, &captured);
            return Err(self.back_in_kernel(step, cause, undone, Some(captured)));
        }
        self.on(Event::Started);
        Ok(())
    }

    /// From the engine to the kernel.
    ///
    /// # Errors
    /// At which step it failed, why, and where the connection is now: in the engine, or
    /// lost.
    ///
    /// # Panics
    /// If the connection is not in the engine ([`Handoff::phase`]).
    pub fn restore<S: Steps>(&mut self, steps: &mut S) -> Result<(), Aborted<S::Error>> {
        self.on(Event::Stop);
        let captured = match steps.stop() {
            Ok(captured) => captured,
            Err(cause) => {
                self.on(Event::Failed);
                self.on(Event::InEngine);
                return Err(Aborted { step: Step::Stop, cause, outcome: Outcome::InEngine });
            }
        };
        if let Err(cause) = steps.rebuild(&captured) {
            let outcome = into_engine(steps, captured);
            return Err(self.back_in_engine(Step::Rebuild, cause, outcome));
        }
        let ended = steps.unsteer().map_err(|cause| (Step::Unsteer, cause));
        let ended = ended.and_then(|()| steps.resume(&captured).map_err(|cause| (Step::Resume, cause)));
        if let Err((step, cause)) = ended {
            let outcome = into_engine_anew(steps, &captured);
            return Err(self.back_in_engine(step, cause, outcome));
        }
        self.on(Event::Resumed);
        Ok(())
    }

    fn back_in_engine<E>(&mut self, step: Step, cause: E, outcome: Outcome<E>) -> Aborted<E> {
        self.on(Event::Failed);
        self.on(if matches!(outcome, Outcome::InEngine) { Event::InEngine } else { Event::Lost });
        Aborted { step, cause, outcome }
    }

    fn back_in_kernel<E>(&mut self, step: Step, cause: E, undone: Undone<E>, captured: Option<Captured>) -> Aborted<E> {
        self.on(Event::Failed);
        let outcome = match undone {
            Ok(()) => Outcome::InKernel,
            Err((step, cause)) => Outcome::Lost { step, cause, captured: captured.map(Box::new) },
        };
        self.on(if matches!(outcome, Outcome::InKernel) { Event::InKernel } else { Event::Lost });
        Aborted { step, cause, outcome }
    }
}

impl Default for Handoff {
    fn default() -> Handoff {
        Handoff::new()
    }
}

/// Once more, if it fails.
fn twice<E>(step: Step, mut f: impl FnMut() -> Result<(), E>) -> Undone<E> {
    f().or_else(|_| f()).map_err(|cause| (step, cause))
}

/// The way back of a handoff, from anywhere.
fn into_kernel<S: Steps>(steps: &mut S, captured: &Captured) -> Undone<S::Error> {
    twice(Step::Rebuild, || steps.rebuild(captured))?;
    twice(Step::Unsteer, || steps.unsteer())?;
    twice(Step::Resume, || steps.resume(captured))
}

/// The way back of a restore while no frame can have reached the kernel.
fn into_engine<S: Steps>(steps: &mut S, captured: Captured) -> Outcome<S::Error> {
    let husk = twice(Step::MakeHusk, || steps.make_husk(&captured));
    match husk.and_then(|()| twice(Step::Start, || steps.start(&captured))) {
        Ok(()) => Outcome::InEngine,
        Err((step, cause)) => Outcome::Lost { step, cause, captured: Some(Box::new(captured)) },
    }
}

/// The way back once frames may have reached the kernel: what they changed is read anew.
fn into_engine_anew<S: Steps>(steps: &mut S, captured: &Captured) -> Outcome<S::Error> {
    let mut anew = None;
    let read = twice(Step::Steer, || steps.steer()).and_then(|()| {
        twice(Step::Capture, || {
            anew = Some(steps.recapture(captured)?);
            Ok(())
        })
    });
    match (read, anew) {
        (Ok(()), Some(anew)) => into_engine(steps, anew),
        (Ok(()), None) => unreachable!("a capture that succeeds has a result"),
        (Err((step, cause)), _) => Outcome::Lost { step, cause, captured: None },
    }
}
