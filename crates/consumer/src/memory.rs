//! Regions that another process can map: a memfd each.
//!
//! ```text
//!   engine's process                        consumer's process
//!   SharedMemory::create --descriptor-->    SharedMemory::open
//!   EngineRegion::new(region)               Consumer::new(config, region)
//!                \______ the same pages ______/
//! ```
//!
//! How the descriptor gets there (`SCM_RIGHTS`, `/proc/PID/fd`, inheritance) is
//! its holder's business. The file cannot shrink or grow: whoever shares it can
//! write what they like into it, which the engine checks, but not take it away.

use crate::sys;
use baton_engine::ledger::Ledger;
use baton_engine::region::{Layout, Region};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Where the regions of a host or stack lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Memory {
    /// In this process alone.
    #[default]
    Heap,
    /// In a memfd; on the heap where the system has none to give.
    Shared,
}

/// A region in a memfd, and the file's descriptor.
pub struct SharedMemory {
    file: OwnedFd,
    region: Arc<Region>,
}

impl SharedMemory {
    /// A new region. Pages exist once they are touched.
    ///
    /// # Errors
    /// `InvalidInput` for a layout that cannot be; else as `memfd_create(2)` and
    /// `mmap(2)`.
    pub fn create(layout: Layout) -> io::Result<SharedMemory> {
        let len = layout.bytes().map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let file = memfd_create("baton-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = sys::memory::create(file.as_fd(), len, layout)?;
        Ok(SharedMemory { file, region })
    }

    /// The region in a file that somebody else made.
    ///
    /// # Errors
    /// `InvalidInput` if there is no region in it, or if it could still shrink;
    /// else as `mmap(2)`.
    pub fn open(file: OwnedFd) -> io::Result<SharedMemory> {
        let len = sealed_len(&file)?;
        let region = sys::memory::open(file.as_fd(), len)?;
        Ok(SharedMemory { file, region })
    }

    /// The region.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

/// A ledger in a memfd, and the file's descriptor.
pub struct SharedLedger {
    file: OwnedFd,
    ledger: Arc<Ledger>,
}

impl SharedLedger {
    /// A new ledger for so many connections.
    ///
    /// # Errors
    /// As `memfd_create(2)` and `mmap(2)`.
    pub fn create(connections: u32) -> io::Result<SharedLedger> {
        let len = Ledger::bytes(connections.max(1));
        let file = memfd_create("baton-ledger", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let ledger = sys::memory::ledger(file.as_fd(), len)?;
        Ok(SharedLedger { file, ledger })
    }

    /// The ledger in a file that somebody else made.
    ///
    /// # Errors
    /// `InvalidInput` if it could still shrink; else as `mmap(2)`.
    pub fn open(file: OwnedFd) -> io::Result<SharedLedger> {
        let len = sealed_len(&file)?;
        let ledger = sys::memory::ledger(file.as_fd(), len)?;
        Ok(SharedLedger { file, ledger })
    }

    /// The ledger.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

impl AsFd for SharedLedger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The length of a file that is sealed against shrinking.
fn sealed_len(file: &OwnedFd) -> io::Result<usize> {
    if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a region's file is sealed against shrinking"));
    }
    let len = usize::try_from(fstat(file)?.st_size).map_err(|_| ErrorKind::InvalidInput)?;
    if len == 0 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "an empty file"));
    }
    Ok(len)
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Memory {
    /// A region there, and the file it lies in, if it does.
    ///
    /// # Errors
    /// `InvalidInput` for a layout that cannot be.
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
