//! From a seed to a world: which faults, which hosts, which programs.
//!
//! Each feature is on in some worlds and off in others (Groce et al., *Swarm
//! Testing*, ISSTA 2012): a world with every fault hides what a world with one
//! would show. Sizes follow from what window, delay and rate let through, so that
//! no world takes long.

use crate::chance::{Ppm, pick, up_to};
use crate::config::{AMPLE_BACKLOG, HostConfig, Moves, WorldConfig};
use crate::link::{LinkConfig, Loss};
use crate::path::PathMtu;
use crate::port::PortConfig;
use crate::script::{Act, Dialogue, Expect, Reader, Script};
use baton_engine::endpoint::InterfaceConfig;
use baton_engine::engine::EngineConfig;
use baton_engine::frame_io::Capabilities;
use baton_tcp::config::{Acks, Config, Congestion};
use baton_tcp::time::Duration;
use baton_wire::addr::Addr;
use fastrand::Rng;

/// The port that the server listens at.
const PORT: u16 = 7;
/// A port where nobody listens.
const CLOSED_PORT: u16 = 9;

/// Properties that the parts of a world have in common.
struct Common {
    ethernet: bool,
    mtu: u16,
    /// Payload bytes that one connection can move in a short while.
    budget: u64,
    /// SYNs sent at the same time cross.
    crosses: bool,
    /// Half-open connections before the server answers with cookies.
    backlog: u32,
}

/// The world of a seed.
pub fn world(seed: u64) -> WorldConfig {
    let mut rng = Rng::with_seed(seed);
    let v6 = rng.bool();
    let mtu = pick(&mut rng, &[576, 1280, 1400, 1500, 1500, 1500, 4000, 9000]).max(if v6 { 1280 } else { 576 });
    let mut common = Common {
        ethernet: rng.u8(..4) != 0,
        mtu,
        budget: 0,
        crosses: false,
        backlog: pick(&mut rng, &[1, 2, 4, AMPLE_BACKLOG, AMPLE_BACKLOG, AMPLE_BACKLOG]),
    };
    let links = [link(&mut rng, mtu), link(&mut rng, mtu)];
    let queue_depth = pick(&mut rng, &[2, 4, 16, 16]);
    let mut hosts = [0, 1].map(|i| host(&mut rng, &common, i, queue_depth));
    let piece = pick(&mut rng, &[500, 3_000, 20_000, 1 << 20, 1 << 20]);
    common.crosses = links.iter().all(|link| link.delay.0 >= 20_000_000);
    common.budget = budget(&hosts, &links, piece, mtu);
    let dialogues = dialogues(&mut rng, &common, piece);
    for host in &mut hosts {
        host.qps = 2 * dialogues.len() as u32 + 8;
        // Clients that start at once repeat their SYNs at once: all must fit, or the
        // same ones are lost each time.
        host.port.frames = host.port.frames.max(2 * dialogues.len());
    }
    let path_mtu = (rng.u8(..8) == 0 && mtu > 1280).then(|| PathMtu {
        mtu: rng.u16(if v6 { 1280..=mtu } else { 576..=mtu }),
        tells: rng.u8(..3) != 0,
        delay: up_to(&mut rng, Duration::from_millis(20)),
    });
    let addresses = [0, 1].map(|host| address(v6, host));
    let mut runs = Rng::with_seed(seed ^ RUNS);
    for host in &mut hosts {
        host.engine.coalesce = pick(&mut runs, &[0, 2, 3, 5, 20, 64, 64]);
        host.engine.tcp.acks = pick(&mut runs, &[Acks::EverySecond, Acks::PerRun]);
    }
    let forged = if rng.u8(..4) == 0 { Ppm(rng.u32(1_000..50_000)) } else { Ppm::NEVER };
    let safety = Duration::from_millis(rng.u64(100..20_000));
    WorldConfig {
        seed,
        hosts,
        links,
        path_mtu,
        forged,
        addresses,
        listen: (vec![PORT], common.backlog),
        dialogues,
        safety,
    }
}

/// The world of a seed, in which connections move in any case.
pub fn moving_world(seed: u64) -> WorldConfig {
    let mut config = world(seed);
    let mut rng = Rng::with_seed(seed ^ MOVES);
    if may_move(&config) {
        let both = rng.u8(..3);
        for (i, host) in config.hosts.iter_mut().enumerate() {
            host.moves = (both == 2 || usize::from(both) == i).then(|| moves(&mut rng));
        }
    }
    config
}

