//! One move: runs the steps of [`baton_kernel::handoff`] with a real socket, the steering map and
//! an engine.
//!
//! ```text
//!   handoff   steer: the engine holds frames of the tuple, then the map sends them to it
//!             start: buffers are taken and filled, the adoption is requested and awaited
//!   restore   stop: new data stops, data in flight arrives, the engine suspends the connection
//!             ... rebuilt, unsteered, resumed ...
//!             finish: the engine forgets the connection and no longer holds the tuple
//! ```
//!
//! Until `finish` the engine still has the suspended connection, so a restore is undone by letting
//! the connection continue. Only if the kernel may have received something since (after unsteer) is
//! the connection adopted again, from what the kernel says.

use crate::error::MoveError;
use crate::interface::{Interface, now};
use baton_consumer::consumer::Conn;
use baton_engine::event::{ConnId, Wish};
use baton_engine::streamer::{ConsumerId, Moved, SuspendError, Suspended};
use baton_kernel::Captured;
use baton_kernel::handoff::Steps;
use baton_kernel::kernel_side::{KernelSide, Plan};
use baton_policy::Refusal;
use baton_port::FrameIo;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The number of the only consumer of each engine.
pub(crate) const PROGRAM: ConsumerId = ConsumerId(0);

/// After this many polls, an engine that has not answered never will.
const PATIENCE: u32 = 10_000;

/// A connection while it is moved: see the module's documentation.
pub(crate) struct Trip<'a, P> {
    pub kernel: &'a mut KernelSide,
    pub interface: &'a mut Interface<P>,
    pub started: Instant,
    pub drain: Duration,
    pub fd: BorrowedFd<'a>,
    pub plan: Plan,
    /// The connection's place in the engine, if it is there.
    pub conn: Option<(ConnId, Conn)>,
    /// Its state, if it is suspended in the engine.
    pub standing: Option<Box<Suspended>>,
    /// The parts of its state that the engine does not need, from its capture.
    pub head: Option<Captured>,
    /// The program had closed it, and the engine did not know yet.
    pub shut: bool,
}

