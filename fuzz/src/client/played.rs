//! A target for a program's side of the service: the broker, which is played here, says
//! anything in any order, while the program uses its streams. The engine, which is played
//! too, keeps to its protocol.
//!
//! ```text
//!   script --calls--> Service, Streams <--socket-- anything <-- script
//!                          |      '-- region --> played engine <-- script
//!                      unix pairs <-- bytes, ends -- script
//! ```
//!
//! At the end the broker hangs up, or answers what it hears, and the program lets go of
//! everything. Then every wait has to end, and every socket to be closed.

use super::script::Script;
use baton_client::{NotAdopted, Service, Stream};
use baton_consumer::consumer::ConsumerConfig;
use baton_consumer::memory::SharedMemory;
use baton_engine::region::{Completion, EngineRegion, Events, Request as Asked};
use baton_ipc::channel::Channel;
use baton_ipc::message::{Entry, Incoming, Loss, ProgramId, Reply, Request, Sizes, Transferred};
use baton_ipc::queues::write_queues;
use baton_ipc::version::NEWEST;
use baton_port::wait::WaitSet;
use baton_wire::addr::{Addr, Tuple};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Things that happen in one script at most.
const STEPS: usize = 200;

/// Connections at most.
const SOCKETS: usize = 8;

/// Whatever takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sizes of a region, small enough for all to run out.
const CONFIG: ConsumerConfig = ConsumerConfig::new(4, (4096, 5), (16_384, 2));

/// Runs one script; panics if it hangs.
pub fn played(data: &[u8]) {
    let script = data.to_vec();
    let (tell, hear) = channel::<()>();
    let playing = thread::spawn(move || {
        play(&mut Script(&script));
        drop(tell);
    });
    match hear.recv_timeout(PATIENCE + PATIENCE) {
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            playing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        _ => panic!("it hangs"),
    }
}

/// A program, and the broker's end of what connects it.
fn meet() -> (Service, Channel) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("baton-fuzz-{}-{number}", std::process::id()));
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    thread::scope(|scope| {
        let connecting = scope.spawn(|| Service::connect(&path).unwrap());
        let broker = Channel::new(accept_with(&listener, SocketFlags::CLOEXEC).unwrap());
        std::fs::remove_file(&path).unwrap();
        say(&broker, &Reply::Welcome { version: NEWEST }, &[]);
        (connecting.join().unwrap(), broker)
    })
}