/// A separate generator for moves, so that worlds without moves stay the same.
const MOVES: u64 = 0x6d6f_7665;
/// A separate generator for how segments are received.
const RUNS: u64 = 0x7275_6e73;

/// A tuple that is opened again is looked up at the first engine, while the second may hold it
/// in TIME-WAIT.
fn may_move(config: &WorldConfig) -> bool {
    config.dialogues.iter().all(|dialogue| dialogue.from_port == 0 || dialogue.crossed)
}

fn moves(rng: &mut Rng) -> Moves {
    let often = Ppm(pick(rng, &[1_000, 10_000, 50_000, 200_000]));
    let fails = Ppm(pick(rng, &[0, 0, 100_000, 500_000]));
    Moves { often, at_turn: None, fails, dies: Ppm(pick(rng, &[0, 1_000, 20_000])) }
}

/// A fault of some strength up to `most`, in a third of all worlds.
fn fault(rng: &mut Rng, most: u32) -> Ppm {
    if rng.u8(..3) == 0 { Ppm(rng.u32(most / 100..=most)) } else { Ppm::NEVER }
}

fn link(rng: &mut Rng, mtu: u16) -> LinkConfig {
    let rate = pick(rng, &[0, 125_000, 1_250_000, 12_500_000, 125_000_000, 1_250_000_000]);
    let delay = Duration(pick(rng, &[1_000, 20_000, 200_000, 2_000_000, 20_000_000, 100_000_000]));
    let loss = match rng.u8(..4) {
        0 => Loss::Random(Ppm(rng.u32(100..100_000))),
        1 => Loss::Bursts { begin: Ppm(rng.u32(100..10_000)), longest: up_to(rng, Duration::from_millis(300)) },
        _ => Loss::None,
    };
    let jitter = if rng.u8(..3) == 0 { up_to(rng, Duration(delay.0 / 2)) } else { Duration::ZERO };
    LinkConfig {
        rate,
        queue_bytes: pick(rng, &[8, 30, 200, 1000]) * u64::from(mtu),
        mark_above_bytes: rng.bool().then(|| rng.u64(1..20) * u64::from(mtu)),
        delay,
        jitter,
        in_order: rng.bool(),
        loss,
        late: fault(rng, 50_000),
        late_by: up_to(rng, Duration(delay.0 * 2 + 500_000)),
        doubled: fault(rng, 50_000),
        damaged: fault(rng, 30_000),
        unsummed: Ppm::NEVER,
    }
}

fn host(rng: &mut Rng, common: &Common, number: usize, queue_depth: u32) -> HostConfig {
    let capabilities = capabilities(rng, common);
    let cidr = |v6: bool| {
        let text = format!("{}/{}", address(v6, number), if v6 { 64 } else { 24 });
        text.parse().expect("a well-formed address")
    };
    let mac = [2, 0, 0, 0, 0, number as u8 + 1];
    let mut interface = InterfaceConfig::ethernet(mac, vec![cidr(false), cidr(true)]);
    interface.mtu = common.mtu;
    interface.ethernet = common.ethernet;
    let mut engine = EngineConfig::new(interface, std::array::from_fn(|_| rng.u8(..)));
    engine.tcp = tcp(rng);
    engine.max_connections = 512;
    engine.ring_entries = pick(rng, &[128, 128, 256, 1024]);
    engine.reassembly_bytes = pick(rng, &[64 << 10, 256 << 10, 4 << 20]);
    engine.reassembly_bytes_per_connection = pick(rng, &[16 << 10, 64 << 10, 256 << 10]);
    engine.rx_budget = pick(rng, &[1, 8, 64, 256]);
    HostConfig {
        engine,
        port: PortConfig { capabilities, join: rng.bool(), frames: pick(rng, &[16, 64, 256, 1024]) },
        two_threads: rng.bool(),
        wake: Duration(pick(rng, &[0, 2_000, 20_000, 200_000])),
        program: Duration(pick(rng, &[0, 10_000, 200_000, 2_000_000])),
        carry: pick(rng, &[1, 8, 64, 1024]),
        buffers: (buffer(rng), buffer(rng)),
        qps: 0,
        queue_depth,
        moves: None,
        lends: false,
        watch: None,
    }
}

