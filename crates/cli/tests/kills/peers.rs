//! The far ends of all connections: plain kernel sockets, served by one thread.

use crate::lines::{End, Ends};
use crate::program::{BULK, LIGHT, TURN};
use crate::words::{Report, Role, monotonic_ns};
use baton_testkit::LONG;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle, sleep};
use std::time::Instant;

struct Peer {
    stream: TcpStream,
    ends: Ends,
    /// True once its program is about to be killed, so that the connection may end at any moment.
    mortal: bool,
}

/// The connections of one program.
#[derive(Default)]
struct Group {
    peers: Vec<Peer>,
    hushed: bool,
}

/// The far ends of all connections, shared with the thread that serves them.
pub struct Peers {
    groups: Arc<Mutex<BTreeMap<usize, Group>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peers {
    pub fn start(seed: u64) -> Peers {
        let (groups, stop) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(AtomicBool::new(false)));
        let thread = thread::spawn({
            let (groups, stop) = (groups.clone(), stop.clone());
            move || serve(&groups, &stop, seed)
        });
        Peers { groups, stop, thread: Some(thread) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Group>> {
        let thread = self.thread.as_ref().expect("it is taken at the end");
        assert!(!thread.is_finished(), "the peers' thread has ended, see above");
        self.groups.lock().expect("the peers' thread has panicked, see above")
    }

    /// Ends the thread that serves the connections.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Adds the connections of a program, in its order.
    pub fn add(&self, program: usize, streams: Vec<TcpStream>, roles: bool) {
        let peer = |(at, stream): (usize, TcpStream)| {
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut ends = Ends::new(Role::of(at, roles));
            if ends.role == Role::Unread {
                ends.write(1000, |bytes| (&stream).write(bytes)).unwrap();
            }
            Peer { stream, ends, mortal: false }
        };
        let peers = streams.into_iter().enumerate().map(peer).collect();
        self.lock().insert(program, Group { peers, hushed: false });
    }

    /// Forgets the connections of a program.
    pub fn remove(&self, program: usize) {
        self.lock().remove(&program);
    }

    /// Starts to record the progress after an event.
    pub fn watch(&self, since_ns: u64) {
        let mut groups = self.lock();
        let peers = groups.values_mut().flat_map(|group| &mut group.peers);
        peers.for_each(|peer| peer.ends.watch.begin(since_ns, false));
    }

    /// Waits until every connection makes progress, and returns the record.
    #[track_caller]
    pub fn report(&self, program: usize) -> Report {
        self.wait("bytes", program, |peer| peer.ends.watch.goes_on());
        let mut report = Report::default();
        self.lock()[&program].peers.iter().for_each(|peer| peer.ends.watch.tell(&mut report));
        report
    }

    /// Allows the program's connections to end from now on.
    pub fn expect_death(&self, program: usize) {
        self.lock().get_mut(&program).unwrap().peers.iter_mut().for_each(|peer| peer.mortal = true);
    }

    /// Waits until all connections of the program have ended, and returns how and when each did.
    #[track_caller]
    pub fn ends(&self, program: usize) -> Vec<(Role, End, u64)> {
        self.wait("ends", program, |peer| peer.ends.end.is_some());
        let groups = self.lock();
        let end = |peer: &Peer| peer.ends.end.map(|(end, at)| (peer.ends.role, end, at));
        groups[&program].peers.iter().filter_map(end).collect()
    }

    /// Stops writing to this program's connections, and returns the bytes written to each.
    pub fn hush(&self, program: usize) -> Vec<u64> {
        let mut groups = self.lock();
        let group = groups.get_mut(&program).unwrap();
        group.hushed = true;
        group.peers.iter().map(|peer| peer.ends.written).collect()
    }

    /// Waits until everything was read and the end was seen, then closes the connections.
    #[track_caller]
    pub fn finish(&self, program: usize, written: &[u64]) {
        self.wait("ends", program, |peer| peer.ends.end.is_some());
        for (at, (peer, written)) in self.lock()[&program].peers.iter().zip(written).enumerate() {
            assert_eq!((peer.ends.read, peer.ends.end.map(|end| end.0)), (*written, Some(End::Fin)), "line {at}");
            peer.stream.shutdown(Shutdown::Write).unwrap();
        }
    }

    #[track_caller]
    fn wait(&self, what: &str, program: usize, done: impl Fn(&Peer) -> bool) {
        let begun = Instant::now();
        while !self.lock()[&program].peers.iter().all(&done) {
            if begun.elapsed() > LONG {
                let groups = self.lock();
                let waiting = groups[&program].peers.iter().filter(|peer| !done(peer));
                let tell = |peer: &Peer| {
                    let Ends { role, written, read, end, .. } = peer.ends;
                    let address = peer.stream.peer_addr();
                    format!("\n{address:?} {role:?}: written {written}, read {read}, end {end:?}")
                };
                panic!("{what} never come{}", waiting.take(20).map(tell).collect::<String>());
            }
            sleep(TURN / 4);
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(groups: &Mutex<BTreeMap<usize, Group>>, stop: &AtomicBool, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut buffer = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let programs: Vec<usize> = groups.lock().unwrap().keys().copied().collect();
        for program in programs {
            if let Some(group) = groups.lock().unwrap().get_mut(&program) {
                let hushed = group.hushed;
                group.peers.iter_mut().for_each(|peer| peer.turn(hushed, &mut random, &mut buffer));
            }
        }
        sleep(TURN.saturating_sub(begun.elapsed()));
    }
}

impl Peer {
    fn turn(&mut self, hushed: bool, random: &mut fastrand::Rng, buffer: &mut Vec<u8>) {
        let Peer { stream, ends, mortal } = self;
        if ends.end.is_some_and(|(end, _)| end == End::Reset || *mortal) {
            return;
        }
        let len = match ends.role {
            Role::Light => random.usize(1..=LIGHT),
            Role::Bulk => BULK,
            Role::Drained | Role::Unread => 0,
        };
        let mut io = &*stream;
        // Read first: the kernel reports a reset only once, and a write would consume the report.
        let read = ends.read(buffer, |buffer| io.read(buffer));
        let mut io = &*stream;
        let write = read.is_ok() && ends.end.is_none() && len > 0 && !hushed;
        let written = if write { ends.write(len, |bytes| io.write(bytes)) } else { Ok(()) };
        match read.and(written) {
            Ok(()) => {
                let ended = ends.end.is_some() && !hushed && !*mortal;
                assert!(!ended, "a line has ended: {:?}", stream.peer_addr());
            }
            Err(error) if *mortal && matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                ends.end = Some((End::Reset, monotonic_ns()));
            }
            Err(error) => {
                let address = stream.peer_addr();
                panic!("a peer of {address:?}, {} written, {} read: {error}", ends.written, ends.read)
            }
        }
    }
}
