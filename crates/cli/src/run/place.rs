//! The directory where the runs in one network namespace find the service that they share.
//!
//! ```text
//!   /run/baton-net-INODE/    locked (flock(2)) by a run that looks for, starts or ends a service
//!     alive                  standard output of the service's processes, which hold its lock
//!     members                locked, shared, by each run that uses the service
//!     with                   how it was started: steering, firewall rules, pairs, log, then interfaces
//!     socket config.toml said
//! ```
//!
//! The kernel releases a lock when its process ends, however it ends. So the holder of the directory's
//! lock knows which runs and services are alive, and may remove what killed ones left.

use crate::logging::Log;
use anyhow::{Context, bail};
use baton_apps::background::LOOK;
use baton_journal::Level;
use baton_kernel::Rules;
use baton_service::broker::PairUsers;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Pid;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Prefix of the name of such a directory.
pub const PREFIX: &str = "baton-net-";

/// The directory in which the runs of one network namespace share a service.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

/// Proof that this process holds the directory's lock.
pub struct Locked {
    _lock: File,
}

/// How a service is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The kind of steering: `auto`, `tc` or `xdp`.
    pub steer: String,
    /// How connections that firewall rules act on are treated.
    pub rules: Rules,
    /// The users whose connections are joined if both ends are on this machine.
    pub pair: PairUsers,
    /// Names of the interfaces that it steers.
    pub interfaces: Vec<String>,
    /// Where it logs to, if that is a file.
    pub log: Log,
}

impl Place {
    /// Finds or makes the directory of this network namespace in `parent`. If that fails, makes
    /// one in `home`, which no other run finds.
    ///
    /// # Errors
    /// If neither can be made, or if the directory belongs to another user.
    pub fn find(parent: &Path, home: &Path) -> anyhow::Result<Place> {
        let namespace = fs::metadata("/proc/self/ns/net").context("finding the network namespace")?;
        let shared = parent.join(format!("{PREFIX}{}", namespace.ino()));
        if make(&shared).is_ok() {
            return Ok(Place(shared));
        }
        let own = home.join("service");
        make(&own).with_context(|| format!("making {}", own.display()))?;
        Ok(Place(own))
    }

    /// Path of the service's socket.
    pub fn socket(&self) -> PathBuf {
        self.file("socket")
    }

    /// Path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Waits for the directory's lock for at most `span`, and makes the directory if necessary.
    ///
    /// # Errors
    /// `TimedOut`, or an error of making or locking the directory.
    pub fn lock(&self, span: Duration) -> io::Result<Locked> {
        let begun = Instant::now();
        loop {
            make(&self.0)?;
            match try_lock(&self.0) {
                Ok(file) => return Ok(Locked { _lock: file }),
                // The previous holder removed the directory, or another process holds the lock.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
            if begun.elapsed() > span {
                return Err(ErrorKind::TimedOut.into());
            }
            sleep(LOOK);
        }
    }

    /// Makes and locks the file that the service's processes get as standard output.
    ///
    /// # Errors
    /// If the file cannot be made or locked.
    pub fn begin_life(&self) -> io::Result<File> {
        let file = File::create(self.file("alive"))?;
        // `is_alive` of another process may hold a shared lock briefly, so this waits.
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Returns true if any process of the service is alive.
    pub fn is_alive(&self) -> bool {
        let looked = File::open(self.file("alive"));
        looked.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
    }

    /// Returns true if this process belongs to the service.
    pub fn has(&self, pid: Pid) -> bool {
        // The link cannot be read once the process has ended.
        fs::read_link(format!("/proc/{pid}/fd/1")).is_ok_and(|link| link == self.file("alive"))
    }

    /// The service's processes.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
        pids.filter(|pid| self.has(*pid))
    }

    /// Registers this run as a user of the service for as long as the returned file is open.
    ///
    /// # Errors
    /// If the file cannot be made or locked.
    pub fn enter(&self) -> io::Result<File> {
        let file = File::options().create(true).append(true).open(self.file("members"))?;
        flock(&file, FlockOperation::LockShared)?;
        Ok(file)
    }

    /// Returns true if any run uses the service.
    pub fn is_used(&self) -> bool {
        let looked = File::open(self.file("members"));
        looked.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    /// Removes the directory.
    pub fn remove(&self, _locked: &Locked) {
        // Failure is harmless: the next run removes what is left.
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Records how the service is started.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep_with(&self, setup: &Setup) -> io::Result<()> {
        let level = setup.log.level.map_or("", Level::word);
        let file = setup.log.file.as_deref().map_or_else(String::new, |file| file.display().to_string());
        let (rules, pair) = (setup.rules.word().to_owned(), setup.pair.word().to_owned());
        let head = [setup.steer.clone(), rules, pair, level.to_owned(), file];
        fs::write(self.file("with"), [&head, setup.interfaces.as_slice()].concat().join("\n"))
    }

    /// Reads how the last service was started.
    ///
    /// # Errors
    /// If the record is missing or cannot be understood.
    pub fn with(&self) -> anyhow::Result<Setup> {
        let text = fs::read_to_string(self.file("with")).context("cannot read how the service was started")?;
        let mut lines = text.lines().map(str::to_owned);
        let (Some(steer), Some(rules), Some(pair), Some(level), Some(file)) =
            (lines.next(), lines.next(), lines.next(), lines.next(), lines.next())
        else {
            bail!("the record of how the service was started is incomplete")
        };
        let file = Some(PathBuf::from(file)).filter(|file| !file.as_os_str().is_empty());
        let log = Log { file, level: level.parse().ok() };
        let pair = pair.parse().map_err(anyhow::Error::msg)?;
        Ok(Setup { steer, rules: rules.parse()?, pair, interfaces: lines.collect(), log })
    }
}

/// Removes the directories in `parent` that no live run or service uses.
pub fn clear(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let place = Place(entry.path());
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || check(&place.0).is_err() {
            continue;
        }
        if let Ok(file) = try_lock(&place.0)
            && !place.is_alive()
            && !place.is_used()
        {
            place.remove(&Locked { _lock: file });
        }
    }
}

/// Makes the directory if it does not exist. Processes of every user can enter it.
fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o711)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => check(path),
        Err(error) => Err(error),
    }
}

