//! A simulated host: the real engine, a port, and a program.
//!
//! The engine's halves get their turns as on one thread, or each at times of its
//! own as on two; a turn sees what had arrived by then, and no more.

use crate::app::App;
use crate::port::{PortConfig, SimPort};
use baton_engine::engine::{Engine, EngineConfig};
use baton_engine::region::{ConsumerRegion, EngineRegion, Layout, LayoutError, Region};
use baton_engine::streamer::Streamer;
use baton_engine::tce::Tce;
use baton_tcp::time::{Duration, Instant};

/// What a host is like.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its engine.
    pub engine: EngineConfig,
    /// Its port.
    pub port: PortConfig,
    /// Streamer and TCE have turns of their own, as on two threads.
    pub two_threads: bool,
    /// Longest time from an arrival or an order to the turn that sees it.
    pub wake: Duration,
    /// Longest time from a completion to the program's turn.
    pub program: Duration,
    /// Frames that leave the port in one turn, at most.
    pub carry: usize,
    /// Send and receive buffer of each connection, in bytes.
    pub buffers: (u32, u32),
    /// Queue pairs of the program.
    pub qps: u32,
    /// Extents in each of their queues.
    pub queue_depth: u32,
}

/// Who gets a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The whole engine, or its Streamer if the TCE has turns of its own.
    Streamer,
    /// The TCE.
    Tce,
    /// The program.
    App,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Streamer, Part::Tce, Part::App];
}

enum Driver {
    Whole(Box<Engine>),
    Halves(Box<Streamer>, Box<Tce>),
}

/// A host at work.
pub struct Host {
    /// What it is like.
    pub config: HostConfig,
    /// Its program.
    pub app: App,
    /// Its port.
    pub port: SimPort,
    driver: Driver,
    inbox: Vec<Vec<u8>>,
    /// The next turn of each part, if it is planned.
    pub planned: [Option<Instant>; Part::ALL.len()],
}

impl Host {
    /// The client's host, or the server's, with nothing to do yet.
    ///
    /// # Errors
    /// If the layout of its region cannot be.
    pub fn new(client: bool, config: HostConfig) -> Result<Host, LayoutError> {
        let (send, receive) = config.buffers;
        let layout = Layout {
            qps: config.qps,
            queue_depth: config.queue_depth,
            requests: 64,
            data_bytes: u64::from(config.qps) * u64::from(send + receive),
        };
        let region = Region::heap(layout)?;
        let mut engine = Engine::new(&config.engine, config.port.capabilities);
        engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
        let driver = if config.two_threads {
            let (streamer, tce) = engine.split();
            Driver::Halves(Box::new(streamer), Box::new(tce))
        } else {
            Driver::Whole(Box::new(engine))
        };
        Ok(Host {
            app: App::new(client, ConsumerRegion::new(region), config.buffers),
            port: SimPort::new(config.port),
            driver,
            inbox: Vec::new(),
            planned: [None; Part::ALL.len()],
            config,
        })
    }

    /// A frame arrived from the link.
    pub fn arrive(&mut self, frame: Vec<u8>) {
        self.inbox.push(frame);
    }

    /// The engine's turn, or its Streamer's.
    pub fn turn_streamer(&mut self, now: Instant) {
        self.port.arrive(self.inbox.drain(..));
        let budget = self.config.engine.rx_budget;
        let result = match &mut self.driver {
            Driver::Whole(engine) => engine.poll(now, &mut self.port, || 0).map(|_| ()),
            Driver::Halves(streamer, _) => streamer
                .poll_receive(now, &mut self.port, budget)
                .and_then(|_| streamer.poll_transmit(now, &mut self.port))
                .map(|_| ()),
        };
        result.expect("a simulated port never fails");
    }

    /// The TCE's turn, if it has turns of its own.
    pub fn turn_tce(&mut self, now: Instant) {
        if let Driver::Halves(_, tce) = &mut self.driver {
            tce.poll(now);
        }
    }

    /// When a part wants its next turn; a moment that has passed if at once.
    pub fn wants(&mut self, part: Part, now: Instant) -> Option<Instant> {
        match part {
            Part::App if self.app.has_completion() => Some(now),
            Part::App => self.app.alarm(now),
            Part::Streamer if self.port.has_received() || self.port.has_sent() => Some(now),
            Part::Streamer => match &mut self.driver {
                Driver::Whole(engine) => engine.next_deadline(),
                Driver::Halves(streamer, _) => {
                    if streamer.has_work() {
                        Some(now)
                    } else {
                        streamer.next_deadline()
                    }
                }
            },
            Part::Tce => match &mut self.driver {
                Driver::Whole(_) => None,
                Driver::Halves(_, tce) => {
                    if tce.has_work() {
                        Some(now)
                    } else {
                        tce.next_deadline()
                    }
                }
            },
        }
    }

    /// There is no connection, and nothing on its way between the halves.
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
