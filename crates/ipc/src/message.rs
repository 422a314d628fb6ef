//! What programs and the broker say to each other.
//!
//! ```text
//!   program                                broker
//!   Adopt + socket                 -->     may it move? frames held, socket captured
//!                                  <--     Region + memory, doorbell, completions  (once)
//!                                  <--     Bring + the two queues
//!   Brought                        -->     the engine adopts
//!           (the engine says Adopted in the region)
//!
//!   Restore                        -->     the engine suspends
//!                                  <--     Stand
//!   LeftBehind + what it holds     -->     rebuilt, resumed
//!                                  <--     Home
//! ```
//!
//! *Positions.* Streams of a queue pair have positions. `Home` says up to which received
//! bytes are in the region still (`rcv_pos`), and up to which written bytes the kernel has
//! (`tail_pos`): what lies beyond is written to the kernel by the program, what lies before
//! is read first. So nothing has to stop for the broker to count it, and each byte counts
//! once, whoever is killed.
//!
//! What a dead engine's program holds can go home later (`PutBack`), if the program wants a
//! plain socket again.
//!
//! *Brokers that die.* A request counts once it was carried out, and is heard again by the
//! next broker else; what a broker had to say and the program had not read is said again.
//!
//! What moves without being asked for (an engine that died, a stop, an administrator) goes
//! home by a `Home` alone; what is to come again begins with `Prepare`.

use crate::messages;
use baton_consumer::consumer::ConsumerConfig;
use baton_engine::region::Layout;
use baton_journal::Numbered;
use baton_wire::addr::Tuple;

/// Version of the protocol.
pub const VERSION: u32 = 1;

messages! {
    /// What a program says.
    pub enum Request {
        /// First of all.
        1 Hello {
            /// [`VERSION`].
            version: u32,
        },
        /// Takes the connection of this socket over. With its descriptor.
        2 Adopt {
            /// Comes back in the answer.
            seq: u64,
        },
        /// To [`Reply::Bring`].
        3 Brought {
            /// The connection.
            id: u64,
            /// There was room for it.
            taken: bool,
        },
        /// To [`Reply::Prepare`].
        4 Ready {
            /// The connection.
            id: u64,
            /// Nobody uses the descriptor any more.
            free: bool,
        },
        /// The whole connection is to be the kernel's; after [`Request::Raw`], all but what the
        /// program holds.
        5 Restore {
            /// The connection.
            id: u64,
        },
        /// To [`Reply::Stand`], with a memory file if there is anything: unread, then unsent.
        6 LeftBehind {
            /// The connection.
            id: u64,
            /// Bytes not read.
            unread: u32,
            /// Bytes not known to the engine.
            unsent: u32,
        },
        /// The program let go of a connection: told the engine so, or closed the socket.
        7 Close {
            /// The connection.
            id: u64,
        },
        /// Lists connections: [`Reply::Entry`] each, then [`Reply::Done`].
        8 List {
            /// A number for [`Reply::Done`].
            ask: u64,
        },
        /// Hands connections of programs over.
        9 Handoff {
            /// A number for [`Reply::Done`].
            ask: u64,
            /// Which.
            which: Selector,
        },
        /// Gives connections back to the kernel.
        10 Home {
            /// A number for [`Reply::Done`].
            ask: u64,
            /// Which.
            which: Selector,
        },
        /// Gives everything back, and ends.
        11 Stop {
            /// A number for [`Reply::Done`].
            ask: u64,
        },
        /// Starts the engine anew; connections wait in the kernel and come back.
        12 Upgrade {
            /// A number for [`Reply::Done`].
            ask: u64,
        },
        /// Asks for `TCP_INFO` of a connection that is in an engine: [`Reply::Info`].
        14 Info {
            /// The connection.
            id: u64,
        },
        /// A connection that is in the kernel is to have all of it: what the program holds
        /// since an engine died goes before what the socket has received, and behind what it
        /// is to send. With a memory file: unread, then unsent. [`Reply::Home`] or
        /// [`Reply::Stays`] follows; until then nobody uses the descriptor.
        13 PutBack {
            /// The connection.
            id: u64,
            /// Bytes not read.
            unread: u32,
            /// Bytes not written.
            unsent: u32,
        },
        /// Before the first adoption: this program's memory is to be for queue pairs of its
        /// own, not for streams. [`Reply::Refused`] if the service has no such memory to give.
        17 Raw {
            /// Of that memory.
            sizes: RawSizes,
        },
        /// Before the first adoption: this program drives engines itself, wherever an interface
        /// allows it. [`Reply::Welcome`] follows.
        18 Direct {},
        /// A service that ends with the processes that it is there for is to be there for this one,
        /// too.
        19 Join {
            /// A number for [`Reply::Done`].
            ask: u64,
        },
        /// Asks for events: [`Reply::Event`] each, then [`Reply::Done`], whose count is the number of
        /// the last event.
        20 Events {
            /// A number for [`Reply::Done`].
            ask: u64,
            /// Only those with a higher number.
            after: u64,
            /// The last ones, so many at most.
            most: u16,
        },
        /// To [`Reply::Restarted`]: the program has this connection.
        15 Has {
            /// The connection.
            id: u64,
        },
        /// To [`Reply::Restarted`]: the program waits for this adoption.
        16 Pending {
            /// Of [`Request::Adopt`].
            seq: u64,
        },
    }
}

