//! A target for a broker: programs that say anything, with any descriptors, in any order.
//! It has no interface, so that it needs no privileges, and every socket stays in the kernel.
//!
//! ```text
//!   script --> 3 programs --sockets--> Broker, a thread
//!              1 honest program: is answered to the end
//! ```

use super::script::Script;
use baton_ipc::channel::Channel;
use baton_ipc::message::{RawSizes, Reply, Request, Selector};
use baton_ipc::queues::write_queues;
use baton_ipc::version::{HELLO, NEWEST};
use baton_service::broker::{Broker, Config};
use baton_service::checkpoints::Checkpoints;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Messages of one script at most.
const STEPS: usize = 300;

/// A process that says nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs one script.
pub fn programs(data: &[u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("baton-broker-{}-{number}", std::process::id()));
    let config = Config::new(path.clone(), Vec::new(), Vec::new());
    let broker = Broker::start(config, Checkpoints::none()).expect("it needs nothing but a directory");
    let stopper = broker.stopper();
    let running = thread::spawn(move || broker.run());
    let asked_to_stop = play(&path, &mut Script(data));
    stopper.stop();
    running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).expect("it ends in form");
    assert!(!path.exists(), "stopped: {asked_to_stop}");
}

fn program(path: &Path) -> Option<Channel> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok()?;
    Some(Channel::new(socket))
}

/// Whether a program asked it to stop.
fn play(path: &Path, script: &mut Script<'_>) -> bool {
    let mut honest = program(path).expect("it listens");
    let _ = honest.send(HELLO.to_bytes(), Vec::new());
    assert_eq!(next(&mut honest), Some(Reply::Welcome { version: NEWEST }));
    let mut programs: [Option<Channel>; 3] = [None, None, None];
    let mut stopped = false;
    for step in 0..STEPS {
        if script.0.is_empty() {
            break;
        }
        let (who, kind) = (usize::from(script.byte()) % 3, script.byte());
        let place = &mut programs[who];
        if place.is_none() || kind == 0 {
            *place = program(path);
            // Most say who they are.
            if let Some(channel) = place.as_mut().filter(|_| kind & 7 != 7) {
                let _ = channel.send(HELLO.to_bytes(), Vec::new());
            }
        }
        let Some(channel) = place else { continue };
        let request = request(script);
        stopped |= matches!(request, Request::Stop { .. });
        let mut bytes = request.to_bytes();
        match kind {
            0xf0..=0xf7 => bytes = script.bytes(100),
            0xf8..=0xff => bytes.truncate(usize::from(script.byte()) % bytes.len()),
            _ => {}
        }
        if bytes.is_empty() || channel.send(bytes, descriptors(script)).is_err() {
            *place = None;
        }
        if kind & 3 == 1 {
            // Its answers make sense; at the end, or cut off, it goes.
            while let Some(parcel) = place.as_ref().and_then(|channel| channel.receive().ok().flatten()) {
                assert!(Reply::from_bytes(&parcel.bytes).is_some());
            }
        }
        if step % 16 == 15 && !stopped {
            list(&mut honest);
        }
    }
    if !stopped {
        list(&mut honest);
    }
    stopped
}

/// An honest program is answered, whatever others do, and learns nothing about them.
fn list(honest: &mut Channel) {
    honest.send(Request::List { ask: 5 }.to_bytes(), Vec::new()).unwrap();
    loop {
        match next(honest) {
            Some(Reply::Done { ask: 5, .. }) => return,
            Some(Reply::Entry { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The next message; none at the end.
fn next(channel: &mut Channel) -> Option<Reply> {
    let begun = Instant::now();
    loop {
        let _ = channel.flush();
        match channel.receive() {
            Ok(Some(parcel)) => return Some(Reply::from_bytes(&parcel.bytes).expect("a reply")),
            Ok(None) => return None,
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_micros(50)),
            Err(error) => panic!("{error}"),
        }
        assert!(begun.elapsed() < PATIENCE, "it says nothing");
    }
}

fn request(script: &mut Script<'_>) -> Request {
    let id = u64::from(script.byte() % 8);
    let which = match script.byte() & 3 {
        0 => Selector::Port(script.short()),
        _ => Selector::All,
    };
    let flag = script.byte();
    match flag % 19 {
        0..=4 => Request::Adopt { seq: u64::from(flag) % 4 },
        5 => Request::Brought { id, taken: flag & 0x80 == 0 },
        6 => Request::Ready { id, free: flag & 0x80 == 0 },
        7 => Request::Restore { id },
        8 => Request::LeftBehind { id, unread: script.number() as u32, unsent: script.number() as u32 },
        9 => Request::PutBack { id, unread: script.number() as u32, unsent: script.number() as u32 },
        10 => Request::Close { id },
        11 => Request::List { ask: 1 },
        12 => Request::Handoff { ask: 1, which },
        13 => Request::Home { ask: 1, which },
        14 => Request::Info { id },
        15 => Request::Has { id },
        16 if flag > 240 => Request::Stop { ask: 1 },
        16 => Request::Upgrade { ask: 1 },
        17 => {
            let (connections, queue_depth) = (script.number() as u32, 1 << (script.byte() % 12));
            Request::Raw { sizes: RawSizes { connections, queue_depth, data_bytes: script.number() } }
        }
        _ => Request::Pending { seq: u64::from(flag) % 4 },
    }
}

/// Descriptors of any kinds.
fn descriptors(script: &mut Script<'_>) -> Vec<OwnedFd> {
    let kind = script.byte();
    match kind % 16 {
        0 => vec![std::fs::File::open("/dev/null").unwrap().into()],
        1 => write_queues(&[1; 100], &[2; 100]).unwrap().into_iter().collect(),
        2 => vec![rustix::pipe::pipe().unwrap().0],
        3 => vec![TcpListener::bind("127.0.0.1:0").unwrap().into()],
        4 => {
            let flags = EventfdFlags::CLOEXEC;
            (0..kind / 8).map(|_| eventfd(0, flags).unwrap()).collect()
        }
        5..=8 => {
            // Not of the wire: it is refused, and stays what it is.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let theirs = listener.accept().unwrap().0;
            if kind & 0x80 != 0 {
                vec![ours.into(), theirs.as_fd().try_clone_to_owned().unwrap()]
            } else {
                vec![ours.into()]
            }
        }
        _ => Vec::new(),
    }
}
