//! A pair between two threads, beside a Unix socket and TCP over loopback: a byte to and fro, and 64 KiB
//! writes one way; with a CPU for each thread, and with one for both. A round is short, so that on a
//! machine with other work most rounds run undisturbed.
//!
//! `cargo bench -p baton-pair`.

use baton_pair::{Bell, End, Layout, Link, Side};
use baton_testkit::rounds::{Effort, Rounds};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const AREA: u32 = 256 << 10;
const PIECE: usize = 64 << 10;
/// How long a thread looks before it sleeps: longer than its peer takes to wake up, or both sleep in turn.
const LOOK: Duration = Duration::from_micros(300);
/// Looks between two looks at the clock.
const LOOKS: u32 = 64;
/// A writer that sleeps is woken once so much is free, as the kernel does, so that it writes more at a time.
const ROOM: usize = AREA as usize / 2;

fn main() {
    let effort = Effort::asked();
    let cpus = available();
    // On one CPU a thread that looks only keeps its peer from running.
    to_and_fro(effort, "one CPU", [cpus[0]; 2], &[Wait::Sleep]);
    bulk(effort, "one CPU", [cpus[0]; 2], &[Wait::Sleep]);
    match cpus[..] {
        [] | [_] => println!("SKIPPED two CPUs: this process has one"),
        [first, second, ..] => {
            to_and_fro(effort, "two CPUs", [first, second], &[Wait::Look, Wait::Sleep]);
            bulk(effort, "two CPUs", [first, second], &[Wait::Look, Wait::Sleep]);
        }
    }
}

/// CPUs that this process may run on.
fn available() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("a thread's own CPUs");
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Keeps this thread on a CPU.
fn stay_on(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("a CPU that this process may run on");
}

/// How a thread waits for its peer.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// Look for a while, then sleep.
    Look,
    /// Sleep at once.
    Sleep,
}

/// One program: a link of one connection, and the thread that its bell wakes.
struct Program {
    link: Link,
    end: End,
    wait: Wait,
    peer: Option<Thread>,
}

impl Program {
    fn two(wait: Wait) -> (Program, Program) {
        let layout = Layout::new(1, AREA).expect("a layout that can be");
        let (x, y) = (Side::heap(layout), Side::heap(layout));
        let program = |ours, theirs| {
            let link = Link::new(ours, theirs).expect("sides of one layout");
            let end = link.begin(0, NonZeroU64::MIN).expect("a free slot");
            Program { link, end, wait, peer: None }
        };
        let (mut x, mut y) = (program(x.clone(), y.clone()), program(y, x));
        // Touched once, so that no page is missing while the clock runs.
        touch(&mut x.end, &mut y.end);
        touch(&mut y.end, &mut x.end);
        (x, y)
    }

    fn ring(&self, bell: Bell) {
        if bell.is_wanted() {
            self.peer.as_ref().expect("it runs").unpark();
        }
    }

    /// Waits until there is something: `look` says so, and `ask` as well, which also asks to be told.
    fn wait(&mut self, ask: impl Fn(&mut End) -> bool, look: impl Fn(&mut End) -> bool) {
        let start = Instant::now();
        while self.wait == Wait::Look && start.elapsed() < LOOK {
            for _ in 0..LOOKS {
                if look(&mut self.end) {
                    return;
                }
                spin_loop();
            }
        }
        while !ask(&mut self.end) {
            if self.link.prepare_sleep() {
                thread::park();
            }
            self.link.news(|_| ());
        }
        self.end.stop_asking_for_data();
        self.end.stop_asking_for_room();
    }

    fn write_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (count, bell) = self.end.write(bytes).expect("a peer that keeps to the rules");
            self.ring(bell);
            bytes = &bytes[count..];
            if count == 0 {
                self.wait(|end| end.ask_for_room(ROOM).expect("as above"), |end| end.room().expect("as above") > 0);
            }
        }
    }

    fn read_some(&mut self, bytes: &mut [u8]) -> usize {
        loop {
            let (count, bell) = self.end.read(bytes).expect("a peer that keeps to the rules");
            self.ring(bell);
            if count > 0 {
                return count;
            }
            self.wait(|end| end.ask_for_data(1).expect("as above"), |end| end.readable().expect("as above") > 0);
        }
    }
}

/// Writes and reads a whole area.
fn touch(from: &mut End, to: &mut End) {
    let mut bytes = vec![0; AREA as usize];
    assert_eq!(from.write(&bytes).expect("an honest peer").0, bytes.len());
    assert_eq!(to.read(&mut bytes).expect("an honest peer").0, bytes.len());
}

/// Runs `there` on another thread and times `here` on this one, each on its CPU, after `meet` has told
/// this one's end of the other thread.
fn timed<S: Send>(
    cpus: [usize; 2],
    (mut x, mut y): (S, S),
    meet: impl FnOnce(&mut S, &Thread),
    here: impl FnOnce(&mut S),
    there: impl FnOnce(&mut S) + Send,
) -> Duration {
    stay_on(cpus[0]);
    thread::scope(|scope| {
        let (ready, started) = channel();
        let other = scope.spawn(move || {
            stay_on(cpus[1]);
            ready.send(()).expect("it waits for this");
            there(&mut y);
        });
        meet(&mut x, other.thread());
        started.recv().expect("the other thread runs");
        let start = Instant::now();
        here(&mut x);
        let took = start.elapsed();
        other.join().expect("it ends");
        took
    })
}

