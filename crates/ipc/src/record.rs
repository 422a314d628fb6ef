//! Records that a broker leaves with its guardian in case it is killed: enough to bring every connection
//! home and to continue with the programs.
//!
//! A record is kept under a key ([`Key`]) and replaces any record under the same key. Its
//! descriptors are kept with it.

use crate::codec::Field;
use crate::message::RawSizes;
use crate::messages;
use baton_wire::addr::{Addr, Tuple};

messages! {
    /// A record that the guardian keeps.
    pub enum Record {
        /// The broker's start.
        1 Born {
            /// The engines' time 0, in nanoseconds of `CLOCK_MONOTONIC`.
            base: u64,
            /// The number of brokers before this one.
            generation: u32,
            /// How many of the last of them, in a row, lived for less than a second.
            short: u32,
        },
        /// The address on which programs connect. With the listening socket.
        2 Listener {},
        /// A program. With its channel, and its bell if it has one.
        3 Client {
            /// The program's number.
            client: u32,
            /// The program's process id.
            pid: u32,
            /// The program's user.
            uid: u32,
            /// The sizes of its memory, if it uses raw queue pairs and not streams.
            raw: Option<RawSizes>,
            /// The program runs engines itself.
            direct: bool,
            /// The version of the protocol that it speaks; `None` before its first message.
            version: Option<u32>,
        },
        /// The ledger of an engine. With its file.
        4 Ledger {
            /// The interface's name. For a program's engine, the name and the engine's number:
            /// `eth0/3`.
            interface: String,
        },
        /// An interface's engine, with its pidfd as descriptor.
        5 Engine {
            /// Name of the interface.
            interface: String,
        },
        /// A program's memory in an engine, with its file as descriptor.
        6 Region {
            /// The region's number.
            region: u32,
            /// The program's number.
            client: u32,
            /// Name of the interface.
            interface: String,
        },
        /// A connection. With its socket.
        7 Connection {
            /// The connection's number.
            id: u64,
            /// The program's number.
            client: u32,
            /// The program's process id and user.
            program: (u32, u32),
            /// The number of the adoption that the program waits for, or 0.
            seq: u64,
            /// The connection's addresses and ports.
            tuple: Tuple,
            /// Name of the interface.
            interface: String,
            /// Its mark and its device, as in `baton_kernel::hops::Query`.
            query: (u32, u32),
            /// The index of its interface, and its next hop there.
            way: (u32, Addr),
            /// How far its move has come.
            phase: Phase,
            /// The program has closed it.
            closed: bool,
            /// The number of its moves.
            moves: u64,
            /// The connection's captured state, or the state that is being restored, without the
            /// queues (`Captured::head_to_bytes` of `baton_kernel`).
            head: Vec<u8>,
        },
        /// The queues of a captured connection. With a file that holds them.
        8 Queues {
            /// The connection's number.
            id: u64,
            /// The length of its send queue, which comes first, in bytes.
            send: u32,
            /// The length of its receive queue, in bytes.
            unread: u32,
        },
        /// A process that the service runs for. With its pidfd.
        9 Member {
            /// The process id.
            pid: u32,
        },
        /// The service runs only for the processes recorded, and ends with the last of them.
        10 Few {},
        /// Memory that two programs share. With the files of its sides and the programs' bells.
        12 Link {
            /// The link's number.
            link: u32,
            /// The numbers of the programs, in the order of the sides.
            clients: (u32, u32),
        },
        /// One end of a connection whose other end is at the other side of a link.
        13 Pair {
            /// The connection's number.
            id: u64,
            /// The number of the connection's other end.
            peer: u64,
            /// Where it is.
            place: PairPlace,
            /// Its program has taken in the bytes that came along.
            settled: bool,
        },
        /// A policy that replaced that of the configuration. With a file that holds its text.
        11 Policy {
            /// Length of the text in bytes.
            len: u32,
        },
    }
}

