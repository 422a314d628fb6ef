//! [`Net`] over Baton's engine: the port, the engine and the handlers run on one thread.
//!
//! ```text
//!   turn:  poll the engine -> call the handlers of ready connections -> send
//!          what they wrote; repeat while frames may be left, otherwise sleep
//!          on the port until the next frame or deadline
//! ```

mod drive;

use super::{Accept, EngineStats, Flow, Handler, Net, Stats, StreamIo};
use baton_consumer::consumer::{Attempt, Conn, Consumer, Listener, SocketEvent};
use baton_consumer::pace::Pace;
use baton_consumer::pacing::PACING;
use baton_engine::frame_io::FrameIo;
use baton_port::{WaitSet, Waitable};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time;
use drive::{Drive, RX_BUDGET};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Half-open connections of a listener before it uses SYN cookies.
const BACKLOG: u32 = 1024;

/// Interval between two checks for connections that have been idle too long.
const SWEEP: Duration = Duration::from_secs(1);

/// Most turns of the engine in one call.
const TURNS: usize = 64;

/// An engine on a port, and the handlers of its connections.
pub struct EngineNet<P> {
    drive: Drive,
    port: P,
    consumer: Consumer,
    wait: WaitSet,
    listeners: HashMap<Listener, Accept>,
    /// Connections to start once the ring of requests has room.
    waiting: VecDeque<(SocketAddr, Box<dyn Handler>)>,
    opening: HashMap<Attempt, Box<dyn Handler>>,
    /// By index of the connection.
    connections: Vec<Option<Connection>>,
    /// Connections whose handler asked to be called again.
    again: Vec<Conn>,
    open: usize,
    next_sweep: Instant,
    pace: Pace,
    /// True if the last receive emptied the port.
    drained: bool,
    stats: Stats,
}

struct Connection {
    handler: Box<dyn Handler>,
    last_event: Instant,
}

struct EngineStream<'a> {
    consumer: &'a mut Consumer,
    conn: Conn,
    stats: &'a mut Stats,
}

impl StreamIo for EngineStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.consumer.read(self.conn, buf)?;
        self.stats.bytes_in += len as u64;
        Ok(len)
    }

    fn skip(&mut self, limit: usize) -> io::Result<usize> {
        let len = self.consumer.skip(self.conn, limit)?;
        self.stats.bytes_in += len as u64;
        Ok(len)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let len = self.consumer.write(self.conn, data)?;
        self.stats.bytes_out += len as u64;
        Ok(len)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.consumer.shutdown(self.conn)
    }
}

/// Origin of this process's clock.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Nanoseconds since the clock's origin.
fn nanos() -> u64 {
    origin().elapsed().as_nanos() as u64
}

impl<P: FrameIo + Waitable> EngineNet<P> {
    /// Makes an engine on `port`, with its two halves on one thread or on two.
    ///
    /// # Errors
    /// If no region can be made with the sizes in `config`.
    pub fn new(config: &HostConfig, port: P, two_threads: bool) -> io::Result<EngineNet<P>> {
        origin();
        let (engine, port, consumer) = Host::new(config, port)?.into_parts();
        let drive = if two_threads { Drive::apart(engine, nanos)? } else { Drive::together(engine) };
        let mut wait = WaitSet::new();
        port.poll_fds(&mut wait);
        drive.poll_fds(&mut wait);
        Ok(EngineNet {
            drive,
            port,
            consumer,
            wait,
            listeners: HashMap::new(),
            waiting: VecDeque::new(),
            opening: HashMap::new(),
            connections: Vec::new(),
            again: Vec::new(),
            open: 0,
            next_sweep: Instant::now() + SWEEP,
            pace: Pace::new(std::thread::available_parallelism().map_or(1, usize::from)),
            drained: false,
            stats: Stats::default(),
        })
    }

