//! Messages between the broker and an engine, which runs in a process of its own or inside a
//! program ([`super::engine`]).
//!
//! ```text
//!  broker                                  engine
//!  Start + device, ledger           -->
//!                                   <--    Started
//!  Consumer + memory, eventfds      -->
//!  Hold                             -->    frames of the tuple are kept
//!                                   <--    Held
//!  Adopt                            -->
//!                                   <--    Adopted | NotAdopted
//!  Suspend                          -->    waits for segments in flight
//!                                   <--    Suspended | Stays | Ended
//!  LetGo | Resume                   -->
//!  Watch (the program closed it)    -->
//!                                   <--    Ended | Reopened
//!                                   <--    Homeless | Urgent | Overloaded (must return to the kernel)
//!  Observe + memory, notes          -->    stamps the points of messages there
//!  Load                             -->    controls its load from now on
//!                                   <--    Load, now and then
//! ```

use crate::begin::Begin;
use crate::codec::Field;
use crate::load::EngineLoad;
use crate::message::Selector;
use crate::messages;
use baton_wire::addr::{Addr, Tuple};

/// The user and the group that an engine's process switches to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunAs {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

impl Field for RunAs {
    fn put(&self, out: &mut Vec<u8>) {
        (self.uid, self.gid).put(out);
    }
    fn take(from: &mut &[u8]) -> Option<RunAs> {
        let (uid, gid) = Field::take(from)?;
        Some(RunAs { uid, gid })
    }
}

messages! {
    /// A message of the broker.
    pub enum Order {
        /// First message: starts the engine. The descriptors are the ledger and, for a TAP device,
        /// that device.
        1 Start {
            /// Name of the TAP device or of the interface.
            device: String,
            /// `None` for a TAP device. Otherwise AF_XDP sockets are opened: `true` for a program
            /// in the driver, `false` for the generic hook.
            xdp: Option<bool>,
            /// Its interface, clock and choices.
            begin: Begin,
            /// User and group to switch to; `None` keeps the broker's.
            run_as: Option<RunAs>,
        },
        /// Adds a consumer. The descriptors are its memory, its doorbell and its completions.
        2 Consumer {
            /// The consumer's number in this engine.
            key: u32,
        },
        /// Removes a consumer, which has no connections here any more.
        3 Forget {
            /// The consumer's number.
            key: u32,
        },
        /// Keeps the frames of this tuple.
        4 Hold {
            /// The connection that will follow.
            id: u64,
            /// Its addresses and ports.
            tuple: Tuple,
        },
        /// Stops keeping the frames of this tuple.
        5 Unhold {
            /// Addresses and ports.
            tuple: Tuple,
        },
        /// Adopts a connection.
        6 Adopt {
            /// Id of the connection.
            id: u64,
            /// Number of its consumer.
            key: u32,
            /// Its addresses and ports.
            tuple: Tuple,
            /// Words of its snapshot.
            snapshot: Vec<u64>,
            /// Encoded IP header fields of its segments.
            ip: u64,
            /// Address of the next hop.
            via: Addr,
            /// Link address of the next hop, if it is known.
            mac: Option<[u8; 6]>,
            /// Options, as number and value.
            options: Vec<(u32, u64)>,
        },
        /// Suspends a connection.
        7 Suspend {
            /// Id of the connection.
            id: u64,
            /// How long to wait for segments in flight, in milliseconds.
            drain_ms: u32,
        },
        /// Resumes a suspended connection.
        8 Resume {
            /// Id of the connection.
            id: u64,
        },
        /// Releases a suspended connection.
        9 LetGo {
            /// Id of the connection.
            id: u64,
        },
        /// The program has closed the connection: report its end.
        10 Watch {
            /// Id of the connection.
            id: u64,
        },
        /// Gives a neighbour's link address.
        11 Neighbour {
            /// IP address of the neighbour.
            neighbour: Addr,
            /// Its link address.
            mac: [u8; 6],
        },
        /// Changes the next hop of a connection.
        12 Reroute {
            /// Id of the connection.
            id: u64,
            /// Address of the new next hop.
            via: Addr,
        },
        /// Asks for `TCP_INFO` of a connection.
        14 Info {
            /// Id of the connection.
            id: u64,
        },
        /// Controls the load (CH §3.2). An engine that is never told accepts every connection.
        16 Load {
            /// `Lowat` and `Hiwat` in frames; `None` to find them.
            fixed: Option<(u32, u32)>,
        },
        /// Watches where the time of messages goes, of a consumer's connections, by points of time in the memory
        /// of the attached file; without a file, in the one before. A second file has the notes of when frames
        /// arrived.
        18 Observe {
            /// The consumer's number.
            key: u32,
            /// The connections: those that one of these selects. With none, nothing is watched any more. Of so many
            /// messages of theirs one is recorded, of each connection by the one that selects it and records
            /// most.
            which: Vec<(Selector, u32)>,
        },
        /// Asks for a sign of life: [`Report::Here`].
        15 Ask {},
        /// The interface's link address has changed.
        13 Mac {
            /// The new link address.
            mac: [u8; 6],
        },
    }
}

