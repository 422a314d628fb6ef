//! Events for a program that has its own queue pairs.

use crate::NotAdopted;
use baton_consumer::qp::QpEvent;
use baton_engine::region::Extent;
use std::os::fd::OwnedFd;

/// The queue pair of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Number of the memory.
    pub memory: u32,
    /// Number of the queue pair in that memory.
    pub qp: u32,
}

/// Buffers for the two queues of an arriving connection, each with the id under which it is posted.
/// A buffer may be longer than the queue.
#[derive(Clone, Copy, Debug)]
pub struct Landing {
    /// Received bytes that nobody has read.
    pub unread: (Extent, u64),
    /// Bytes that the peer has not acknowledged.
    pub unsent: (Extent, u64),
}

/// An event of a program that uses queue pairs directly.
#[derive(Debug)]
pub enum RawEvent {
    /// A new memory is available for buffers ([`RawService::memory`](super::RawService::memory)).
    Memory {
        /// Number of the memory.
        memory: u32,
    },
    /// The engine of a memory has died, so nothing more happens in it. Its connections return to
    /// the kernel; after that, release it with [`RawService::forget`](super::RawService::forget).
    Dead {
        /// Number of the memory.
        memory: u32,
    },
    /// A connection is arriving. Answer with [`RawService::take_in`](super::RawService::take_in) or
    /// [`RawService::refuse`](super::RawService::refuse).
    Coming {
        /// The number that [`RawService::adopt`](super::RawService::adopt) returned.
        seq: u64,
        /// Id of the connection from now on.
        id: u64,
        /// Number of the memory it goes to.
        memory: u32,
        /// How many received bytes it brings.
        unread: u32,
        /// How many bytes to be sent it brings.
        unsent: u32,
    },
    /// The connection stays in the kernel.
    NotAdopted {
        /// The number that [`RawService::adopt`](super::RawService::adopt) returned.
        seq: u64,
        /// The reason, with the socket.
        refused: NotAdopted,
    },
    /// The engine has the connection. Its queued bytes are posted, and the program may post more.
    Adopted {
        /// Id of the connection.
        id: u64,
        /// Its queue pair.
        place: Place,
    },
    /// An event of a queue pair.
    Happened {
        /// Number of the queue pair's memory.
        memory: u32,
        /// The event of its queue pair.
        event: QpEvent,
    },
    /// The connection is in the kernel, and none of its buffers is posted any more.
    Home {
        /// Id of the connection.
        id: u64,
        /// The socket, which has the connection again.
        fd: OwnedFd,
        /// Received bytes that no event reported. Read these before those of the socket.
        unread: Vec<u8>,
        /// Bytes that were posted for sending and that the kernel does not have. Write these first.
        unsent: Vec<u8>,
    },
    /// The connection could not return to the kernel, and continues in the engine.
    Stays {
        /// Id of the connection.
        id: u64,
        /// The reason as a sentence.
        text: String,
    },
    /// The connection has ended or is lost.
    Gone {
        /// Id of the connection.
        id: u64,
        /// The reason; empty if it ended normally.
        text: String,
    },
}