messages! {
    /// What the broker says.
    pub enum Reply {
        /// To [`Request::Hello`], [`Request::Raw`] and [`Request::Direct`].
        1 Welcome {
            /// [`VERSION`].
            version: u32,
        },
        /// Memory shared with an engine: with its file, a doorbell to wake the engine, the
        /// completions' eventfd, and the pidfd of an engine that has a process of its own.
        2 Region {
            /// Its number.
            region: u32,
            /// Sizes, as of [`ConsumerConfig`]. After [`Request::Raw`] there are no stream
            /// buffers.
            sizes: Sizes,
        },
        /// An engine for the program to drive: with the channel by which it is directed, as in
        /// [`super::order`]. What it is to be waits there.
        15 Engine {},
        /// A connection comes, with a memory file of its two queues if they hold anything.
        3 Bring {
            /// Of [`Request::Adopt`]; 0 if it came by [`Reply::Prepare`].
            seq: u64,
            /// The connection's name from now on.
            id: u64,
            /// Where.
            region: u32,
            /// Bytes of its send queue.
            send: u32,
            /// Bytes of its receive queue.
            unread: u32,
            /// Our side has closed.
            shut: bool,
            /// What its peer was promised beyond, in bytes.
            window: u32,
        },
        /// It stays where it is, and is as it was.
        4 Stays {
            /// Of [`Request::Adopt`]; 0 for a connection that has a name.
            seq: u64,
            /// The connection.
            id: u64,
            /// Why: a word.
            code: String,
            /// Why: a sentence.
            text: String,
        },
        /// The engine is to have it: let nobody use its descriptor.
        5 Prepare {
            /// The connection.
            id: u64,
        },
        /// It stands still: what does the program hold of it?
        6 Stand {
            /// The connection.
            id: u64,
            /// Received bytes, those in the region included.
            rcv_pos: u64,
            /// Written bytes that the broker has read.
            tail_pos: u64,
        },
        /// It is in the kernel.
        7 Home {
            /// The connection.
            id: u64,
            /// Received bytes that are in the region, or were.
            rcv_pos: u64,
            /// Written bytes that the kernel has.
            tail_pos: u64,
            /// All is there: nothing is to be read or written from the region.
            whole: bool,
        },
        /// It has ended, or is lost.
        8 Gone {
            /// Of the adoption, if its program waits for one.
            seq: u64,
            /// The connection.
            id: u64,
            /// Why: empty if it ended by itself.
            text: String,
        },
        /// The engine of a region has died: it says nothing any more.
        9 Dead {
            /// Which.
            region: u32,
        },
        /// A connection of [`Request::List`].
        10 Entry {
            /// What is known of it.
            entry: Entry,
        },
        /// An event of [`Request::Events`].
        16 Event {
            /// What happened.
            event: Numbered,
        },
        /// The end of an answer.
        11 Done {
            /// The question's number.
            ask: u64,
            /// Connections that it was about.
            count: u64,
            /// Of them, those that did not move.
            failed: u64,
            /// The longest that one of them stood still, in microseconds.
            pause_us: u64,
        },
        /// To [`Request::Info`].
        13 Info {
            /// The connection.
            id: u64,
            /// What the engine says, in the kernel's layout; empty if it does not have it.
            bytes: Vec<u8>,
        },
        /// The program may not do this, or has done what makes no sense. The end.
        12 Refused {
            /// Why.
            text: String,
        },
        /// The broker died, and this is another: what was asked for is to be asked again.
        /// Connections are the same, by the same names. The program says which it has and
        /// which it waits for ([`Request::Has`], [`Request::Pending`]); where they are it is
        /// told as if they moved now.
        14 Restarted {},
    }
}

/// Sizes of a consumer, as the broker made its region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Bytes of a stream buffer, and how many there are.
    pub small: (u32, u32),
    /// The same of large ones.
    pub large: (u32, u32),
    /// Connections at most.
    pub connections: u32,
}

/// Bytes of a stream buffer at most.
const RING_MAX: u32 = 1 << 30;

impl Sizes {
    /// Of a consumer.
    pub fn of(config: &ConsumerConfig) -> Sizes {
        Sizes {
            small: (config.stream_buffer, config.stream_buffers),
            large: (config.large_buffer, config.large_buffers),
            connections: config.connections,
        }
    }

