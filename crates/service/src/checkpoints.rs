//! The broker's checkpoint store: the records that a guardian keeps, so that another broker can
//! continue. If the guardian dies, the store starts another and sends it all records again.

use crate::guardian::{ToBroker, ToGuardian, pair, start};
use baton_ipc::channel::Channel;
use baton_ipc::record::{Key, Record};
use baton_journal::{Journal, Kind, Level};
use baton_port::wait::WaitSet;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest wait for a guardian that does not read, and for one that sends its records.
const PATIENCE: Duration = Duration::from_secs(1);
const RECOVERY: Duration = Duration::from_secs(10);

struct Kept {
    record: Vec<u8>,
    fds: Vec<Arc<OwnedFd>>,
}

struct Guardian {
    /// `None` for the guardian that started this broker.
    child: Option<Child>,
    channel: Channel,
}

/// The records that the guardian keeps. Without a guardian, nothing is kept.
pub struct Checkpoints {
    /// The command that starts a guardian. Its standard input is the broker's channel.
    words: Vec<OsString>,
    guardian: Option<Guardian>,
    guarded: bool,
    kept: BTreeMap<Key, Kept>,
    journal: Journal,
}

impl Checkpoints {
    /// The store of a broker without a guardian.
    pub fn none() -> Checkpoints {
        let journal = Journal::after(0);
        Checkpoints { words: Vec::new(), guardian: None, guarded: false, kept: BTreeMap::new(), journal }
    }

    /// Replaces the journal that hears of the guardian's death and its successor.
    pub(crate) fn tell_to(&mut self, journal: Journal) {
        self.journal = journal;
    }

    /// The store of a broker that a guardian started, at the other end of `channel`. Reads what the
    /// predecessor left, if there was one. `words` is the command that starts another guardian.
    ///
    /// # Errors
    /// Errors from reading; `TimedOut` and `UnexpectedEof` if the guardian does not send everything.
    pub fn open(channel: OwnedFd, words: Vec<OsString>) -> io::Result<Checkpoints> {
        let channel = Channel::new(channel);
        let mut kept = BTreeMap::new();
        let begun = Instant::now();
        loop {
            match channel.receive() {
                Ok(Some(parcel)) => match ToBroker::from_bytes(&parcel.bytes) {
                    Some(ToBroker::Kept { key, record }) => {
                        let fds = parcel.fds.into_iter().map(Arc::new).collect();
                        kept.insert(key, Kept { record, fds });
                    }
                    Some(ToBroker::All {}) => break,
                    Some(ToBroker::Stop {}) | None => {}
                },
                Ok(None) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = RECOVERY.checked_sub(begun.elapsed()).ok_or(ErrorKind::TimedOut)?;
                    let mut set = WaitSet::new();
                    set.add(&channel);
                    set.wait(Some(left))?;
                }
                Err(error) => return Err(error),
            }
        }
        let guardian = Some(Guardian { child: None, channel });
        Ok(Checkpoints { words, guardian, guarded: true, kept, journal: Journal::after(0) })
    }

    /// Returns true if a guardian keeps the records.
    pub fn is_guarded(&self) -> bool {
        self.guarded
    }

    /// The records that a predecessor left, in the order of their keys.
    pub fn recovered(&self) -> Vec<(Record, Vec<Arc<OwnedFd>>)> {
        let known = |kept: &Kept| Some((Record::from_bytes(&kept.record)?, kept.fds.clone()));
        self.kept.values().filter_map(known).collect()
    }

    /// Keeps a record. Once this returns, the record survives the broker's death.
    pub fn keep(&mut self, key: Key, record: &Record, fds: &[&Arc<OwnedFd>]) {
        if !self.guarded {
            return;
        }
        let record = record.to_bytes();
        let fds: Vec<_> = fds.iter().map(|fd| (*fd).clone()).collect();
        let same =
            |kept: &Kept| kept.record == record && kept.fds.iter().map(Arc::as_ptr).eq(fds.iter().map(Arc::as_ptr));
        if self.kept.get(&key).is_some_and(same) {
            return;
        }
        let kept = Kept { record, fds };
        let told = self.guardian.as_ref().is_some_and(|guardian| guardian.tell(key, &kept).is_ok());
        self.kept.insert(key, kept);
        if !told {
            self.revive();
        }
    }

    /// Stops keeping a record.
    pub fn forget(&mut self, key: Key) {
        if self.kept.remove(&key).is_none() {
            return;
        }
        let told = self.guardian.as_ref().is_some_and(|guardian| guardian.say(&ToGuardian::Drop { key }).is_ok());
        if !told {
            self.revive();
        }
    }

    /// The guardian's channel, to wait on.
    pub fn channel(&self) -> Option<&Channel> {
        self.guardian.as_ref().map(|guardian| &guardian.channel)
    }

    /// Reads from the guardian, and replaces it if it has died. Returns true if the broker is to
    /// end.
    pub fn hear(&mut self) -> bool {
        let mut stop = false;
        while let Some(guardian) = &self.guardian {
            match guardian.channel.receive() {
                Ok(Some(parcel)) => stop |= ToBroker::from_bytes(&parcel.bytes) == Some(ToBroker::Stop {}),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => {
                    self.revive();
                    break;
                }
            }
        }
        stop
    }

    /// Starts a guardian if an earlier attempt failed.
    pub fn tend(&mut self) {
        if self.guarded && self.guardian.is_none() {
            self.revive();
        }
    }

    /// Starts a new guardian and sends it all records.
    fn revive(&mut self) {
        if self.guardian.is_some() {
            self.journal.tell(Level::Error, Kind::GUARDIAN, |event| {
                event.reason("guardian-died").text("the guardian died, or does not answer; another is started")
            });
        }
        if let Some(mut child) = self.guardian.take().and_then(|guardian| guardian.child) {
            // It may be alive but unresponsive.
            let _ = child.kill();
            let _ = child.wait();
        }
        let started = pair().and_then(|(ours, theirs)| Ok((ours, start(&self.words, theirs)?)));
        let (ours, child) = match started {
            Ok(started) => started,
            Err(error) => {
                return self.journal.tell(Level::Warn, Kind::GUARDIAN, |event| {
                    event.text(format!("no guardian can be started; another attempt follows: {error}"))
                });
            }
        };
        let pid = child.id();
        let guardian = Guardian { child: Some(child), channel: Channel::new(ours) };
        if self.kept.iter().all(|(key, kept)| guardian.tell(*key, kept).is_ok()) {
            self.guardian = Some(guardian);
            self.journal.tell(Level::Info, Kind::GUARDIAN, |event| {
                event.text(format!("another guardian, process {pid}, keeps the records"))
            });
        }
    }

    /// Ends the guardian, which passes this exit code on.
    pub fn end(mut self, code: u8) {
        if let Some(mut guardian) = self.guardian.take() {
            let _ = guardian.say(&ToGuardian::Bye { code });
            if let Some(child) = &mut guardian.child {
                let _ = child.wait();
            }
        }
    }
}

impl Guardian {
    fn say(&self, words: &ToGuardian) -> io::Result<()> {
        self.channel.send_now(&words.to_bytes(), &[], PATIENCE)
    }

    fn tell(&self, key: Key, kept: &Kept) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = kept.fds.iter().map(|fd| fd.as_fd()).collect();
        let words = ToGuardian::Keep { key, record: kept.record.clone() };
        self.channel.send_now(&words.to_bytes(), &fds, PATIENCE)
    }
}