impl<P: FrameIo> Trip<'_, P> {
    /// Polls the engine until it reports on a move, and `wanted` accepts the report.
    fn await_moved<T>(
        &mut self,
        mut wanted: impl FnMut(&Moved) -> bool,
        then: impl FnOnce(Moved) -> T,
    ) -> Result<T, MoveError> {
        for _ in 0..PATIENCE {
            while let Some(moved) = self.interface.engine.streamer().poll_moved() {
                if wanted(&moved) {
                    return Ok(then(moved));
                }
            }
            self.poll()?;
        }
        Err(MoveError::Silent)
    }

    fn poll(&mut self) -> Result<(), MoveError> {
        self.interface.poll(self.kernel, now(self.started))?;
        Ok(())
    }

    /// Has the engine adopt a new connection.
    fn adopt(&mut self, captured: &Captured) -> Result<(), MoveError> {
        let window = captured.protocol.rcv_wnd();
        let adoption = self.interface.consumer.expect_adoption();
        if let Err(error) = self.interface.consumer.bring(adoption, baton_bridge::brought(captured), window) {
            self.interface.consumer.forget_adoption(adoption);
            return Err(MoveError::Buffers(error));
        }
        let result = self.adopted(captured, adoption.0);
        match result {
            Ok((conn, qp)) => {
                self.conn = Some((conn, Conn(qp)));
                self.head = Some(baton_bridge::without_queues(captured));
                Ok(())
            }
            Err(error) => {
                self.interface.consumer.forget_adoption(adoption);
                Err(error)
            }
        }
    }

    fn adopted(&mut self, captured: &Captured, token: u64) -> Result<(ConnId, u32), MoveError> {
        let options = baton_bridge::options(captured);
        let adopt = baton_bridge::adoption(captured, &options, self.plan.way.via, PROGRAM, token);
        let time = now(self.started);
        // This comes first, so that the neighbour is known before the first segment leaves.
        self.interface.engine.streamer().adopt(time, &adopt)?;
        if let Some(mac) = self.plan.mac {
            self.interface.engine.streamer().learn_neighbour(time, self.plan.way.via, mac);
        }
        let ours = |moved: &Moved| match moved {
            Moved::Adopted { token: of, .. } | Moved::AdoptRefused { token: of, .. } => *of == token,
            _ => false,
        };
        let moved = self.await_moved(ours, |moved| moved)?;
        let (conn, qp) = match moved {
            Moved::Adopted { conn, qp, .. } => (conn, qp),
            Moved::AdoptRefused { why, .. } => return Err(why.into()),
            other => unreachable!("nobody waits for {other:?}"),
        };
        // The consumer is told separately.
        for _ in 0..PATIENCE {
            if self.interface.consumer.stream(Conn(qp)).is_some_and(|stream| stream.is_filled()) {
                return Ok((conn, qp));
            }
            self.poll()?;
        }
        Err(MoveError::Silent)
    }

    /// Sends nothing new until everything is acknowledged, and received without a gap, for as long
    /// as the configuration allows.
    fn let_flight_land(&mut self, conn: ConnId) -> Result<(), MoveError> {
        if self.drain.is_zero() || self.interface.gone {
            return Ok(());
        }
        self.interface.engine.streamer().quiesce(conn, &self.plan.tuple(), true);
        let begun = Instant::now();
        while !self.interface.engine.streamer().is_settled(conn, &self.plan.tuple()) && begun.elapsed() < self.drain {
            let busy = self.interface.poll(self.kernel, now(self.started))?;
            if !busy {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Steers the connection once the kernel has nothing beyond a gap, if that happens within the
    /// configured time.
    fn steer_settled(&mut self) -> Result<(), MoveError> {
        let begun = Instant::now();
        while begun.elapsed() < self.drain {
            match self.kernel.steer_settled(&self.plan) {
                Err(error) if error.refusal() == Some(Refusal::Unsettled) => self.poll()?,
                steered => return Ok(steered?),
            }
            std::thread::yield_now();
        }
        Ok(self.kernel.steer(&self.plan)?)
    }

    fn suspend(&mut self, conn: ConnId) -> Result<Box<Suspended>, MoveError> {
        for _ in 0..PATIENCE {
            match self.interface.engine.streamer().suspend(conn, &self.plan.tuple()) {
                Ok(()) => break,
                Err(SuspendError::Busy | SuspendError::Filling) => self.poll()?,
                // The connection was open, so it has ended since.
                Err(SuspendError::NotOpen) => return Err(MoveError::Ended),
            }
        }
        let ours = |moved: &Moved| match moved {
            Moved::Suspended(suspended) => suspended.conn == conn,
            Moved::Stays { conn: of } | Moved::Ended { conn: of } => *of == conn,
            _ => false,
        };
        match self.await_moved(ours, |moved| moved)? {
            Moved::Suspended(suspended) => Ok(suspended),
            Moved::Ended { .. } => Err(MoveError::Ended),
            _ => Err(MoveError::Stays),
        }
    }

    /// Lets the suspended connection continue in the engine.
    fn resume_in_engine(&mut self, conn: ConnId) -> Result<(), MoveError> {
        for _ in 0..PATIENCE {
            match self.interface.engine.streamer().resume(conn, &self.plan.tuple()) {
                Ok(()) => break,
                Err(SuspendError::Busy) => self.poll()?,
                Err(error) => return Err(error.into()),
            }
        }
        self.standing = None;
        Ok(())
    }

    /// Makes the engine forget the connection. Returns what its consumer requested meanwhile.
    fn forget_in_engine(&mut self) -> Result<Vec<Wish>, MoveError> {
        let Some((conn, stream)) = self.conn else { return Ok(Vec::new()) };
        let mut wishes = None;
        for _ in 0..PATIENCE {
            if wishes.is_none() {
                match self.interface.engine.streamer().let_go(now(self.started), conn, &self.plan.tuple()) {
                    Ok(made) => wishes = Some(made),
                    Err(SuspendError::Busy) => {}
                    // It ended while it was suspended, for example by a reset from the program.
                    Err(_) => return Err(MoveError::Ended),
                }
            }
            self.poll()?;
            if wishes.is_some() && self.interface.consumer.leave(stream).is_some() {
                self.conn = None;
                self.standing = None;
                return Ok(wishes.unwrap_or_default());
            }
        }
        Err(MoveError::Silent)
    }

    /// After a restore: makes the engine forget the connection, and passes what the program
    /// requested meanwhile on to the kernel.
    pub fn finish(&mut self) {
        // The kernel has the connection, whatever happens to the engine's copy.
        let wishes = self.forget_in_engine().unwrap_or_default();
        self.interface.engine.streamer().unhold(&self.plan.tuple());
        if self.shut || wishes.contains(&Wish::Shutdown) {
            // A socket that was reset meanwhile has nothing to close.
            let _ = shutdown(self.fd, Shutdown::Write);
        }
    }
}

impl<P: FrameIo> Steps for Trip<'_, P> {
    type Error = MoveError;

    fn steer(&mut self) -> Result<(), MoveError> {
        // This returns false only if the connection is suspended in the engine, which means that
        // its frames are held already.
        self.interface.engine.streamer().hold(self.plan.tuple());
        self.steer_settled()
    }

    fn capture(&mut self) -> Result<Captured, MoveError> {
        let captured = self.kernel.capture(self.fd)?;
        if let Err(refusal) = baton_bridge::fits(&captured, self.interface.consumer.brings_at_most()) {
            let error = self.kernel.refuse(refusal);
            // Nothing was changed yet, so it becomes an ordinary socket again.
            baton_kernel::release(self.fd, &captured).map_err(baton_kernel::kernel_side::KernelError::from)?;
            return Err(error.into());
        }
        Ok(captured)
    }

    fn make_husk(&mut self, captured: &Captured) -> Result<(), MoveError> {
        let made = self.kernel.make_husk(self.fd, captured);
        if self.standing.is_some() {
            // The engine continues even if the socket is no proper husk, which it cannot be without
            // a route. The next restore starts over.
            return Ok(());
        }
        Ok(made?)
    }

    fn start(&mut self, captured: &Captured) -> Result<(), MoveError> {
        match self.conn {
            Some((conn, _)) if self.standing.is_some() => self.resume_in_engine(conn),
            _ => self.adopt(captured),
        }
    }

    fn stop(&mut self) -> Result<Captured, MoveError> {
        let (conn, stream) = self.conn.expect("a connection that is restored is in the engine");
        self.let_flight_land(conn)?;
        let suspended = match self.suspend(conn) {
            Ok(suspended) => suspended,
            Err(error) => {
                self.interface.engine.streamer().quiesce(conn, &self.plan.tuple(), false);
                return Err(error);
            }
        };
        // Takes in what the consumer published last.
        self.interface.consumer.poll(now(self.started));
        let send = self.interface.engine.streamer().read_send_queue(&suspended);
        let left = self.interface.consumer.standing(stream, suspended.tail_pos);
        let head = self.head.as_ref().expect("a connection in the engine was captured before");
        let Some(left) = left else {
            self.standing = Some(suspended);
            self.resume_in_engine(conn)?;
            return Err(MoveError::Ended);
        };
        self.shut = left.shut && !suspended.snapshot.has_our_fin();
        let captured = baton_bridge::departed(head, &suspended, send, left);
        self.standing = Some(suspended);
        Ok(captured)
    }

    fn rebuild(&mut self, captured: &Captured) -> Result<(), MoveError> {
        Ok(self.kernel.rebuild(self.fd, captured)?)
    }

    fn unsteer(&mut self) -> Result<(), MoveError> {
        self.kernel.unsteer(&self.plan)?;
        // This affects a tuple that has no connection here. A suspended connection stays.
        self.interface.engine.streamer().unhold(&self.plan.tuple());
        Ok(())
    }

    fn recapture(&mut self, previous: &Captured) -> Result<Captured, MoveError> {
        let captured = self.kernel.recapture(self.fd, previous)?;
        // The engine's suspended copy is out of date.
        self.forget_in_engine()?;
        self.interface.engine.streamer().hold(self.plan.tuple());
        Ok(captured)
    }

    fn resume(&mut self, captured: &Captured) -> Result<(), MoveError> {
        Ok(self.kernel.resume(self.fd, captured)?)
    }
}
