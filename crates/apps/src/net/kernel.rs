//! [`Net`] over kernel sockets: one thread, edge-triggered epoll through mio. They are TCP, or Unix domain
//! sockets to compare it with.
//!
//! Comparisons measure Baton against this, so it does what a careful program would do: one event loop,
//! no allocation per event, no wake-ups between threads, large reads, and `TCP_NODELAY`.

use super::kernel_socket::{Listener, Socket};
use super::{Accept, Flow, Handler, Net, Stats, StreamIo};
use mio::{Events, Interest, Poll, Token};
use rustix::process::{Resource, getrlimit, setrlimit};
use slab::Slab;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted, up to the system's own limit. Beyond it the kernel
/// answers with SYN cookies, and with a reset if the first segment after one is lost.
const BACKLOG: i32 = 4096;

/// Most bytes that one [`StreamIo::skip`] reads.
const SCRATCH: usize = 256 * 1024;

/// Interval between two checks for connections that have been idle too long.
const SWEEP: Duration = Duration::from_secs(1);

/// Kernel sockets and the handlers on them.
pub struct KernelNet {
    poll: Poll,
    /// The Unix domain socket that stands for every address; `None` with TCP.
    path: Option<PathBuf>,
    entries: Slab<Entry>,
    /// Connections whose handler asked to be called again.
    again: Vec<Token>,
    /// Listeners that could not accept, for lack of descriptors; they are retried once per second.
    stalled: Vec<Token>,
    limit: usize,
    open: usize,
    next_sweep: Instant,
    shared: Shared,
}

/// State shared by all streams of one [`KernelNet`].
struct Shared {
    scratch: Vec<u8>,
    stats: Stats,
}

enum Entry {
    Listener(Listener, Accept),
    Stream(Connection),
}

struct Connection {
    socket: Socket,
    handler: Box<dyn Handler>,
    /// False until the connect has succeeded.
    connected: bool,
    last_event: Instant,
}

struct KernelStream<'a> {
    socket: &'a Socket,
    shared: &'a mut Shared,
}

impl StreamIo for KernelStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = retry(|| self.socket.read(buf))?;
        self.shared.stats.bytes_in += len as u64;
        Ok(len)
    }

    fn skip(&mut self, limit: usize) -> io::Result<usize> {
        let len = limit.min(SCRATCH);
        let len = retry(|| self.socket.read(&mut self.shared.scratch[..len]))?;
        self.shared.stats.bytes_in += len as u64;
        Ok(len)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let len = retry(|| self.socket.write(data))?;
        self.shared.stats.bytes_out += len as u64;
        Ok(len)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.socket.finish()
    }
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

impl KernelNet {
    /// Makes an empty [`Net`] for at most `limit` connections at once, and raises the limit of
    /// descriptors as far as the process may.
    ///
    /// # Errors
    /// If no epoll instance can be made.
    pub fn new(limit: usize) -> io::Result<KernelNet> {
        raise_descriptor_limit();
        Ok(KernelNet {
            poll: Poll::new()?,
            path: None,
            entries: Slab::new(),
            again: Vec::new(),
            stalled: Vec::new(),
            limit,
            open: 0,
            next_sweep: Instant::now() + SWEEP,
            shared: Shared { scratch: vec![0; SCRATCH], stats: Stats::default() },
        })
    }

    /// The same over Unix domain sockets: whatever address it is given, it listens at `path` or connects to
    /// that.
    ///
    /// # Errors
    /// Those of [`KernelNet::new`].
    pub fn over_unix(limit: usize, path: PathBuf) -> io::Result<KernelNet> {
        Ok(KernelNet { path: Some(path), ..KernelNet::new(limit)? })
    }

    /// Ends all connections with a reset, which discards unsent data. Otherwise the kernel would
    /// continue to send it, megabytes per connection, during the next measurement.
    pub fn abort(&mut self) {
        for (_, entry) in &mut self.entries {
            if let Entry::Stream(connection) = entry {
                // A socket that refuses the option has nothing left to send.
                let _ = rustix::net::sockopt::set_socket_linger(&connection.socket, Some(Duration::ZERO));
            }
        }
        self.entries.clear();
        self.again.clear();
        self.open = 0;
    }

