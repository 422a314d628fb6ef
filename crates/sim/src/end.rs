//! One end of a connection: a program that follows its script over a queue pair.

mod lent;

use crate::chance::up_to;
use crate::circle::Circle;
use crate::script::{Act, Script};
use crate::stream::{Stream, WrongByte};
use baton_engine::options;
use baton_engine::region::{ConsumerRegion, Events, Queue, Request};
use baton_tcp::options::{KeepAlive, SocketOption};
use baton_tcp::time::{Duration, Instant};
use std::collections::VecDeque;

/// Token of requests whose answer nobody waits for.
pub const OPTION: u64 = 1 << 33;

/// Token of a request for the buffers of queue pair `n` is `n` more than this.
pub const UNPOST: u64 = 1 << 34;

/// An end that asks for its buffers back does so within this time after posting one.
const ASKS_WITHIN: Duration = Duration::from_millis(1);

/// Where an end's receive buffer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holding {
    /// The end posts it as it empties.
    Posts,
    /// It asked for what is posted, and moves no cursor until the answer.
    Asked,
    /// It has it back, and waits until the engine wants it.
    Waits,
}

/// Progress of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Its queue pair is the program's.
    Open,
    /// It asked for the close, or the reset, and waits for the engine's last word.
    Closing,
    /// The queue pair belongs to the engine again.
    Done,
}

/// Where one end's buffers lie.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Start of its part of the data area.
    pub base: u64,
    /// Bytes of its send buffer.
    pub send: u32,
    /// Bytes of its receive buffer, which follows.
    pub receive: u32,
}

/// The request to probe the peer often.
pub fn keepalive(qp: u32) -> Request {
    let often = KeepAlive { idle: Duration::from_secs(5), interval: Duration::from_secs(5), probes: 6 };
    let (option, value) = options::encode(SocketOption::KeepAlive(Some(often)));
    Request::SetOption { token: OPTION, qp, option, value }
}

/// Bytes that an end takes along when its connection moves.
#[derive(Debug)]
struct Parcel {
    unacked: Vec<u8>,
    unread: Vec<u8>,
}

/// A program at one end of a connection.
#[derive(Debug)]
pub struct End {
    /// Number of the dialogue.
    pub id: usize,
    /// True for the end on the client's host.
    pub client: bool,
    /// It opened the connection, as both do if their SYNs cross.
    opened: bool,
    qp: u32,
    script: Script,
    act: usize,
    /// Bytes of the current act that are posted already.
    act_sent: u64,
    act_since: Option<Instant>,
    out: Stream,
    into: Stream,
    /// Bytes of the two streams before the queue pair's first ones.
    out_base: u64,
    into_base: u64,
    /// Its connection is moving: the program waits.
    pub frozen: bool,
    /// Bytes at the start of the queue pair's stream that it brought along.
    filled: u64,
    /// The bytes that it brought along, to be posted.
    parcel: Option<Parcel>,
    send: Circle,
    receive: Circle,
    holding: Holding,
    /// The engine asked for a buffer since the end asked for its own.
    wanted: bool,
    /// When it asks for its buffers.
    asks_at: Option<Instant>,
    rng: fastrand::Rng,
    read: u64,
    since_stall: u64,
    stalled_until: Option<Instant>,
    /// All events so far.
    pub seen: Events,
    /// The errno that the connection ended with; 0 for none.
    pub error: u32,
    /// It reset the connection itself.
    pub aborted: bool,
    /// How far the connection has come.
    pub phase: Phase,
}

impl End {
    /// An end that has just got its queue pair.
    pub fn new(id: usize, client: bool, opened: bool, qp: u32, script: Script, buffers: Buffers) -> End {
        let stream = |forth: bool| Stream { phase: 2 * id as u64 + u64::from(forth) };
        End {
            id,
            client,
            opened,
            qp,
            script,
            act: 0,
            act_sent: 0,
            act_since: None,
            out: stream(client),
            into: stream(!client),
            out_base: 0,
            into_base: 0,
            frozen: false,
            filled: 0,
            parcel: None,
            send: Circle::new(Queue::Send, buffers.base, buffers.send),
            receive: Circle::new(Queue::Receive, buffers.base + u64::from(buffers.send), buffers.receive),
            holding: Holding::Posts,
            wanted: false,
            asks_at: None,
            rng: fastrand::Rng::with_seed(2 * id as u64 + u64::from(client)),
            read: 0,
            since_stall: 0,
            stalled_until: None,
            seen: Events::NONE,
            error: 0,
            aborted: false,
            phase: Phase::Open,
        }
    }