/// A program that has hung up, or does not read, is told nothing.
fn say(broker: &Channel, reply: &Reply, fds: &[BorrowedFd<'_>]) {
    let _ = broker.send_now(&reply.to_bytes(), fds, PATIENCE);
}

/// Reads what the program says until it hangs up, and says that its questions are answered;
/// once `kind`, also that what it lets go of has gone.
fn answer(broker: &Channel, kind: &AtomicBool) {
    loop {
        match broker.receive() {
            Ok(Some(parcel)) => match Request::from_bytes(&parcel.bytes).expect("a program makes sense") {
                Request::List { ask } => say(broker, &Reply::Done { ask, count: 0, failed: 0, pause_us: 0 }, &[]),
                Request::Close { id } if kind.load(Ordering::Relaxed) => {
                    say(broker, &Reply::Gone { seq: 0, id, loss: Loss(None) }, &[]);
                }
                _ => {}
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let mut set = WaitSet::new();
                set.add(broker);
                set.wait(None).unwrap();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// The future that the program's side waits for.
type Adopting<'s> = Pin<Box<dyn Future<Output = Result<Stream, NotAdopted>> + 's>>;

/// All there is while a script runs.
struct World<'s> {
    service: &'s Service,
    broker: &'s Channel,
    engines: Vec<Engine>,
    adopting: Vec<Adopting<'s>>,
    streams: Vec<Stream>,
    restoring: Vec<JoinHandle<()>>,
    /// The far ends of the sockets that were handed over.
    peers: Vec<UnixStream>,
}

fn play(script: &mut Script<'_>) {
    let (service, broker) = meet();
    let answers = AtomicBool::new(false);
    let peers = thread::scope(|scope| {
        scope.spawn(|| answer(&broker, &answers));
        let mut world = World {
            service: &service,
            broker: &broker,
            engines: Vec::new(),
            adopting: Vec::new(),
            streams: Vec::new(),
            restoring: Vec::new(),
            peers: Vec::new(),
        };
        for _ in 0..STEPS {
            if script.0.is_empty() {
                break;
            }
            world.step(script);
            world.turn();
        }
        let hangs_up = script.byte() & 1 == 0;
        answers.store(!hangs_up, Ordering::Relaxed);
        let peers = world.end(hangs_up);
        drop(service);
        if !hangs_up {
            let _ = rustix::net::shutdown(&broker, rustix::net::Shutdown::Write);
        }
        peers
    });
    drop(broker);
    all_is_closed(peers);
}

/// The program has let go of all; so has the library.
fn all_is_closed(peers: Vec<UnixStream>) {
    for mut peer in peers {
        peer.set_nonblocking(false).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        loop {
            match peer.read(&mut [0; 4096]) {
                Ok(0) => break,
                Ok(_) => {}
                // A reset tells the peer that its bytes were not all read.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("a socket that was handed over is not closed: {error}"),
            }
        }
    }
}

impl World<'_> {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 24 {
            0 | 1 => self.adopt(),
            2 | 3 => self.say_region(script),
            4..=6 => self.say_bring(script),
            7..=12 => {
                let reply = reply(script);
                say(self.broker, &reply, &[]);
            }
            13 => {
                let bytes = script.bytes(64);
                // An empty message would be the end.
                let _ = self.broker.send_now(if bytes.is_empty() { &[0] } else { &bytes }, &[], PATIENCE);
            }
            14..=17 => {
                let number = usize::from(script.byte());
                let count = self.engines.len();
                if let Some(engine) = (count > 0).then(|| &mut self.engines[number % count]) {
                    engine.step(script);
                }
            }
            18 => {
                let (at, bytes) = (usize::from(script.byte()), script.bytes(255));
                let count = self.peers.len();
                if let Some(peer) = (count > 0).then(|| &mut self.peers[at % count]) {
                    let _ = if bytes.is_empty() { peer.shutdown(Shutdown::Write) } else { peer.write_all(&bytes) };
                }
            }
            19 => self.settle(),
            _ => self.use_stream(script),
        }
    }

    /// Lets the engines act, and takes the streams of adoptions that are done.
    fn turn(&mut self) {
        self.engines.iter_mut().for_each(Engine::turn);
        let mut cx = Context::from_waker(Waker::noop());
        let mut done = Vec::new();
        self.adopting.retain_mut(|adopting| match adopting.as_mut().poll(&mut cx) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                done.extend(outcome.ok());
                false
            }
        });
        done.iter().for_each(|stream| stream.set_nonblocking(true));
        self.streams.append(&mut done);
    }

    fn adopt(&mut self) {
        if self.peers.len() < SOCKETS {
            let (ours, peer) = UnixStream::pair().unwrap();
            peer.set_nonblocking(true).unwrap();
            self.adopting.push(Box::pin(self.service.adopt_async(ours.into())));
            self.peers.push(peer);
        }
    }

    /// Waits until the library has heard all that was said.
    fn settle(&self) {
        // A question is answered behind it, but given up where a broker is said to have died.
        while self.service.list().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset) {}
    }

    fn say_region(&mut self, script: &mut Script<'_>) {
        let region = script.number() as u32 % 4;
        let (mut config, harm) = (CONFIG, script.byte());
        let word = script.number() as u32;
        match harm {
            0x80..=0x9f => config.stream_buffer = word,
            0xa0..=0xbf => config.stream_buffers = word,
            0xc0..=0xcf => config.large_buffer = word,
            0xd0..=0xdf => config.large_buffers = word,
            0xe0..=0xef => config.connections = word,
            _ => {}
        }
        let known = if harm & 1 == 0 { &config } else { &CONFIG };
        // A layout that this broker, or another, could make.
        let layout = if known.connections > 4096 { CONFIG.layout() } else { known.layout() };
        let Ok(memory) = SharedMemory::create(if layout.data_bytes > 1 << 24 { CONFIG.layout() } else { layout })
        else {
            return;
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (doorbell, completions) = (eventfd(0, flags).unwrap(), eventfd(0, flags).unwrap());
        let mut fds = [memory.as_fd(), doorbell.as_fd(), completions.as_fd()];
        match harm {
            0xf0..=0xf7 => fds.swap(0, 1),
            0xf8..=0xff => fds.reverse(),
            _ => {}
        }
        say(self.broker, &Reply::Region { region, sizes: Sizes::of(&config) }, &fds);
        if self.engines.len() < 8 {
            self.engines.push(Engine::new(&memory, completions));
        }
    }

    fn say_bring(&mut self, script: &mut Script<'_>) {
        let (seq, id, region) = (u64::from(script.byte() % 8), u64::from(script.byte() % 6), script.byte() % 4);
        let (kind, send, unread) = (script.byte(), script.short() >> 2, script.short() >> 2);
        let file = write_queues(&vec![1; send.into()], &vec![2; unread.into()]).unwrap();
        let (mut said_send, mut said_unread) = (u32::from(send), u32::from(unread));
        match kind {
            0xf0..=0xf7 => said_send = script.number() as u32,
            0xf8..=0xff => said_unread = script.number() as u32,
            _ => {}
        }
        let (shut, window, region) = (kind & 1 == 1, script.number() as u32, region.into());
        let incoming = Incoming { seq, id, region, send: said_send, unread: said_unread, shut, window };
        let reply = Reply::Bring { incoming };
        let fds: Vec<BorrowedFd<'_>> = file.iter().map(AsFd::as_fd).collect();
        say(self.broker, &reply, &fds);
        for engine in &mut self.engines {
            engine.unread[id as usize] = unread.into();
        }
    }

    fn use_stream(&mut self, script: &mut Script<'_>) {
        let (at, op) = (usize::from(script.byte()), script.byte());
        if self.streams.is_empty() {
            return;
        }
        let at = at % self.streams.len();
        let stream = &mut self.streams[at];
        match op % 14 {
            0..=3 => drop(stream.read(&mut vec![0; usize::from(script.short())])),
            4..=7 => drop(stream.write(&vec![3; usize::from(script.short())])),
            8 => drop(stream.shutdown()),
            9 => drop(stream.set_send_buffer(u32::from(script.short()))),
            10 => drop(stream.set_receive_buffer(u32::from(script.short()))),
            11 => drop((stream.set_nodelay(op & 0x80 == 0), stream.place(), stream.peer_addr(), stream.take_error())),
            12 => drop(self.streams.swap_remove(at)),
            _ => {
                let stream = self.streams.swap_remove(at);
                self.restoring.push(thread::spawn(|| drop(stream.restore())));
            }
        }
    }

    /// The program lets go of all; the far ends of its sockets.
    fn end(mut self, hangs_up: bool) -> Vec<UnixStream> {
        if hangs_up {
            rustix::net::shutdown(self.broker, rustix::net::Shutdown::Both).unwrap();
            while self.service.list().is_ok() {}
        } else {
            for id in 0..8 {
                let (code, text) = (String::new(), String::new());
                say(
                    self.broker,
                    &Reply::Gone { seq: id, id, loss: Loss(Some(text.clone()).filter(|text| !text.is_empty())) },
                    &[],
                );
                say(self.broker, &Reply::Stays { seq: id, id: 99, code, text }, &[]);
            }
            self.settle();
        }
        for peer in &self.peers {
            let _ = peer.shutdown(Shutdown::Write);
        }
        let begun = Instant::now();
        while !self.adopting.is_empty() || self.restoring.iter().any(|thread| !thread.is_finished()) {
            self.turn();
            for mut peer in &self.peers {
                while peer.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
            }
            assert!(begun.elapsed() < PATIENCE, "{} adoptions, or a way home, do not end", self.adopting.len());
            thread::yield_now();
        }
        for thread in self.restoring.drain(..) {
            thread.join().unwrap();
        }
        std::mem::take(&mut self.peers)
    }
}

