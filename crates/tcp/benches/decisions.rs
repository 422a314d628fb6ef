//! The cost of the decisions about a segment, without anything that moves bytes.
//!
//! `cargo bench -p baton-tcp --bench decisions`. Everything is cache-hot and
//! plain: established connections, nothing lost. Received data comes as single
//! segments and as runs, each second segment acknowledged; sent data is reported
//! in bursts of 44 segments (64 KB) and acknowledged by twos or all at once. The
//! last set is not plain: a flight with holes, SACKed segment by segment.
//! `deadline` is asked for after each event, as an engine does.

use baton_tcp::challenge::ChallengeLimiter;
use baton_tcp::command::{Command, CommandSink};
use baton_tcp::config::{Config, Congestion};
use baton_tcp::handshake::Open;
use baton_tcp::path::Path;
use baton_tcp::segment::{Lengths, Placement, Segment, SynOptions, Transmitted};
use baton_tcp::snd::{AckInput, Sender};
use baton_tcp::tcb::{Context, Tcb};
use baton_tcp::time::{Duration, Instant};
use baton_testkit::rounds::{Effort, Rounds};
use baton_wire::seq::{Seq, Window, WindowScale};
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use std::hint::black_box;

/// Payload of a segment, bytes.
const MSS: u32 = 1448;
/// Segments of a burst.
const BURST: u32 = 44;
/// Segments a turn.
const TURN: usize = BURST as usize * 48;
/// Between two events.
const STEP: Duration = Duration::from_micros(2);
const SHIFT: u8 = 7;
const WND: u16 = 0x8000;

fn main() {
    let rounds = Effort::asked().rounds(501);
    received(rounds);
    sent(rounds);
    request_response(rounds);
    sender_alone(rounds);
    recovery(rounds);
}

/// Looks at each command, as the ring would, and keeps the last.
struct Sink(u64);

impl CommandSink for Sink {
    #[inline]
    fn command(&mut self, command: Command) {
        self.0 += 1;
        black_box(&command);
    }
}

/// An established connection and the peer's side of its numbers.
struct Bench {
    tcb: Tcb,
    config: Config,
    challenge: ChallengeLimiter,
    now: Instant,
    sink: Sink,
    /// Next sequence number of the peer.
    peer_nxt: Seq,
    /// Our next sequence number.
    snd_nxt: Seq,
}

const ISS: Seq = Seq(1_000);
const IRS: Seq = Seq(9_000);

impl Bench {
    fn new(congestion: Congestion) -> Bench {
        let config = Config::default().with(|config| config.congestion = congestion);
        let mut challenge = ChallengeLimiter::new(1000, 7);
        let mut sink = Sink(0);
        let mut now = Instant(1_000_000_000);
        let mut cx = Context { now, config: &config, challenge: &mut challenge };
        let path = Path { mtu: 1500, ipv6: false, on_link: false };
        let open = Open { iss: ISS, path, rcv_space: 1 << 30, ts_offset: 0 };
        let mut tcb = Tcb::connect(&mut cx, &open, &mut sink);
        now = now + Duration::from_micros(100);
        let mut cx = Context { now, config: &config, challenge: &mut challenge };
        let syn = Segment {
            flags: Flags::SYN | Flags::ACK,
            wnd: 0xffff,
            syn: SynOptions { mss: Some(1460), window_scale: Some(SHIFT), sack_permitted: true, unsummed: false },
            ..segment(IRS, ISS + 1, Lengths::single(0), now)
        };
        tcb.handle_segment(&mut cx, &syn, Placement::Empty, &mut sink);
        let mut bench = Bench { tcb, config, challenge, now, sink, peer_nxt: IRS + 1, snd_nxt: ISS + 1 };
        for _ in 0..100 {
            bench.data(Lengths::single(MSS));
            bench.send(1, BURST * MSS);
            bench.ack();
        }
        bench
    }

    fn cx<'a>(now: Instant, config: &'a Config, challenge: &'a mut ChallengeLimiter) -> Context<'a> {
        Context { now, config, challenge }
    }

    #[inline]
    fn handle(&mut self, seg: &Segment, placement: Placement) {
        self.now = self.now + STEP;
        let mut cx = Bench::cx(self.now, &self.config, &mut self.challenge);
        self.tcb.handle_segment(&mut cx, black_box(seg), placement, &mut self.sink);
        black_box(self.tcb.deadline());
    }

