//! The states of a connection. Each has what is known of the connection there, and no more. A step
//! of a move takes one state apart and makes the next from it.

use super::from_ledger::Found;
use baton_ipc::record::{Home, PairPlace, Phase};
use baton_kernel::Captured;
use baton_policy::Reason;
use std::time::Instant;

/// Where a connection is, whose message it waits for, and what is known of it there.
pub(super) enum State {
    /// In the kernel.
    Kernel(InKernel),
    /// In the kernel. The program was asked not to use it.
    Preparing(InKernel),
    /// In the kernel. No program uses it, and it waits for its other end to be like it.
    Meeting(Meeting),
    /// In neither. Its program and that of its other end exchange bytes through a link.
    Paired(InPair),
    /// In the kernel. The engine was asked to hold its frames.
    Holding(Holding),
    /// In neither. The program is to take in the bytes that the connection brings along.
    Bringing(Bringing),
    /// In neither. The engine was asked to adopt it.
    Starting(Starting),
    /// In the engine.
    Engine(InEngine),
    /// In the engine, which was asked to suspend it.
    Leaving(Leaving),
    /// Suspended in the engine. The program was asked which bytes it holds.
    Standing(Standing),
    /// In the engine, which finishes it, because the program has closed it.
    Closing(InEngine),
    /// In neither: its engine is dead or never had it, and the kernel has no route for it now. Its
    /// frames are dropped in the meantime.
    Stranded(Stranded),
    /// Between two states: a step has what is known of the connection, and makes the next state of
    /// it before the broker does anything else. If nothing is known, the connection is lost.
    Between,
}

/// A connection in the kernel.
#[derive(Default)]
pub(super) struct InKernel {
    /// The last capture, without the bytes of its queues. `None` if it was never captured.
    pub head: Option<Box<Captured>>,
    /// The message with which the connection last came home.
    pub home: Option<Home>,
    /// The place of the pair that it came from.
    pub slot: Option<PairPlace>,
}

/// A connection in the kernel that is about to be joined with its other end.
pub(super) struct Meeting {
    /// Its state as one in the kernel.
    pub kernel: InKernel,
    /// The number of the connection that may be its other end.
    pub peer: u64,
    /// Since when both ends have waited for nothing to be in flight.
    pub since: Option<Instant>,
    /// Set if it has waited for the other program to read.
    pub drains: Option<Drain>,
}

/// Bytes that the other program has yet to read.
pub(super) struct Drain {
    /// Bytes that are not read yet.
    pub left: u32,
    /// When it last became smaller.
    pub since: Instant,
}

/// One end of a pair.
pub(super) struct InPair {
    /// The capture as of when nothing of what the pair carries had been sent: the bytes that came along are the
    /// pair's first.
    pub head: Box<Captured>,
    /// Where it is.
    pub place: PairPlace,
    /// The number of its other end.
    pub peer: u64,
    /// Its program has said that it uses the pair.
    pub settled: bool,
    /// Its program will not do so: it has said so, has gone, or does not answer.
    pub declined: bool,
    /// Why both ends go home as soon as no program has yet to answer.
    pub recall: Option<Reason>,
}

impl InPair {
    /// True if its program has yet to say whether it uses the pair.
    pub fn waits(&self) -> bool {
        !self.settled && !self.declined
    }
}

/// A connection in the kernel whose frames the engine is to hold.
pub(super) struct Holding {
    /// Its state as one in the kernel.
    pub kernel: InKernel,
    /// When the engine began to hold its frames.
    pub since: Option<Instant>,
    /// Where it is to go once it has arrived in the engine.
    pub recall: Option<Recall>,
}

/// A connection that was captured and that its program is to take in.
pub(super) struct Bringing {
    /// The connection as captured.
    pub captured: Box<Captured>,
    /// The region to which it is brought.
    pub region: u32,
    /// The message with which the connection last came home.
    pub home: Option<Home>,
    /// Where it is to go once it has arrived in the engine.
    pub recall: Option<Recall>,
}

/// A connection that the engine is to adopt.
pub(super) struct Starting {
    /// The connection as captured.
    pub captured: Box<Captured>,
    /// The region to which it was brought.
    pub region: u32,
    /// The message with which the connection last came home.
    pub home: Option<Home>,
    /// Where it is to go once it has arrived in the engine.
    pub recall: Option<Recall>,
}

/// A connection in the engine.
pub(super) struct InEngine {
    /// The capture, without the bytes of its queues.
    pub head: Box<Captured>,
    /// Where it is in the engine.
    pub place: Place,
    /// The capture, until the ledger has the connection. Until then its place there may
    /// describe an earlier one.
    pub unsettled: Option<Box<Captured>>,
}

/// A connection's place in an engine.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The region to which it was brought.
    pub region: u32,
    /// Its index in the engine's ledger. `None` if no engine of this broker has adopted it.
    pub conn: Option<u32>,
}

/// A connection that the engine is to suspend.
pub(super) struct Leaving {
    /// Its state as one in the engine.
    pub engine: InEngine,
    /// Where it is to go.
    pub goal: Goal,
}