    /// Of a memory for queue pairs.
    pub fn of_raw(raw: RawSizes) -> Sizes {
        Sizes { small: (0, 0), large: (0, 0), connections: raw.connections }
    }

    /// As the consumer takes them; `None` if no consumer could be of such sizes.
    pub fn config(&self) -> Option<ConsumerConfig> {
        let Sizes { small: (small, smalls), large: (large, larges), connections } = *self;
        let is_ring = |bytes: u32| bytes.is_power_of_two() && bytes <= RING_MAX;
        let fit = is_ring(small) && (larges == 0 || is_ring(large) && large >= small);
        fit.then_some(ConsumerConfig {
            stream_buffer: small,
            stream_buffers: smalls,
            large_buffer: large,
            large_buffers: larges,
            connections,
        })
    }
}

/// Sizes of a memory for queue pairs of a program's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawSizes {
    /// Connections at most.
    pub connections: u32,
    /// Buffers posted in each direction of a connection at most: a power of two.
    pub queue_depth: u32,
    /// Bytes of registered memory.
    pub data_bytes: u64,
}

impl RawSizes {
    /// The region of these sizes.
    pub fn layout(&self) -> Layout {
        let RawSizes { connections: qps, queue_depth, data_bytes } = *self;
        Layout { qps, queue_depth, requests: 256, data_bytes }
    }
}

/// Connections of [`Request::Handoff`] and [`Request::Home`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selector {
    /// Every one.
    All,
    /// With this port on either end.
    Port(u16),
    /// The one of this name.
    Tuple(Tuple),
}

impl Selector {
    /// Whether it means the connection of this name.
    pub fn matches(&self, tuple: &Tuple) -> bool {
        match self {
            Selector::All => true,
            Selector::Port(port) => tuple.local_port == *port || tuple.remote_port == *port,
            Selector::Tuple(name) => name == tuple,
        }
    }
}

/// A connection, as `baton ps` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub tuple: Tuple,
    /// Where it is: `kernel`, `engine`, or what is being done with it.
    pub place: String,
    /// Why it is there: a word.
    pub why: String,
    /// The interface whose engine it was last in.
    pub interface: String,
    /// Its program's process id and user id.
    pub program: (u32, u32),
    /// Bytes sent and received in the engine.
    pub bytes: (u64, u64),
    /// Bytes a second, sent and received, as of the last second.
    pub rate: (u64, u64),
    /// Milliseconds since it is there.
    pub since_ms: u64,
    /// Times that it moved.
    pub moves: u64,
}

mod fields {
    use super::{Entry, RawSizes, Selector, Sizes};
    use crate::codec::Field;

    impl Field for Sizes {
        fn put(&self, out: &mut Vec<u8>) {
            (self.small, self.large).put(out);
            self.connections.put(out);
        }
        fn take(from: &mut &[u8]) -> Option<Sizes> {
            let (small, large) = Field::take(from)?;
            Some(Sizes { small, large, connections: Field::take(from)? })
        }
    }

    impl Field for RawSizes {
        fn put(&self, out: &mut Vec<u8>) {
            (self.connections, self.queue_depth).put(out);
            self.data_bytes.put(out);
        }
        fn take(from: &mut &[u8]) -> Option<RawSizes> {
            let (connections, queue_depth) = Field::take(from)?;
            Some(RawSizes { connections, queue_depth, data_bytes: Field::take(from)? })
        }
    }

    impl Field for Selector {
        fn put(&self, out: &mut Vec<u8>) {
            match self {
                Selector::All => out.push(0),
                Selector::Port(port) => (1u8, *port).put(out),
                Selector::Tuple(tuple) => (2u8, *tuple).put(out),
            }
        }
        fn take(from: &mut &[u8]) -> Option<Selector> {
            Some(match u8::take(from)? {
                0 => Selector::All,
                1 => Selector::Port(Field::take(from)?),
                2 => Selector::Tuple(Field::take(from)?),
                _ => return None,
            })
        }
    }

    impl Field for Entry {
        fn put(&self, out: &mut Vec<u8>) {
            (self.id, self.tuple).put(out);
            self.place.put(out);
            self.why.put(out);
            self.interface.put(out);
            self.program.put(out);
            (self.bytes, self.rate).put(out);
            (self.since_ms, self.moves).put(out);
        }
        fn take(from: &mut &[u8]) -> Option<Entry> {
            let (id, tuple) = Field::take(from)?;
            let (place, why) = Field::take(from)?;
            let (interface, program) = Field::take(from)?;
            let (bytes, rate) = Field::take(from)?;
            let (since_ms, moves) = Field::take(from)?;
            Some(Entry { id, tuple, place, why, interface, program, bytes, rate, since_ms, moves })
        }
    }
}
