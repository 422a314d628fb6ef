//! A program of the matrix. It holds one end of one connection at a time, and obeys the rig.

use crate::load::Load;
use crate::matrix::LOADS;
use crate::words::{Answer, Count, MARK, Order};
use baton_apps::services::ramp;
use baton_client::{Service, Stream};
use rustix::process::getpid;
use std::env;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::exit;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// The environment variable that makes this test binary run as a program. Its value is the service's socket, or
/// empty where `baton run` hands connections over.
pub const VARIABLE: &str = "BATON_PAIRS_PROGRAM";

/// The length of a pause after a turn in which nothing happened.
const PAUSE: Duration = Duration::from_micros(100);
/// Bytes per read, at most.
const READ: usize = 1 << 16;

/// The connection, as the program uses it.
enum Io {
    /// A socket: `baton run` knows where its bytes go.
    Socket(TcpStream),
    Stream(Stream),
}

impl Io {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Io::Socket(socket) => socket.read(into),
            Io::Stream(stream) => stream.read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Io::Socket(socket) => socket.write(bytes),
            Io::Stream(stream) => stream.write(bytes),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Io::Socket(socket) => socket.shutdown(Shutdown::Write),
            Io::Stream(stream) => stream.shutdown(),
        }
    }
}

/// One end of a connection with its load.
struct Line {
    io: Io,
    load: Load,
    /// The end that is ours in the load's words: the one that connects.
    ours: bool,
    count: Count,
    hushed: bool,
    shut: bool,
    /// The number of bytes to read before the end, once the other end writes no more.
    last: Option<u64>,
    ended: bool,
}

/// Runs the program, and does not return, if this process was started as one.
pub fn be_the_program() {
    let Ok(socket) = env::var(VARIABLE) else { return };
    let panicked = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        panicked(info);
        exit(101);
    }));
    let service = (!socket.is_empty()).then(|| Service::connect(socket).unwrap());
    let (tell, orders) = channel();
    thread::spawn(move || {
        for order in io::stdin().lock().lines().map_while(Result::ok) {
            tell.send(serde_json::from_str(&order).unwrap()).unwrap();
        }
        // The rig has ended.
        exit(0);
    });
    obey(service.as_ref(), &orders);
}

/// Prints a line with a single write, so that no output of the test runner interrupts it.
fn answer(answer: &Answer) {
    let text = format!("\n{MARK}{}\n", serde_json::to_string(answer).unwrap());
    io::stdout().write_all(text.as_bytes()).unwrap();
}

fn obey(service: Option<&Service>, orders: &Receiver<Order>) {
    let (mut listener, mut line, mut buffer) = (None, None::<Line>, vec![0; READ]);
    loop {
        let moved = line.as_mut().is_some_and(|line| line.turn(&mut buffer));
        if line.as_ref().is_some_and(Line::is_over) {
            line = None;
            answer(&Answer::Finished);
        }
        let order = match (&line, moved) {
            (None, _) => orders.recv().ok(),
            (Some(_), true) => orders.try_recv().map_or_else(not_yet, Some),
            (Some(_), false) => orders.recv_timeout(PAUSE).ok(),
        };
        match (order, &mut line) {
            (None, _) => {}
            (Some(Order::Listen(address)), _) => {
                let made = TcpListener::bind((address, 0)).unwrap();
                answer(&Answer::Listening(made.local_addr().unwrap(), getpid().as_raw_pid()));
                listener = Some(made);
            }
            (Some(Order::Accept(load)), _) => {
                let (socket, _) = listener.as_ref().expect("it listens").accept().unwrap();
                line = Some(Line::begin(socket, service, LOADS[load], false));
            }
            (Some(Order::Connect(to, load)), _) => {
                line = Some(Line::begin(TcpStream::connect(to).unwrap(), service, LOADS[load], true));
            }
            (Some(order), Some(line)) => line.obey(order),
            (Some(order), None) => panic!("{order:?} without a connection"),
        }
    }
}

/// No order has come. The rig may have ended, and then this process does, too.
fn not_yet(error: TryRecvError) -> Option<Order> {
    assert_eq!(error, TryRecvError::Empty);
    None
}

impl Line {
    fn begin(socket: TcpStream, service: Option<&Service>, load: Load, ours: bool) -> Line {
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let address: SocketAddr = socket.local_addr().unwrap();
        let io = match service {
            None => Io::Socket(socket),
            Some(service) => {
                let stream = service.adopt(socket.into()).unwrap_or_else(|refused| panic!("{load:?}: {refused}"));
                stream.set_nonblocking(true);
                Io::Stream(stream)
            }
        };
        answer(&Answer::Begun(address));
        let count = Count { written: 0, read: 0, full: 0 };
        Line { io, load, ours, count, hushed: true, shut: false, last: None, ended: false }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Halfway => {
                if self.load.closes() == Some(self.ours) {
                    self.shut();
                }
                answer(&Answer::Closed);
            }
            Order::Go | Order::Hush => {
                self.hushed = matches!(order, Order::Hush);
                answer(&Answer::Counted(self.count));
            }
            Order::Count => answer(&Answer::Counted(self.count)),
            Order::Finish(last) => self.last = Some(last),
            order => panic!("{order:?} with a connection"),
        }
    }

    fn shut(&mut self) {
        self.shut = true;
        self.io.shutdown().unwrap();
    }

    /// Reads and writes what the load says. Returns true if something could be read or written.
    fn turn(&mut self, buffer: &mut [u8]) -> bool {
        let Line { io, load, ours, count, .. } = self;
        let most = if self.last.is_some() { READ } else { load.reads(*ours).min(READ) };
        let mut moved = false;
        if most > 0 && !self.ended {
            match io.read(&mut buffer[..most]) {
                Ok(0) => self.ended = true,
                Ok(read) => {
                    assert!(
                        ramp::matches(count.read, &buffer[..read]),
                        "{load:?}: {read} bytes at {} differ",
                        count.read
                    );
                    count.read += read as u64;
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{load:?}: reading after {} bytes: {error}", count.read),
            }
        }
        let want = load.writes(*ours, count.written, count.read);
        if want > 0 && !self.shut && !self.hushed {
            match io.write(&ramp::from(count.written)[..want]) {
                Ok(written) => {
                    count.written += written as u64;
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => count.full += 1,
                Err(error) => panic!("{load:?}: writing after {} bytes: {error}", count.written),
            }
        }
        if self.last == Some(self.count.read) && !self.shut {
            self.shut();
        }
        moved
    }

    /// Everything was read, and both directions have ended.
    fn is_over(&self) -> bool {
        if self.ended
            && let Some(last) = self.last
        {
            assert_eq!(self.count.read, last, "{:?}: the end came early or late", self.load);
        }
        self.ended && self.shut && self.last.is_some()
    }
}
