//! Memory that this process shares with one engine, and the connections there.

use baton_consumer::consumer::{Conn, Consumer};
use baton_consumer::memory::SharedMemory;
use baton_ipc::message::Sizes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A region: memory shared with an engine.
pub(super) struct Region {
    pub consumer: Consumer,
    pub doorbell: OwnedFd,
    pub completions: Arc<OwnedFd>,
    /// Pidfd of the engine's process; `None` for an engine in this program.
    pub engine: Option<OwnedFd>,
    /// Id of each queue pair's connection.
    pub names: BTreeMap<Conn, u64>,
    /// Queue pairs that can be released once the engine has released them too.
    pub leaving: BTreeSet<Conn>,
    /// Its engine has died.
    pub dead: bool,
}

impl Region {
    /// Maps the memory that a service announces.
    ///
    /// # Errors
    /// `InvalidData` for sizes that are not those of the memory; otherwise those of [`SharedMemory::open`].
    pub fn map(file: OwnedFd, doorbell: OwnedFd, completions: OwnedFd, sizes: Sizes) -> io::Result<Region> {
        let config = sizes.config().ok_or(ErrorKind::InvalidData)?;
        let memory = SharedMemory::open(file)?;
        if memory.region().layout() != config.layout() {
            return Err(ErrorKind::InvalidData.into());
        }
        Ok(Region {
            consumer: Consumer::new(&config, memory.region().clone()),
            doorbell,
            completions: Arc::new(completions),
            engine: None,
            names: BTreeMap::new(),
            leaving: BTreeSet::new(),
            dead: false,
        })
    }

    /// True if its engine is in this program, or was.
    pub fn is_inside(&self) -> bool {
        self.engine.is_none()
    }

    /// Detaches the queue pair from its connection, which has moved.
    pub fn leave(&mut self, conn: Conn) {
        self.names.remove(&conn);
        let held = self.consumer.stream(conn).is_some();
        if held && self.consumer.leave(conn).is_none() && !self.dead {
            self.leaving.insert(conn);
        }
    }
}

/// Runs an operation on a connection's consumer. If the connection has already moved away, a
/// missing connection counts as `WouldBlock`, because a message with its new location is coming.
pub(super) fn in_engine<R>(
    regions: &mut BTreeMap<u32, Region>,
    region: u32,
    conn: Conn,
    run: impl FnOnce(&mut Consumer) -> io::Result<R>,
) -> io::Result<R> {
    let region = regions.get_mut(&region).ok_or(ErrorKind::NotConnected)?;
    let done = run(&mut region.consumer);
    let moved = region.dead || region.consumer.stream(conn).is_some_and(|stream| stream.is_moved());
    match done {
        Err(error) if moved && error.kind() == ErrorKind::NotConnected => Err(ErrorKind::WouldBlock.into()),
        done => done,
    }
}
