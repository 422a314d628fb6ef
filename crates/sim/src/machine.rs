//! One engine of a host, with its port.
//!
//! Its halves get their turns as on one thread, or each at times of its own as on
//! two; a turn sees what had arrived by then, and no more.

use crate::config::HostConfig;
use crate::port::SimPort;
use baton_engine::engine::Engine;
use baton_engine::ledger::Ledger;
use baton_engine::region::{EngineRegion, Region};
use baton_engine::streamer::{ConsumerId, PostedReceive, Streamer};
use baton_engine::tce::Tce;
use baton_tcp::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

enum Driver {
    Whole(Box<Engine>),
    Halves(Box<Streamer>, Box<Tce>),
}

/// A clock for points of time, that no decision may depend on.
fn stamp() -> u64 {
    static STAMPS: AtomicU64 = AtomicU64::new(1);
    STAMPS.fetch_add(1, Ordering::Relaxed)
}

/// An engine with nothing to do yet, and its consumer.
fn start(config: &HostConfig, region: Arc<Region>) -> (Driver, Arc<Ledger>, ConsumerId) {
    let mut engine = Engine::new(&config.engine, config.port.capabilities);
    let consumer = engine.streamer().attach_consumer(EngineRegion::new(region));
    if let Some(memory) = &config.watch {
        engine.watch(consumer, memory.clone(), stamp);
        engine.streamer().watch_all(consumer).expect("it has memory, and no connection");
    }
    let ledger = Ledger::heap(config.engine.max_connections);
    engine.streamer().publish_to(ledger.clone());
    let driver = if config.two_threads {
        let (streamer, tce) = engine.split();
        Driver::Halves(Box::new(streamer), Box::new(tce))
    } else {
        Driver::Whole(Box::new(engine))
    };
    (driver, ledger, consumer)
}

/// An engine at work, for one consumer.
pub struct Machine {
    /// The port that connects it to its link.
    pub port: SimPort,
    driver: Driver,
    consumer: ConsumerId,
    /// Record of everything that its peers may have learned.
    pub ledger: Arc<Ledger>,
    inbox: Vec<Vec<u8>>,
    rx_budget: usize,
}

impl Machine {
    /// An engine with nothing to do yet, whose consumer's region this is.
    pub fn new(config: &HostConfig, region: Arc<Region>) -> Machine {
        let (driver, ledger, consumer) = start(config, region);
        let mut port = SimPort::new(config.port);
        port.ledger = Some(ledger.clone());
        Machine { port, driver, consumer, ledger, inbox: Vec::new(), rx_budget: config.engine.rx_budget }
    }

    /// The engine dies; what it had given to its port goes out. Another begins. The
    /// dead one's ledger.
    pub fn die(&mut self, config: &HostConfig, region: Arc<Region>) -> Arc<Ledger> {
        let (driver, ledger, consumer) = start(config, region);
        (self.driver, self.consumer) = (driver, consumer);
        self.port.ledger = Some(ledger.clone());
        std::mem::replace(&mut self.ledger, ledger)
    }

    /// A frame arrived.
    pub fn arrive(&mut self, frame: Vec<u8>) {
        self.inbox.push(frame);
    }

    /// True if every frame that arrived was taken.
    pub fn is_drained(&self) -> bool {
        self.inbox.is_empty() && !self.port.has_received()
    }

    /// The engine's turn, or its Streamer's.
    pub fn turn_streamer(&mut self, now: Instant) {
        // No connection has this queue pair.
        self.turn_streamer_into(now, u32::MAX, 0, &mut []);
    }

    /// The same with a buffer for the bytes of a queue pair's stream from `position` on. Returns how many it holds.
    pub fn turn_streamer_into(&mut self, now: Instant, qp: u32, position: u64, buf: &mut [u8]) -> usize {
        self.port.arrive(self.inbox.drain(..));
        let budget = self.rx_budget;
        let mut posted = PostedReceive { consumer: self.consumer, qp, position, buf, placed: 0 };
        let result = match &mut self.driver {
            Driver::Whole(engine) => engine.poll_into(now, &mut self.port, || 0, &mut posted).map(|_| ()),
            Driver::Halves(streamer, _) => streamer
                .poll_receive_into(now, &mut self.port, budget, &mut posted)
                .and_then(|_| streamer.poll_transmit(now, &mut self.port))
                .map(|_| ()),
        };
        result.expect("a simulated port never fails");
        posted.placed
    }

    /// The TCE's turn, if it has turns of its own.
    pub fn turn_tce(&mut self, now: Instant) {
        if let Driver::Halves(_, tce) = &mut self.driver {
            tce.poll(now);
        }
    }

    /// When the engine, or its Streamer, wants its next turn.
    pub fn streamer_wants(&mut self, now: Instant) -> Option<Instant> {
        if self.port.has_received() || self.port.has_sent() {
            return Some(now);
        }
        match &mut self.driver {
            Driver::Whole(engine) => engine.next_deadline(),
            Driver::Halves(streamer, _) => {
                if streamer.has_work() {
                    Some(now)
                } else {
                    streamer.next_deadline()
                }
            }
        }
    }

    /// When the TCE wants its next turn, if it has turns of its own.
    pub fn tce_wants(&mut self, now: Instant) -> Option<Instant> {
        match &mut self.driver {
            Driver::Whole(_) => None,
            Driver::Halves(_, tce) => {
                if tce.has_work() {
                    Some(now)
                } else {
                    tce.next_deadline()
                }
            }
        }
    }

    /// True if there is no connection, and nothing waits between the halves.
    pub fn is_at_rest(&mut self) -> bool {
        self.tce().connections() == 0 && !self.tce().has_work() && !self.streamer().has_work()
    }

    /// The data-moving half.
    pub fn streamer(&mut self) -> &mut Streamer {
        match &mut self.driver {
            Driver::Whole(engine) => engine.streamer(),
            Driver::Halves(streamer, _) => streamer,
        }
    }

    /// The deciding half.
    pub fn tce(&mut self) -> &mut Tce {
        match &mut self.driver {
            Driver::Whole(engine) => engine.tce(),
            Driver::Halves(_, tce) => tce,
        }
    }
}
