//! State that the program's threads and the driver of a stack share: the consumer behind a lock,
//! and the threads and tasks that wait, with what they wait for.

use baton_consumer::consumer::{Attempt, Conn, Consumer, Listener, SocketEvent};
use baton_consumer::waiters::Waiters;
use baton_consumer::wake::Doorbell;
use baton_engine::counters::{StreamerCounters, TceCounters};
use baton_engine::frame_io::PortError;
use baton_tcp::time::Instant;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Statistics of a stack.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Streamer's counters.
    pub streamer: StreamerCounters,
    /// TCE's counters, in nanoseconds where they count time.
    pub tce: TceCounters,
    /// Number of connections in the TCE.
    pub connections: u32,
    /// Largest number of events, and of orders, that ever waited.
    pub queue_high_water: (usize, usize),
}

/// State that the program's threads and the driver share.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    pub(crate) doorbell: Doorbell,
    pub(crate) stop: AtomicBool,
    pub(crate) stats: Mutex<Stats>,
}

/// State that is protected by the lock.
pub(crate) struct Inner {
    pub(crate) consumer: Consumer,
    /// Waiting tasks of each connection, by its index.
    waiting: Vec<Waiting>,
    listeners: BTreeMap<u64, Accepting>,
    attempts: BTreeMap<u64, Opening>,
    /// Why the driver ended, if it did.
    dead: Option<String>,
}

#[derive(Default)]
struct Waiting {
    reader: Waiters,
    writer: Waiters,
}

#[derive(Default)]
struct Accepting {
    ready: bool,
    failed: Option<io::Error>,
    queue: VecDeque<Conn>,
    waiters: Waiters,
}

#[derive(Default)]
struct Opening {
    outcome: Option<io::Result<Conn>>,
    waiters: Waiters,
}

/// The direction that a task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Read,
    Write,
}

