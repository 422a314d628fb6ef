//! The guardian: keeps the broker's records, and starts another broker when one dies.
//!
//! ```text
//!   guardian                                broker
//!                              <--          Keep, Drop: records and descriptors
//!   (the broker dies: a new one is started)
//!   Kept + descriptors ... All -->          brings home what is away, goes on
//!   Stop                       -->          (somebody asked the guardian to end)
//!                              <--          Bye: an orderly end
//! ```
//!
//! The guardian does not interpret what it keeps, so little can go wrong in it. It may die too: the
//! broker then starts another and sends it everything again ([`Checkpoints`]). Only if both die at
//! once are the connections lost.
//!
//! [`Checkpoints`]: crate::checkpoints::Checkpoints

use crate::priority;
use baton_ipc::channel::Channel;
use baton_ipc::messages;
use baton_ipc::record::Key;
use baton_journal::{Kind, Level, tell};
use baton_port::wait::WaitSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

messages! {
    /// A message of the broker to the guardian.
    pub enum ToGuardian {
        /// Keep a record and the descriptors that come with it. It replaces any record under the
        /// same key.
        1 Keep {
            /// The record's key.
            key: Key,
            /// The encoded record.
            record: Vec<u8>,
        },
        /// Stop keeping a record.
        2 Drop {
            /// The record's key.
            key: Key,
        },
        /// The broker ends and is not to be restarted.
        3 Bye {
            /// The exit code.
            code: u8,
        },
    }
}

messages! {
    /// A message of the guardian to the broker.
    pub enum ToBroker {
        /// A record that the guardian kept, with its descriptors.
        1 Kept {
            /// The record's key.
            key: Key,
            /// The encoded record.
            record: Vec<u8>,
        },
        /// All records have been sent.
        2 All {},
        /// The broker is to stop in an orderly way.
        3 Stop {},
    }
}

/// How often the guardian checks whether it is to stop.
const LOOK: Duration = Duration::from_millis(200);

/// The longest wait for a broker that does not read.
const PATIENCE: Duration = Duration::from_secs(10);

/// A broker that lived for less than this did not get to serve, so the next one is delayed.
const TOO_SHORT: Duration = Duration::from_millis(200);

/// Delay before a broker that died at once is started again.
const PAUSE: Duration = Duration::from_secs(1);

struct Kept {
    record: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// A broker's process and the channel to it.
struct Broker {
    /// `None` if the broker started this guardian.
    child: Option<Child>,
    /// `None` if the broker was already dead when this guardian looked for it.
    pidfd: Option<OwnedFd>,
    channel: Channel,
    born: Instant,
}

/// Keeps a broker's records and restarts the broker when it dies.
pub struct Guardian {
    words: Vec<OsString>,
    kept: BTreeMap<Key, Kept>,
    broker: Broker,
    stopping: bool,
}

/// A socket pair. The second socket becomes a child's standard input.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Starts a process in a group of its own, so that it does not get the signals of our terminal.
pub(crate) fn start(words: &[OsString], input: OwnedFd) -> io::Result<Child> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "the command is empty"))?;
    Command::new(program).args(arguments).stdin(Stdio::from(input)).process_group(0).spawn()
}

impl Guardian {
    /// Starts a broker by the command `words`. Its standard input is the guardian's channel.
    ///
    /// # Errors
    /// Errors from starting a process.
    pub fn start(words: Vec<OsString>) -> io::Result<Guardian> {
        priority::go_first();
        let broker = Broker::start(&words)?;
        let guardian = Guardian { words, kept: BTreeMap::new(), broker, stopping: false };
        guardian.tell_started();
        // If the broker dies before it has read this, the guardian sees that it died.
        let _ = guardian.hand_over();
        Ok(guardian)
    }

    /// The guardian for the broker at the other end of `channel`, which started this process and
    /// sends its records.
    pub fn of(words: Vec<OsString>, channel: OwnedFd) -> Guardian {
        priority::go_first();
        // The process that created the socket pair.
        let maker = socket_peercred(&channel).ok().map(|who| who.pid);
        let pidfd = maker.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let broker = Broker { child: None, pidfd, channel: Channel::new(channel), born: Instant::now() };
        Guardian { words, kept: BTreeMap::new(), broker, stopping: false }
    }

