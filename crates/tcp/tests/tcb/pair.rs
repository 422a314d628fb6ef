//! Two connections joined by a wire that may lose, duplicate and reorder.

use crate::host::Host;
use crate::rig::{open, plain};
use baton_tcp::command::{CloseReason, Notice};
use baton_tcp::config::Config;
use baton_tcp::handshake::Open;
use baton_tcp::segment::Segment;
use baton_tcp::state::State;
use baton_tcp::time::{Duration, Instant};
use baton_wire::seq::Seq;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Faults of the wire, each in percent of segments.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    loss: u64,
    duplicate: u64,
    reorder: u64,
}

struct World {
    hosts: [Host; 2],
    now: Instant,
    wire: BTreeMap<(Instant, u64), (usize, Segment)>,
    count: u64,
    random: u64,
    faults: Faults,
}

impl World {
    fn new(config: &Config, buffers: [u32; 2], faults: Faults, seed: u64) -> World {
        let host = |i: usize, iss: u32| {
            let open = Open { iss: Seq(iss), rcv_space: buffers[i], ts_offset: iss ^ 0xffff_0000, ..open() };
            Host::new(config.clone(), open, buffers[i].max(20_000))
        };
        World {
            // Both streams pass the end of the sequence space.
            hosts: [host(0, u32::MAX - 20_000), host(1, u32::MAX - 50_000)],
            now: Instant(0) + Duration::from_secs(100),
            wire: BTreeMap::new(),
            count: 0,
            random: seed | 1,
            faults,
        }
    }

    fn percent(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % 100
    }

    fn carry(&mut self) {
        for from in 0..2 {
            for segment in core::mem::take(&mut self.hosts[from].frames) {
                if self.percent() < self.faults.loss {
                    continue;
                }
                let copies = 1 + u64::from(self.percent() < self.faults.duplicate);
                for _ in 0..copies {
                    let late = if self.percent() < self.faults.reorder { 7 } else { 0 };
                    self.count += 1;
                    let at = self.now + Duration::from_millis(5 + late);
                    self.wire.insert((at, self.count), (1 - from, segment));
                }
            }
        }
    }

    /// Runs until nothing is to come before `until`.
    fn run(&mut self, until: Instant) {
        loop {
            self.carry();
            let arrival = self.wire.keys().next().map(|k| k.0);
            let timers = self.hosts.iter().filter_map(Host::deadline).min();
            let Some(next) = arrival.into_iter().chain(timers).min().filter(|&at| at <= until) else { break };
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let (_, (to, segment)) = self.wire.pop_first().expect("the arrival");
                self.hosts[to].receive(self.now, &segment);
            } else {
                for host in &mut self.hosts {
                    if host.deadline().is_some_and(|at| at <= self.now) {
                        host.expire(self.now);
                    }
                }
            }
        }
        self.now = until;
    }

    fn run_for(&mut self, span: Duration) {
        self.run(self.now + span);
    }

    /// Runs for `span`; meanwhile every `each` one of the two changes hands.
    fn run_moving(&mut self, span: Duration, each: Duration) -> u32 {
        let until = self.now + span;
        let mut moves = 0;
        while self.now < until {
            self.run(self.now + each);
            let i = (self.percent() % 2) as usize;
            let now = self.now;
            moves += u32::from(self.hosts[i].change_hands(now));
        }
        moves
    }

    fn state(&self, i: usize) -> Option<State> {
        self.hosts[i].tcb.as_ref().map(|t| t.state())
    }
}

/// A configuration without the options that the bits name.
fn without(options: u8) -> Config {
    Config::default().with(|config| {
        config.sack = options & 1 == 0;
        config.timestamps = options & 2 == 0;
        config.window_scaling = options & 4 == 0;
        config.unposted_window = 10_000;
    })
}

/// Two hosts of which one connects, each with so many bytes to send.
fn begin(config: &Config, buffers: [u32; 2], faults: Faults, seed: u64, bytes: [u32; 2]) -> World {
    let mut world = World::new(config, buffers, faults, seed);
    let now = world.now;
    world.hosts[0].connect(now);
    for (i, count) in bytes.into_iter().enumerate() {
        world.hosts[i].post(now, count);
    }
    world
}

/// Both have closed: every byte must arrive and both must end well.
fn end(mut world: World, bytes: [u32; 2]) {
    world.run_for(Duration::from_secs(400));
    for i in 0..2 {
        let host = &world.hosts[i];
        assert_eq!(host.received, u64::from(bytes[1 - i]), "host {i}: {:?}", host.notices);
        assert!(host.tcb.is_none(), "host {i} is in {:?}", world.state(i));
        assert!(host.notices.contains(&Notice::Closed(CloseReason::Normal)), "host {i}: {:?}", host.notices);
        host.assert_settled();
    }
}

