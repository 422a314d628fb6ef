//! Counters in a file that several processes map.
//!
//! Safety rules: the mapping is `BYTES` bytes, exists as long as the process, and is accessed through
//! atomics only, so that another process may write to the file at any time. A shorter file is not
//! mapped, and nobody shortens it: `baton run` makes it with its full length in a directory of its own.

use baton_ipc::account::{BYTES, ENTRIES, ENTRY, NAME};
use rustix::fs::fstat;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

#[repr(C)]
struct Entry {
    count: AtomicU64,
    name: [AtomicU8; NAME],
}

const _: () = assert!(size_of::<[Entry; ENTRIES]>() == BYTES && size_of::<Entry>() == ENTRY);

/// The mapped file.
pub(crate) struct Counters(NonNull<[Entry; ENTRIES]>);

// SAFETY: all fields are atomic.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

impl Counters {
    pub(crate) fn map(file: impl AsFd) -> io::Result<Counters> {
        if fstat(&file)?.st_size < BYTES as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: a new mapping, which does not replace another.
        let at = unsafe { mmap(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)? };
        NonNull::new(at.cast()).map(Counters).ok_or_else(|| io::ErrorKind::Other.into())
    }

    fn entries(&self) -> &[Entry; ENTRIES] {
        // SAFETY: the mapping is never removed and as long as the array; any bytes are valid entries.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn add(&self, at: usize, times: u64) {
        self.entries()[at].count.fetch_add(times, Ordering::Relaxed);
    }

    pub(crate) fn is_named(&self, at: usize, name: &str) -> bool {
        let bytes = name.bytes().chain([0]);
        let held = self.entries()[at].name.iter().map(|byte| byte.load(Ordering::Relaxed));
        name.len() < NAME && bytes.zip(held).all(|(ours, theirs)| ours == theirs)
    }
}
