//! The file that HTTP services serve.

use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::Path;

/// Size of the served file in bytes: it fits into the page cache, and a download takes long enough to
/// be timed.
const FILE: usize = 64 << 20;

/// The directory that HTTP services serve.
pub struct Site {
    dir: tempfile::TempDir,
    /// Digest of the file in it.
    pub sha256: [u8; 32],
}

impl Site {
    /// Name of the file.
    pub const NAME: &'static str = "file";
    /// Length of the served file in bytes.
    pub const BYTES: usize = FILE;

    /// Writes the file, which has random content.
    pub fn new() -> std::io::Result<Site> {
        let dir = tempfile::Builder::new().prefix("baton-demo-").tempdir()?;
        let mut file = std::fs::File::create(dir.path().join(Site::NAME))?;
        let (mut random, mut digest, mut block) = (fastrand::Rng::new(), Sha256::new(), vec![0; 1 << 20]);
        for _ in 0..FILE / block.len() {
            random.fill(&mut block);
            digest.update(&block);
            file.write_all(&block)?;
        }
        Ok(Site { dir, sha256: digest.finalize().into() })
    }

    /// Path of the directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}