/// Anything that comes without descriptors.
fn reply(script: &mut Script<'_>) -> Reply {
    let id = u64::from(script.byte() % 6);
    let text = || "why".to_owned();
    match script.byte() % 14 {
        0 => Reply::Stays { seq: u64::from(script.byte() % 8), id, code: text(), text: text() },
        1 => Reply::Prepare { id },
        2 | 3 => Reply::Stand { id, rcv_pos: script.number(), tail_pos: script.number() },
        4..=6 => {
            let whole = script.byte() & 3 == 0;
            Reply::Home { id, rcv_pos: script.number(), tail_pos: script.number(), whole }
        }
        7 => Reply::Gone { seq: u64::from(script.byte() % 8), id, loss: Loss(None) },
        8 => Reply::Gone { seq: 0, id, loss: Loss(Some(text())) },
        9 => Reply::Dead { region: u32::from(script.byte() % 4) },
        10 => Reply::Restarted {},
        11 => Reply::Info { id, bytes: script.bytes(255) },
        12 => Reply::Entry { entry: entry(id) },
        _ => match script.byte() & 3 {
            0 => Reply::Refused { text: text() },
            1 => Reply::Welcome { version: script.number() as u32 },
            _ => Reply::Done { ask: script.number(), count: 1, failed: 1, pause_us: 1 },
        },
    }
}