/// Checks that `path` is a directory of this user, and not something that another user put there.
fn check(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if ours { Ok(()) } else { Err(io::Error::new(ErrorKind::PermissionDenied, "it belongs to another user")) }
}

/// Locks the directory at `path`, and checks that it still is at `path` afterwards.
///
/// # Errors
/// `WouldBlock` if another process holds the lock, `NotFound` if the directory was replaced.
pub fn try_lock(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // The previous holder may have removed the directory, and another process may have made a new one.
    let (ours, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) { Ok(file) } else { Err(ErrorKind::NotFound.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[test]
    fn one_at_a_time_has_the_lock_and_it_goes_with_the_directory() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::find(parent.path(), Path::new("/nowhere")).unwrap();
        let locked = place.lock(SOON).unwrap();
        assert_eq!(place.lock(SOON).err().unwrap().kind(), ErrorKind::TimedOut);
        place.remove(&locked);
        // This is a new directory, which the old lock does not cover.
        let again = place.lock(SOON).unwrap();
        drop(locked);
        assert_eq!(place.lock(SOON).err().unwrap().kind(), ErrorKind::TimedOut);
        drop(again);
        assert!(place.lock(SOON).is_ok());
    }

    #[test]
    fn a_place_is_cleared_once_nobody_uses_it_and_nobody_lives_there() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::find(parent.path(), Path::new("/nowhere")).unwrap();
        let other = parent.path().join("other");
        fs::create_dir(&other).unwrap();
        let (member, alive) = (place.enter().unwrap(), place.begin_life().unwrap());
        assert!(place.is_used() && place.is_alive());
        clear(parent.path());
        assert!(place.0.exists());
        drop(member);
        clear(parent.path());
        assert!(place.0.exists() && !place.is_used());
        drop(alive);
        assert!(!place.is_alive());
        clear(parent.path());
        assert!(!place.0.exists() && other.exists());
    }

    #[test]
    fn where_nothing_can_be_made_it_is_the_runs_own() {
        let home = tempfile::tempdir().unwrap();
        let place = Place::find(Path::new("/nowhere"), home.path()).unwrap();
        assert!(place.socket().starts_with(home.path()));
        let interfaces = vec!["a".to_owned(), "b".to_owned()];
        let (steer, pair) = ("tc".to_owned(), PairUsers::Any);
        let setup = Setup { steer, rules: Rules::Strict, pair, interfaces, log: Log::default() };
        let log = Log { file: Some("/var/log/a b".into()), level: Some(Level::Debug) };
        for setup in [Setup { log, ..setup.clone() }, setup] {
            place.keep_with(&setup).unwrap();
            assert_eq!(place.with().unwrap(), setup);
        }
    }
}