    /// Guards until the broker ends in an orderly way, and returns its exit code. Calls `stop`
    /// repeatedly to find out whether to stop.
    ///
    /// # Errors
    /// Errors from waiting, and of starting a broker while there is nothing to lose yet.
    pub fn run(mut self, stop: impl Fn() -> bool) -> io::Result<u8> {
        loop {
            if !self.stopping && stop() {
                self.stopping = true;
                self.say_stop();
            }
            let mut set = WaitSet::new();
            set.add(&self.broker.channel);
            set.wait(Some(LOOK))?;
            if let Some(code) = self.hear() {
                if let Some(mut child) = self.broker.child.take() {
                    let _ = child.wait();
                }
                return Ok(code);
            }
        }
    }

    fn tell_started(&self) {
        let pid = self.broker.child.as_ref().map_or(0, Child::id);
        tell(Level::Info, Kind::BROKER, |event| event.text(format!("the broker is process {pid}")));
    }

    fn say_stop(&mut self) {
        // A broker that can no longer read this is told when it is restarted.
        let _ = self.broker.channel.send_now(&ToBroker::Stop {}.to_bytes(), &[], PATIENCE);
    }

    /// Reads the broker's messages. Returns its exit code once it ends in an orderly way.
    fn hear(&mut self) -> Option<u8> {
        loop {
            match self.broker.channel.receive() {
                Ok(Some(parcel)) => match ToGuardian::from_bytes(&parcel.bytes) {
                    Some(ToGuardian::Keep { key, record }) => {
                        self.kept.insert(key, Kept { record, fds: parcel.fds });
                    }
                    Some(ToGuardian::Drop { key }) => drop(self.kept.remove(&key)),
                    Some(ToGuardian::Bye { code }) => return Some(code),
                    None => {}
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => {
                    if !self.broker.is_dead() {
                        // The broker has another guardian, and a second broker must not be started.
                        return Some(0);
                    }
                    self.revive();
                    return None;
                }
            }
        }
    }

    /// Starts another broker in place of a dead one.
    fn revive(&mut self) {
        loop {
            let mut status = None;
            if let Some(mut child) = self.broker.child.take() {
                let _ = child.kill();
                status = child.wait().ok();
            }
            tell(Level::Error, Kind::BROKER, |event| {
                let how = status.map(|status| format!(" ({status})")).unwrap_or_default();
                event.reason("broker-died").text(format!("the broker died{how}; another is started"))
            });
            if self.broker.born.elapsed() < TOO_SHORT {
                std::thread::sleep(PAUSE);
            }
            match Broker::start(&self.words) {
                Ok(broker) => {
                    self.broker = broker;
                    self.tell_started();
                    if self.hand_over().is_ok() {
                        return;
                    }
                }
                Err(error) => {
                    tell(Level::Warn, Kind::BROKER, |event| {
                        event.text(format!("no broker can be started; another attempt follows: {error}"))
                    });
                    self.broker.born = Instant::now();
                }
            }
        }
    }

    /// Sends the broker all records.
    fn hand_over(&self) -> io::Result<()> {
        let channel = &self.broker.channel;
        for (key, Kept { record, fds }) in &self.kept {
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            let kept = ToBroker::Kept { key: *key, record: record.clone() };
            channel.send_now(&kept.to_bytes(), &fds, PATIENCE)?;
        }
        channel.send_now(&ToBroker::All {}.to_bytes(), &[], PATIENCE)?;
        if self.stopping {
            channel.send_now(&ToBroker::Stop {}.to_bytes(), &[], PATIENCE)?;
        }
        Ok(())
    }
}

impl Broker {
    fn start(words: &[OsString]) -> io::Result<Broker> {
        let (ours, theirs) = pair()?;
        let child = start(words, theirs)?;
        let pid = Pid::from_raw(child.id() as i32).expect("a process has a number");
        let pidfd = Some(pidfd_open(pid, PidfdFlags::empty())?);
        Ok(Broker { child: Some(child), pidfd, channel: Channel::new(ours), born: Instant::now() })
    }

    /// Returns true if the broker has ended. One whose channel is closed may be about to end.
    fn is_dead(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return true };
        let soon = Timespec { tv_sec: 1, tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&soon)) {
                Err(rustix::io::Errno::INTR) => {}
                polled => return polled != Ok(0),
            }
        }
    }
}
