//! The guardian: keeps what the broker has, and starts another when it dies.
//!
//! ```text
//!   guardian                                broker
//!                              <--          Keep, Drop: records and descriptors
//!   (the broker dies: a new one is started)
//!   Kept + descriptors ... All -->          brings home what is away, goes on
//!   Stop                       -->          (somebody asked the guardian to end)
//!                              <--          Bye: in form
//! ```
//!
//! It understands nothing of what it keeps, so there is little to go wrong. It may die too:
//! the broker then starts another and tells it everything again ([`Vault`]). Only both at
//! once take the connections along.
//!
//! [`Vault`]: crate::vault::Vault

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
    /// What the broker says.
    pub enum ToGuardian {
        /// Keeps a record, with the descriptors that come along, in the place of any of
        /// that key.
        1 Keep {
            /// Its key.
            key: Key,
            /// It.
            record: Vec<u8>,
        },
        /// Keeps it no longer.
        2 Drop {
            /// Its key.
            key: Key,
        },
        /// The broker ends, and is not to be started again.
        3 Bye {
            /// Its exit code.
            code: u8,
        },
    }
}

messages! {
    /// What the guardian says.
    pub enum ToBroker {
        /// A record that it kept, with its descriptors.
        1 Kept {
            /// Its key.
            key: Key,
            /// It.
            record: Vec<u8>,
        },
        /// That was all.
        2 All {},
        /// The broker is to end, in form.
        3 Stop {},
    }
}

/// How often the request to end is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Longest wait for a broker that does not read.
const PATIENCE: Duration = Duration::from_secs(10);

/// A broker that lived for less does not come to serve; the next waits.
const TOO_SHORT: Duration = Duration::from_millis(200);

/// For so long.
const PAUSE: Duration = Duration::from_secs(1);

struct Kept {
    record: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// A broker, and the way to it.
struct Broker {
    /// None for one that started us.
    child: Option<Child>,
    /// None if it was dead when we looked for it.
    pidfd: Option<OwnedFd>,
    channel: Channel,
    born: Instant,
}

/// See the file's head.
pub struct Guardian {
    words: Vec<OsString>,
    kept: BTreeMap<Key, Kept>,
    broker: Broker,
    stopping: bool,
}

/// A socket pair, the second of which is to be a child's standard input.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// A process of ours: it does not get the signals of our terminal.
pub(crate) fn start(words: &[OsString], input: OwnedFd) -> io::Result<Child> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no program is named"))?;
    Command::new(program).args(arguments).stdin(Stdio::from(input)).process_group(0).spawn()
}

impl Guardian {
    /// Starts a broker by these words; its standard input is us.
    ///
    /// # Errors
    /// As of starting a process.
    pub fn start(words: Vec<OsString>) -> io::Result<Guardian> {
        priority::go_first();
        let broker = Broker::start(&words)?;
        let guardian = Guardian { words, kept: BTreeMap::new(), broker, stopping: false };
        guardian.tell_started();
        // One that dies before it has read this is seen to have died.
        let _ = guardian.hand_over();
        Ok(guardian)
    }

    /// For the broker at the other end of `channel`, which started us, and tells us what it
    /// has.
    pub fn of(words: Vec<OsString>, channel: OwnedFd) -> Guardian {
        priority::go_first();
        // Whoever made the pair.
        let maker = socket_peercred(&channel).ok().map(|who| who.pid);
        let pidfd = maker.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let broker = Broker { child: None, pidfd, channel: Channel::new(channel), born: Instant::now() };
        Guardian { words, kept: BTreeMap::new(), broker, stopping: false }
    }

    /// Guards until the broker has ended in form; its exit code. `stop` is asked all the
    /// while whether that is due.
    ///
    /// # Errors
    /// As of waiting, and of starting a broker where there is nothing to be lost yet.
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
        // One that cannot hear it any more is told when it is started anew.
        let _ = self.broker.channel.send_now(&ToBroker::Stop {}.to_bytes(), &[], PATIENCE);
    }

    /// What the broker says; its exit code, once it ends in form.
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
                        // It has another guardian: two brokers would be one too many.
                        return Some(0);
                    }
                    self.revive();
                    return None;
                }
            }
        }
    }

    /// Starts another broker in the place of one that has died.
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
                        event.text(format!("no broker can be started, and it is tried again: {error}"))
                    });
                    self.broker.born = Instant::now();
                }
            }
        }
    }

    /// Gives the broker all that was kept.
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

    /// Whether it has ended. One whose channel is closed may be about to.
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
