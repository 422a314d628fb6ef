//! What a program with queue pairs of its own hears.

use crate::NotAdopted;
use baton_consumer::qp::QpEvent;
use baton_engine::region::Extent;
use std::os::fd::OwnedFd;

/// Where a connection's buffers are posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The memory's number.
    pub memory: u32,
    /// The queue pair in it.
    pub qp: u32,
}

/// Where the two queues go that a connection brings along, each with an id under which it
/// is posted. The buffers may be longer than what comes.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    /// Received bytes that nobody has read.
    pub unread: (Extent, u64),
    /// Bytes that the peer has not acknowledged.
    pub unsent: (Extent, u64),
}

/// Something that happened.
#[derive(Debug)]
pub enum RawEvent {
    /// There is a memory: buffers lie in it ([`RawService::memory`](super::RawService::memory)).
    Memory {
        /// Its number.
        memory: u32,
    },
    /// The engine of a memory has died: nothing more happens in it. Its connections come
    /// home; then it is to be let go of ([`RawService::forget`](super::RawService::forget)).
    Dead {
        /// Its number.
        memory: u32,
    },
    /// A connection comes: [`RawService::take_in`](super::RawService::take_in), or
    /// [`RawService::refuse`](super::RawService::refuse).
    Coming {
        /// Of [`RawService::adopt`](super::RawService::adopt).
        seq: u64,
        /// The connection's name from now on.
        id: u64,
        /// Its memory.
        memory: u32,
        /// Received bytes that it brings along.
        unread: u32,
        /// Bytes to be sent that it brings along.
        unsent: u32,
    },
    /// It stays in the kernel: here is its socket.
    NotAdopted {
        /// Of [`RawService::adopt`](super::RawService::adopt).
        seq: u64,
        /// Why, and the socket.
        refused: NotAdopted,
    },
    /// The engine has it: what it brought along is posted, buffers may be.
    Adopted {
        /// The connection.
        id: u64,
        /// There.
        place: Place,
    },
    /// Something happened to a queue pair.
    Happened {
        /// Its memory.
        memory: u32,
        /// What.
        event: QpEvent,
    },
    /// It is in the kernel: no buffer of it is posted any more.
    Home {
        /// The connection.
        id: u64,
        /// Its socket.
        fd: OwnedFd,
        /// Received bytes that no event told of, to be read before the socket's.
        unread: Vec<u8>,
        /// What was posted to send and the kernel does not have, to be written first.
        unsent: Vec<u8>,
    },
    /// It does not go home, and goes on as it was.
    Stays {
        /// The connection.
        id: u64,
        /// Why.
        text: String,
    },
    /// It has ended, or is lost.
    Gone {
        /// The connection.
        id: u64,
        /// Why: empty if it ended by itself.
        text: String,
    },
}
