//! Regions that another process can map, each in a memfd.
//!
//! ```text
//!  engine's process                        consumer's process
//!  SharedMemory::create --descriptor-->    SharedMemory::open
//!  EngineRegion::new(region)               Consumer::new(config, region)
//!               \______ the same pages ______/
//! ```
//!
//! How the descriptor gets to the other process (`SCM_RIGHTS`, `/proc/PID/fd`, inheritance) is up
//! to its holder. The file can neither shrink nor grow. Another process that maps it can write
//! anything into it, which the engine checks, but cannot take the memory away.

use crate::sys;
use baton_engine::ledger::Ledger;
use baton_engine::region::{Layout, Region};
use baton_latency::{Exemplar, Recorded, SLOTS, Table, WatchMemory};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, open,
};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Kind of memory for the regions of a host or stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Memory {
    /// Private to this process.
    #[default]
    Heap,
    /// In a memfd, or on the heap if the system has no memfd.
    Shared,
}

/// A region in a memfd, with the file's descriptor.
pub struct SharedMemory {
    file: OwnedFd,
    region: Arc<Region>,
}

impl SharedMemory {
    /// Creates a region. Its pages exist once they are touched.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid layout; otherwise those of `memfd_create(2)` and `mmap(2)`.
    pub fn create(layout: Layout) -> io::Result<SharedMemory> {
        let len = layout.bytes().map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let file = memfd_create("baton-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = sys::memory::create(file.as_fd(), len, layout)?;
        Ok(SharedMemory { file, region })
    }

    /// Maps the region in a file that another process made.
    ///
    /// # Errors
    /// `InvalidInput` if the file holds no region or could still shrink; otherwise those of
    /// `mmap(2)`.
    pub fn open(file: OwnedFd) -> io::Result<SharedMemory> {
        let len = sealed_len(&file)?;
        let region = sys::memory::open(file.as_fd(), len)?;
        Ok(SharedMemory { file, region })
    }

    /// The region that lies in this memory.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

/// A ledger in a memfd, with the file's descriptor.
pub struct SharedLedger {
    file: OwnedFd,
    ledger: Arc<Ledger>,
}

impl SharedLedger {
    /// Creates a ledger for `connections` connections.
    ///
    /// # Errors
    /// Those of `memfd_create(2)` and `mmap(2)`.
    pub fn create(connections: u32) -> io::Result<SharedLedger> {
        let len = Ledger::bytes(connections.max(1));
        let file = memfd_create("baton-ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let ledger = sys::memory::ledger(file.as_fd(), len)?;
        Ok(SharedLedger { file, ledger })
    }

    /// Maps the ledger in a file that another process made.
    ///
    /// # Errors
    /// `InvalidInput` if the file could still shrink; otherwise those of `mmap(2)`.
    pub fn open(file: OwnedFd) -> io::Result<SharedLedger> {
        let len = sealed_len(&file)?;
        let ledger = sys::memory::ledger(file.as_fd(), len)?;
        Ok(SharedLedger { file, ledger })
    }

    /// The ledger that lies in this memory.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

/// Memory of what is watched in a memfd, with the file's descriptor.
pub struct SharedWatch {
    file: OwnedFd,
    memory: Arc<WatchMemory>,
}

impl SharedWatch {
    /// Creates memory in which nothing is watched. Its pages exist once they are touched.
    ///
    /// # Errors
    /// Those of `memfd_create(2)` and `mmap(2)`.
    pub fn create() -> io::Result<SharedWatch> {
        let file = sealed_memory("baton-latency", WatchMemory::BYTES)?;
        let memory = sys::memory::watch(file.as_fd(), WatchMemory::BYTES)?;
        memory.initialise();
        Ok(SharedWatch { file, memory })
    }

    /// Maps the memory in a file that another process made, for both sides that write.
    ///
    /// # Errors
    /// `InvalidInput` if the file is not such memory or could still shrink; otherwise those of `mmap(2)`.
    pub fn open(file: OwnedFd) -> io::Result<SharedWatch> {
        let memory = valid(sys::memory::watch(file.as_fd(), sealed_len(&file)?)?)?;
        Ok(SharedWatch { file, memory })
    }

    /// The memory itself.
    pub fn memory(&self) -> &Arc<WatchMemory> {
        &self.memory
    }

    /// A descriptor of the file that permits reading alone, for a [`WatchReader`].
    ///
    /// # Errors
    /// Those of `open(2)`, for example without `/proc`.
    pub fn read_only(&self) -> io::Result<OwnedFd> {
        read_only(self.file.as_fd())
    }
}

/// Memory of what is watched, mapped read-only: for a reader, who can read it and nothing else.
pub struct WatchReader(Arc<WatchMemory>);

impl WatchReader {
    /// Maps the memory in a file that another process made.
    ///
    /// # Errors
    /// Those of [`SharedWatch::open`].
    pub fn open(file: &OwnedFd) -> io::Result<WatchReader> {
        Ok(WatchReader(valid(sys::memory::watch_read_only(file.as_fd(), sealed_len(file)?)?)?))
    }

    /// Spans of all connections that are or were watched.
    pub fn all(&self) -> Table {
        self.0.all()
    }

    /// Messages that were not recorded, since their points found no room.
    pub fn missed(&self) -> u64 {
        self.0.missed()
    }

    /// Connections that were not watched, since all slots were taken.
    pub fn left_out(&self) -> u64 {
        self.0.left_out()
    }

    /// Each connection that has spans of its own, or had and whose place nobody took since.
    pub fn connections(&self) -> Vec<WatchedConnection> {
        (0..SLOTS).filter_map(|at| self.connection(at)).collect()
    }

    /// How often each slot was given, and whether a connection has it now.
    pub fn tenants(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        self.0.slots().iter().map(|slot| (slot.given(), slot.queue_pair().is_some()))
    }

    /// The connection that has a slot, or had it last, if it has spans of its own. `None` also if another
    /// got the slot meanwhile.
    pub fn connection(&self, at: usize) -> Option<WatchedConnection> {
        let slot = self.0.slot(at)?;
        let given = slot.given();
        let (local, remote) = slot.ends();
        let live = slot.queue_pair().is_some();
        let (table, slowest) = (slot.table(), slot.exemplars());
        let one_in = if slot.recorded() == Recorded::Wholly { 1 } else { self.0.one_in() };
        let is_it = given > 0 && slot.is_alone() && slot.given() == given;
        is_it.then_some(WatchedConnection { given, local, remote, live, one_in, table, slowest })
    }
}

/// A connection in the memory of what is watched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchedConnection {
    /// How often the slot had been given when this connection got it.
    pub given: u64,
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// It is still watched.
    pub live: bool,
    /// The engine records one message in this many, on average. Above 1, counts are estimates.
    pub one_in: u32,
    /// Times in each layer.
    pub table: Table,
    /// The slowest of its messages that were recorded, those that were sent first, the slowest of each way first.
    pub slowest: Vec<Exemplar>,
}

fn valid(memory: Arc<WatchMemory>) -> io::Result<Arc<WatchMemory>> {
    let error = || io::Error::new(ErrorKind::InvalidInput, "no memory of spans, or of another version");
    memory.is_valid().then_some(memory).ok_or_else(error)
}

impl AsFd for SharedWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsFd for SharedLedger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Makes a memory file of `len` zero bytes that can neither shrink nor grow, and that only its user can open.
pub(crate) fn sealed_memory(name: &str, len: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    // A reader with a read-only descriptor must not open the file again for writing (`/proc/PID/fd`).
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&file, len as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// A descriptor of a memory file that permits reading alone.
pub(crate) fn read_only(file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns the length of a file that is sealed against shrinking.
pub(crate) fn sealed_len(file: &OwnedFd) -> io::Result<usize> {
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a region's file must be sealed against shrinking"));
    }
    let len = usize::try_from(fstat(file)?.st_size).map_err(|_| ErrorKind::InvalidInput)?;
    if len == 0 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the file is empty"));
    }
    Ok(len)
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Memory {
    /// Creates a region in this kind of memory. Returns it with its file, if it has one.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid layout.
    pub fn region(self, layout: Layout) -> io::Result<(Arc<Region>, Option<OwnedFd>)> {
        if self == Memory::Shared
            && let Ok(SharedMemory { file, region }) = SharedMemory::create(layout)
        {
            return Ok((region, Some(file)));
        }
        let region = Region::heap(layout).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        Ok((region, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_cannot_write_to_what_is_watched() {
        let shared = SharedWatch::create().unwrap();
        let ends = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
        shared.memory().give(3, 7, ends.0, ends.1, Recorded::Wholly);
        let file = shared.read_only().unwrap();
        assert!(SharedWatch::open(file.try_clone().unwrap()).is_err());
        let reader = WatchReader::open(&file).unwrap();
        assert_eq!(reader.tenants().nth(3), Some((1, true)));
        assert!(reader.connection(2).is_none() && reader.connection(SLOTS).is_none());
        let found = reader.connection(3).unwrap();
        assert_eq!((found.given, found.local, found.remote, found.live), (1, ends.0, ends.1, true));
        shared.memory().take_back(3);
        shared.memory().leave_out();
        assert_eq!((reader.tenants().nth(3), reader.left_out()), (Some((1, false)), 1));
        assert_eq!(fstat(&file).unwrap().st_mode & 0o777, 0o600);
    }
}