    fn add(&mut self, mut socket: Socket, handler: Box<dyn Handler>, connected: bool) -> io::Result<()> {
        let slot = self.entries.vacant_entry();
        self.poll.registry().register(&mut socket, Token(slot.key()), Interest::READABLE | Interest::WRITABLE)?;
        slot.insert(Entry::Stream(Connection { socket, handler, connected, last_event: Instant::now() }));
        self.open += 1;
        Ok(())
    }

    fn accept_all(&mut self, token: Token) {
        loop {
            let Some(Entry::Listener(listener, accept)) = self.entries.get_mut(token.0) else { return };
            let (socket, handler) = match listener.accept() {
                Ok((socket, peer)) => (socket, accept(peer)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                // Out of descriptors. Since epoll is edge-triggered, retry later, or the edge would be
                // lost.
                Err(_) => return self.stalled.push(token),
            };
            if self.open >= self.limit {
                self.shared.stats.refused += 1;
                continue;
            }
            self.shared.stats.accepted += 1;
            // A socket that refuses the option was reset, which its handler will see.
            let _ = socket.set_nodelay();
            if self.add(socket, handler, true).is_err() {
                self.shared.stats.refused += 1;
            }
        }
    }

    fn serve(&mut self, token: Token) {
        let Some(Entry::Stream(connection)) = self.entries.get_mut(token.0) else { return };
        connection.last_event = Instant::now();
        if !connection.connected {
            match connection.socket.is_connected() {
                Ok(true) => connection.connected = true,
                Ok(false) => return,
                Err(error) => return self.end(token, Some(error)),
            }
        }
        let mut io = KernelStream { socket: &connection.socket, shared: &mut self.shared };
        match connection.handler.on_ready(&mut io) {
            Ok(Flow::Wait) => {}
            Ok(Flow::Again) => self.again.push(token),
            Ok(Flow::Done) => self.end(token, None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => self.end(token, Some(error)),
        }
    }

    fn end(&mut self, token: Token, error: Option<io::Error>) {
        if let Entry::Stream(mut connection) = self.entries.remove(token.0) {
            self.open -= 1;
            connection.handler.on_end(error.as_ref());
        }
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + SWEEP;
        self.again.append(&mut self.stalled);
        let late = |(key, entry): (usize, &Entry)| match entry {
            Entry::Stream(c) => c.handler.idle_limit().filter(|&limit| now - c.last_event > limit).map(|_| Token(key)),
            Entry::Listener(..) => None,
        };
        let late: Vec<Token> = self.entries.iter().filter_map(late).collect();
        for token in late {
            self.end(token, Some(io::ErrorKind::TimedOut.into()));
        }
    }
}

/// Raises the soft limit of descriptors to the hard limit: the usual soft limit of 1024 would limit
/// the number of connections.
pub fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this is refused, fewer connections are possible.
    let _ = setrlimit(Resource::Nofile, limit);
}

impl Net for KernelNet {
    fn listen(&mut self, addr: SocketAddr, accept: Accept) -> io::Result<SocketAddr> {
        let (mut listener, addr) = Listener::bind(addr, self.path.as_deref(), BACKLOG)?;
        let slot = self.entries.vacant_entry();
        listener.register(self.poll.registry(), Token(slot.key()))?;
        slot.insert(Entry::Listener(listener, accept));
        Ok(addr)
    }

    fn connect(&mut self, addr: SocketAddr, handler: Box<dyn Handler>) -> io::Result<()> {
        let socket = Socket::connect(addr, self.path.as_deref())?;
        socket.set_nodelay()?;
        self.add(socket, handler, false)
    }

    fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let wait = if self.again.is_empty() { wait } else { Duration::ZERO };
        let mut events = Events::with_capacity(256);
        match self.poll.poll(&mut events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let again = std::mem::take(&mut self.again);
        for token in events.iter().map(|event| event.token()).chain(again) {
            match self.entries.get(token.0) {
                Some(Entry::Listener(..)) => self.accept_all(token),
                Some(Entry::Stream(_)) => self.serve(token),
                None => {}
            }
        }
        self.sweep();
        Ok(())
    }

    fn open(&self) -> usize {
        self.open
    }

    fn stats(&mut self) -> Stats {
        self.shared.stats.clone()
    }
}