/// The place of one end of a pair in a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PairPlace {
    /// The link's number.
    pub link: u32,
    /// It is at the first side.
    pub first: bool,
    /// Its slot there.
    pub slot: u32,
    /// The number of the pair.
    pub number: u64,
}

impl Field for PairPlace {
    fn put(&self, out: &mut Vec<u8>) {
        let PairPlace { link, first, slot, number } = *self;
        ((link, first), (slot, number)).put(out);
    }

    fn take(from: &mut &[u8]) -> Option<PairPlace> {
        let ((link, first), (slot, number)) = Field::take(from)?;
        Some(PairPlace { link, first, slot, number })
    }
}

/// The message to a program whose connection has come home ([`Reply::Home`]).
///
/// [`Reply::Home`]: crate::message::Reply::Home
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// The number of received bytes that are, or were, in the region.
    pub rcv_pos: u64,
    /// The number of written bytes that the kernel has.
    pub tail_pos: u64,
    /// The kernel has everything, and the program must not use the region; the positions are 0.
    pub whole: bool,
}

impl Home {
    /// The kernel has everything.
    pub const WHOLE: Home = Home { rcv_pos: 0, tail_pos: 0, whole: true };

    /// The bytes up to `rcv_pos` are in the region, and the kernel has those written up to
    /// `tail_pos`.
    pub fn at((rcv_pos, tail_pos): (u64, u64)) -> Home {
        Home { rcv_pos, tail_pos, whole: false }
    }
}

/// How far a connection's move has come. Each phase also covers the time before the step to the
/// next one: what has not been done yet can be done again, or undone, without harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The kernel has the connection, or it is being captured.
    Kernel,
    /// It was captured. Its program has not taken in the bytes that it brings along.
    Captured,
    /// The program has taken them in, and the engine was asked to adopt the connection: the ledger
    /// may have it.
    Brought,
    /// It is in the ledger, unless it has ended.
    Engine,
    /// It is rebuilt: the kernel has it, or is about to. With what its program is told; `None` if,
    /// as far as the program knows, the connection never left.
    Rebuilt(Option<Home>),
    /// Its engine is dead, and the kernel has no route for it. With what its program is told once
    /// the kernel has it, and whether there are bytes that the program has not read.
    Left(Home, bool),
    /// Both its ends are in programs of this machine, which exchange bytes through a link.
    Paired,
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
            Phase::Paired => out.push(6),
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
            6 => Phase::Paired,
            _ => return None,
        })
    }
}

/// The kind of a record, and its number within that kind.
pub type Key = (u8, u64);

/// Key of a connection's queues.
pub fn queues(id: u64) -> Key {
    (8, id)
}

/// The key of a connection.
pub fn connection(id: u64) -> Key {
    (7, id)
}

/// Key of a program's memory.
pub fn region(region: u32) -> Key {
    (6, region.into())
}

/// The key of an engine, by the index of its slot.
pub fn engine(slot: usize) -> Key {
    (5, slot as u64)
}

/// The key of a ledger, by the index of its slot.
pub fn ledger(slot: usize) -> Key {
    (4, slot as u64)
}

/// The key of the ledger of a program's engine, by the engine's number.
pub fn programs_ledger(number: u32) -> Key {
    (4, 1 << 32 | u64::from(number))
}

/// Key of a program.
pub fn client(client: u32) -> Key {
    (3, client.into())
}

/// The key of a process that the service runs for.
pub fn member(pid: u32) -> Key {
    (9, pid.into())
}

/// The key of the record [`Record::Few`].
pub const FEW: Key = (10, 0);

/// The key of a link.
pub fn link(link: u32) -> Key {
    (12, link.into())
}

/// The key of a connection's place in a link.
pub fn pair(id: u64) -> Key {
    (13, id)
}

/// The key of the policy.
pub const POLICY: Key = (11, 0);

/// The key of the listening socket.
pub const LISTENER: Key = (2, 0);

/// The key of the broker's start.
pub const BORN: Key = (1, 0);
