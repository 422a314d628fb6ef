//! The location of a connection, as its program sees it. Each location owns the data that exists
//! only there.
//!
//! ```text
//!          Prepare, PutBack            Bring             Adopted
//!  Kernel ------------------> Away ------------> Coming ---------> Engine
//!    ^                         ^ |                 |               |   |
//!    |                         | +--Home, Stays <--+               |   |
//!    +-------------------------|---------------------<-- Home -----+   |
//!                              +---- closed, and released by the engine+
//!  any --> Ended
//! ```

use super::near::PairEnd;
use baton_consumer::adoption::Remains;
use baton_consumer::consumer::Conn;
use std::io;
use std::sync::Arc;

/// The location of a connection.
#[derive(Debug)]
pub(super) enum Location {
    /// The kernel runs it, and its descriptor is a socket.
    Kernel(InKernel),
    /// It is moving. This process uses neither the descriptor nor the region.
    Away(Away),
    /// Its queued bytes are posted in the region and wait for the engine.
    Coming(Coming),
    /// The engine runs it.
    Engine(InEngine),
    /// Its other end is in a program of this machine, and its bytes go through a link.
    Pair(Box<InPair>),
    /// It has ended, with this error if there was one.
    Ended(Option<io::Error>),
}

/// A connection in the kernel.
#[derive(Debug, Default)]
pub(super) struct InKernel {
    /// Bytes that the kernel will deliver a second time: the program has read them already, or they
    /// are in the connection's `unread`.
    pub skip: u64,
}

/// A connection between two locations.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// Bytes left in a region whose queue pair no longer belongs to this connection. They are kept
    /// until the broker says how many of them the kernel has.
    pub remains: Option<Remains>,
    /// The bytes to be read of a connection that was not taken in, or why they could not be had.
    /// The kernel gets them back, unless the broker dies before it hears that.
    pub declined: Option<io::Result<Vec<u8>>>,
}

/// A connection that waits for the engine.
#[derive(Debug)]
pub(super) struct Coming {
    /// Number of the region.
    pub region: u32,
    /// A copy of the unread bytes, in case the engine dies before it takes the connection.
    pub unread: Vec<u8>,
}

/// A connection that the engine runs.
#[derive(Debug)]
pub(super) struct InEngine {
    /// Number of the region.
    pub region: u32,
    /// The queue pair there.
    pub conn: Conn,
    /// The broker has a copy of the bytes to be read and sent, for the kernel. Bytes read or written here
    /// since would be read twice or never sent.
    pub stands: bool,
    /// A question for `TCP_INFO`.
    pub info: Inquiry,
}

/// A link's number, and whether this program writes its first side.
pub(super) type LinkName = (u32, bool);

/// One end of a pair.
#[derive(Debug)]
pub(super) struct InPair {
    /// The link through which its bytes go.
    pub link: LinkName,
    /// Its slot there.
    pub slot: u32,
    /// The end there.
    pub end: Arc<PairEnd>,
    /// How far it had come when the library's thread looked last.
    pub stood: Option<Stand>,
}

/// How far a pair has come, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stand {
    pub written: u64,
    pub read: u64,
}

/// A question of the program for `TCP_INFO`, which only the engine can answer.
#[derive(Debug, Default)]
pub(super) enum Inquiry {
    /// Nobody has asked since the last answer was taken.
    #[default]
    Idle,
    /// The engine has been asked.
    Asked,
    /// The engine's answer, until a caller takes it.
    Answered(Vec<u8>),
}

impl Inquiry {
    /// Takes the answer if there is one. Otherwise notes that the engine is asked, and returns
    /// whether the caller has to ask it.
    pub fn take(&mut self) -> Result<Vec<u8>, bool> {
        match std::mem::replace(self, Inquiry::Asked) {
            Inquiry::Idle => Err(true),
            Inquiry::Asked => Err(false),
            Inquiry::Answered(bytes) => {
                *self = Inquiry::Idle;
                Ok(bytes)
            }
        }
    }
}
