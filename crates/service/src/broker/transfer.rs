//! The kernel's part of a move, in either direction: the steps of [`baton_kernel::handoff`], and
//! where the connection is afterwards.

use super::Broker;
use baton_ipc::queues::write_queues;
use baton_ipc::record::{self, Home, Phase, Record};
use baton_kernel::handoff::{Aborted, Handoff, Outcome, Steps};
use baton_kernel::kernel_side::{KernelError, KernelSide, Plan};
use baton_kernel::steer::Mode;
use baton_kernel::{Captured, Failed};
use baton_policy::Refusal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The kernel's part of a move. Between its steps, the broker waits for the engine.
pub(super) struct Transfer<'a> {
    pub kernel: &'a mut KernelSide,
    pub fd: BorrowedFd<'a>,
    pub plan: Plan,
    pub terms: Terms,
    /// The connection as captured, or as it is to be rebuilt.
    pub captured: Option<Captured>,
    /// The connection is suspended in the engine, so the move can be undone.
    pub stands: bool,
    /// Where the connection goes.
    pub way: Direction,
    /// Records with the guardian how far the move has come, before each step that advances it.
    pub keep: &'a mut dyn FnMut(Phase, &Captured) -> io::Result<()>,
    /// The connection as rebuilt last, without the bytes of its queues.
    pub rebuilt: Option<Captured>,
}

/// Conditions under which a connection leaves the kernel.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// The longest queue, in bytes, that the connection may bring along.
    pub largest: usize,
    /// The kernel must hold nothing of it beyond a gap.
    pub settled: bool,
}

impl Terms {
    /// No conditions.
    pub const NONE: Terms = Terms { largest: usize::MAX, settled: false };
}

/// A connection that has left the kernel.
pub(super) struct HandedOff {
    /// The connection as captured.
    pub captured: Captured,
    /// A file of its queues, unless they are empty.
    pub queues: Option<Arc<OwnedFd>>,
}

/// The destination of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// To the engine.
    ToEngine,
    /// To the kernel. The program is then told this.
    ToKernel(Home),
}

impl Transfer<'_> {
    fn keep(&mut self, phase: Phase, captured: &Captured) -> Result<(), KernelError> {
        let kept = (self.keep)(phase, captured);
        kept.map_err(|source| Failed { during: "recording what was captured", source }.into())
    }
}

