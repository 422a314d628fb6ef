//! Records that a broker stores with its guardian in case it is killed: enough to restore every
//! connection to the kernel and to continue serving the programs.
//!
//! A record is stored with its descriptors under a key ([`Key`]) and replaces an earlier one with
//! the same key.

use crate::codec::Field;
use crate::message::RawSizes;
use crate::messages;
use baton_wire::addr::{Addr, Tuple};

messages! {
    /// A record for the guardian.
    pub enum Record {
        /// A broker has started to serve.
        1 Born {
            /// The engines' time 0, in nanoseconds of `CLOCK_MONOTONIC`.
            base: u64,
            /// Number of earlier brokers.
            generation: u32,
            /// How many of the latest brokers lived for less than a second each.
            short: u32,
        },
        /// The socket that programs connect to, as descriptor.
        2 Listener {},
        /// A program, with its channel as descriptor.
        3 Client {
            /// Number of the program.
            client: u32,
            /// Its process id.
            pid: u32,
            /// Its user id.
            uid: u32,
            /// Sizes of its memory, if that is not for streams.
            raw: Option<RawSizes>,
            /// True if it drives engines itself.
            direct: bool,
        },
        /// An interface's ledger, with its file as descriptor.
        4 Ledger {
            /// Name of the interface; for an engine inside a program, followed by the engine's
            /// number: `eth0/3`.
            interface: String,
        },
        /// An interface's engine, with its pidfd as descriptor.
        5 Engine {
            /// Name of the interface.
            interface: String,
        },
        /// A program's memory in an engine, with its file as descriptor.
        6 Region {
            /// Number of the region.
            region: u32,
            /// Number of the program.
            client: u32,
            /// Name of the interface.
            interface: String,
        },
        /// A connection, with its socket as descriptor.
        7 Line {
            /// Id of the connection.
            id: u64,
            /// Number of its program.
            client: u32,
            /// Process id and user id of the program.
            program: (u32, u32),
            /// Number of the adoption that the program waits for; 0 if there is none.
            seq: u64,
            /// Its addresses and ports.
            tuple: Tuple,
            /// Name of the interface.
            interface: String,
            /// Its mark and its device (see `baton_kernel::hops::Query`).
            query: (u32, u32),
            /// Index of its interface, and its next hop there.
            way: (u32, Addr),
            /// State of its move.
            phase: Phase,
            /// True if its program has closed it.
            closed: bool,
            /// Number of moves so far.
            moves: u64,
            /// The connection's captured state, or the state that is being restored, without the
            /// queues (`Captured::head_to_bytes` of `baton_kernel`).
            head: Vec<u8>,
        },
        /// The queues of a captured connection, with their file as descriptor.
        8 Queues {
            /// Id of the connection.
            id: u64,
            /// Number of bytes in its send queue, which comes first.
            send: u32,
            /// Number of bytes in its receive queue.
            unread: u32,
        },
        /// A process whose end the service waits for, with its pidfd as descriptor.
        9 Member {
            /// Process id.
            pid: u32,
        },
        /// The service exists for its member processes only, and ends with the last of them.
        10 Few {},
    }
}

/// How far a connection's move has come. Each state also covers the time before the step to the
/// next state is complete: repeating or undoing an incomplete step does no harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The kernel has the connection, or it is being captured.
    Kernel,
    /// It is captured, and its program has not yet taken its queued bytes.
    Captured,
    /// Its program has taken them, and the engine was asked to adopt it: it may be in the ledger.
    Brought,
    /// It is in the ledger, unless it has ended.
    Engine,
    /// It is being rebuilt: the kernel has it, or will soon. The value is the message for the
    /// program: received and written positions and wholeness as in
    /// [`Reply::Home`](crate::message::Reply::Home); `None` if the program never saw the connection
    /// leave.
    Rebuilt(Option<(u64, u64, bool)>),
    /// Its engine is dead, and the kernel has no route for it. The values are the message for the
    /// program once the kernel has it, and whether there are bytes that the program has not read.
    Left((u64, u64, bool), bool),
}

impl Field for Phase {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Phase::Kernel => out.push(0),
            Phase::Captured => out.push(1),
            Phase::Brought => out.push(2),
            Phase::Engine => out.push(3),
            Phase::Rebuilt(home) => {
                out.push(4);
                home.map(|(rcv_pos, tail_pos, whole)| ((rcv_pos, tail_pos), whole)).put(out);
            }
            Phase::Left((rcv_pos, tail_pos, whole), unread) => {
                out.push(5);
                ((*rcv_pos, *tail_pos), (*whole, *unread)).put(out);
            }
        }
    }

    fn take(from: &mut &[u8]) -> Option<Phase> {
        Some(match u8::take(from)? {
            0 => Phase::Kernel,
            1 => Phase::Captured,
            2 => Phase::Brought,
            3 => Phase::Engine,
            4 => {
                let home: Option<((u64, u64), bool)> = Field::take(from)?;
                Phase::Rebuilt(home.map(|((rcv_pos, tail_pos), whole)| (rcv_pos, tail_pos, whole)))
            }
            5 => {
                let ((rcv_pos, tail_pos), (whole, unread)): ((u64, u64), (bool, bool)) = Field::take(from)?;
                Phase::Left((rcv_pos, tail_pos, whole), unread)
            }
            _ => return None,
        })
    }
}

/// Kind and number of a record's subject.
pub type Key = (u8, u64);

/// Key of a connection's queues.
pub fn queues(id: u64) -> Key {
    (8, id)
}

/// Key of a connection.
pub fn line(id: u64) -> Key {
    (7, id)
}

/// Key of a program's memory.
pub fn region(region: u32) -> Key {
    (6, region.into())
}

/// Key of an engine, by its interface's index.
pub fn engine(side: usize) -> Key {
    (5, side as u64)
}

/// Key of a ledger, by its interface's index.
pub fn ledger(side: usize) -> Key {
    (4, side as u64)
}

/// Key of the ledger of an engine inside a program, by the engine's number.
pub fn programs_ledger(number: u32) -> Key {
    (4, 1 << 32 | u64::from(number))
}

/// Key of a program.
pub fn client(client: u32) -> Key {
    (3, client.into())
}

/// Key of a member process.
pub fn member(pid: u32) -> Key {
    (9, pid.into())
}

/// Key of the record [`Record::Few`].
pub const FEW: Key = (10, 0);

/// Key of the socket that programs connect to.
pub const LISTENER: Key = (2, 0);

/// Key of the record [`Record::Born`].
pub const BORN: Key = (1, 0);