/// The same over a pair.
fn timed_pair(
    cpus: [usize; 2],
    wait: Wait,
    here: impl FnOnce(&mut Program),
    there: impl FnOnce(&mut Program) + Send,
) -> Duration {
    let (x, mut y) = Program::two(wait);
    y.peer = Some(thread::current());
    timed(cpus, (x, y), |x, other| x.peer = Some(other.clone()), here, there)
}

/// The same over two connected sockets.
fn timed_sockets<S: Send>(
    cpus: [usize; 2],
    sockets: (S, S),
    here: impl FnOnce(&mut S),
    there: impl FnOnce(&mut S) + Send,
) -> Duration {
    timed(cpus, sockets, |_, _| (), here, there)
}

fn loopback() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
    let x = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (y, _) = listener.accept().expect("it is connected");
    for stream in [&x, &y] {
        stream.set_nodelay(true).expect("an option of TCP");
    }
    (x, y)
}

fn sockets_to_and_fro<S: Read + Write + Send>(cpus: [usize; 2], sockets: (S, S), times: usize) -> Duration {
    let answer = |stream: &mut S| {
        let mut byte = [0];
        for _ in 0..times {
            stream.read_exact(&mut byte).expect("a byte");
            stream.write_all(&byte).expect("room");
        }
    };
    let ask = |stream: &mut S| {
        let mut byte = [7];
        for _ in 0..times {
            stream.write_all(&byte).expect("room");
            stream.read_exact(&mut byte).expect("a byte");
        }
    };
    timed_sockets(cpus, sockets, ask, answer)
}

fn pair_to_and_fro(cpus: [usize; 2], wait: Wait, times: usize) -> Duration {
    let answer = |program: &mut Program| {
        let mut byte = [0];
        for _ in 0..times {
            program.read_some(&mut byte);
            program.write_all(&byte);
        }
    };
    let ask = |program: &mut Program| {
        let mut byte = [7];
        for _ in 0..times {
            program.write_all(&byte);
            program.read_some(&mut byte);
        }
    };
    timed_pair(cpus, wait, ask, answer)
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Wait::Look => "pair, both look, then sleep",
            Wait::Sleep => "pair, both sleep at once",
        }
    }
}

fn unix() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("two sockets")
}

fn to_and_fro(effort: Effort, place: &str, cpus: [usize; 2], waits: &[Wait]) {
    let times = effort.pick(2000, 100);
    let mut set = Rounds::new(&format!("a byte to and fro between two threads, {place}"), times);
    set.add_timed("TCP over loopback", || sockets_to_and_fro(cpus, loopback(), times));
    set.add_timed("Unix socket", || sockets_to_and_fro(cpus, unix(), times));
    for &wait in waits {
        set.add_timed(wait.name(), move || pair_to_and_fro(cpus, wait, times));
    }
    set.run(effort.rounds(51));
    set.report();
}

fn sockets_bulk<S: Read + Write + Send>(cpus: [usize; 2], sockets: (S, S), pieces: usize) -> Duration {
    let take = |stream: &mut S| {
        let (mut bytes, mut left) = (vec![0; PIECE], pieces * PIECE);
        while left > 0 {
            left -= stream.read(&mut bytes).expect("bytes");
        }
        stream.write_all(&[1]).expect("room");
    };
    let give = |stream: &mut S| {
        let bytes = vec![7; PIECE];
        for _ in 0..pieces {
            stream.write_all(black_box(&bytes)).expect("room");
        }
        stream.read_exact(&mut [0]).expect("the end");
    };
    timed_sockets(cpus, sockets, give, take)
}

fn pair_bulk(cpus: [usize; 2], wait: Wait, pieces: usize) -> Duration {
    let take = |program: &mut Program| {
        let (mut bytes, mut left) = (vec![0; PIECE], pieces * PIECE);
        while left > 0 {
            left -= program.read_some(&mut bytes);
        }
        program.write_all(&[1]);
    };
    let give = |program: &mut Program| {
        let bytes = vec![7; PIECE];
        for _ in 0..pieces {
            program.write_all(black_box(&bytes));
        }
        program.read_some(&mut [0]);
    };
    timed_pair(cpus, wait, give, take)
}

fn bulk(effort: Effort, place: &str, cpus: [usize; 2], waits: &[Wait]) {
    let pieces = effort.pick(100, 20);
    let mut set = Rounds::new(&format!("64 KiB written, one way between two threads, {place}"), pieces);
    let mut names = vec!["TCP over loopback", "Unix socket"];
    set.add_timed(names[0], || sockets_bulk(cpus, loopback(), pieces));
    set.add_timed(names[1], || sockets_bulk(cpus, unix(), pieces));
    for &wait in waits {
        names.push(wait.name());
        set.add_timed(wait.name(), move || pair_bulk(cpus, wait, pieces));
    }
    set.run(effort.rounds(101));
    set.report();
    for (name, ns) in names.iter().zip(set.medians()) {
        println!("  {name:<34} {:>9.1} Gb/s", PIECE as f64 * 8.0 / ns);
    }
}