    /// The peer's next bytes arrive.
    #[inline]
    fn data(&mut self, lengths: Lengths) {
        let seg = segment(self.peer_nxt, self.snd_nxt, lengths, self.now);
        self.peer_nxt += lengths.len;
        self.handle(&seg, Placement::Placed { rcv_nxt: self.peer_nxt, new_bytes: lengths.len });
    }

    /// All that was sent is acknowledged.
    #[inline]
    fn ack(&mut self) {
        self.ack_to(self.snd_nxt);
    }

    #[inline]
    fn ack_to(&mut self, ack: Seq) {
        let seg = segment(self.peer_nxt, ack, Lengths::single(0), self.now);
        self.handle(&seg, Placement::Empty);
    }

    /// `bursts` bursts of `bytes` each leave.
    #[inline]
    fn send(&mut self, bursts: u32, bytes: u32) {
        for _ in 0..bursts {
            self.now = self.now + STEP;
            let (seq, end) = (self.snd_nxt, self.snd_nxt + bytes);
            self.snd_nxt = end;
            let sent = Transmitted { seq, end, retransmit: false, fin: false, ack: self.peer_nxt, queued: 1 << 20 };
            let mut cx = Bench::cx(self.now, &self.config, &mut self.challenge);
            self.tcb.on_transmitted(&mut cx, black_box(&sent), &mut self.sink);
            black_box(self.tcb.deadline());
        }
    }

    /// Makes more room for the peer's data, once in a while.
    fn make_room(&mut self) {
        let mut cx = Bench::cx(self.now, &self.config, &mut self.challenge);
        self.tcb.on_posted(&mut cx, self.peer_nxt + (1 << 30), &mut self.sink);
    }
}

fn segment(seq: Seq, ack: Seq, lengths: Lengths, now: Instant) -> Segment {
    let clock = now.timestamp_ms();
    Segment {
        seq,
        ack,
        flags: Flags::ACK,
        wnd: WindowScale::new(SHIFT).field(Window(u32::from(WND) << SHIFT)),
        urgent: 0,
        lengths,
        timestamps: Some(Timestamps { val: clock, ecr: clock }),
        sack: SackBlocks::new(),
        syn: SynOptions::default(),
        ce: false,
    }
}

/// Received data; ns a segment of 1448 bytes.
fn received(rounds: usize) {
    let mut set = Rounds::new("data received, a segment", TURN);
    for (name, count) in [("single segments", 1u16), ("runs of 4", 4), ("runs of 44", 44)] {
        let mut bench = Bench::new(Congestion::Cubic);
        let lengths = Lengths { len: u32::from(count) * MSS, size: MSS as u16, count };
        set.add(name, move || {
            for _ in 0..TURN / usize::from(count) {
                bench.data(lengths);
            }
            bench.make_room();
        });
    }
    set.run(rounds);
    set.report();
}

/// Sent data; ns a segment, its share of reports and acknowledgments included.
fn sent(rounds: usize) {
    let mut set = Rounds::new("data sent and acknowledged, a segment", TURN);
    for congestion in [Congestion::Reno, Congestion::Cubic] {
        for (name, each) in [("an ACK for 2", 2), ("an ACK for 44", BURST)] {
            let mut bench = Bench::new(congestion);
            set.add(format!("{congestion:?}, {name}"), move || {
                for _ in 0..TURN / BURST as usize {
                    let una = bench.snd_nxt;
                    bench.send(1, BURST * MSS);
                    for n in 1..=BURST / each {
                        bench.ack_to(una + n * each * MSS);
                    }
                }
            });
        }
    }
    set.run(rounds);
    set.report();
}

/// Requests of 64 bytes and their answers; ns a pair.
fn request_response(rounds: usize) {
    let mut set = Rounds::new("request and answer of 64 bytes, a pair", TURN);
    let mut bench = Bench::new(Congestion::Cubic);
    set.add("the answering side", move || {
        for _ in 0..TURN {
            bench.data(Lengths::single(64));
            bench.send(1, 64);
        }
        bench.make_room();
    });
    set.run(rounds);
    set.report();
}

