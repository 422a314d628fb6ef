//! What the broker and an engine say to each other: the engine of an interface, in a process
//! of its own, or one inside a program ([`super::engine`]).
//!
//! ```text
//!   broker                                  engine
//!   Start + device, ledger           -->
//!                                    <--    Started
//!   Consumer + memory, eventfds      -->
//!   Hold                             -->    frames of the name are kept
//!                                    <--    Held
//!   Adopt                            -->
//!                                    <--    Adopted | NotAdopted
//!   Suspend                          -->    the flight lands
//!                                    <--    Suspended | Stays | Ended
//!   LetGo | Resume                   -->
//!   Watch (the program let go)       -->
//!                                    <--    Ended | Reopened
//!                                    <--    Homeless | Urgent (it has to go home)
//! ```

use crate::messages;
use baton_tcp::config::{Acks, Congestion};
use baton_wire::addr::{Addr, Tuple};

messages! {
    /// What the broker says.
    pub enum Order {
        /// First of all, with the ledger, and with the TAP device if that is the kind.
        1 Start {
            /// Name of the TAP device, or of the interface.
            device: String,
            /// None for a TAP device; else AF_XDP sockets are to be opened: for a program
            /// in the driver, or for the generic hook.
            xdp: Option<bool>,
            /// MTU of the interface.
            mtu: u16,
            /// Its link address.
            mac: [u8; 6],
            /// Connections at most.
            connections: u32,
            /// The engine's time 0, in nanoseconds of `CLOCK_MONOTONIC`.
            base: u64,
            /// What its connections run.
            congestion: Congestion,
            /// Segments that it handles as one, at most.
            coalesce: u16,
            /// How it acknowledges them.
            acks: Acks,
            /// User and group to become.
            user: Option<(u32, u32)>,
        },
        /// A consumer: its memory, its doorbell, its completions.
        2 Consumer {
            /// Its number here.
            key: u32,
        },
        /// It has gone; none of its connections is here.
        3 Forget {
            /// Which.
            key: u32,
        },
        /// Keeps frames of this name.
        4 Hold {
            /// The connection that comes.
            id: u64,
            /// Its name.
            tuple: Tuple,
        },
        /// No more.
        5 Unhold {
            /// The name.
            tuple: Tuple,
        },
        /// Takes a connection over.
        6 Adopt {
            /// Which.
            id: u64,
            /// Its consumer.
            key: u32,
            /// Its name.
            tuple: Tuple,
            /// Words of its snapshot.
            snapshot: Vec<u64>,
            /// What its segments' IP headers say.
            ip: u64,
            /// The neighbour.
            via: Addr,
            /// Its link address, if it is known.
            mac: Option<[u8; 6]>,
            /// Options, by number and value.
            options: Vec<(u32, u64)>,
        },
        /// Stops a connection.
        7 Suspend {
            /// Which.
            id: u64,
            /// For how long what is in flight may land.
            drain_ms: u32,
        },
        /// It goes on.
        8 Resume {
            /// Which.
            id: u64,
        },
        /// It is forgotten.
        9 LetGo {
            /// Which.
            id: u64,
        },
        /// Its program let go of it: say when it has ended.
        10 Watch {
            /// Which.
            id: u64,
        },
        /// Where a neighbour is.
        11 Neighbour {
            /// Which.
            neighbour: Addr,
            /// There.
            mac: [u8; 6],
        },
        /// A connection goes by another neighbour.
        12 Reroute {
            /// Which.
            id: u64,
            /// By this one.
            via: Addr,
        },
        /// What is known of a connection, as `TCP_INFO`?
        14 Info {
            /// Which.
            id: u64,
        },
        /// Say that you are there: [`Report::Here`].
        15 Ask {},
        /// The interface's link address changed.
        13 Mac {
            /// To this.
            mac: [u8; 6],
        },
    }
}

messages! {
    /// What the engine says.
    pub enum Report {
        /// It runs. With its AF_XDP sockets, by queue, if it opened some.
        1 Started {},
        /// Frames are kept.
        2 Held {
            /// For this connection.
            id: u64,
        },
        /// It has the connection.
        3 Adopted {
            /// Which.
            id: u64,
            /// Its index in the ledger.
            conn: u32,
        },
        /// It does not take the connection.
        4 NotAdopted {
            /// Which.
            id: u64,
            /// Why.
            text: String,
        },
        /// The connection stands still.
        5 Suspended {
            /// Which.
            id: u64,
            /// Smoothed round-trip time in microseconds; 0 before the first sample.
            srtt_us: u32,
            /// Its mean deviation.
            rttvar_us: u32,
            /// The smallest.
            min_rtt_us: u32,
        },
        /// It cannot leave: both sides have closed.
        6 Stays {
            /// Which.
            id: u64,
        },
        /// It has ended.
        7 Ended {
            /// Which.
            id: u64,
        },
        /// Its peer sends urgent data, which only the kernel takes.
        14 Urgent {
            /// The connection that has to go home.
            id: u64,
        },
        /// It has ended for a new one of its name, of which this is the SYN.
        13 Reopened {
            /// Which.
            id: u64,
            /// From the TCP header on.
            syn: Vec<u8>,
        },
        /// Where is this neighbour?
        8 Question {
            /// Which.
            neighbour: Addr,
        },
        /// It cannot go by that neighbour.
        9 Homeless {
            /// Which.
            id: u64,
        },
        /// To [`Order::Info`].
        11 Info {
            /// Which.
            id: u64,
            /// In the kernel's layout; empty if it is not here.
            bytes: Vec<u8>,
        },
        /// To [`Order::Ask`].
        12 Here {},
        /// It cannot go on.
        10 Failed {
            /// Why.
            text: String,
        },
    }
}

impl Report {
    /// The connection that it is about.
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
            | Report::Homeless { id } => Some(id),
            Report::Started {} | Report::Question { .. } | Report::Here {} | Report::Failed { .. } => None,
        }
    }
}
