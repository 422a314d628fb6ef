//! An archive of the form that the kernel unpacks at boot: cpio, "newc"
//! (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! ```text
//!   "070701", thirteen numbers of eight hexadecimal digits, name, NUL, padding to 4
//!   contents, padding to 4
//!   ... and last an entry named TRAILER!!!
//! ```

use std::collections::BTreeSet;
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive under construction.
pub struct Archive {
    bytes: Vec<u8>,
    made: BTreeSet<String>,
}

impl Archive {
    pub fn new() -> Archive {
        Archive { bytes: Vec::new(), made: BTreeSet::new() }
    }

    /// A directory, whose parent is there; once, however often it is asked for.
    pub fn directory(&mut self, name: &str) {
        if self.made.insert(name.to_owned()) {
            self.entry(name, DIRECTORY, [0, 0], &[]);
        }
    }

    /// A file that can be executed.
    pub fn file(&mut self, name: &str, contents: &[u8]) {
        self.entry(name, FILE, [0, 0], contents);
    }

    /// The same at an absolute path, with the directories that lead there.
    pub fn file_with_parents(&mut self, path: &Path, contents: &[u8]) {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/');
        for (end, _) in name.match_indices('/') {
            self.directory(&name[..end]);
        }
        self.file(name, contents);
    }

    /// `/dev/console`.
    pub fn console(&mut self) {
        self.directory("dev");
        self.entry("dev/console", CHARACTER_DEVICE, [5, 1], &[]);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, [0, 0], &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: [u32; 2], contents: &[u8]) {
        let (size, name_size) = (contents.len() as u32, name.len() as u32 + 1);
        // inode, mode, owner, group, links, time, size, device, device of the node, name, check
        let numbers = [0, mode, 0, 0, 1, 0, size, 0, 0, device[0], device[1], name_size, 0];
        self.bytes.extend(b"070701");
        for number in numbers {
            self.bytes.extend(format!("{number:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_as_the_kernel_reads_it() {
        let mut archive = Archive::new();
        archive.file_with_parents(Path::new("/a/b"), b"12345");
        archive.directory("a");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        let names: Vec<&str> =
            text.split("070701").skip(1).map(|entry| entry[104..].split('\0').next().unwrap()).collect();
        assert_eq!(names, ["a", "a/b", "TRAILER!!!"]);
        let file = text.split("070701").nth(2).unwrap();
        assert_eq!((&file[8..16], &file[48..56], &file[88..96]), ("000081ed", "00000005", "00000004"));
        // 110 bytes of header and 4 of name, padded; 5 of contents, padded.
        assert_eq!(file.len() + 6, 116 + 8);
        assert!(file.ends_with("12345\0\0\0"));
    }
}
