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
use baton_latency::{Slot, Table, WatchMemory};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
        let file = memfd_create("baton-latency", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, WatchMemory::BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
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

    /// Each connection that has spans of its own, or had and whose place nobody took since.
    pub fn connections(&self) -> Vec<WatchedConnection> {
        let slots = self.0.slots().iter().filter(|slot| slot.given() > 0 && slot.is_alone());
        let of = |slot: &Slot| {
            let (local, remote) = slot.ends();
            WatchedConnection { local, remote, live: slot.queue_pair().is_some(), table: slot.table() }
        };
        slots.map(of).collect()
    }
}

/// A connection in the memory of what is watched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchedConnection {
    /// Local end.
    pub local: SocketAddr,
    /// Remote end.
    pub remote: SocketAddr,
    /// It is still watched.
    pub live: bool,
    /// Times in each layer.
    pub table: Table,
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

/// Returns the length of a file that is sealed against shrinking.
fn sealed_len(file: &OwnedFd) -> io::Result<usize> {
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