    /// Bytes read so far.
    pub fn received(&self) -> u64 {
        self.into_base + self.read
    }

    /// Bytes posted to send so far.
    pub fn sent(&self) -> u64 {
        self.out_base + self.send.posted()
    }

    /// It could move now.
    pub fn is_movable(&self) -> bool {
        self.phase == Phase::Open && !self.frozen && self.parcel.is_none() && !self.seen.contains(Events::CLOSED)
    }

    /// Bytes of the queue pair's stream that may be read.
    fn arrived(&self, region: &ConsumerRegion) -> u64 {
        region.qp(self.qp).rcv_done().max(self.filled)
    }

    /// Bytes read of the queue pair's stream.
    pub fn read_here(&self) -> u64 {
        self.read
    }

    /// Its requests to an engine that died; with `shut`, without its FIN.
    pub fn wishes(&self, shut: bool) -> Vec<Request> {
        let qp = self.qp;
        let closed = self.script.acts[..self.act].contains(&Act::Shutdown);
        let fin = (closed && !shut).then_some(Request::Shutdown { qp });
        let keepalive = self.script.keepalive.then(|| keepalive(qp));
        keepalive.into_iter().chain(fin).collect()
    }

    /// Bytes posted to the send queue of the queue pair that it leaves.
    pub fn posted(&self) -> u64 {
        self.send.posted()
    }

    /// Takes its bytes along to queue pair `qp` of another engine. `unacked` are
    /// those from stream position `una_pos` of the old one on.
    ///
    /// # Errors
    /// A byte that this program did not write.
    pub fn pack(
        &mut self,
        region: &ConsumerRegion,
        qp: u32,
        buffers: Buffers,
        una_pos: u64,
        unacked: Vec<u8>,
    ) -> Result<(), WrongByte> {
        self.out.check(self.out_base + una_pos, &unacked)?;
        let mut unread = vec![0; (self.arrived(region) - self.read) as usize];
        let mut done = 0;
        while done < unread.len() {
            let (offset, len) = self.receive.contiguous(self.read + done as u64, (unread.len() - done) as u64);
            if let Some(extent) = region.extent(offset, len) {
                region.read(extent, &mut unread[done..done + len as usize]);
            }
            done += len as usize;
        }
        self.out_base += una_pos;
        self.into_base += self.read;
        self.read = 0;
        self.qp = qp;
        self.send = Circle::new(Queue::Send, buffers.base, buffers.send);
        self.receive = Circle::new(Queue::Receive, buffers.base + u64::from(buffers.send), buffers.receive);
        // Its posted buffers and its requests stay behind.
        (self.holding, self.wanted, self.asks_at) = (Holding::Posts, false, None);
        self.filled = unread.len() as u64;
        self.parcel = Some(Parcel { unacked, unread });
        Ok(())
    }

    /// Posts what was brought along, at the start of both streams.
    fn unpack(&mut self, region: &ConsumerRegion, parcel: &Parcel) {
        let qp = region.qp(self.qp);
        for (circle, bytes) in [(&mut self.send, &parcel.unacked), (&mut self.receive, &parcel.unread)] {
            let (offset, len) = circle.contiguous(0, bytes.len() as u64);
            assert_eq!(len as usize, bytes.len(), "buffers are of one size everywhere");
            if let Some(extent) = region.extent(offset, len) {
                region.write(extent, bytes);
            }
            circle.post(region, self.qp, bytes.len() as u64, 0);
        }
        qp.set_snd_tail(self.send.posted());
        qp.set_rcv_limit(self.receive.posted());
        region.ring_doorbell(self.qp);
    }

    /// Takes in what happened to the queue pair.
    pub fn on_events(&mut self, region: &ConsumerRegion, events: Events) {
        self.seen |= events;
        self.wanted |= events.contains(Events::WANT_BUFFER);
        // Before the end an error is a soft one (RFC 9293 §3.9.2.2): no program here asks.
        if events.contains(Events::CLOSED) && self.phase == Phase::Open {
            self.error = region.qp(self.qp).error();
        }
        if events.contains(Events::RELEASED) {
            self.phase = Phase::Done;
        }
    }