fn entry(id: u64) -> Entry {
    let tuple = Tuple { local: Addr(1), remote: Addr(2), local_port: 3, remote_port: 4 };
    let words = || "engine".to_owned();
    let (place, why, interface) = (words(), words(), words());
    let program = ProgramId { pid: 1, uid: 2 };
    let [bytes, rate] = [(3, 4), (5, 6)].map(|(sent, received)| Transferred { sent, received });
    Entry { id, tuple, place, why, interface, program, bytes, rate, since_ms: 7, moves: 8 }
}

/// An engine that keeps to its protocol.
struct Engine {
    region: EngineRegion,
    completions: OwnedFd,
    /// Queue pairs in use, and how much each connection brought unread.
    used: Vec<Option<u64>>,
    /// The number of bytes that each connection brings along unread, as was said last.
    unread: [u64; 6],
}

impl Engine {
    fn new(memory: &SharedMemory, completions: OwnedFd) -> Engine {
        let used = vec![None; memory.region().layout().qps as usize];
        Engine { region: EngineRegion::new(memory.region().clone()), completions, used, unread: [0; 6] }
    }

    /// Serves the requests.
    fn turn(&mut self) {
        while self.region.pop_doorbell().is_some() {}
        while let Some(asked) = self.region.pop_request() {
            match asked {
                Asked::Close { qp } | Asked::Abort { qp } if self.used[qp as usize].take().is_some() => {
                    self.region.qp(qp).raise(Events::CLOSED | Events::RELEASED);
                }
                Asked::SetOption { token, .. } | Asked::Info { token, .. } => {
                    self.region.complete(Completion::Done { token, value: 0 });
                }
                Asked::Unpost { token, .. } => {
                    self.region.complete(Completion::Failed { token, errno: 11 });
                }
                _ => {}
            }
        }
        if self.region.must_wake_consumer() {
            let _ = rustix::io::write(&self.completions, &1u64.to_ne_bytes());
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let qp = u32::from(script.byte()) % self.used.len() as u32;
        let (op, id) = (script.byte() % 10, script.byte() % 6);
        let view = self.region.qp(qp);
        match (op, self.used[qp as usize]) {
            (0..=3, None) if view.is_quiet() => {
                view.reset();
                self.used[qp as usize] = Some(self.unread[usize::from(id)]);
                self.region.complete(Completion::Adopted { qp, token: id.into() });
            }
            (0..=3, Some(unread)) if view.rcv_limit() >= unread => {
                let limit = view.rcv_limit();
                let done = self.used[qp as usize].insert(limit.min(unread + u64::from(script.short())));
                view.set_rcv_done(*done);
                view.raise(Events::RECV);
            }
            (4 | 5, Some(_)) => {
                view.set_snd_sent(view.snd_tail());
                view.set_snd_done(view.snd_tail());
                view.raise(Events::SEND);
            }
            (6, Some(_)) => view.raise(Events::WANT_BUFFER),
            (7, Some(_)) => view.raise(Events::PEER_FIN),
            (8, Some(_)) => {
                view.set_error(104);
                view.raise(Events::ERROR | Events::CLOSED);
            }
            (9, Some(_)) => view.raise(Events::MOVED),
            _ => {}
        }
    }
}