/// Opens, sends both ways, closes.
fn exchange(config: &Config, buffers: [u32; 2], faults: Faults, seed: u64, bytes: [u32; 2]) {
    let mut world = begin(config, buffers, faults, seed, bytes);
    world.run_for(Duration::from_secs(60));
    let now = world.now;
    world.hosts[0].close(now);
    world.run_for(Duration::from_secs(20));
    let now = world.now;
    world.hosts[1].close(now);
    end(world, bytes);
}

#[test]
fn a_perfect_wire() {
    exchange(&Config::default(), [1 << 18, 1 << 18], Faults::default(), 1, [300_000, 200_000]);
    exchange(&plain(), [1 << 18, 1 << 18], Faults::default(), 1, [300_000, 200_000]);
}

#[test]
fn a_consumer_that_posts_late_and_little() {
    exchange(
        &Config::default().with(|config| config.unposted_window = 8_000),
        [0, 0],
        Faults::default(),
        1,
        [100_000, 100_000],
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_bad_wire(seed in any::<u64>(), loss in 0..8u64, duplicate in 0..8u64, reorder in 0..20u64, options in 0..8u8,
                  bytes in (0..120_000u32, 0..120_000u32), buffers in (0..3usize, 0..3usize)) {
        let sizes = [0, 3_000, 1 << 17];
        exchange(&without(options), [sizes[buffers.0], sizes[buffers.1]], Faults { loss, duplicate, reorder }, seed, [bytes.0, bytes.1]);
    }
}

/// As [`exchange`], with connections that change hands every `each`.
fn moving_exchange(config: &Config, faults: Faults, seed: u64, bytes: [u32; 2], each: Duration) -> u32 {
    let mut world = begin(config, [1 << 17, 1 << 17], faults, seed, bytes);
    let mut moves = world.run_moving(Duration::from_secs(30), each);
    // Both close while data may be on its way, and still change hands.
    let now = world.now;
    world.hosts[0].close(now);
    moves += world.run_moving(Duration::from_secs(15), each);
    let now = world.now;
    world.hosts[1].close(now);
    moves += world.run_moving(Duration::from_secs(15), each);
    end(world, bytes);
    moves
}

#[test]
fn connections_change_hands_on_a_perfect_wire() {
    for config in [Config::default(), plain()] {
        let moves = moving_exchange(&config, Faults::default(), 1, [600_000, 400_000], Duration::from_millis(3));
        assert!(moves > 1_000, "{moves}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn connections_change_hands_on_a_bad_wire(seed in any::<u64>(), loss in 0..5u64, duplicate in 0..8u64,
                  reorder in 0..20u64, options in 0..8u8, bytes in (0..80_000u32, 0..80_000u32), each in 300..5_000u64) {
        let faults = Faults { loss, duplicate, reorder };
        moving_exchange(&without(options), faults, seed, [bytes.0, bytes.1], Duration::from_millis(each));
    }
}

// tests: MUST-10
#[test]
fn both_open_at_once() {
    let mut world = World::new(&Config::default(), [1 << 16, 1 << 16], Faults::default(), 1);
    let now = world.now;
    world.hosts[0].connect(now);
    world.hosts[1].connect(now);
    world.hosts[0].post(now, 10_000);
    world.hosts[1].post(now, 20_000);
    world.run_for(Duration::from_secs(5));
    assert_eq!((world.state(0), world.state(1)), (Some(State::Established), Some(State::Established)));
    assert_eq!((world.hosts[0].received, world.hosts[1].received), (20_000, 10_000));
}

/// RFC 9293 §3.6, figure 13.
#[test]
fn both_close_at_once() {
    let mut world = World::new(&Config::default(), [1 << 16, 1 << 16], Faults::default(), 1);
    let now = world.now;
    world.hosts[0].connect(now);
    world.run_for(Duration::from_secs(1));
    let now = world.now;
    world.hosts[0].close(now);
    world.hosts[1].close(now);
    world.run_for(Duration::from_millis(7));
    assert_eq!((world.state(0), world.state(1)), (Some(State::Closing), Some(State::Closing)));
    world.run_for(Duration::from_secs(1));
    assert_eq!((world.state(0), world.state(1)), (Some(State::TimeWait), Some(State::TimeWait)));
    world.run_for(Duration::from_secs(70));
    assert_eq!((world.state(0), world.state(1)), (None, None));
}

#[test]
fn an_idle_connection_is_quiet() {
    let mut world = World::new(&Config::default(), [1 << 16, 1 << 16], Faults::default(), 1);
    let now = world.now;
    world.hosts[0].connect(now);
    world.hosts[0].post(now, 1_000);
    world.run_for(Duration::from_secs(30));
    for host in &world.hosts {
        assert!(host.quiet_for(Duration::from_secs(3_600), world.now));
    }
}
