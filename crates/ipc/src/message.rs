//! Messages between programs and the broker.
//!
//! ```text
//!  program                                broker
//!  Adopt + socket                 -->     may it move? frames held, socket captured
//!                                 <--     Region + memory, doorbell, completions  (once)
//!                                 <--     Bring + the two queues
//!  Brought                        -->     the engine adopts
//!          (the engine says Adopted in the region)
//!
//!  Restore                        -->     the engine suspends
//!                                 <--     Stand
//!  LeftBehind + what it holds     -->     rebuilt, resumed
//!                                 <--     Home
//! ```
//!
//! *Positions.* The streams of a queue pair have positions. `Home` says up to which position
//! received bytes are still in the region (`rcv_pos`), and up to which position the kernel has the
//! written bytes (`tail_pos`). The program first reads the bytes before `rcv_pos` from the region,
//! and first writes the bytes after `tail_pos` to the kernel. So nothing has to stop while the
//! broker counts, and each byte counts once, whichever process is killed.
//!
//! After an engine has died, the program holds some bytes. If it wants a plain socket again, it
//! passes them to the kernel later (`PutBack`).
//!
//! *Death of the broker.* A request is consumed once it has been carried out; otherwise the next
//! broker receives it again. Replies that the program had not read are sent again.
//!
//! A connection that returns to the kernel without a request (because of an engine that died, a
//! stop or an administrator) gets only a `Home`. A connection that moves to the engine again gets a
//! `Prepare` first.

mod fields;

use crate::load::Past;
use crate::messages;
use baton_consumer::consumer::ConsumerConfig;
use baton_engine::region::Layout;
use baton_journal::Numbered;
use baton_wire::addr::Tuple;

