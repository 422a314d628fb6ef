//! Queue pairs for message consumers: the program chooses its buffers and posts them one by one,
//! with a completion for each (LC §3.4).
//!
//! The stream's bytes move directly from and to registered memory: a posted receive buffer is
//! filled in place, in order or out of order, and a posted send buffer is read in place until the
//! peer has acknowledged it.
//!
//! ```text
//!   post_receive --> |  r0  |  r1  |  r2  |   each filled in turn;
//!                    '------'------'------'   Received when full, or at the end
//!   post_send    --> |  s0  |  s1  |          Sent when acknowledged
//! ```
//!
//! A receive is complete when its buffer is full. [`QueuePairs::received`] counts bytes that have
//! arrived before that. Data without a posted buffer waits in the engine's bounded reassembly area,
//! and then at the sender.
//!
//! ```
//! # use baton_engine::endpoint::InterfaceConfig;
//! # use baton_engine::engine::{Engine, EngineConfig};
//! # use baton_engine::region::{EngineRegion, Layout};
//! # use baton_port::memory::{MemoryOptions, MemoryPort};
//! # use baton_engine::frame_io::FrameIo;
//! # use baton_consumer::memory::Memory;
//! # use baton_consumer::secret::random_secret;
//! use baton_consumer::qp::{QpEvent, QueuePairs};
//! # use baton_tcp::time::Instant;
//!
//! # let layout = Layout { qps: 4, queue_depth: 8, requests: 16, data_bytes: 1 << 16 };
//! # let (mut port_a, mut port_b) = MemoryPort::pair(MemoryOptions::default());
//! # let make = |number: u8, port: &MemoryPort| {
//! #     let address = format!("10.0.0.{number}/24").parse().unwrap();
//! #     let interface = InterfaceConfig::ethernet([2, 0, 0, 0, 0, number], vec![address]);
//! #     let mut engine = Engine::new(&EngineConfig::new(interface, random_secret()), port.capabilities());
//! #     let (region, _) = Memory::Heap.region(layout).unwrap();
//! #     engine.streamer().attach_consumer(EngineRegion::new(region.clone()));
//! #     (engine, QueuePairs::new(region))
//! # };
//! # let (mut engine_a, mut a) = make(1, &port_a);
//! # let (mut engine_b, mut b) = make(2, &port_b);
//! // `a` and `b` are the consumers of two engines on one wire.
//! b.listen("10.0.0.2:7".parse().unwrap(), 16, 1).unwrap();
//! # for n in 0..4 { engine_b.poll(Instant(n), &mut port_b, || 0).unwrap(); }
//! a.connect("10.0.0.2:7".parse().unwrap(), 2).unwrap();
//! let mut message = None;
//! # let mut now = 1000;
//! while message.is_none() {
//! #     now += 50_000;
//! #     engine_a.poll(Instant(now), &mut port_a, || 0).unwrap();
//! #     engine_b.poll(Instant(now), &mut port_b, || 0).unwrap();
//! #     assert!(now < 10_000_000_000, "no message came");
//!     while let Some(event) = a.poll() {
//!         if let QpEvent::Established { qp } = event {
//!             // Registered memory, by offset: 5 bytes from 100 on.
//!             let buffer = a.extent(100, 5).unwrap();
//!             a.write(buffer, b"hello");
//!             a.post_send(qp, buffer, 71).unwrap();
//!         }
//!     }
//!     while let Some(event) = b.poll() {
//!         match event {
//!             QpEvent::Accepted { qp, .. } => {
//!                 let buffer = b.extent(4000, 5).unwrap();
//!                 b.post_receive(qp, buffer, 72).unwrap();
//!             }
//!             QpEvent::Received { id: 72, buffer, .. } => {
//!                 let mut bytes = [0; 5];
//!                 b.read(buffer, &mut bytes);
//!                 message = Some(bytes);
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!(&message.unwrap(), b"hello");
//! ```

mod passage;

