//! The order of a move's steps, and how to undo each of them.
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
//! [`Handoff::hand_off`] and [`Handoff::restore`] run the steps in order and, if one fails, undo
//! what was done. The caller decides what the steps do ([`Steps`]): they use a real socket, a map
//! and an engine in the service, and anything in a test. A step that undoes another is tried twice.
//! Afterwards the connection is whole on one side, or [`Outcome::Lost`] says why not and returns
//! the captured connection for any other use.
//!
//! From `steer` on, the connection's frames are held for the engine. `start` gives them to it. Once
//! the engine has stopped, frames are lost, as if the network had dropped them. From `unsteer` on
//! they reach the kernel again. The socket must be connected by then, or the kernel would answer
//! with a reset. The socket is still in repair mode, which keeps the program out but not the
//! frames. So if a restore fails from here on, the connection is read again.

use crate::captured::Captured;
use core::fmt;

/// Where a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The kernel runs it.
    Kernel,
    /// The kernel still runs it, and its frames are held.
    Quiescing,
    /// Nobody runs it. Its state is in memory.
    Captured,
    /// The engine runs it.
    Engine,
    /// The engine has stopped, and the kernel does not run it yet.
    Restoring,
    /// A step failed, and the steps before it are being undone.
    Aborted,
    /// Neither side can run it.
    Lost,
}

/// An event that takes a connection from one phase to the next.
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
    /// The move was undone: the kernel runs the connection.
    InKernel,
    /// The move was undone: the engine runs the connection.
    InEngine,
    /// The move could not be undone.
    Lost,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 7] = [
        Phase::Kernel,
        Phase::Quiescing,
        Phase::Captured,
        Phase::Engine,
        Phase::Restoring,
        Phase::Aborted,
        Phase::Lost,
    ];

    /// The phase after `event`, or `None` if the event is not possible in this phase.
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

/// The steps of a move. A step may fail before or after it has done its work, and may be called
/// again.
pub trait Steps {
    /// Why a step failed.
    type Error;

    /// Keeps the connection's frames from the kernel and holds them for the engine.
    ///
    /// # Errors
    /// Either none or all of the frames are kept then; [`Steps::unsteer`] makes it none.
    fn steer(&mut self) -> Result<(), Self::Error>;

    /// Reads the connection, like [`capture`](crate::capture).
    ///
    /// # Errors
    /// The socket is unchanged then.
    fn capture(&mut self) -> Result<Captured, Self::Error>;

    /// Makes a husk, like [`make_husk`](crate::make_husk).
    ///
    /// # Errors
    /// The socket is in an undefined state then, and in repair mode.
    fn make_husk(&mut self, captured: &Captured) -> Result<(), Self::Error>;

    /// Lets the engine run the connection, beginning with the held frames.
    ///
    /// # Errors
    /// The engine has nothing of the connection then, and has sent nothing.
    fn start(&mut self, captured: &Captured) -> Result<(), Self::Error>;

    /// Stops the engine for this connection.
    ///
    /// # Errors
    /// The engine still runs the connection then.
    fn stop(&mut self) -> Result<Captured, Self::Error>;

    /// Rebuilds the connection, like [`rebuild`](crate::rebuild).
    ///
    /// # Errors
    /// The socket is in an undefined state then, and in repair mode.
    fn rebuild(&mut self, captured: &Captured) -> Result<(), Self::Error>;

    /// Lets the connection's frames go to the kernel.
    ///
    /// # Errors
    /// Either none or all of the frames go there then; [`Steps::steer`] makes it none.
    fn unsteer(&mut self) -> Result<(), Self::Error>;

    /// Reads a rebuilt connection that was not resumed, like [`recapture`](crate::recapture).
    ///
    /// # Errors
    /// The socket is unchanged then.
    fn recapture(&mut self, previous: &Captured) -> Result<Captured, Self::Error>;

    /// Resumes the connection, like [`resume`](crate::resume).
    ///
    /// # Errors
    /// The socket is still in repair mode then.
    fn resume(&mut self, captured: &Captured) -> Result<(), Self::Error>;
}

/// Where the connection is after a move failed.
#[derive(Debug)]
pub enum Outcome<E> {
    /// In the kernel, whole.
    InKernel,
    /// In the engine, whole.
    InEngine,
    /// On neither side: undoing failed twice as well.
    Lost {
        /// The step that failed.
        step: Step,
        /// The error of the step that failed.
        cause: E,
        /// The captured connection, for another attempt, unless the kernel still has it.
        captured: Option<Box<Captured>>,
    },
}

/// A move that failed.
#[derive(Debug)]
pub struct Aborted<E> {
    /// The step that failed.
    pub step: Step,
    /// The error of the step that failed.
    pub cause: E,
    /// Where the connection is now.
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

/// The moves of one connection between kernel and engine.
#[derive(Debug)]
pub struct Handoff {
    phase: Phase,
}

/// The failure of a step that was to undo another.
type Undone<E> = Result<(), (Step, E)>;

impl Handoff {
    /// For a connection that the kernel runs.
    pub fn new() -> Handoff {
        Handoff { phase: Phase::Kernel }
    }

    /// For a connection that the engine runs, for example a predecessor's.
    pub fn in_engine() -> Handoff {
        Handoff { phase: Phase::Engine }
    }

    /// The phase that the connection is in.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    fn on(&mut self, event: Event) {
        self.phase = self.phase.next(event).expect("every event fits its phase");
    }

    /// Moves the connection from the kernel to the engine.
    ///
    /// # Errors
    /// The step that failed, the reason, and where the connection is now: in the kernel, or lost.
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

    /// Moves the connection from the engine to the kernel.
    ///
    /// # Errors
    /// The step that failed, the reason, and where the connection is now: in the engine, or lost.
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

/// Tries a second time if the first attempt fails.
fn twice<E>(step: Step, mut f: impl FnMut() -> Result<(), E>) -> Undone<E> {
    f().or_else(|_| f()).map_err(|cause| (step, cause))
}

/// Undoes a handoff from any point.
fn into_kernel<S: Steps>(steps: &mut S, captured: &Captured) -> Undone<S::Error> {
    twice(Step::Rebuild, || steps.rebuild(captured))?;
    twice(Step::Unsteer, || steps.unsteer())?;
    twice(Step::Resume, || steps.resume(captured))
}

/// Undoes a restore while no frame can have reached the kernel.
fn into_engine<S: Steps>(steps: &mut S, captured: Captured) -> Outcome<S::Error> {
    let husk = twice(Step::MakeHusk, || steps.make_husk(&captured));
    match husk.and_then(|()| twice(Step::Start, || steps.start(&captured))) {
        Ok(()) => Outcome::InEngine,
        Err((step, cause)) => Outcome::Lost { step, cause, captured: Some(Box::new(captured)) },
    }
}

/// Undoes a restore once frames may have reached the kernel: their effects are read again.
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
        (Ok(()), None) => unreachable!("a successful capture has a result"),
        (Err((step, cause)), _) => Outcome::Lost { step, cause, captured: None },
    }
}