messages! {
    /// A message of a program.
    pub enum Request {
        /// First message on the channel.
        1 Hello {
            /// The oldest version of the protocol that the program speaks ([`crate::version`]).
            oldest: u32,
            /// The newest one.
            newest: u32,
        },
        /// Hands over the connection of the attached socket.
        2 Adopt {
            /// Number that the answer repeats.
            seq: u64,
        },
        /// As [`Request::Adopt`], with what only the program knows (version 2).
        21 Offer {
            /// Number that the answer repeats.
            seq: u64,
            /// The connection's history.
            told: Told,
            /// If the program's own engines keep the connection's frames already: its addresses and
            /// ports as the frames have them, and the number of the last engine that the program had
            /// heard of ([`Reply::LocalEngine`]).
            held: Option<(Tuple, u64)>,
        },
        /// Answers [`Reply::Bring`].
        3 Brought {
            /// The broker's number of the connection.
            id: u64,
            /// True if the program had space for it.
            taken: bool,
        },
        /// Answers [`Reply::Prepare`].
        4 Ready {
            /// The broker's number of the connection.
            id: u64,
            /// True if nobody uses the descriptor any more.
            free: bool,
        },
        /// Asks for the whole connection to be restored to the kernel. After [`Request::Raw`], the
        /// bytes that the program holds are excepted.
        5 Restore {
            /// The broker's number of the connection.
            id: u64,
        },
        /// Answers [`Reply::Stand`]. If there are bytes, a memory file holds first those not read,
        /// then those not sent.
        6 LeftBehind {
            /// The broker's number of the connection.
            id: u64,
            /// Number of bytes not read.
            unread: u32,
            /// Number of bytes that the engine does not know of.
            unsent: u32,
        },
        /// The program has closed a connection: through the engine, or by closing the socket.
        7 Close {
            /// The broker's number of the connection.
            id: u64,
        },
        /// Asks for a list of connections: one [`Reply::Entry`] each, then [`Reply::Done`].
        8 List {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Asks for the loads of the engines: [`Reply::Load`]s, oldest first, then [`Reply::Done`].
        22 Loads {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Hands over connections of programs.
        9 Handoff {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
            /// The connections to move.
            which: Selector,
        },
        /// Restores connections to the kernel.
        10 Home {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
            /// The connections to move.
            which: Selector,
        },
        /// Restores all connections to the kernel and ends the service.
        11 Stop {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Restarts the engine. Connections wait in the kernel and then return to it.
        12 Upgrade {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Asks for `TCP_INFO` of a connection that is in an engine; [`Reply::Info`] answers.
        14 Info {
            /// The broker's number of the connection.
            id: u64,
        },
        /// Inserts the bytes that the program has held since an engine died into the socket's
        /// queues: unread bytes before those that it has received, unsent bytes after those that it
        /// has to send. A memory file holds first the unread, then the unsent bytes.
        /// [`Reply::Home`] or [`Reply::Stays`] follows; until then nobody uses the descriptor.
        13 PutBack {
            /// The broker's number of the connection.
            id: u64,
            /// Number of bytes not read.
            unread: u32,
            /// Number of bytes not written.
            unsent: u32,
        },
        /// Sent before the first adoption: this program wants memory for its own queue pairs, not
        /// for streams. [`Reply::Refused`] if the service offers no such memory.
        17 Raw {
            /// Sizes of that memory.
            sizes: RawSizes,
        },
        /// Sent before the first adoption: this program drives engines itself where an interface
        /// allows it. [`Reply::Welcome`] follows.
        18 Direct {},
        /// Adds this process to those whose end a service waits for.
        19 Join {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Asks for events: [`Reply::Event`] each, then [`Reply::Done`], whose count is the number of
        /// the last event.
        20 Events {
            /// A number for [`Reply::Done`].
            ask: u64,
            /// Only those with a higher number.
            after: u64,
            /// At most this many, the last ones.
            most: u16,
        },
        /// Replaces the policy by the text in a memory file; without, the service reads its own file.
        24 Reload {
            /// Number that [`Reply::Done`] or [`Reply::Failed`] repeats.
            ask: u64,
            /// Length of the text in bytes.
            len: u32,
        },
        /// Asks for the service's policy: [`Reply::Policy`], then [`Reply::Done`].
        23 Policy {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Answers [`Reply::Restarted`]: the program has this connection.
        15 Has {
            /// The broker's number of the connection.
            id: u64,
        },
        /// Answers [`Reply::Restarted`]: the program waits for this adoption.
        16 Pending {
            /// Number of the [`Request::Adopt`].
            seq: u64,
        },
    }
}

messages! {
    /// A message of the broker.
    pub enum Reply {
        /// Answers [`Request::Hello`], [`Request::Raw`] and [`Request::Direct`].
        1 Welcome {
            /// The version that both speak from now on.
            version: u32,
        },
        /// Announces memory shared with an engine. The descriptors are its file, the doorbell that
        /// wakes the engine, the eventfd for completions, and the pidfd of an engine that has its
        /// own process.
        2 Region {
            /// Number of the region.
            region: u32,
            /// Sizes of its [`ConsumerConfig`]. After [`Request::Raw`] there are no stream buffers.
            sizes: Sizes,
        },
        /// Gives the program an engine to drive. The descriptor is its control channel
        /// ([`super::order`]), on which its configuration is waiting.
        15 Engine {},
        /// As [`Reply::Engine`], with the engine's number, which is higher than those of all before
        /// (version 2).
        17 LocalEngine {
            /// The engine's number.
            engine: u64,
        },
        /// A connection arrives for an engine in the program, which is to adopt it at once
        /// (version 2). The engine answers: [`Report::Adopted`](crate::order::Report::Adopted) or
        /// [`Report::NotAdopted`](crate::order::Report::NotAdopted). In both cases the program has
        /// the bytes that come along.
        18 BringToEngine {
            /// The connection, as in [`Reply::Bring`].
            incoming: Incoming,
            /// The encoded [`Order::Adopt`](crate::order::Order::Adopt).
            order: Vec<u8>,
        },
        /// A connection arrives. If its two queues hold bytes, a memory file holds them.
        3 Bring {
            /// The connection and what it brings along.
            incoming: Incoming,
        },
        /// A connection stays where it was, in its previous state.
        4 Stays {
            /// Number of the [`Request::Adopt`]; 0 for a connection that has an id.
            seq: u64,
            /// The broker's number of the connection.
            id: u64,
            /// Reason code.
            code: String,
            /// Reason as a sentence.
            text: String,
        },
        /// Prepares for a move to the engine: nobody may use the descriptor from now on.
        5 Prepare {
            /// The broker's number of the connection.
            id: u64,
        },
        /// The connection is suspended. Asks for the bytes that the program holds.
        6 Stand {
            /// The broker's number of the connection.
            id: u64,
            /// Position up to which bytes were received, including those in the region.
            rcv_pos: u64,
            /// Position up to which the broker has read the written bytes.
            tail_pos: u64,
        },
        /// The connection is in the kernel.
        7 Home {
            /// The broker's number of the connection.
            id: u64,
            /// Position up to which received bytes are, or were, in the region.
            rcv_pos: u64,
            /// Position up to which the kernel has the written bytes.
            tail_pos: u64,
            /// True if the kernel has everything, so nothing is to be read or written from the
            /// region.
            whole: bool,
        },
        /// The connection has ended or is lost.
        8 Gone {
            /// Number of the adoption, if the program waits for one.
            seq: u64,
            /// The broker's number of the connection.
            id: u64,
            /// Reason; empty if it ended normally.
            text: String,
        },
        /// The engine of a region has died. Nothing more happens there.
        9 Dead {
            /// Number of the region.
            region: u32,
        },
        /// One connection in answer to [`Request::List`].
        10 Entry {
            /// State of one connection.
            entry: Entry,
        },
        /// The load of an engine at one time, in answer to [`Request::Loads`].
        19 Load {
            /// The engine's name: its interface.
            engine: String,
            /// The load, and when it was measured.
            past: Past,
        },
        /// An event of [`Request::Events`].
        16 Event {
            /// The event with its number.
            event: Numbered,
        },
        /// The service's policy, as text in a memory file.
        22 Policy {
            /// Length of the text in bytes.
            len: u32,
        },
        /// The request cannot be carried out, and nothing has changed.
        20 Failed {
            /// Number of the request.
            ask: u64,
            /// The reason as a sentence, with a remedy.
            text: String,
        },
        /// The rule for a connection that is about to arrive: its program applies `Rule::keeps`.
        21 Ruled {
            /// The broker's number of the connection.
            id: u64,
            /// The rule as text.
            rule: String,
        },
        /// End of an answer.
        11 Done {
            /// Number of the request.
            ask: u64,
            /// Number of selected connections.
            count: u64,
            /// How many of those did not move.
            failed: u64,
            /// Longest time that one of them was stopped, in microseconds.
            pause_us: u64,
        },
        /// Answers [`Request::Info`].
        13 Info {
            /// The broker's number of the connection.
            id: u64,
            /// The engine's `TCP_INFO` in the kernel's layout; empty if the engine does not have
            /// the connection.
            bytes: Vec<u8>,
        },
        /// The program may not do this, or has violated the protocol. Last message.
        12 Refused {
            /// The reason as a sentence.
            text: String,
        },
        /// The broker died and a new one took over. Open requests must be repeated. Connections
        /// keep their ids. The program reports its connections and pending adoptions
        /// ([`Request::Has`], [`Request::Pending`]). The broker then sends their locations as if
        /// they had just moved.
        14 Restarted {},
    }
}

/// A connection's history as its program knows it, for the service's policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// True if the program accepted it, false if it connected; `None` if it does not know.
    pub accepted: Option<bool>,
    /// Microseconds since it was established.
    pub age_us: Option<u64>,
    /// The program's requests to send.
    pub sends: Option<u64>,
}

/// A connection that arrives at its program, and what it brings along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Number of the [`Request::Adopt`]; 0 if the move began with [`Reply::Prepare`].
    pub seq: u64,
    /// Id of the connection from now on.
    pub id: u64,
    /// Region of the connection.
    pub region: u32,
    /// Number of bytes in its send queue.
    pub send: u32,
    /// Number of bytes in its receive queue.
    pub unread: u32,
    /// This side has shut down sending.
    pub shut: bool,
    /// How many further bytes the peer's window allows it to send.
    pub window: u32,
}

/// Sizes of a consumer's region, as the broker made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Size of a stream buffer in bytes.
    pub stream_buffer: u32,
    /// Number of stream buffers.
    pub stream_buffers: u32,
    /// Size of a large stream buffer in bytes.
    pub large_buffer: u32,
    /// Number of large stream buffers.
    pub large_buffers: u32,
    /// Most connections.
    pub connections: u32,
}

/// Largest stream buffer in bytes.
const RING_MAX: u32 = 1 << 30;

impl Sizes {
    /// Returns the sizes of a consumer with this configuration.
    pub fn of(config: &ConsumerConfig) -> Sizes {
        let ConsumerConfig { stream_buffer, stream_buffers, large_buffer, large_buffers, connections, .. } = *config;
        Sizes { stream_buffer, stream_buffers, large_buffer, large_buffers, connections }
    }

    /// Returns the sizes of a memory for queue pairs.
    pub fn of_raw(raw: RawSizes) -> Sizes {
        let connections = raw.connections;
        Sizes { stream_buffer: 0, stream_buffers: 0, large_buffer: 0, large_buffers: 0, connections }
    }

    /// Returns the consumer's configuration; `None` if these sizes are not valid for any consumer.
    pub fn config(&self) -> Option<ConsumerConfig> {
        let Sizes { stream_buffer, stream_buffers, large_buffer, large_buffers, connections } = *self;
        let is_ring = |bytes: u32| bytes.is_power_of_two() && bytes <= RING_MAX;
        let fit =
            is_ring(stream_buffer) && (large_buffers == 0 || is_ring(large_buffer) && large_buffer >= stream_buffer);
        let (small, large) = ((stream_buffer, stream_buffers), (large_buffer, large_buffers));
        fit.then(|| ConsumerConfig::new(connections, small, large))
    }
}

/// Sizes of a memory for a program's own queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawSizes {
    /// Most connections.
    pub connections: u32,
    /// Most buffers posted in each direction of a connection: a power of two.
    pub queue_depth: u32,
    /// Size of the registered memory in bytes.
    pub data_bytes: u64,
}

impl RawSizes {
    /// Returns the layout of a region of these sizes.
    pub fn layout(&self) -> Layout {
        let RawSizes { connections: qps, queue_depth, data_bytes } = *self;
        Layout { qps, queue_depth, requests: 256, data_bytes }
    }
}

/// Selects connections for [`Request::Handoff`] and [`Request::Home`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Selector {
    /// Every connection.
    All,
    /// Connections with this port on either end.
    Port(u16),
    /// The connection of this tuple.
    Tuple(Tuple),
}

impl Selector {
    /// True if the connection of this tuple is selected.
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
    /// Id of the connection.
    pub id: u64,
    /// Its addresses and ports.
    pub tuple: Tuple,
    /// Its location: `kernel`, `engine`, or the step of its move.
    pub place: String,
    /// Reason code for its location.
    pub why: String,
    /// Interface whose engine had it last.
    pub interface: String,
    /// Process id and user id of its program.
    pub program: (u32, u32),
    /// Bytes sent and received in the engine.
    pub bytes: (u64, u64),
    /// Bytes per second sent and received, over the last second.
    pub rate: (u64, u64),
    /// Milliseconds since it arrived at its location.
    pub since_ms: u64,
    /// Number of moves so far.
    pub moves: u64,
}
