//! A scripted broker: the test chooses its messages.

use baton_consumer::memory::SharedMemory;
use baton_engine::region::{EngineRegion, Layout};
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::message::{Incoming, Reply, Request, Sizes};
use baton_ipc::queues::write_queues;
use baton_ipc::version::NEWEST;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// The test's side of the broker: it receives the program's requests and sends replies.
pub struct Played {
    heard: Receiver<Request>,
    say: Sender<(Reply, Vec<OwnedFd>)>,
}

impl Played {
    #[track_caller]
    pub fn hear(&self) -> Request {
        self.heard.recv_timeout(Duration::from_secs(10)).expect("the program sends a request")
    }

    pub fn say(&self, reply: Reply) {
        self.say_with(reply, Vec::new());
    }

    pub fn say_with(&self, reply: Reply, fds: Vec<OwnedFd>) {
        self.say.send((reply, fds)).unwrap();
    }

    /// Hangs up.
    pub fn end(self) {}

    /// Announces memory of these sizes and returns the engine's end of it. The test process plays
    /// the engine.
    pub fn make_region(&self, sizes: Sizes, layout: Layout) -> (EngineRegion, OwnedFd) {
        self.make_region_of(getpid(), sizes, layout)
    }

    /// The same, for an engine that lives as long as `process`.
    pub fn make_region_of(&self, process: Pid, sizes: Sizes, layout: Layout) -> (EngineRegion, OwnedFd) {
        let memory = SharedMemory::create(layout).unwrap();
        let eventfd = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let completions = eventfd();
        let engine = pidfd_open(process, PidfdFlags::empty()).unwrap();
        let memory_file = memory.as_fd().try_clone_to_owned().unwrap();
        let fds = vec![memory_file, eventfd(), completions.try_clone().unwrap(), engine];
        self.say_with(Reply::Region { region: 1, sizes }, fds);
        (EngineRegion::new(memory.region().clone()), completions)
    }

    /// Brings the connection of an adoption. Returns whether the program took it.
    #[track_caller]
    pub fn bring(&self, seq: u64, id: u64) -> bool {
        self.bring_with(seq, id, &[])
    }

    /// The same, with unread bytes.
    #[track_caller]
    pub fn bring_with(&self, seq: u64, id: u64, unread: &[u8]) -> bool {
        let file = write_queues(&[], unread).unwrap();
        let unread = unread.len() as u32;
        let reply = Reply::Bring { incoming: Incoming { seq, id, region: 1, send: 0, unread, shut: false, window: 0 } };
        self.say_with(reply, file.into_iter().collect());
        let Request::Brought { taken, .. } = self.hear() else { panic!("expected Brought") };
        taken
    }
}

/// Runs `run` with the path of a service's socket and the broker that listens there.
pub fn play_at(run: impl FnOnce(&Path, Played)) {
    let directory = std::env::temp_dir().join(format!("baton-played-{}-{:x}", std::process::id(), fastrand::u64(..)));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("socket");
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    let ((tell, heard), (say, said)) = (channel(), channel());
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut channel = Channel::new(accept_with(&listener, SocketFlags::CLOEXEC).unwrap());
            loop {
                loop {
                    match said.try_recv() {
                        Ok((reply, fds)) => {
                            let reply: Reply = reply;
                            channel.send(reply.to_bytes(), fds).unwrap();
                        }
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => return,
                    }
                }
                match channel.receive() {
                    Ok(Some(Parcel { bytes, .. })) => match Request::from_bytes(&bytes).expect("a request") {
                        Request::Hello { .. } | Request::Raw { .. } => {
                            channel.send(Reply::Welcome { version: NEWEST }.to_bytes(), Vec::new()).unwrap();
                        }
                        request => drop(tell.send(request)),
                    },
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
                    Ok(None) | Err(_) => return,
                }
            }
        });
        run(&path, Played { heard, say });
    });
    std::fs::remove_dir_all(&directory).unwrap();
}