fn buffer(rng: &mut Rng) -> u32 {
    pick(rng, &[3_000, 16_384, 65_536, 65_536, 262_144, 262_144])
}

fn capabilities(rng: &mut Rng, common: &Common) -> Capabilities {
    let tx_checksum = rng.bool();
    let gso = tx_checksum && rng.bool();
    let mut capabilities = Capabilities::new(common.mtu);
    capabilities.ethernet = common.ethernet;
    capabilities.tx_checksum = tx_checksum;
    capabilities.tx_gso_max = if gso { pick(rng, &[16_000, 65_535]) } else { 0 };
    capabilities
}

fn tcp(rng: &mut Rng) -> Config {
    let mut config = Config::default();
    config.congestion = pick(rng, &[Congestion::Reno, Congestion::Cubic]);
    config.sack = rng.u8(..4) != 0;
    config.timestamps = rng.u8(..4) != 0;
    config.window_scaling = rng.u8(..4) != 0;
    config.ecn = rng.bool();
    config.unposted_window = pick(rng, &[2_000, 16_384, 65_536]);
    config.max_window = pick(rng, &[16_384, 65_535, 4 << 20]);
    // Eight probes of an orphan outlast the longest stall.
    config.rto_min = Duration::from_millis(pick(rng, &[50, 200, 200]));
    config.delayed_ack = Duration::from_millis(pick(rng, &[1, 40, 40]));
    config
}

fn address(v6: bool, host: usize) -> Addr {
    let last = host as u8 + 1;
    if v6 { Addr::v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]) } else { Addr::v4([10, 77, 0, last]) }
}

/// Payload that window, round trip and rate let through in some ten seconds.
fn budget(hosts: &[HostConfig; 2], links: &[LinkConfig; 2], piece: u32, mtu: u16) -> u64 {
    let window = |host: &HostConfig| {
        let posted = u64::from(piece) * u64::from(host.queue_depth);
        posted.min(host.buffers.0.into()).min(host.buffers.1.into())
    };
    let window = window(&hosts[0]).min(window(&hosts[1]));
    let trip: u64 = links.iter().map(|link| link.delay.0 + link.jitter.0).sum();
    let rest: u64 = hosts.iter().map(|host| host.wake.0 * 2 + host.program.0).sum();
    let per_second = window * 1_000_000_000 / (trip + rest + 10_000);
    let slowest = links.iter().map(|link| if link.rate == 0 { u64::MAX } else { link.rate }).min();
    let lossy = links.iter().any(|link| link.loss != Loss::None);
    let seconds = if lossy { 1 } else { 10 };
    // A window of few segments lives by timers: half a second for each of them.
    let most = if window < 4 * u64::from(mtu) { 40 * window } else { 4_000_000 };
    (per_second.min(slowest.unwrap_or(u64::MAX)) * seconds).clamp(5_000, most.max(5_000))
}

fn dialogues(rng: &mut Rng, common: &Common, piece: u32) -> Vec<Dialogue> {
    let mut all = Vec::new();
    for _ in 0..rng.u8(1..=3) {
        let make = Make { common, piece, rng };
        match make.rng.u8(..11) {
            0 => make.bulk(&mut all),
            1 => make.request_response(&mut all),
            2 => make.half_close(&mut all),
            3 => make.many_short(&mut all),
            4 => make.close_at_once(&mut all),
            5 => make.stalls(&mut all),
            6 => make.aborts(&mut all),
            7 => make.refused(&mut all),
            8 if common.crosses => make.crossed(&mut all),
            9 => make.corked(&mut all),
            // If addresses and ports are used again, a late cookie makes a connection that
            // cannot be told from its successor.
            10 if common.backlog == AMPLE_BACKLOG => make.reopened(&mut all),
            _ => make.bulk(&mut all),
        }
    }
    all
}

/// Makes dialogues of one kind.
struct Make<'a> {
    common: &'a Common,
    piece: u32,
    rng: &'a mut Rng,
}