    /// Reads, writes and moves on, as far as it goes now; requests go to `asks`.
    /// With `calm` it neither stalls nor sleeps.
    ///
    /// # Errors
    /// A received byte that was never sent there.
    pub fn run(
        &mut self,
        now: Instant,
        calm: bool,
        region: &ConsumerRegion,
        asks: &mut VecDeque<Request>,
    ) -> Result<(), WrongByte> {
        if self.phase != Phase::Open || self.frozen {
            return Ok(());
        }
        if let Some(parcel) = self.parcel.take() {
            self.unpack(region, &parcel);
        }
        self.read_arrived(now, calm, region)?;
        if self.holding == Holding::Asked {
            return Ok(());
        }
        if self.wanted {
            self.holding = Holding::Posts;
        }
        let mut moved = self.holding == Holding::Posts && self.post_receive(region);
        while self.phase == Phase::Open && self.step(now, calm, region, asks, &mut moved) {}
        if moved {
            region.ring_doorbell(self.qp);
        }
        // Bytes received before the connection ended are there to be read after it.
        let read_all = self.read == self.arrived(region);
        let done = self.act == self.script.acts.len() && self.seen.contains(Events::PEER_FIN);
        if self.phase == Phase::Open && read_all && (done || self.seen.contains(Events::CLOSED)) {
            self.phase = Phase::Closing;
            asks.push_back(Request::Close { qp: self.qp });
        }
        let every = self.script.unposts;
        if moved && every > 0 && self.rng.u8(..every) == 0 {
            self.asks_at = Some(now + up_to(&mut self.rng, ASKS_WITHIN));
        } else if self.asks_at.is_some_and(|at| at <= now) {
            self.asks_at = None;
            if self.phase == Phase::Open && self.holding == Holding::Posts && !calm {
                self.ask_back(region, asks);
            }
        }
        Ok(())
    }

    /// Asks for its buffers back; the engine decides whether it gets them.
    fn ask_back(&mut self, region: &ConsumerRegion, asks: &mut VecDeque<Request>) {
        self.holding = Holding::Asked;
        self.wanted = false;
        region.qp(self.qp).set_rcv_limit(self.read);
        asks.push_back(Request::Unpost { token: UNPOST + u64::from(self.qp), qp: self.qp });
    }

    /// The engine's answer: it forgot all that was posted, or none.
    pub fn on_unposted(&mut self, region: &ConsumerRegion, forgot: bool) {
        if self.holding != Holding::Asked {
            return;
        }
        let qp = region.qp(self.qp);
        if forgot {
            self.receive.forget(qp.rcv_done());
        }
        qp.set_rcv_limit(self.receive.posted());
        if !forgot {
            // The engine may not have seen the limit before it was set back.
            region.ring_doorbell(self.qp);
        }
        self.holding = if forgot && !self.wanted { Holding::Waits } else { Holding::Posts };
    }

    /// When it wants to run again even if nothing happens.
    pub fn alarm(&self) -> Option<Instant> {
        let sleeping = match (self.script.acts.get(self.act), self.act_since) {
            (Some(Act::Sleep(span)), Some(since)) => Some(since + *span),
            _ => None,
        };
        let open = self.phase == Phase::Open && !self.frozen;
        [sleeping, self.stalled_until, self.asks_at.filter(|_| self.holding != Holding::Asked)]
            .into_iter()
            .flatten()
            .min()
            .filter(|_| open)
    }

    fn read_arrived(&mut self, now: Instant, calm: bool, region: &ConsumerRegion) -> Result<(), WrongByte> {
        if self.stalled_until.is_some_and(|until| !calm && now < until) {
            return Ok(());
        }
        self.stalled_until = None;
        let done = self.arrived(region);
        let mut buffer = [0; 4096];
        while self.read < done {
            let at_once = if self.script.reader.at_once == 0 { u64::MAX } else { self.script.reader.at_once };
            let wanted = (done - self.read).min(at_once).min(buffer.len() as u64);
            let (offset, len) = self.receive.contiguous(self.read, wanted);
            let part = &mut buffer[..len as usize];
            if let Some(extent) = region.extent(offset, len) {
                region.read(extent, part);
            }
            self.into.check(self.into_base + self.read, part)?;
            self.read += u64::from(len);
            self.since_stall += u64::from(len);
            if let Some((every, span)) = self.script.reader.stall
                && self.since_stall >= every
                && !calm
            {
                self.since_stall = 0;
                self.stalled_until = Some(now + span);
                break;
            }
        }
        region.qp(self.qp).set_rcv_read(self.read);
        Ok(())
    }