    /// Runs one turn of the engine and the handlers of connections that it made ready. Returns false if
    /// there was nothing to do.
    fn work(&mut self) -> io::Result<bool> {
        let mut worked = self.poll()?;
        let mut handled = false;
        while let Some(event) = self.consumer.next_event() {
            handled = true;
            self.on_event(event);
        }
        if !self.waiting.is_empty() {
            self.connect_waiting()?;
        }
        for conn in std::mem::take(&mut self.again) {
            handled = true;
            self.serve(conn);
        }
        if handled {
            // Send what the handlers wrote. Checking for more frames would cost a system call, and
            // the sleep checks for them anyway.
            self.drive.send(time::Instant(nanos()), &mut self.port, nanos).map_err(io::Error::other)?;
            self.consumer.poll(time::Instant(nanos()));
            worked = true;
        }
        Ok(worked)
    }

    fn poll(&mut self) -> io::Result<bool> {
        let activity = self.drive.poll(time::Instant(nanos()), &mut self.port, nanos).map_err(io::Error::other)?;
        self.consumer.poll(time::Instant(nanos()));
        self.drained = activity.frames < RX_BUDGET;
        self.pace.on_frames(activity.frames);
        Ok(!activity.is_idle())
    }

    /// Waits for work: polls for a while if work is likely soon, then sleeps.
    fn pause(&mut self, wait: Duration) -> io::Result<()> {
        if wait.is_zero() {
            return Ok(());
        }
        let look_ns = self.pace.on_pause(self.stats.bytes_in + self.stats.bytes_out, PACING.device, |_| true);
        let start = nanos();
        let mut worked = false;
        while !worked && nanos() - start < look_ns {
            worked = self.work()?;
        }
        if !worked {
            self.sleep(wait)?;
        }
        self.pace.on_resume(nanos() - start);
        Ok(())
    }