use baton_engine::options;
use baton_engine::region::{
    Completion, ConsumerRegion, Events, Extent, Identity, PostError, Queue, Region, Request, RequestError,
};
use baton_wire::addr::Addr;
use passage::Parted;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// An event of a queue pair, or of a request to open one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QpEvent {
    /// A request got its queue pair: a listener is listening, or a connection is being opened
    /// (`Established` or `Closed` follows).
    Opened {
        /// The queue pair.
        qp: u32,
        /// Token of the request.
        token: u64,
    },
    /// A request failed.
    Failed {
        /// Token of the request.
        token: u64,
        /// The reason as an errno.
        errno: u32,
    },
    /// A connection arrived from another stack. Its queued bytes must be posted first, with
    /// [`QueuePairs::post_brought`].
    Adopted {
        /// The connection's queue pair.
        qp: u32,
        /// Token of the adoption.
        token: u64,
    },
    /// A listener completed a connection.
    Accepted {
        /// The connection's queue pair.
        qp: u32,
        /// The listener's queue pair.
        listener: u32,
    },
    /// A connect completed.
    Established {
        /// The queue pair.
        qp: u32,
    },
    /// A buffer is free: its bytes were acknowledged, or never will be.
    Sent {
        /// The queue pair.
        qp: u32,
        /// The id that it was posted with.
        id: u64,
        /// True if the peer acknowledged every byte.
        acknowledged: bool,
    },
    /// A buffer is free: it is full, or no more bytes will arrive.
    Received {
        /// The queue pair.
        qp: u32,
        /// The id that it was posted with.
        id: u64,
        /// The received bytes; may be empty at the end.
        buffer: Extent,
    },
    /// The peer has finished sending.
    PeerFinished {
        /// The queue pair.
        qp: u32,
    },
    /// The connection has ended. Close the queue pair.
    Closed {
        /// The queue pair.
        qp: u32,
        /// The reason as an errno; 0 for a normal end.
        errno: u32,
    },
    /// The queue pair was closed and belongs to the engine again.
    Released {
        /// The queue pair.
        qp: u32,
    },
}

/// A posted buffer.
#[derive(Clone, Copy, Debug)]
struct Posted {
    id: u64,
    buffer: Extent,
    /// Stream position after its last byte.
    end: u64,
    /// The program filled this buffer itself, so its completion is not reported.
    told: bool,
}

impl Posted {
    /// Returns its bytes at and after stream position `from`.
    fn after(&self, from: u64) -> Extent {
        let begun = self.end - u64::from(self.buffer.len());
        let done = from.saturating_sub(begun).min(self.buffer.len().into()) as u32;
        self.buffer.part(done, u32::MAX)
    }
}

/// One direction of a queue pair.
#[derive(Debug, Default)]
struct Direction {
    posted: VecDeque<Posted>,
    /// Number of the next extent.
    next: u32,
    /// Stream position after the last one.
    end: u64,
}

impl Direction {
    /// Removes the oldest buffer if the stream has passed it.
    fn pop_done(&mut self, position: u64) -> Option<Posted> {
        self.posted.front().filter(|posted| posted.end <= position)?;
        self.posted.pop_front()
    }
}

/// A queue pair as its consumer sees it.
#[derive(Debug, Default)]
struct Pair {
    send: Direction,
    receive: Direction,
    /// The receive stream has ended.
    ended: bool,
    /// The connection moved to another stack.
    moved: bool,
    /// The consumer knows that it moved, and has released it.
    left: bool,
    /// The engine was asked to close it.
    closed: bool,
}

impl Pair {
    /// Frees the receive buffers: nothing is received after stream position `rcv_done`.
    fn end_receive(&mut self, qp: u32, rcv_done: u64, events: &mut VecDeque<QpEvent>) {
        for posted in self.receive.posted.drain(..).filter(|posted| !posted.told) {
            let missing = posted.after(rcv_done).len();
            let buffer = posted.buffer.part(0, posted.buffer.len() - missing);
            events.push_back(QpEvent::Received { qp, id: posted.id, buffer });
        }
    }

    /// Frees the send buffers: nothing more is sent.
    fn end_send(&mut self, qp: u32, events: &mut VecDeque<QpEvent>) {
        let free = self.send.posted.drain(..);
        events.extend(free.map(|Posted { id, .. }| QpEvent::Sent { qp, id, acknowledged: false }));
    }
}

