//! The directory of a run, for its counters and, if necessary, its service.
//!
//! A run removes its directory when it ends. A killed run leaves its directory, and the next run
//! removes it: a live run holds a lock (flock(2)) on its directory, which the kernel releases
//! however the process ends.

use super::place::{self, try_lock};
use anyhow::Context;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "baton-run-";

/// The directory of a run, locked while this value exists and removed with it.
pub struct Home {
    directory: TempDir,
    _lock: File,
}

impl Home {
    /// Creates a directory that processes of every user can enter, in `place` if that is writable,
    /// otherwise in the system's directory for temporary files. Also removes the directories that
    /// killed runs left there.
    ///
    /// # Errors
    /// If the directory cannot be created, locked or opened to others.
    pub fn create(place: &Path) -> anyhow::Result<Home> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(PREFIX);
        loop {
            let made = builder.tempdir_in(place).or_else(|_| builder.tempdir());
            let directory = made.context("cannot make a directory for this run")?;
            let lock = match try_lock(directory.path()) {
                // Another run took the directory for a leftover and locked or removed it.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock) => continue,
                lock => lock.context("cannot lock the directory of this run")?,
            };
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711))?;
            clear(directory.path().parent().expect("it is in a directory"));
            return Ok(Home { directory, _lock: lock });
        }
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes the directories that killed runs of this user, and their services, left in `place`.
pub fn clear(place: &Path) {
    place::clear(place);
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let ours = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == own);
        if ours && entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // Failure is harmless: the next run tries again.
            let _ = try_lock(&entry.path()).and_then(|_lock| fs::remove_dir_all(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_goes_and_what_is_in_use_stays() {
        let place = tempfile::tempdir().unwrap();
        let left = place.path().join("baton-run-killed");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("socket"), "").unwrap();
        let [other, file] = ["other", "baton-run-file"].map(|name| place.path().join(name));
        fs::create_dir(&other).unwrap();
        fs::write(&file, "").unwrap();
        let first = Home::create(place.path()).unwrap();
        assert!(!left.exists() && other.exists() && file.exists());
        let second = Home::create(place.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        assert_eq!(fs::metadata(second.path()).unwrap().mode() & 0o777, 0o711);
        let [first, second] = [first, second].map(|home| (home.path().to_owned(), home));
        drop((first.1, second.1));
        assert!(!first.0.exists() && !second.0.exists());
    }

    #[test]
    fn where_nothing_can_be_written_it_is_among_temporary_files() {
        let home = Home::create(Path::new("/nowhere")).unwrap();
        assert!(home.path().starts_with(std::env::temp_dir()));
    }
}