    /// Starts waiting connections while the ring of requests has room.
    fn connect_waiting(&mut self) -> io::Result<()> {
        while let Some((addr, handler)) = self.waiting.pop_front() {
            match self.consumer.connect(addr, None) {
                Ok(attempt) => {
                    self.opening.insert(attempt, handler);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.waiting.push_front((addr, handler));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: SocketEvent) {
        match event {
            SocketEvent::Accepted { listener, conn } => self.on_accepted(listener, conn),
            SocketEvent::Opening { attempt, conn } => {
                if let Some(handler) = self.opening.remove(&attempt) {
                    self.add(conn, handler);
                }
            }
            SocketEvent::Failed { token, error } => {
                self.listeners.remove(&Listener(token));
                if let Some(mut handler) = self.opening.remove(&Attempt(token)) {
                    handler.on_end(Some(&error));
                }
            }
            SocketEvent::Listening { .. } => {}
            SocketEvent::Ready { conn } => self.serve(conn),
            // This consumer never requests it.
            SocketEvent::Adopted { conn, .. } => self.consumer.abort(conn),
            // The connections of this consumer never move.
            SocketEvent::Parted { .. } => {}
            other => debug_assert!(false, "this consumer has to handle {other:?}"),
        }
    }

    fn on_accepted(&mut self, listener: Listener, conn: Conn) {
        let peer =
            self.consumer.identity(conn).map(|identity| SocketAddr::new(identity.remote.ip(), identity.remote_port));
        match (self.listeners.get_mut(&listener), peer) {
            (Some(accept), Some(peer)) => {
                let handler = accept(peer);
                self.stats.accepted += 1;
                self.add(conn, handler);
                self.serve(conn);
            }
            _ => self.consumer.abort(conn),
        }
    }

    fn add(&mut self, conn: Conn, handler: Box<dyn Handler>) {
        let index = conn.0 as usize;
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Connection { handler, last_event: Instant::now() });
        self.open += 1;
    }

    fn serve(&mut self, conn: Conn) {
        let Some(Some(connection)) = self.connections.get_mut(conn.0 as usize) else { return };
        match self.consumer.stream(conn) {
            Some(stream) if stream.is_established() || stream.is_closed() => {}
            _ => return,
        }
        connection.last_event = Instant::now();
        let mut io = EngineStream { consumer: &mut self.consumer, conn, stats: &mut self.stats };
        match connection.handler.on_ready(&mut io) {
            Ok(Flow::Wait) => {}
            Ok(Flow::Again) => self.again.push(conn),
            Ok(Flow::Done) => self.end(conn, None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.end(conn, Some(error)),
        }
    }

    fn end(&mut self, conn: Conn, error: Option<io::Error>) {
        if let Some(mut connection) = self.connections.get_mut(conn.0 as usize).and_then(Option::take) {
            self.open -= 1;
            connection.handler.on_end(error.as_ref());
            self.consumer.close(conn);
        }
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + SWEEP;
        for index in 0..self.connections.len() {
            let Some(connection) = &self.connections[index] else { continue };
            let limit = connection.handler.idle_limit();
            if limit.is_some_and(|limit| now - connection.last_event > limit) {
                self.end(Conn(index as u32), Some(io::ErrorKind::TimedOut.into()));
            }
        }
    }

    /// Sleeps until a frame arrives, the engine has work, or `wait` has passed.
    fn sleep(&mut self, wait: Duration) -> io::Result<()> {
        let deadline = self.drive.prepare_sleep().into_iter().chain(self.consumer.next_look()).min();
        let wait = match deadline {
            _ if self.consumer.has_events() => Duration::ZERO,
            Some(deadline) => wait.min(Duration::from_nanos(deadline.0.saturating_sub(nanos()))),
            None => wait,
        };
        let mut slept = Ok(0);
        if !wait.is_zero() && self.port.prepare_wait() {
            slept = self.wait.wait(Some(wait));
            self.port.finish_wait();
        }
        self.drive.awake();
        match slept {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

impl<P: FrameIo + Waitable> Net for EngineNet<P> {
    fn listen(&mut self, addr: SocketAddr, accept: Accept) -> io::Result<SocketAddr> {
        let listener = self.consumer.listen(addr, BACKLOG)?;
        self.listeners.insert(listener, accept);
        loop {
            self.poll()?;
            while let Some(event) = self.consumer.next_event() {
                match event {
                    SocketEvent::Listening { listener: ready } if ready == listener => return Ok(addr),
                    SocketEvent::Failed { token, error } if token == listener.0 => {
                        self.listeners.remove(&listener);
                        return Err(error);
                    }
                    other => self.on_event(other),
                }
            }
        }
    }

    fn connect(&mut self, addr: SocketAddr, handler: Box<dyn Handler>) -> io::Result<()> {
        self.waiting.push_back((addr, handler));
        self.connect_waiting()
    }

    fn turn(&mut self, wait: Duration) -> io::Result<()> {
        if self.drained && self.again.is_empty() {
            self.pause(wait)?;
        }
        for _ in 0..TURNS {
            self.work()?;
            if self.drained && self.again.is_empty() {
                break;
            }
        }
        self.sweep();
        Ok(())
    }

    fn open(&self) -> usize {
        self.open + self.opening.len() + self.waiting.len()
    }

    fn stats(&mut self) -> Stats {
        let (streamer, tce, [events, orders]) = self.drive.counters();
        let named = streamer.iter().map(|(name, count)| (format!("streamer.{name}"), count));
        let named = named.chain(tce.iter().map(|(name, count)| (format!("tce.{name}"), count)));
        let waited = [("events_high_water", events), ("orders_high_water", orders)];
        let named = named.chain(waited.map(|(name, count)| (name.to_owned(), count as u64)));
        let engine = EngineStats {
            tce_busy_ns: tce.busy_ticks,
            elapsed_ns: nanos(),
            frames_in: streamer.rx_frames,
            frames_out: streamer.tx_frames,
            counters: named.filter(|(_, count)| *count > 0).collect(),
        };
        Stats { engine: Some(engine), ..self.stats.clone() }
    }
}