messages! {
    /// A message of the engine.
    pub enum Report {
        /// The engine runs. The descriptors are the AF_XDP sockets that it opened, by queue.
        1 Started {},
        /// Frames are being kept.
        2 Held {
            /// The connection that they are kept for.
            id: u64,
        },
        /// The engine has adopted the connection.
        3 Adopted {
            /// Id of the connection.
            id: u64,
            /// Its index in the ledger.
            conn: u32,
        },
        /// The engine does not adopt the connection.
        4 NotAdopted {
            /// Id of the connection.
            id: u64,
            /// The reason as a sentence.
            text: String,
        },
        /// The connection is suspended.
        5 Suspended {
            /// Id of the connection.
            id: u64,
            /// Smoothed round-trip time in microseconds; 0 before the first sample.
            srtt_us: u32,
            /// Mean deviation of the round-trip time in microseconds.
            rttvar_us: u32,
            /// Smallest round-trip time in microseconds.
            min_rtt_us: u32,
        },
        /// The connection cannot leave, because both sides have closed.
        6 Stays {
            /// Id of the connection.
            id: u64,
        },
        /// The connection has ended.
        7 Ended {
            /// Id of the connection.
            id: u64,
        },
        /// The peer sends urgent data, which only the kernel supports.
        14 Urgent {
            /// The connection that must return to the kernel.
            id: u64,
        },
        /// The connection has ended, replaced by a new one with the same tuple, whose SYN this is.
        13 Reopened {
            /// Id of the connection that has ended.
            id: u64,
            /// The SYN, starting at the TCP header.
            syn: Vec<u8>,
        },
        /// Asks for a neighbour's link address.
        8 Question {
            /// IP address of the neighbour.
            neighbour: Addr,
        },
        /// The connection cannot reach its next hop, and must return to the kernel.
        9 Homeless {
            /// Id of the connection.
            id: u64,
        },
        /// Answers [`Order::Info`].
        11 Info {
            /// Id of the connection.
            id: u64,
            /// `TCP_INFO` in the kernel's layout; empty if the connection is not here.
            bytes: Vec<u8>,
        },
        /// The engine has more to do than it can, and the connection must return to the kernel.
        15 Overloaded {
            /// The connection, one of those that load the engine most.
            id: u64,
        },
        /// The load has changed, or was measured again.
        16 Load {
            /// The state, limits and measurements of its load control.
            load: EngineLoad,
        },
        /// Answers [`Order::Ask`].
        12 Here {},
        /// The engine cannot continue.
        10 Failed {
            /// The reason as a sentence.
            text: String,
        },
    }
}

impl Report {
    /// Id of the connection that the report is about.
    pub fn id(&self) -> Option<u64> {
        match *self {
            Report::Held { id }
            | Report::Adopted { id, .. }
            | Report::NotAdopted { id, .. }
            | Report::Suspended { id, .. }
            | Report::Stays { id }
            | Report::Ended { id }
            | Report::Urgent { id }
            | Report::Reopened { id, .. }
            | Report::Info { id, .. }
            | Report::Overloaded { id }
            | Report::Homeless { id } => Some(id),
            Report::Started {}
            | Report::Question { .. }
            | Report::Load { .. }
            | Report::Here {}
            | Report::Failed { .. } => None,
        }
    }
}