/// A connection that is suspended in the engine.
pub(super) struct Standing {
    /// Its state as one in the engine.
    pub engine: InEngine,
    /// The connection as read from the ledger.
    pub found: Box<Found>,
}

/// A connection for which the kernel has no route.
pub(super) struct Stranded {
    /// The connection as captured, or as read from the ledger.
    pub captured: Box<Captured>,
    /// Whether there are bytes that the program has not read.
    pub unread: bool,
    /// The steps that follow once the kernel can take it.
    pub arrival: Arrival,
}

/// The steps that follow once the kernel has a connection again.
pub(super) enum Arrival {
    /// The connection comes home.
    Home {
        /// The message for the program.
        home: Home,
        /// The earlier capture, without the bytes of its queues.
        head: Box<Captured>,
        /// A living engine has the connection suspended, and releases it then.
        suspended: bool,
    },
    /// As far as the program knows, the connection never left the kernel.
    Undone(InKernel),
}

/// Where a connection that leaves the engine is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    /// To the kernel. The program continues with the bytes that it holds.
    Home,
    /// To the kernel, with all bytes.
    Whole,
    /// To the kernel, which closes it, because the program is gone.
    Close,
}

/// A connection is to leave the engine as soon as it has arrived there.
#[derive(Clone, Copy)]
pub(super) struct Recall {
    /// Where it is to go.
    pub goal: Goal,
    /// Why.
    pub why: Reason,
}

impl Holding {
    /// The connection was captured. It is brought to `region`.
    pub fn captured(self, mut captured: Captured, region: u32) -> Bringing {
        if let Some(before) = &self.kernel.head {
            // A kernel that had the connection only briefly has measured nothing, and an engine
            // without a round-trip time waits for a second before it probes.
            let seeds = &mut captured.protocol.seeds;
            *seeds = seeds.or_round_trip_of(&before.protocol.seeds);
        }
        Bringing { captured: Box::new(captured), region, home: self.kernel.home, recall: self.recall }
    }
}

impl Bringing {
    /// The engine is asked to adopt it.
    pub fn start(self) -> Starting {
        Starting { captured: self.captured, region: self.region, home: self.home, recall: self.recall }
    }
}

impl Starting {
    /// The move is undone: the kernel is to have the connection again.
    pub fn undo(self) -> (Captured, InKernel) {
        let head = Some(Box::new(baton_bridge::without_queues(&self.captured)));
        (*self.captured, InKernel { head, home: self.home, slot: None })
    }

    /// The connection in the engine, which has adopted it as `conn` of its ledger.
    pub fn adopted(self, conn: Option<u32>) -> InEngine {
        let head = Box::new(baton_bridge::without_queues(&self.captured));
        InEngine { head, place: Place { region: self.region, conn }, unsettled: Some(self.captured) }
    }
}

/// The data of one state, or the state itself if it is another one.
pub(super) type Picked<T> = Result<T, State>;

impl State {
    pub fn preparing(self) -> Picked<InKernel> {
        if let State::Preparing(kernel) = self { Ok(kernel) } else { Err(self) }
    }

    /// In the kernel, where it may be about to leave.
    pub fn in_kernel(self) -> Picked<InKernel> {
        match self {
            State::Kernel(kernel) | State::Preparing(kernel) | State::Holding(Holding { kernel, .. }) => Ok(kernel),
            State::Meeting(Meeting { kernel, .. }) => Ok(kernel),
            other => Err(other),
        }
    }

    /// As [`in_kernel`](State::in_kernel), in place.
    pub fn in_kernel_mut(&mut self) -> Option<&mut InKernel> {
        match self {
            State::Kernel(kernel) | State::Preparing(kernel) | State::Holding(Holding { kernel, .. }) => Some(kernel),
            State::Meeting(Meeting { kernel, .. }) => Some(kernel),
            _ => None,
        }
    }

    /// The message with which the connection last came home, if it is in the kernel.
    pub fn home(&self) -> Option<Home> {
        match self {
            State::Kernel(kernel) | State::Preparing(kernel) | State::Holding(Holding { kernel, .. }) => kernel.home,
            State::Meeting(Meeting { kernel, .. }) => kernel.home,
            _ => None,
        }
    }

    pub fn paired(self) -> Picked<InPair> {
        if let State::Paired(pair) = self { Ok(pair) } else { Err(self) }
    }

    pub fn holding(self) -> Picked<Holding> {
        if let State::Holding(holding) = self { Ok(holding) } else { Err(self) }
    }

    pub fn bringing(self) -> Picked<Bringing> {
        if let State::Bringing(bringing) = self { Ok(bringing) } else { Err(self) }
    }

    pub fn starting(self) -> Picked<Starting> {
        if let State::Starting(starting) = self { Ok(starting) } else { Err(self) }
    }

    /// On its way to the engine, which does not have it.
    pub fn arriving(self) -> Picked<Starting> {
        match self {
            State::Bringing(bringing) => Ok(bringing.start()),
            other => other.starting(),
        }
    }

