//! The directory of a run: what it counts, and what its service needs.
//!
//! It goes with the run. One that was killed leaves its directory, and the next run takes it away:
//! who lives keeps a lock on its own (flock(2)), which ends with the process however that ends.

use super::place::{self, try_lock};
use anyhow::Context;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "baton-run-";

/// See the file's head.
pub struct Home {
    directory: TempDir,
    _lock: File,
}

impl Home {
    /// In `place` if that can be written to, else among temporary files: a directory that
    /// processes of every user can enter. What killed runs left beside it goes.
    ///
    /// # Errors
    /// As `mkdir(2)`'s.
    pub fn create(place: &Path) -> anyhow::Result<Home> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(PREFIX);
        loop {
            let made = builder.tempdir_in(place).or_else(|_| builder.tempdir());
            let directory = made.context("making a directory")?;
            let lock = match try_lock(directory.path()) {
                // Another run took it for one that was left.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock) => continue,
                lock => lock.context("locking a directory")?,
            };
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711))?;
            clear(directory.path().parent().expect("it is in a directory"));
            return Ok(Home { directory, _lock: lock });
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes what killed runs of this user, and their services, left in `place`.
pub fn clear(place: &Path) {
    place::clear(place);
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let ours = entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == own);
        if ours && entry.file_name().to_string_lossy().starts_with(PREFIX) {
            // Nothing hangs on it: what cannot be removed now is tried again by the next run.
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