/// The queue pairs of one consumer.
pub struct QueuePairs {
    region: ConsumerRegion,
    pairs: Vec<Option<Box<Pair>>>,
    events: VecDeque<QpEvent>,
    /// Queue pairs to be closed, because their connections have moved away.
    leaving: Vec<u32>,
    /// Buffers that were posted on queue pairs that the engine has again, until the connection's
    /// new location is known.
    parted: VecDeque<Parted>,
}

impl QueuePairs {
    /// Makes the queue pairs of a region, all of them unused.
    pub fn new(region: Arc<Region>) -> QueuePairs {
        QueuePairs {
            region: ConsumerRegion::new(region),
            pairs: Vec::new(),
            events: VecDeque::new(),
            leaving: Vec::new(),
            parted: VecDeque::new(),
        }
    }

    /// The consumer's side of the region, for the sleep and wake flags.
    pub fn region(&self) -> &ConsumerRegion {
        &self.region
    }

    /// Requests a connection. `Opened` or `Failed` follows.
    ///
    /// # Errors
    /// [`RequestError::Full`]: poll and try again.
    pub fn connect(&self, remote: SocketAddr, token: u64) -> Result<(), RequestError> {
        self.region.request(&Request::Connect {
            token,
            local: Addr::UNSPECIFIED,
            local_port: 0,
            remote: remote.ip().into(),
            remote_port: remote.port(),
            options: options::NODELAY,
        })
    }

    /// Requests a listener. `Opened` or `Failed` follows.
    ///
    /// # Errors
    /// [`RequestError::Full`]: poll and try again.
    pub fn listen(&self, addr: SocketAddr, backlog: u32, token: u64) -> Result<(), RequestError> {
        let (local, local_port) = (addr.ip().into(), addr.port());
        self.region.request(&Request::Listen { token, local, local_port, backlog, options: options::NODELAY })
    }

    /// Shuts down the sending direction after the posted bytes.
    ///
    /// # Errors
    /// [`RequestError::Full`]: poll and try again.
    pub fn shutdown(&self, qp: u32) -> Result<(), RequestError> {
        self.region.request(&Request::Shutdown { qp })
    }

    /// Closes a queue pair. Its buffers belong to the engine until `Released`.
    ///
    /// # Errors
    /// [`RequestError::Full`]: poll and try again.
    pub fn close(&mut self, qp: u32) -> Result<(), RequestError> {
        let Some(Some(pair)) = self.pairs.get_mut(qp as usize) else { return Ok(()) };
        // A second request could hit the queue pair's next connection.
        if !pair.closed {
            self.region.request(&Request::Close { qp })?;
            pair.closed = true;
        }
        Ok(())
    }

    /// Returns `[offset, offset + len)` of the registered memory; `None` if that is out of bounds.
    pub fn extent(&self, offset: u64, len: u32) -> Option<Extent> {
        self.region.extent(offset, len)
    }

    /// Writes to registered memory.
    ///
    /// # Panics
    /// If `bytes` is longer than the buffer.
    pub fn write(&self, buffer: Extent, bytes: &[u8]) {
        self.region.write(buffer, bytes);
    }

    /// Reads from registered memory.
    ///
    /// # Panics
    /// If `bytes` is longer than the buffer.
    pub fn read(&self, buffer: Extent, bytes: &mut [u8]) {
        self.region.read(buffer, bytes);
    }

    /// Returns both endpoints of a queue pair's connection; `None` if the queue pair is unused.
    pub fn identity(&self, qp: u32) -> Option<Identity> {
        self.pair(qp).map(|_| self.region.qp(qp).identity())
    }

    /// Number of stream bytes received in order so far, including those in buffers that are not
    /// full.
    pub fn received(&self, qp: u32) -> u64 {
        self.pair(qp).map_or(0, |_| self.region.qp(qp).rcv_done())
    }

    /// Posts a buffer for sending. It belongs to the engine until `Sent` names its `id`.
    ///
    /// # Errors
    /// [`PostError::Full`] if the queue is full or the queue pair is unused.
    pub fn post_send(&mut self, qp: u32, buffer: Extent, id: u64) -> Result<(), PostError> {
        let end = self.post(qp, Queue::Send, buffer, id)?;
        self.region.qp(qp).set_snd_tail(end);
        self.region.ring_doorbell(qp);
        Ok(())
    }