impl Make<'_> {
    /// A size up to `most`, small ones as likely as large ones.
    fn size(&mut self, most: u64) -> u64 {
        let most = most.max(1);
        let magnitude = self.rng.u32(0..=most.ilog2());
        self.rng.u64(1..=most.min(2 << magnitude))
    }

    /// A server that may have answered with a cookie can be left with a connection
    /// that its client never knew of, or was reset out of; only probes tell.
    fn probes(&self) -> bool {
        self.common.backlog < AMPLE_BACKLOG
    }

    fn script(&mut self, acts: Vec<Act>) -> Script {
        let at_once = pick(self.rng, &[0, 0, 1_000]);
        let unposts = pick(self.rng, &[0, 0, 1, 3, 20]);
        Script {
            acts,
            reader: Reader { stall: None, at_once },
            piece: self.piece,
            keepalive: self.probes(),
            nodelay: self.rng.bool(),
            unposts,
        }
    }

    fn dialogue(&mut self, client: Vec<Act>, server: Vec<Act>) -> Dialogue {
        Dialogue {
            start: up_to(self.rng, Duration::from_secs(2)),
            port: PORT,
            from_port: 0,
            client: self.script(client),
            server: self.script(server),
            crossed: false,
            expect: Expect::Complete,
        }
    }

    /// Bytes that the client sends before it waits for anything. A server that
    /// answered with a cookie knows of a connection only by them, if the ACK that
    /// ends the handshake is lost (RFC 4987 §3.6).
    fn greeting(&mut self) -> u64 {
        if self.common.backlog < AMPLE_BACKLOG { self.rng.u64(1..100) } else { self.rng.u64(..2) }
    }

    fn bulk(mut self, all: &mut Vec<Dialogue>) {
        for _ in 0..self.rng.u8(1..=3) {
            let (up, down) = (self.size(self.common.budget), self.size(self.common.budget));
            let (up, down) = pick(self.rng, &[(up, 0), (0, down), (up, down)]);
            let greeting = self.greeting();
            let client = vec![Act::Send(greeting + up), Act::Shutdown];
            let dialogue = self.dialogue(client, vec![Act::Send(down), Act::Shutdown]);
            all.push(dialogue);
        }
    }

    fn request_response(mut self, all: &mut Vec<Dialogue>) {
        for _ in 0..self.rng.u8(1..=4) {
            let (ask, answer) = (self.size(3_000), self.size(20_000));
            let rounds = self.rng.u64(1..=100);
            let client = (1..=rounds).flat_map(|i| [Act::Send(ask), Act::Await(i * answer)]);
            let server = (1..=rounds).flat_map(|i| [Act::Await(i * ask), Act::Send(answer)]);
            let (mut client, mut server): (Vec<_>, Vec<_>) = (client.collect(), server.collect());
            client.push(Act::Shutdown);
            server.push(Act::Shutdown);
            let dialogue = self.dialogue(client, server);
            all.push(dialogue);
        }
    }

    fn half_close(mut self, all: &mut Vec<Dialogue>) {
        let (up, down) = (self.size(self.common.budget), self.size(self.common.budget));
        let pause = Act::Sleep(up_to(self.rng, Duration::from_secs(3)));
        let server = vec![Act::Await(up), pause, Act::Send(down), Act::Shutdown];
        let dialogue = self.dialogue(vec![Act::Send(up), Act::Shutdown], server);
        all.push(dialogue);
    }

    fn many_short(mut self, all: &mut Vec<Dialogue>) {
        let within = Duration(pick(self.rng, &[0, 10_000_000, 1_000_000_000]));
        for _ in 0..self.rng.u8(5..=120) {
            let (up, down) = (self.size(2_000), self.size(5_000));
            let client = vec![Act::Send(up), Act::Await(down), Act::Shutdown];
            let mut dialogue = self.dialogue(client, vec![Act::Await(up), Act::Send(down), Act::Shutdown]);
            dialogue.start = up_to(self.rng, within);
            all.push(dialogue);
        }
    }

    fn close_at_once(mut self, all: &mut Vec<Dialogue>) {
        for _ in 0..self.rng.u8(1..=8) {
            let (up, down) = (self.size(3_000), self.size(3_000));
            let client = vec![Act::Send(up), Act::Await(down), Act::Shutdown];
            let dialogue = self.dialogue(client, vec![Act::Send(down), Act::Await(up), Act::Shutdown]);
            all.push(dialogue);
        }
    }

    fn stalls(mut self, all: &mut Vec<Dialogue>) {
        for _ in 0..self.rng.u8(1..=3) {
            let (up, down) = (self.size(self.common.budget / 4), self.size(self.common.budget / 4));
            let greeting = self.greeting();
            let client = vec![Act::Send(up + greeting), Act::Shutdown];
            let mut dialogue = self.dialogue(client, vec![Act::Send(down), Act::Shutdown]);
            let every = self.rng.u64(1_000..300_000);
            let stall = Some((every, up_to(self.rng, Duration::from_secs(8))));
            let at_once = pick(self.rng, &[0, 1, 100, 1_000]);
            dialogue.server.reader = Reader { stall, at_once: if at_once == 1 && up > 5_000 { 50 } else { at_once } };
            if self.rng.bool() {
                dialogue.client.reader = Reader { stall, at_once: 0 };
            }
            all.push(dialogue);
        }
    }

    fn aborts(mut self, all: &mut Vec<Dialogue>) {
        for _ in 0..self.rng.u8(1..=5) {
            let (up, down) = (self.size(self.common.budget / 2), self.size(self.common.budget / 2));
            let greeting = self.greeting();
            let pause = Act::Sleep(up_to(self.rng, Duration::from_millis(500)));
            let ends = pick(self.rng, &[Act::Abort, Act::Shutdown]);
            let client = vec![Act::Send(up + greeting), pause, ends];
            let other = if ends == Act::Abort { Act::Shutdown } else { Act::Abort };
            let mut dialogue = self.dialogue(client, vec![Act::Send(down), pause, other]);
            dialogue.client.keepalive = true;
            dialogue.server.keepalive = true;
            dialogue.expect = Expect::Aborted;
            all.push(dialogue);
        }
    }

    fn refused(mut self, all: &mut Vec<Dialogue>) {
        for _ in 0..self.rng.u8(1..=3) {
            let mut dialogue = self.dialogue(vec![Act::Send(10), Act::Shutdown], Vec::new());
            dialogue.port = CLOSED_PORT;
            dialogue.expect = Expect::Refused;
            all.push(dialogue);
        }
    }

    /// Both ends open it at once.
    fn crossed(mut self, all: &mut Vec<Dialogue>) {
        for _ in 0..self.rng.u8(1..=4) {
            let (up, down) = (self.size(self.common.budget), self.size(self.common.budget));
            let client = vec![Act::Send(up), Act::Shutdown];
            let mut dialogue = self.dialogue(client, vec![Act::Send(down), Act::Shutdown]);
            dialogue.from_port = 30_000 + all.len() as u16;
            dialogue.port = 31_000 + all.len() as u16;
            dialogue.crossed = true;
            all.push(dialogue);
        }
    }

    /// Small writes that wait to be joined (Nagle, cork).
    fn corked(mut self, all: &mut Vec<Dialogue>) {
        let writes: Vec<u64> = (0..self.rng.u8(1..30)).map(|_| self.size(3_000)).collect();
        let mut client = vec![Act::Cork(true)];
        for bytes in writes {
            let pause = Act::Sleep(up_to(self.rng, Duration::from_millis(300)));
            client.extend([Act::Send(bytes), pause]);
            if self.rng.u8(..4) == 0 {
                client.extend([Act::Cork(false), Act::Cork(true)]);
            }
        }
        client.push(Act::Shutdown);
        let dialogue = self.dialogue(client, vec![Act::Shutdown]);
        all.push(dialogue);
    }

    /// One tuple again and again; the server closes first, so that it is the one
    /// that holds the tuple in TIME-WAIT when the next SYN comes (RFC 6191).
    fn reopened(mut self, all: &mut Vec<Dialogue>) {
        let from_port = self.rng.u16(1024..30_000);
        for i in 0..self.rng.u64(2..=6) {
            let (up, down) = (self.size(3_000), self.size(3_000));
            let pause = Act::Sleep(Duration::from_millis(200));
            let client = vec![Act::Send(up), Act::Await(down), pause, Act::Shutdown];
            let mut dialogue = self.dialogue(client, vec![Act::Await(up), Act::Send(down), Act::Shutdown]);
            dialogue.start = Duration::from_secs(2 * i) + up_to(self.rng, Duration::from_secs(1));
            dialogue.from_port = from_port;
            all.push(dialogue);
        }
    }
}