impl Shared {
    /// The state of a stack whose driver has not started.
    ///
    /// # Errors
    /// If there is no eventfd to be had.
    pub(crate) fn new(consumer: Consumer) -> io::Result<Shared> {
        let inner =
            Inner { consumer, waiting: Vec::new(), listeners: BTreeMap::new(), attempts: BTreeMap::new(), dead: None };
        Ok(Shared {
            inner: Mutex::new(inner),
            doorbell: Doorbell::new()?,
            stop: AtomicBool::new(false),
            stats: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The state is still valid after a panic: its cursors are always consistent.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `run` on the consumer, then wakes the driver if necessary.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.lock();
        let result = run(&mut inner);
        let wake = inner.consumer.region().must_wake_engine();
        drop(inner);
        if wake {
            self.doorbell.ring();
        }
        result
    }

    /// Called by the driver: takes in completions and wakes the tasks they concern. Returns the
    /// time of the next call even if nothing happens.
    pub(crate) fn take_completions(&self, now: Instant) -> Option<Instant> {
        let mut inner = self.lock();
        inner.consumer.poll(now);
        inner.dispatch();
        inner.consumer.next_look()
    }

    /// Called when the driver ends: wakes all waiting tasks, which then fail.
    pub(crate) fn end(&self, error: Option<&PortError>) {
        let mut inner = self.lock();
        inner.dead = Some(error.map_or_else(|| "the stack was shut down".into(), ToString::to_string));
        inner.wake_all();
    }
}

impl Inner {
    fn dispatch(&mut self) {
        while let Some(event) = self.consumer.next_event() {
            match event {
                SocketEvent::Ready { conn } => self.wake(conn),
                SocketEvent::Accepted { listener, conn } => match self.listeners.get_mut(&listener.0) {
                    Some(accepting) => {
                        accepting.queue.push_back(conn);
                        accepting.waiters.wake();
                    }
                    None => self.consumer.abort(conn),
                },
                SocketEvent::Listening { listener } => {
                    if let Some(accepting) = self.listeners.get_mut(&listener.0) {
                        accepting.ready = true;
                        accepting.waiters.wake();
                    }
                }
                SocketEvent::Opening { attempt, conn } => match self.attempts.get_mut(&attempt.0) {
                    Some(opening) => {
                        opening.outcome = Some(Ok(conn));
                        opening.waiters.wake();
                    }
                    None => self.consumer.abort(conn),
                },
                SocketEvent::Failed { token, error } => self.fail(token, error),
                // A stack never requests an adoption.
                SocketEvent::Adopted { conn, .. } => self.consumer.abort(conn),
                // The connections of a stack never move.
                SocketEvent::Parted { .. } => {}
                other => debug_assert!(false, "a stack has to handle {other:?}"),
            }
        }
    }

    fn fail(&mut self, token: u64, error: io::Error) {
        if let Some(opening) = self.attempts.get_mut(&token) {
            opening.outcome = Some(Err(error));
            opening.waiters.wake();
        } else if let Some(accepting) = self.listeners.get_mut(&token) {
            accepting.failed = Some(error);
            accepting.waiters.wake();
        }
    }

    fn wake(&mut self, conn: Conn) {
        if let Some(waiting) = self.waiting.get_mut(conn.0 as usize) {
            waiting.reader.wake();
            waiting.writer.wake();
        }
    }

    fn wake_all(&mut self) {
        for waiting in &mut self.waiting {
            waiting.reader.wake();
            waiting.writer.wake();
        }
        self.listeners.values_mut().for_each(|accepting| accepting.waiters.wake());
        self.attempts.values_mut().for_each(|opening| opening.waiters.wake());
    }

    /// Returns an error if the driver has ended.
    fn alive(&self) -> io::Result<()> {
        match &self.dead {
            None => Ok(()),
            Some(why) => Err(io::Error::new(ErrorKind::NotConnected, why.clone())),
        }
    }

    /// Starts to listen.
    pub(crate) fn listen(&mut self, addr: SocketAddr) -> io::Result<Listener> {
        let listener = self.consumer.listen(addr, 1024)?;
        self.listeners.insert(listener.0, Accepting::default());
        Ok(listener)
    }

    /// Starts to connect.
    pub(crate) fn connect(&mut self, remote: SocketAddr) -> io::Result<Attempt> {
        self.alive()?;
        let attempt = self.consumer.connect(remote, None)?;
        self.attempts.insert(attempt.0, Opening::default());
        Ok(attempt)
    }

    /// Registers the task for that direction of the connection if the operation would block.
    pub(crate) fn poll_io<R>(
        &mut self,
        conn: Conn,
        side: Side,
        cx: &mut Context<'_>,
        run: impl FnOnce(&mut Consumer) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.alive()?;
        match run(&mut self.consumer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let index = conn.0 as usize;
                if self.waiting.len() <= index {
                    self.waiting.resize_with(index + 1, Waiting::default);
                }
                let waiting = &mut self.waiting[index];
                let waiters = if side == Side::Read { &mut waiting.reader } else { &mut waiting.writer };
                waiters.add(cx);
                Poll::Pending
            }
            done => Poll::Ready(done),
        }
    }

    /// Returns the next accepted connection.
    pub(crate) fn poll_accept(&mut self, listener: Listener, cx: &mut Context<'_>) -> Poll<io::Result<Conn>> {
        self.alive()?;
        let Some(accepting) = self.listeners.get_mut(&listener.0) else {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        };
        if let Some(conn) = accepting.queue.pop_front() {
            return Poll::Ready(Ok(conn));
        }
        accepting.waiters.add(cx);
        Poll::Pending
    }

    /// Ready once the listener is listening or has failed.
    pub(crate) fn poll_listening(&mut self, listener: Listener, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.alive()?;
        let Some(accepting) = self.listeners.get_mut(&listener.0) else {
            return Poll::Ready(Err(ErrorKind::NotConnected.into()));
        };
        if let Some(error) = accepting.failed.take() {
            self.listeners.remove(&listener.0);
            return Poll::Ready(Err(error));
        }
        if accepting.ready {
            return Poll::Ready(Ok(()));
        }
        accepting.waiters.add(cx);
        Poll::Pending
    }

    /// Returns the connection of an attempt, which is not established yet.
    pub(crate) fn poll_opening(&mut self, attempt: Attempt, cx: &mut Context<'_>) -> Poll<io::Result<Conn>> {
        self.alive()?;
        let opening = self.attempts.entry(attempt.0).or_default();
        match opening.outcome.take() {
            Some(outcome) => {
                self.attempts.remove(&attempt.0);
                Poll::Ready(outcome)
            }
            None => {
                opening.waiters.add(cx);
                Poll::Pending
            }
        }
    }

    /// Stops listening and resets connections that were not accepted.
    pub(crate) fn unlisten(&mut self, listener: Listener) {
        if let Some(accepting) = self.listeners.remove(&listener.0) {
            accepting.queue.into_iter().for_each(|conn| self.consumer.abort(conn));
        }
        // If the request ring is full, it listens until the stack ends.
        let _ = self.consumer.unlisten(listener);
    }

    /// Ready once a connection is established or has failed.
    pub(crate) fn poll_established(&mut self, conn: Conn, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_io(conn, Side::Write, cx, |consumer| {
            // A soft error does not end the attempt: the SYN is repeated (RFC 9293 MUST-56).
            match consumer.stream(conn) {
                Some(stream) if stream.is_established() => Ok(()),
                Some(stream) if stream.is_closed() => {
                    Err(consumer.error(conn).unwrap_or(ErrorKind::ConnectionAborted.into()))
                }
                Some(_) => Err(ErrorKind::WouldBlock.into()),
                None => Err(ErrorKind::NotConnected.into()),
            }
        })
    }
}

/// Returns the engine's time, which began at `started`.
pub(crate) fn now(started: std::time::Instant) -> Instant {
    Instant(started.elapsed().as_nanos() as u64)
}
