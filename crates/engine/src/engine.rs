//! Both halves together: one thread drives them in turn, or two threads one each.

use crate::endpoint::{Endpoint, InterfaceConfig};
use crate::frame_io::{BURST, Capabilities, FrameIo, PortError};
use crate::ring::ring;
use crate::streamer::{ConsumerId, PostedReceive, Streamer, StreamerConfig};
use crate::tce::{Tce, TceConfig};
use crate::tuning::EngineTuning;
use baton_latency::{Clock, WatchMemory};
use baton_tcp::config::{Config, Prediction};
use baton_tcp::time::Instant;
use core::ops::Range;
use std::sync::Arc;

/// Settings of an engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineConfig {
    /// Addresses, gateways, MTU.
    pub interface: InterfaceConfig,
    /// TCP's choices.
    pub tcp: Config,
    /// The most connections, including half-open and TIME-WAIT ones.
    pub max_connections: u32,
    /// Entries of the order ring, a power of two of at least 128; the event ring
    /// holds twice as many.
    pub ring_entries: usize,
    /// The most bytes of slow-path payload parked, all connections together.
    pub reassembly_bytes: usize,
    /// The same for one connection.
    pub reassembly_bytes_per_connection: u32,
    /// Random bytes: initial sequence numbers, SYN cookies, hash key.
    pub secret: [u8; 32],
    /// The most frames taken from the port in one poll. Their acknowledgments go out after
    /// them, so with more the peer waits longer for each.
    pub rx_budget: usize,
    /// Segments that arrive together and are handled as one, at most (RA §3.3); below
    /// two, each is handled alone.
    pub coalesce: u16,
    /// Payload is copied and summed in one pass (LA §4.1); otherwise copied, then summed, to
    /// compare.
    pub one_pass: bool,
    /// Time to live, or hop limit, of segments whose connection does not say
    /// (RFC 9293 MUST-49).
    pub ttl: u8,
}

impl EngineConfig {
    /// Defaults for an interface. The secret has to be random wherever a peer is
    /// not trusted.
    pub fn new(interface: InterfaceConfig, secret: [u8; 32]) -> EngineConfig {
        EngineConfig::tuned(interface, secret, &EngineTuning::default())
    }

    /// The same with an administrator's choices, which have been checked. The most connections are
    /// rounded up to a power of two.
    pub fn tuned(interface: InterfaceConfig, secret: [u8; 32], tuning: &EngineTuning) -> EngineConfig {
        let EngineTuning { congestion, coalesce, acks, .. } = *tuning;
        EngineConfig {
            interface,
            tcp: Config::default().with(|tcp| (tcp.congestion, tcp.acks) = (congestion, acks)),
            max_connections: tuning.entries(),
            ring_entries: 1024,
            reassembly_bytes: 16 << 20,
            reassembly_bytes_per_connection: 256 << 10,
            secret,
            rx_budget: BURST,
            coalesce,
            one_pass: true,
            ttl: 64,
        }
    }
}

/// Work done by one poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Activity {
    /// Frames received.
    pub frames: usize,
    /// Events, timers, orders, doorbells and turns handled.
    pub steps: usize,
}

impl Activity {
    /// True if there was nothing to do.
    pub fn is_idle(&self) -> bool {
        self.frames == 0 && self.steps == 0
    }
}

/// A Streamer and its TCE on one thread. One cache serves both, so the Streamer prefetches what
/// the TCE will need for a segment along with its own memory.
pub struct Engine {
    streamer: Streamer,
    tce: Tce,
    rx_budget: usize,
}