    pub fn leaving(self) -> Picked<Leaving> {
        if let State::Leaving(leaving) = self { Ok(leaving) } else { Err(self) }
    }

    pub fn standing(self) -> Picked<Standing> {
        if let State::Standing(standing) = self { Ok(standing) } else { Err(self) }
    }

    pub fn stranded(self) -> Picked<Stranded> {
        if let State::Stranded(stranded) = self { Ok(stranded) } else { Err(self) }
    }

    /// In the engine, which runs it or finishes it.
    pub fn running(self) -> Picked<InEngine> {
        match self {
            State::Engine(engine) | State::Closing(engine) => Ok(engine),
            other => Err(other),
        }
    }

    /// In the engine, or about to be: what is left if the engine dies.
    pub fn survivor(self) -> Picked<InEngine> {
        match self {
            State::Starting(starting) => Ok(starting.adopted(None)),
            State::Leaving(Leaving { engine, .. }) => Ok(engine),
            other => other.running(),
        }
    }

    /// In the engine, suspended or not.
    pub fn in_engine(&self) -> Option<&InEngine> {
        match self {
            State::Engine(engine) | State::Closing(engine) => Some(engine),
            State::Leaving(Leaving { engine, .. }) | State::Standing(Standing { engine, .. }) => Some(engine),
            _ => None,
        }
    }

    pub fn in_engine_mut(&mut self) -> Option<&mut InEngine> {
        match self {
            State::Engine(engine) | State::Closing(engine) => Some(engine),
            State::Leaving(Leaving { engine, .. }) | State::Standing(Standing { engine, .. }) => Some(engine),
            _ => None,
        }
    }

    /// Returns true if the engine has the connection and must be told when that is over.
    pub fn is_known_to_engine(&self) -> bool {
        match self {
            State::Stranded(Stranded { arrival: Arrival::Home { suspended, .. }, .. }) => *suspended,
            _ => self.in_engine().is_some_and(|engine| engine.place.conn.is_some()),
        }
    }

    /// Returns true if its frames are steered.
    pub fn is_away(&self) -> bool {
        !matches!(self, State::Kernel(_) | State::Preparing(_) | State::Holding(_) | State::Meeting(_))
    }

    /// Returns true if neither the kernel nor the ledger has what was captured, or if the other end's record may
    /// not say yet that a link has it.
    pub fn has_queues(&self) -> bool {
        match self {
            State::Bringing(_) | State::Starting(_) | State::Stranded(_) => true,
            State::Paired(pair) => !pair.settled,
            _ => self.in_engine().is_some_and(|engine| engine.unsettled.is_some()),
        }
    }

    /// The last capture.
    pub fn captured(&self) -> Option<&Captured> {
        match self {
            State::Kernel(kernel) | State::Preparing(kernel) | State::Holding(Holding { kernel, .. }) => {
                kernel.head.as_deref()
            }
            State::Meeting(Meeting { kernel, .. }) => kernel.head.as_deref(),
            State::Paired(pair) => Some(&pair.head),
            State::Bringing(Bringing { captured, .. })
            | State::Starting(Starting { captured, .. })
            | State::Stranded(Stranded { captured, .. }) => Some(captured),
            State::Engine(_) | State::Leaving(_) | State::Standing(_) | State::Closing(_) => {
                self.in_engine().map(|engine| engine.unsettled.as_deref().unwrap_or(&engine.head))
            }
            State::Between => None,
        }
    }

    /// How far the connection's move has come. `None` between two states, where the step says so.
    pub fn phase(&self) -> Option<Phase> {
        Some(match self {
            State::Kernel(InKernel { home, .. }) | State::Preparing(InKernel { home, .. }) => {
                home.map_or(Phase::Kernel, |home| Phase::Rebuilt(Some(home)))
            }
            // The next capture need not be equal to what was rebuilt last.
            State::Holding(_) | State::Meeting(_) => Phase::Kernel,
            State::Paired(_) => Phase::Paired,
            State::Bringing(_) => Phase::Captured,
            State::Starting(_) => Phase::Brought,
            State::Engine(_) | State::Leaving(_) | State::Standing(_) | State::Closing(_) => {
                if self.has_queues() {
                    Phase::Brought
                } else {
                    Phase::Engine
                }
            }
            State::Stranded(Stranded { arrival, unread, .. }) => {
                let home = if let Arrival::Home { home, .. } = arrival { *home } else { Home::WHOLE };
                Phase::Left(home, *unread)
            }
            State::Between => return None,
        })
    }

    /// The place that a list of connections shows.
    pub fn place(&self) -> &'static str {
        match self {
            State::Kernel(_) | State::Preparing(_) | State::Holding(_) | State::Meeting(_) => "kernel",
            State::Paired(_) => "pair",
            State::Engine(_) => "engine",
            State::Bringing(_) | State::Starting(_) => "to-engine",
            State::Leaving(_) | State::Standing(_) | State::Stranded(_) | State::Between => "to-kernel",
            State::Closing(_) => "closing",
        }
    }
}
