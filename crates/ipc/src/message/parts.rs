//! Parts of messages.

use baton_consumer::consumer::ConsumerConfig;
use baton_engine::region::Layout;
use baton_wire::addr::Tuple;

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

/// Why a connection is lost; `None` if it ended by itself. Messages have it as text, empty for `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss(pub Option<String>);

/// A connection that arrives at its program, and what it brings along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Number of the request to adopt it; 0 if the move began with `Prepare`.
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

/// Selects connections for the requests `Handoff` and `Home`.
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

/// Where a request hands connections over to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Destination {
    /// The engine of the interface that leads to the other end, or the program's own there.
    Engine,
    /// The memory that both ends' programs share, with the other end.
    Pair,
}

/// A program, by its process and user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramId {
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

/// A pair whose bytes a program reads along. Each field with two values has that of the first side first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowedPair {
    /// Number of the pair, which no other ever has.
    pub number: u64,
    /// Number of the link.
    pub link: u32,
    /// Its slot there.
    pub slot: u32,
    /// The tuple of the end at the first side.
    pub tuple: Tuple,
    /// The sequence number of the first byte that each end writes.
    pub seqs: (u32, u32),
    /// The scale of each end's window (RFC 7323); 0 if windows are not scaled.
    pub scales: (u8, u8),
    /// The programs of both ends.
    pub programs: (ProgramId, ProgramId),
    /// It has just begun, so nothing was missed.
    pub fresh: bool,
}

/// Bytes in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transferred {
    /// Sent by the program.
    pub sent: u64,
    /// Received for it.
    pub received: u64,
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
    /// The program that uses it.
    pub program: ProgramId,
    /// Bytes in the engine.
    pub bytes: Transferred,
    /// Bytes per second, over the last second.
    pub rate: Transferred,
    /// Milliseconds since it arrived at its location.
    pub since_ms: u64,
    /// Number of moves so far.
    pub moves: u64,
}