    /// Posts a buffer to be filled after those posted before. It belongs to the engine until
    /// `Received` names its `id`.
    ///
    /// # Errors
    /// Those of [`QueuePairs::post_send`].
    pub fn post_receive(&mut self, qp: u32, buffer: Extent, id: u64) -> Result<(), PostError> {
        let end = self.post(qp, Queue::Receive, buffer, id)?;
        self.region.qp(qp).set_rcv_limit(end);
        self.region.ring_doorbell(qp);
        Ok(())
    }

    fn post(&mut self, qp: u32, queue: Queue, buffer: Extent, id: u64) -> Result<u64, PostError> {
        let pair = self.pairs.get_mut(qp as usize).and_then(Option::as_mut).filter(|pair| !pair.left);
        let Some(pair) = pair else { return Err(PostError::Full) };
        let direction = match queue {
            Queue::Send => &mut pair.send,
            Queue::Receive => &mut pair.receive,
        };
        self.region.qp(qp).post(queue, direction.next, direction.posted.len() as u32, buffer)?;
        direction.next = direction.next.wrapping_add(1);
        direction.end += u64::from(buffer.len());
        direction.posted.push_back(Posted { id, buffer, end: direction.end, told: false });
        Ok(direction.end)
    }

    fn pair(&self, qp: u32) -> Option<&Pair> {
        self.pairs.get(qp as usize)?.as_deref()
    }

    /// Returns the next event.
    pub fn poll(&mut self) -> Option<QpEvent> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|qp| self.close(*qp).is_err());
        self.leaving = leaving;
        while self.events.is_empty() {
            let completion = self.region.poll_completion()?;
            self.on_completion(completion);
        }
        self.events.pop_front()
    }

    fn on_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Opened { qp, token } => {
                self.begin(qp);
                self.events.push_back(QpEvent::Opened { qp, token });
            }
            Completion::Accepted { qp, listener } => {
                self.begin(qp);
                self.events.push_back(QpEvent::Accepted { qp, listener });
            }
            Completion::Failed { token, errno } => self.events.push_back(QpEvent::Failed { token, errno }),
            Completion::Adopted { qp, token } => {
                self.begin(qp);
                self.events.push_back(QpEvent::Adopted { qp, token });
            }
            Completion::Done { .. } => {}
            Completion::Ready { qp, events } => self.on_ready(qp, events),
        }
    }

    fn begin(&mut self, qp: u32) {
        let index = qp as usize;
        if self.pairs.len() <= index {
            self.pairs.resize_with(index + 1, || None);
        }
        self.pairs[index] = Some(Box::default());
    }

    fn on_ready(&mut self, qp: u32, happened: Events) {
        let Some(Some(pair)) = self.pairs.get_mut(qp as usize) else { return };
        if happened.contains(Events::MOVED) {
            pair.moved = true;
            self.leaving.extend(pair.left.then_some(qp));
        }
        if pair.left {
            // The connection has no more events for the program.
            if happened.contains(Events::RELEASED) {
                self.pairs[qp as usize] = None;
            }
            return;
        }
        let view = self.region.qp(qp);
        let events = &mut self.events;
        if happened.contains(Events::ESTABLISHED) {
            events.push_back(QpEvent::Established { qp });
        }
        let (snd_done, rcv_done) = (view.snd_done(), view.rcv_done());
        while let Some(Posted { id, .. }) = pair.send.pop_done(snd_done) {
            events.push_back(QpEvent::Sent { qp, id, acknowledged: true });
        }
        while let Some(Posted { id, buffer, end, told }) = pair.receive.pop_done(rcv_done) {
            if !told {
                events.push_back(QpEvent::Received { qp, id, buffer });
                view.set_rcv_read(end);
            }
        }
        let closed = happened.contains(Events::CLOSED);
        if (closed || happened.contains(Events::PEER_FIN)) && !pair.ended {
            pair.ended = true;
            pair.end_receive(qp, rcv_done, events);
            view.set_rcv_read(rcv_done);
            events.push_back(QpEvent::PeerFinished { qp });
        }
        if closed {
            pair.end_send(qp, events);
            events.push_back(QpEvent::Closed { qp, errno: view.error() });
        }
        if happened.contains(Events::RELEASED) {
            self.on_released(qp, rcv_done);
        }
    }
}