/// The sender without its `Tcb`: ns a burst report and an acknowledgment.
fn sender_alone(rounds: usize) {
    let mut set = Rounds::new("sender alone, a report and an ACK of two segments", TURN);
    for (name, congestion, full) in [
        ("cwnd not used up", Congestion::Cubic, false),
        ("Reno, cwnd used up", Congestion::Reno, true),
        ("CUBIC, cwnd used up", Congestion::Cubic, true),
    ] {
        let mut now = Instant(1_000_000_000);
        let mut sender =
            Sender::new(&Config::default().with(|config| config.congestion = congestion), ISS, MSS as u16, now);
        sender.set_sack(true);
        sender.on_sent(now, ISS, ISS + 1, false, 0);
        acknowledge(&mut sender, now, ISS + 1, false);
        set.add(name, move || {
            // Out of slow start, and the window small again.
            let una = sender.snd_una();
            acknowledge(&mut sender, now, una, true);
            for _ in 0..TURN {
                now = now + STEP;
                let (una, nxt) = (sender.snd_una(), sender.snd_nxt());
                let end = if full { sender.limit(Window(4 << 20)) } else { una + 2 * MSS };
                sender.on_sent(now, nxt, end.latest(nxt), false, 1 << 20);
                now = now + STEP;
                let ack = (una + 2 * MSS).earliest(sender.snd_nxt());
                acknowledge(&mut sender, now, black_box(ack), false);
            }
        });
    }
    set.run(rounds);
    set.report();
}

#[inline]
fn acknowledge(sender: &mut Sender, now: Instant, ack: Seq, ece: bool) {
    let input = AckInput { ece, ..plain_ack(ack) };
    black_box(sender.on_ack(now, black_box(&input)));
}

#[inline]
fn plain_ack(ack: Seq) -> AckInput<'static> {
    const NO_BLOCKS: &SackBlocks = &SackBlocks::new();
    AckInput {
        ack,
        sack: NO_BLOCKS,
        ts_ecr: Some(1),
        ts_now: 1,
        ece: false,
        segments: 1,
        has_data: false,
        wnd_changed: false,
        snd_wnd: Window(4 << 20),
    }
}

/// A flight of 1024 segments in bursts of 8 of which every `hole`-th is lost: ns
/// an ACK, with all that is sent again.
fn recovery(rounds: usize) {
    const FLIGHT: u32 = 1024;
    let mut set = Rounds::new("sender alone, an ACK while recovering", FLIGHT as usize);
    for (name, hole) in [("nothing lost", u32::MAX), ("every 64th lost", 64), ("every 8th lost", 8)] {
        let mut now = Instant(1_000_000_000);
        set.add(name, move || {
            let mut sender = Sender::new(&Config::default(), ISS, MSS as u16, now);
            sender.set_sack(true);
            sender.on_sent(now, ISS, ISS + 1, false, 0);
            now = now + Duration::from_millis(10);
            acknowledge(&mut sender, now, ISS + 1, false);
            let first = sender.snd_una();
            for burst in 0..FLIGHT / 8 {
                now = now + STEP;
                let seq = first + burst * 8 * MSS;
                sender.on_sent(now, seq, seq + 8 * MSS, false, 1 << 20);
            }
            now = now + Duration::from_millis(10);
            for n in 0..FLIGHT {
                if n % hole == hole - 1 {
                    continue;
                }
                now = now + STEP;
                arrived(&mut sender, now, first, n, hole);
                while let Some((seq, end)) = sender.next_retransmit(now) {
                    sender.on_sent(now, seq, end, true, 1 << 20);
                }
            }
            acknowledge(&mut sender, now, first + FLIGHT * MSS, false);
        });
    }
    set.run(rounds);
    set.report();
}

/// The ACK for segment `n`: cumulative up to the first hole, SACK for the last
/// three stretches beyond.
fn arrived(sender: &mut Sender, now: Instant, first: Seq, n: u32, hole: u32) {
    let at = |n: u32| first + n * MSS;
    let mut sack = SackBlocks::new();
    let mut ack = at(n + 1);
    if n >= hole {
        ack = at(hole - 1);
        let stretch = n / hole;
        sack.push(at(stretch * hole), at(n + 1));
        for before in (1..stretch).rev().take(2) {
            sack.push(at(before * hole), at(before * hole + hole - 1));
        }
    }
    let input = AckInput { sack: &sack, ..plain_ack(ack) };
    black_box(sender.on_ack(now, black_box(&input)));
}
