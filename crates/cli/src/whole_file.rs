//! A file that is there whole or not at all: it is written under another name and renamed at its end.
//!
//! A rename would put an ordinary file in the place of a device or pipe. Root who discards output into
//! `/dev/null` would so take it from every program of the machine. A device or pipe is therefore written as
//! it is.

use anyhow::Context;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that is being written.
pub enum WholeFile {
    /// It gets its name at the end.
    New { temporary: NamedTempFile, path: PathBuf },
    /// A device or pipe that is there.
    There(File),
}

impl WholeFile {
    /// Begins to write to a path. Nothing is at the path until [`WholeFile::keep`], unless it is a device or pipe.
    ///
    /// # Errors
    /// If its directory cannot be written, or the device or pipe cannot be opened.
    pub fn create(path: &Path) -> io::Result<WholeFile> {
        // Follows links: one to a device means the device.
        if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            return Ok(WholeFile::There(File::options().write(true).open(path)?));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let temporary = tempfile::Builder::new().prefix(".baton-").tempfile_in(directory)?;
        Ok(WholeFile::New { temporary, path: path.to_owned() })
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// If there is something else that cannot be replaced, as a directory.
    pub fn keep(self) -> anyhow::Result<()> {
        match self {
            WholeFile::New { temporary, path } => {
                // Temporary files are private.
                temporary.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
                temporary.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
            }
            WholeFile::There(mut file) => file.flush()?,
        }
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            WholeFile::New { temporary, .. } => temporary.write(bytes),
            WholeFile::There(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            WholeFile::New { temporary, .. } => temporary.flush(),
            WholeFile::There(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};

    #[test]
    fn a_file_is_there_only_once_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "before").unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        file.keep().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        drop(WholeFile::create(&directory.path().join("other")).unwrap());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "a file that is not kept leaves nothing");
    }

    /// The link stands for the device: a rename would replace it here, too, and it is the test's own.
    #[test]
    fn a_device_is_written_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nowhere");
        symlink("/dev/null", &path).unwrap();
        let mut file = WholeFile::create(&path).unwrap();
        file.write_all(b"discarded").unwrap();
        file.keep().unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert!(fs::metadata(&path).unwrap().file_type().is_char_device());
    }
}
