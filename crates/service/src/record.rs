//! What a broker leaves with its guardian, lest it be killed: enough to bring every
//! connection home, and to go on with the programs.
//!
//! A record is kept under a key ([`Key`]); another under the same key takes its
//! place. Its descriptors are kept with it.

use baton_socket::messages;
use baton_socket::service::codec::Field;
use baton_socket::service::message::RawSizes;
use baton_wire::addr::{Addr, Tuple};

messages! {
    /// See the file's head.
    pub enum Record {
        /// The broker's birth, once it serves.
        1 Born {
            /// The engines' time 0, in nanoseconds of `CLOCK_MONOTONIC`.
            base: u64,
            /// How many brokers there were before.
            generation: u32,
            /// How many of the last of them lived for less than a second.
            short: u32,
        },
        /// Where programs connect. With the socket.
        2 Listener {},
        /// A program. With its channel.
        3 Client {
            /// Its number.
            client: u32,
            /// Its process.
            pid: u32,
            /// Its user.
            uid: u32,
            /// What its memory is to be, if it is not for streams.
            raw: Option<RawSizes>,
            /// It drives engines itself.
            direct: bool,
        },
        /// An interface's ledger. With its file.
        4 Ledger {
            /// The interface's name; of a program's engine there with its number: `eth0/3`.
            interface: String,
        },
        /// An interface's engine. With its pidfd.
        5 Engine {
            /// The interface's name.
            interface: String,
        },
        /// A program's memory in an engine. With its file.
        6 Region {
            /// Its number.
            region: u32,
            /// The program.
            client: u32,
            /// The interface's name.
            interface: String,
        },
        /// A connection. With its socket.
        7 Connection {
            /// Its number.
            id: u64,
            /// Its program.
            client: u32,
            /// The program's process and user.
            program: (u32, u32),
            /// Of the adoption that the program waits for; 0 for none.
            seq: u64,
            /// Its name.
            tuple: Tuple,
            /// The interface's name.
            interface: String,
            /// Its mark and its device, as of [`Query`](baton_kernel::hops::Query).
            query: (u32, u32),
            /// Index of its interface, and its neighbour there.
            way: (u32, Addr),
            /// How far a move has come.
            phase: Phase,
            /// Its program let go of it.
            closed: bool,
            /// Times that it moved.
            moves: u64,
            /// What was captured last, or is rebuilt, without its queues
            /// ([`Captured::head_to_bytes`](baton_kernel::Captured::head_to_bytes)).
            head: Vec<u8>,
        },
        /// The queues of a connection that was captured. With a file of them.
        8 Queues {
            /// The connection.
            id: u64,
            /// Bytes of its send queue, which come first.
            send: u32,
            /// Bytes of its receive queue.
            unread: u32,
        },
        /// A process that the service is there for. With its pidfd.
        9 Member {
            /// Its number.
            pid: u32,
        },
        /// The service is there for such processes only, and ends with the last of them.
        10 Few {},
    }
}

/// What a program is told when its connection has come home to the kernel: which bytes the
/// program itself still holds, as stream positions ([`Reply::Home`]).
///
/// [`Reply::Home`]: baton_socket::service::message::Reply::Home
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// Received bytes up to which the program holds the data.
    pub rcv_pos: u64,
    /// Written bytes up to which the program's data is accounted for.
    pub tail_pos: u64,
    /// The kernel has all of the connection's data; the positions are 0.
    pub whole: bool,
}

impl Home {
    /// The kernel has everything.
    pub const WHOLE: Home = Home { rcv_pos: 0, tail_pos: 0, whole: true };

    /// The program still holds what lies beyond these positions.
    pub fn at((rcv_pos, tail_pos): (u64, u64)) -> Home {
        Home { rcv_pos, tail_pos, whole: false }
    }
}

/// How far a connection's move has come. Each is true of the time before the step that
/// leads to the next, too: what was not done yet is done again, or undone, without harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The kernel has it, or it is being captured.
    Kernel,
    /// It was captured, and its program has not taken in what it brings along.
    Captured,
    /// The same, and the engine was asked to adopt it: the ledger may have it.
    Brought,
    /// The ledger has it, unless it has ended.
    Engine,
    /// It is rebuilt: the kernel has it, or is about to. What its program is told: received
    /// and written bytes as of [`Reply::Home`](baton_socket::service::message::Reply::Home),
    /// and whether that is all; nothing if it never left, as far as the program knows.
    Rebuilt(Option<Home>),
    /// Its engine is dead, and the kernel has no route for it. What its program is told once the
    /// kernel has it, and whether there are bytes that the program has not read.
    Left(Home, bool),
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
                home.map(|Home { rcv_pos, tail_pos, whole }| ((rcv_pos, tail_pos), whole)).put(out);
            }
            Phase::Left(Home { rcv_pos, tail_pos, whole }, unread) => {
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
                Phase::Rebuilt(home.map(|((rcv_pos, tail_pos), whole)| Home { rcv_pos, tail_pos, whole }))
            }
            5 => {
                let ((rcv_pos, tail_pos), (whole, unread)): ((u64, u64), (bool, bool)) = Field::take(from)?;
                Phase::Left(Home { rcv_pos, tail_pos, whole }, unread)
            }
            _ => return None,
        })
    }
}

/// What a record is about, and which of them.
pub type Key = (u8, u64);

/// The key of a connection's queues.
pub fn queues(id: u64) -> Key {
    (8, id)
}

/// The key of a connection.
pub fn connection(id: u64) -> Key {
    (7, id)
}

/// The key of a program's memory.
pub fn region(region: u32) -> Key {
    (6, region.into())
}

/// The key of an engine, by its interface's place.
pub fn engine(slot: usize) -> Key {
    (5, slot as u64)
}

/// The key of a ledger, by its interface's place.
pub fn ledger(slot: usize) -> Key {
    (4, slot as u64)
}

/// The key of a ledger of a program's engine, by the engine's number.
pub fn programs_ledger(number: u32) -> Key {
    (4, 1 << 32 | u64::from(number))
}

/// The key of a program.
pub fn client(client: u32) -> Key {
    (3, client.into())
}

/// The key of a process that the service is there for.
pub fn member(pid: u32) -> Key {
    (9, pid.into())
}

/// The key of whether it is there for such processes only.
pub const FEW: Key = (10, 0);

/// The key of the socket that programs connect to.
pub const LISTENER: Key = (2, 0);

/// The key of the broker's birth.
pub const BORN: Key = (1, 0);