impl Steps for Transfer<'_> {
    type Error = KernelError;

    fn steer(&mut self) -> Result<(), KernelError> {
        if self.terms.settled { self.kernel.steer_settled(&self.plan) } else { self.kernel.steer(&self.plan) }
    }

    fn capture(&mut self) -> Result<Captured, KernelError> {
        let captured = self.kernel.capture(self.fd)?;
        if captured.send_queue.len().max(captured.receive_queue.len()) > self.terms.largest {
            // Nothing was changed yet, so it becomes an ordinary socket again.
            baton_kernel::release(self.fd, &captured)?;
            return Err(self.kernel.refuse(Refusal::TooMuchQueued));
        }
        Ok(captured)
    }

    fn make_husk(&mut self, captured: &Captured) -> Result<(), KernelError> {
        if self.way == Direction::ToEngine {
            self.keep(Phase::Captured, captured)?;
        }
        let made = self.kernel.make_husk(self.fd, captured);
        // A suspended connection continues in the engine even if the socket is no proper husk,
        // which it cannot be without its address. The next move home starts over.
        if self.stands { Ok(()) } else { made }
    }

    fn start(&mut self, captured: &Captured) -> Result<(), KernelError> {
        match &self.captured {
            None => self.captured = Some(captured.clone()),
            // The engine's copy lacks whatever the kernel has received since.
            Some(before) if self.stands && before == captured => self.keep(Phase::Engine, captured)?,
            Some(_) => return Err(Refusal::State.into()),
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<Captured, KernelError> {
        let captured = self.captured.as_mut().ok_or(KernelError::Refused(Refusal::State))?;
        if self.stands {
            return Ok(captured.clone());
        }
        // The move cannot be undone, so the bytes of the queues are not needed again.
        let head = baton_bridge::without_queues(captured);
        Ok(std::mem::replace(captured, head))
    }

    fn rebuild(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.rebuild(self.fd, captured)?;
        self.rebuilt = Some(baton_bridge::without_queues(captured));
        Ok(())
    }

    fn unsteer(&mut self) -> Result<(), KernelError> {
        // From here on the kernel runs the connection, and what was captured is out of date.
        if let Some(rebuilt) = self.rebuilt.take() {
            let home = if let Direction::ToKernel(home) = self.way { Some(home) } else { None };
            self.keep(Phase::Rebuilt(home), &rebuilt)?;
        }
        self.kernel.unsteer(&self.plan)
    }

    fn recapture(&mut self, previous: &Captured) -> Result<Captured, KernelError> {
        self.kernel.recapture(self.fd, previous)
    }

    fn resume(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.resume(self.fd, captured)
    }
}

/// Where a connection is after it was to return to the kernel.
#[must_use]
pub(super) enum Landed {
    /// In the kernel.
    InKernel,
    /// In the engine, which was to release it and goes on with it.
    StaysInEngine,
    /// Nowhere: the kernel has no route for it now.
    NoRoute(Box<Captured>),
    /// It is lost, for this reason.
    Lost(String),
}

/// The captured state of a connection that could not become a husk because it has no route.
///
/// # Errors
/// The reason, if the connection is lost.
pub(super) fn without_route(aborted: Aborted<KernelError>) -> Result<Captured, String> {
    match aborted {
        Aborted { outcome: Outcome::Lost { captured: Some(captured), cause, .. }, .. } if cause.is_no_route() => {
            Ok(*captured)
        }
        aborted => Err(aborted.to_string()),
    }
}

/// Returns true if the connection may be able to leave soon.
pub(super) fn is_unsettled(aborted: &Aborted<KernelError>) -> bool {
    matches!(aborted.outcome, Outcome::InKernel) && aborted.cause.refusal() == Some(Refusal::Unsettled)
}

impl Broker {
    /// Runs the steps of the move out of the kernel.
    pub(super) fn hand_off(&mut self, id: u64, terms: Terms) -> Result<HandedOff, Box<Aborted<KernelError>>> {
        let Broker { connections, kernel, checkpoints, slots, .. } = self;
        let connection = connections.get(id).expect("a step has the connection");
        let plan = connection.plan;
        let mut file = None;
        let mut keep = |phase, captured: &Captured| {
            if phase == Phase::Captured {
                file = write_queues(&captured.send_queue, &captured.receive_queue)?.map(Arc::new);
                if let Some(file) = &file {
                    let (send, unread) = (captured.send_queue.len() as u32, captured.receive_queue.len() as u32);
                    checkpoints.keep(record::queues(id), &Record::Queues { id, send, unread }, &[file]);
                }
            }
            let kept = connection.record(&slots[connection.slot].name, phase, Some(captured));
            checkpoints.keep(record::connection(id), &kept, &[&connection.fd]);
            Ok(())
        };
        let (fd, way) = (connection.fd.as_fd(), Direction::ToEngine);
        let (captured, rebuilt) = (None, None);
        let stands = false;
        let mut transfer = Transfer { kernel, fd, plan, terms, captured, stands, way, keep: &mut keep, rebuilt };
        Handoff::new().hand_off(&mut transfer)?;
        let captured = transfer.captured.take().expect("what was handed off was captured");
        Ok(HandedOff { captured, queues: file })
    }

    /// Runs the steps of the move into the kernel. `stands` says whether the connection is suspended
    /// in an engine, which can go on with it.
    pub(super) fn restore(&mut self, id: u64, captured: Captured, stands: bool, way: Direction) -> Landed {
        let Broker { connections, kernel, checkpoints, slots, .. } = self;
        let connection = connections.get(id).expect("a step has the connection");
        let plan = connection.plan;
        let mut keep = |phase, captured: &Captured| {
            let kept = connection.record(&slots[connection.slot].name, phase, Some(captured));
            checkpoints.keep(record::connection(id), &kept, &[&connection.fd]);
            Ok(())
        };
        let (captured, rebuilt) = (Some(captured), None);
        let fd = connection.fd.as_fd();
        let mut transfer =
            Transfer { kernel, fd, plan, terms: Terms::NONE, captured, stands, way, keep: &mut keep, rebuilt };
        match Handoff::in_engine().restore(&mut transfer) {
            Ok(()) => Landed::InKernel,
            Err(Aborted { outcome: Outcome::InEngine, cause, .. }) => {
                let captured = transfer.captured.take();
                // With XDP, only suspension keeps an engine from sending.
                let is_xdp = matches!(kernel.mode(plan.way.interface), Some(Mode::Xdp { .. }));
                match captured.filter(|_| is_xdp && cause.is_no_route()) {
                    Some(captured) => Landed::NoRoute(Box::new(captured)),
                    None => Landed::StaysInEngine,
                }
            }
            // The move cannot be undone, so try once more to complete it.
            Err(Aborted { outcome: Outcome::Lost { captured: Some(captured), .. }, cause, .. }) => {
                match transfer.rebuild(&captured) {
                    Ok(()) if transfer.unsteer().is_ok() && transfer.resume(&captured).is_ok() => Landed::InKernel,
                    Err(error) if error.is_no_route() => Landed::NoRoute(captured),
                    _ => Landed::Lost(cause.to_string()),
                }
            }
            Err(aborted) => Landed::Lost(aborted.to_string()),
        }
    }
}