impl Engine {
    /// An engine for a port with these capabilities.
    pub fn new(config: &EngineConfig, capabilities: Capabilities) -> Engine {
        let (events_in, events_out) = ring(2 * config.ring_entries);
        let (orders_in, orders_out) = ring(config.ring_entries);
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| config.secret[at + i]));
        let streamer = StreamerConfig {
            max_connections: config.max_connections,
            reassembly_bytes: config.reassembly_bytes,
            reassembly_bytes_per_connection: config.reassembly_bytes_per_connection,
            hash_key: [word(16), word(24)],
            coalesce: config.coalesce,
            header_prediction: config.tcp.prediction != Prediction::Off,
            one_pass: config.one_pass,
            ttl: config.ttl,
        };
        // A port that sums or cuts needs the checksum's place, and leaves nothing to save.
        let port_sums = capabilities.tx_checksum || capabilities.tx_gso_max > 0;
        let tce = TceConfig {
            tcp: config.tcp.clone().with(|tcp| tcp.unsummed &= !port_sums),
            max_connections: config.max_connections,
            mtu: capabilities.mtu.min(config.interface.mtu),
            secret: std::array::from_fn(|i| config.secret[i]),
        };
        let tce = Tce::new(tce, events_out, orders_in);
        let endpoint = Endpoint::new(config.interface.clone());
        let mut streamer = Streamer::new(streamer, endpoint, capabilities, events_in, orders_out);
        streamer.set_companion(Some(tce.companion()));
        Engine { streamer, tce, rx_budget: config.rx_budget }
    }

    /// Receives a burst, decides on it, and sends what follows from it. `ticks`
    /// reads the driver's clock for the TCE's busy and idle time; any unit.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    pub fn poll<P: FrameIo>(
        &mut self,
        now: Instant,
        port: &mut P,
        mut ticks: impl FnMut() -> u64,
    ) -> Result<Activity, PortError> {
        let frames = self.streamer.poll_receive(now, port, self.rx_budget)?;
        let steps = self.poll_send(now, port, &mut ticks)?;
        Ok(Activity { frames, steps })
    }

    /// As [`Engine::poll`]. The next bytes of one connection are placed in a buffer of its reader, as far as they
    /// fit ([`PostedReceive::placed`]).
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    pub fn poll_into<P: FrameIo>(
        &mut self,
        now: Instant,
        port: &mut P,
        mut ticks: impl FnMut() -> u64,
        to: &mut PostedReceive<'_>,
    ) -> Result<Activity, PortError> {
        let frames = self.streamer.poll_receive_into(now, port, self.rx_budget, to)?;
        let steps = self.poll_send(now, port, &mut ticks)?;
        Ok(Activity { frames, steps })
    }

    /// As [`Engine::poll`], but takes nothing from the port: for drivers that know that no
    /// frame waits. Returns what was handled.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    pub fn poll_send<P: FrameIo>(
        &mut self,
        now: Instant,
        port: &mut P,
        mut ticks: impl FnMut() -> u64,
    ) -> Result<usize, PortError> {
        let steps = self.tce.poll_timed(now, &mut ticks) + self.streamer.poll_transmit(now, port)?;
        // The TCE learns of the sent bytes before the next burst.
        Ok(steps + self.tce.poll_timed(now, &mut ticks))
    }

    /// The next moment at which [`Engine::poll`] has something to do, if nothing arrives
    /// before; a time in the past if there is something now.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        if self.streamer.has_work() || self.tce.has_work() {
            return Some(Instant(0));
        }
        match (self.streamer.next_deadline(), self.tce.next_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Addresses of the tables that hold a part of every connection. Each is one piece of
    /// memory with random accesses, so with many connections a segment mostly waits for address
    /// translation. A driver may ask the system to back them by large pages; before it adds
    /// connections, since pages in use do not move.
    pub fn tables(&self) -> [Range<usize>; 4] {
        let [flows, buckets] = self.streamer.tables();
        let [contexts, timers] = self.tce.tables();
        [flows, buckets, contexts, timers]
    }

    /// Bytes that a connection has sent at least once, since its stream began; `None` if
    /// the queue pair has none.
    pub fn sent_total(&self, id: ConsumerId, qp: u32) -> Option<u64> {
        self.streamer.connection(id, qp).map(|conn| self.streamer.sent_total(conn))
    }

    /// Makes a consumer's connections ones that can be watched: their spans go to `memory`, by `clock`. Then
    /// [`Streamer::watch_connection`] or [`Streamer::watch_all`] says which are.
    pub fn watch(&mut self, id: ConsumerId, memory: Arc<WatchMemory>, clock: Clock) {
        self.tce.watch(id.0, Some(memory.clone()), clock);
        self.streamer.watch(id, memory, clock);
    }

    /// Ends [`Engine::watch`].
    pub fn unwatch(&mut self, id: ConsumerId) {
        self.streamer.unwatch(id);
        self.tce.watch(id.0, None, || 1);
    }

    /// The data-moving half.
    pub fn streamer(&mut self) -> &mut Streamer {
        &mut self.streamer
    }

    /// The deciding half.
    pub fn tce(&mut self) -> &mut Tce {
        &mut self.tce
    }

    /// Splits the engine into its halves, for a thread each. The Streamer's thread calls
    /// [`Streamer::poll_receive`] and [`Streamer::poll_transmit`] in turn, the TCE's
    /// [`Tce::poll`].
    pub fn split(mut self) -> (Streamer, Tce) {
        // Another thread's cache is not to be filled by this one.
        self.streamer.set_companion(None);
        (self.streamer, self.tce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_tcp::config::{Acks, Congestion};

    #[test]
    fn an_engine_follows_every_choice() {
        let tuning =
            EngineTuning { connections: 100, congestion: Congestion::Reno, coalesce: 7, acks: Acks::EverySecond };
        let config = EngineConfig::tuned(InterfaceConfig::guest([2; 6], 1500), [0; 32], &tuning);
        assert_eq!((config.max_connections, config.tcp.congestion), (128, Congestion::Reno));
        assert_eq!((config.coalesce, config.tcp.acks), (7, Acks::EverySecond));
    }
}