    /// Posts what was read again; true if anything was.
    fn post_receive(&mut self, region: &ConsumerRegion) -> bool {
        let mut moved = false;
        let done = region.qp(self.qp).rcv_done();
        loop {
            let room = self.receive.room(self.read);
            if room == 0 || self.receive.post(region, self.qp, room.min(self.script.piece.into()), done) == 0 {
                break;
            }
            moved = true;
        }
        if moved {
            region.qp(self.qp).set_rcv_limit(self.receive.posted());
        }
        moved
    }

    /// Does what it can of the current act; true if that is done and the next one begins.
    fn step(
        &mut self,
        now: Instant,
        calm: bool,
        region: &ConsumerRegion,
        asks: &mut VecDeque<Request>,
        moved: &mut bool,
    ) -> bool {
        let Some(&act) = self.script.acts.get(self.act) else { return false };
        // A shutdown or reset before the handshake is done would take back the
        // open (RFC 9293 §3.10.4, §3.10.5): no program does that.
        let opening = self.opened && !self.seen.contains(Events::ESTABLISHED);
        if opening && matches!(act, Act::Shutdown | Act::Abort) {
            return false;
        }
        let since = *self.act_since.get_or_insert(now);
        let done = match act {
            Act::Send(bytes) => {
                *moved |= self.post_send(region, bytes);
                self.act_sent == bytes
            }
            Act::Await(bytes) => self.received() >= bytes,
            Act::Sleep(span) => calm || now >= since + span,
            Act::Shutdown => {
                asks.push_back(Request::Shutdown { qp: self.qp });
                true
            }
            Act::Cork(on) => {
                let (option, value) = options::encode(SocketOption::Cork(on));
                asks.push_back(Request::SetOption { token: OPTION, qp: self.qp, option, value });
                true
            }
            Act::Abort => {
                self.phase = Phase::Closing;
                self.aborted = true;
                asks.push_back(Request::Abort { qp: self.qp });
                true
            }
        };
        if done {
            self.act += 1;
            self.act_sent = 0;
            self.act_since = None;
        }
        done
    }

    /// Writes and posts what fits. Returns true if it posted anything.
    fn post_send(&mut self, region: &ConsumerRegion, bytes: u64) -> bool {
        let mut moved = false;
        let done = region.qp(self.qp).snd_done();
        while self.act_sent < bytes {
            let room = self.send.room(done).min(bytes - self.act_sent).min(self.script.piece.into());
            let position = self.send.posted();
            let (offset, len) = self.send.contiguous(position, room);
            if let Some(extent) = region.extent(offset, len).filter(|extent| !extent.is_empty()) {
                let mut data = vec![0; len as usize];
                self.out.fill(self.out_base + position, &mut data);
                region.write(extent, &data);
            }
            let posted = self.send.post(region, self.qp, room, done);
            if posted == 0 {
                break;
            }
            self.act_sent += u64::from(posted);
            moved = true;
        }
        if moved {
            region.qp(self.qp).set_snd_tail(self.send.posted());
        }
        moved
    }

    /// The condition that it waits for, in words.
    pub fn describe(&self, region: &ConsumerRegion) -> String {
        let qp = region.qp(self.qp);
        format!(
            "{} of dialogue {}: {:?} at act {} of {:?}; read {}, rcv_done {}, posted {} ({:?}); sent {}, snd_sent {}, \
             snd_done {}; events {:?}, error {}, state {}",
            if self.client { "client" } else { "server" },
            self.id,
            self.phase,
            self.act,
            self.script.acts,
            self.read,
            qp.rcv_done(),
            self.receive.posted(),
            self.holding,
            self.send.posted(),
            qp.snd_sent(),
            qp.snd_done(),
            self.seen,
            self.error,
            qp.state(),
        )
    }
}
