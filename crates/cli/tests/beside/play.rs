//! One cell, with the kernel alone or with Baton, from the first byte to the last.

use crate::factors::{Cell, Life, Traffic};
use crate::half::{Half, Report, kill};
use crate::outcome::{Look, Outcome};
use crate::restless::Restless;
use crate::situation::{Meeting, Rate, Rates, ban};
use crate::world::{PORT, World};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time after which data in flight has arrived, so that later data was sent later.
const UNDER_WAY: Duration = Duration::from_millis(300);
/// Time within which bytes arrive on the kernel alone, if at all; it covers the backoff of
/// retransmissions.
const KERNEL: Duration = Duration::from_secs(5);
/// Time to wait for bytes that must arrive.
const PATIENCE: Duration = Duration::from_secs(20);
/// A connection without a byte in this time has stopped.
const STANDS: Duration = Duration::from_millis(1500);
/// Time within which a connection must stop if it stops on the kernel alone.
const FOLLOWED: Duration = Duration::from_secs(10);
/// Interval at which the ends are polled.
const TICK: Duration = Duration::from_millis(40);
/// Interval over which rates are measured.
const MEASURE: Duration = Duration::from_millis(1500);
/// Number of moves of a connection before anything else happens to it.
const MOVES: u64 = 10;
const BURST: u64 = 6 << 20;

/// A connection and its two ends.
struct Play {
    cell: Cell,
    world: World,
    ours: Half,
    peer: Half,
    /// The last report of each end.
    last: [Report; 2],
    rates: Rates,
    /// True once our end was killed.
    killed: bool,
}

/// Plays the cell on the kernel alone.
pub fn alone(cell: Cell) -> Outcome {
    let mut world = World::new(cell);
    cell.situation.prepare(&mut world);
    let mut play = Play::open(world);
    let mut outcome = Outcome::default();
    play.begin(&mut outcome, None);
    cell.situation.change(&play.world);
    if cell.life == Life::ProgramKilled {
        play.kill_program();
    }
    outcome.looks.push(("after the change", play.look()));
    if cell.situation.undo(&play.world) {
        outcome.looks.push(("once it was taken back", play.look()));
    }
    play.end(&mut outcome);
    if cell.life != Life::ProgramKilled {
        let look = &outcome.looks[1].1;
        let expected = cell.situation.kernel_goes_on();
        assert_eq!(
            (look.to_us, look.to_peer),
            (expected, expected),
            "the kernel alone, so the situation is not what it should be"
        );
        assert!(outcome.facts.values().all(|holds| *holds), "the kernel alone: {:?}", outcome.facts);
    }
    outcome
}

/// Plays the cell with Baton. Also returns the reason code if the connection did not move.
pub fn with_baton(cell: Cell, expected: &Outcome) -> (Outcome, String) {
    let mut world = World::new(cell);
    world.start_service();
    cell.situation.prepare(&mut world);
    let mut play = Play::open(world);
    let mut outcome = Outcome::default();
    let mut restless = (cell.life == Life::MovesOften).then(|| Restless::start(&play.world.socket()));
    play.begin(&mut outcome, Some(expected));
    cell.situation.change(&play.world);
    match cell.life {
        Life::EngineKilled => kill(play.world.directory(), "engine"),
        Life::BrokerKilled => kill(play.world.directory(), "broker"),
        Life::ProgramKilled => play.kill_program(),
        _ => {}
    }
    play.look_for(expected, &mut outcome, "after the change");
    if cell.situation.undo(&play.world) {
        play.look_for(expected, &mut outcome, "once it was taken back");
    }
    // From here on the connection is closing, and nothing moves it any more.
    let moves = restless.take().map(|restless| format!(", {} moves", restless.moves()));
    play.end(&mut outcome);
    let Play { world, mut ours, mut peer, .. } = play;
    peer.finish();
    ours.finish();
    let reasons = world.reasons();
    let may = cell.may_refuse();
    let came_home = cell.life != Life::HomeByBulk || reasons.iter().any(|reason| reason == "bulk");
    assert!(came_home || !may.is_empty(), "it has not come home as bulk{}", world.words());
    let alone = (cell.life == Life::Stays).then(|| "stays".to_owned());
    let stayed = reasons.iter().find(|reason| may.contains(&reason.as_str()));
    (outcome, alone.or(stayed.cloned()).unwrap_or_else(|| "moved".to_owned()) + &moves.unwrap_or_default())
}

impl Play {
    fn open(world: World) -> Play {
        let cell = world.cell;
        let Meeting { we_listen, address, port, at } = cell.situation.meeting(&world);
        let traffic = |asks: bool| match (cell.traffic, asks) {
            (Traffic::Idle, _) => "idle",
            (Traffic::Bulk, _) => "bulk",
            (Traffic::Request, true) => "ask",
            (Traffic::Request, false) => "answer",
        };
        let (listen, connect) = (["listen", &at, PORT, traffic(false)], ["connect", &address, port, traffic(true)]);
        let half = |ours: bool, words| if ours { world.our_half(words) } else { world.peer_half(words) };
        let listener = half(we_listen, listen);
        listener.hear("ready");
        let connector = half(!we_listen, connect);
        listener.hear("open");
        connector.hear("open");
        let (ours, peer) = if we_listen { (listener, connector) } else { (connector, listener) };
        let nothing = Report { sent: 0, received: 0, end: "-".into() };
        Play { cell, world, ours, peer, last: [nothing.clone(), nothing], rates: Rates::default(), killed: false }
    }

    /// Waits until bytes flow in both directions, and takes the other steps before the change.
    fn begin(&mut self, outcome: &mut Outcome, expected: Option<&Outcome>) {
        self.go_on();
        if self.cell.life == Life::HomeByBulk {
            self.burst();
        }
        self.rates();
        outcome.looks.push(("at first", self.look_until(|look| look.goes_on(), PATIENCE)));
        if expected.is_some() {
            self.has_moved();
        }
        if self.cell.situation.begins_with_ban() {
            ban(&self.world);
            self.stand();
        }
    }

    fn hear(&mut self) {
        if !self.killed {
            self.last[0] = self.ours.report().expect("our end lives");
        }
        self.last[1] = self.peer.report().expect("the peer's end lives");
    }

    /// Makes both ends send something.
    fn go_on(&mut self) {
        if self.cell.traffic == Traffic::Idle {
            self.ours.tell('p');
            self.peer.tell('p');
        }
    }

    /// Polls until `done` returns true, or until the time is over.
    fn look_until(&mut self, done: impl Fn(&Look) -> bool, most: Duration) -> Look {
        self.hear();
        let before = self.last.clone();
        self.go_on();
        let begun = Instant::now();
        loop {
            sleep(TICK);
            self.hear();
            let look = Look {
                to_us: self.last[0].received > before[0].received,
                to_peer: self.last[1].received > before[1].received,
                our_end: self.last[0].end.clone(),
                peer_end: self.last[1].end.clone(),
            };
            if done(&look) || begun.elapsed() > most {
                return look;
            }
        }
    }

    /// Observes the outcome on the kernel alone.
    fn look(&mut self) -> Look {
        sleep(UNDER_WAY);
        let killed = self.killed;
        let look = self.look_until(|look| if killed { look.peer_end != "-" } else { look.goes_on() }, KERNEL);
        if killed { look.of_killed(&self.cell) } else { look }
    }

    /// The same, if the expected outcome is known.
    fn look_for(&mut self, expected: &Outcome, outcome: &mut Outcome, name: &'static str) {
        let at = outcome.looks.len();
        let expected = &expected.looks[at].1;
        sleep(UNDER_WAY);
        let (killed, cell) = (self.killed, self.cell);
        let normal = |look: Look| if killed { look.of_killed(&cell) } else { look };
        let wanted = |look: &Look| normal(look.clone()) == *expected;
        let look = if killed || expected.goes_on() {
            self.look_until(wanted, PATIENCE)
        } else {
            let begun = Instant::now();
            loop {
                let look = self.look_until(|_| false, STANDS);
                if wanted(&look) || begun.elapsed() > FOLLOWED {
                    break look;
                }
            }
        };
        outcome.looks.push((name, normal(look)));
    }

    /// Checks that the connection has stopped.
    fn stand(&mut self) {
        let begun = Instant::now();
        while self.look_until(|_| false, STANDS).moves_at_all() {
            assert!(begun.elapsed() < FOLLOWED, "it goes on though it is banned");
        }
    }

    fn burst(&mut self) {
        self.hear();
        let before = self.last.clone();
        // Tell the answering end of the burst before the first byte arrives.
        let we_answer = self.cell.situation.meeting(&self.world).we_listen;
        let (first, second) =
            if we_answer { (&mut self.ours, &mut self.peer) } else { (&mut self.peer, &mut self.ours) };
        first.tell('b');
        first.report().expect("the end that answers lives");
        second.tell('b');
        let begun = Instant::now();
        loop {
            self.hear();
            if (0..2).all(|at| self.last[at].received >= before[at].received + BURST) {
                return;
            }
            assert!(begun.elapsed() < 3 * PATIENCE, "a burst does not arrive: {:?}", self.last);
            sleep(TICK);
        }
    }

    /// Measures the rates in both directions.
    fn rates(&mut self) {
        let begun = Instant::now();
        self.hear();
        let before = self.last.clone();
        let measured = self.cell.traffic == Traffic::Bulk && self.cell.situation.has_rate();
        sleep(if measured { MEASURE } else { TICK });
        self.hear();
        let rate = |at: usize| Rate { bytes: self.last[at].received - before[at].received, time: begun.elapsed() };
        self.rates = Rates { to_us: rate(0), to_peer: rate(1) };
    }

    /// Waits until the connection has moved as the cell requires.
    fn has_moved(&mut self) {
        if self.cell.life == Life::Stays || !self.cell.may_refuse().is_empty() {
            return;
        }
        let begun = Instant::now();
        loop {
            let entry = self.world.entry();
            let has = entry.as_ref().map_or(self.cell.life == Life::HomeByBulk, |entry| match self.cell.life {
                // A connection that is back for good may no longer be listed; our end explains it later.
                Life::HomeByBulk => entry.place == "kernel",
                Life::MovesOften => entry.moves >= MOVES,
                _ => entry.place == "engine",
            });
            if has {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let Self { ours, peer, .. } = self;
                peer.finish();
                ours.finish();
                panic!("it has not moved: {entry:?}{}", self.world.words());
            }
            sleep(TICK);
        }
    }

    fn kill_program(&mut self) {
        self.hear();
        kill(self.world.directory(), "program");
        self.killed = true;
    }

    /// Closes the connection in order, if it still works.
    fn end(&mut self, outcome: &mut Outcome) {
        self.hear();
        let [ours, peer] = &self.last;
        outcome.facts = self.cell.situation.facts(&self.world, ours, peer, &self.rates);
        let goes_on = outcome.looks.last().is_some_and(|(_, look)| look.goes_on());
        if self.killed || !goes_on {
            return;
        }
        self.ours.tell('h');
        self.peer.tell('h');
        self.wait("all bytes", |[ours, peer]| ours.sent == peer.received && peer.sent == ours.received);
        self.ours.tell('f');
        self.peer.tell('f');
        self.wait("both ends", |[ours, peer]| ours.end == "eof" && peer.end == "eof");
        let [ours, peer] = &self.last;
        assert_eq!((ours.sent, peer.sent), (peer.received, ours.received), "every byte, and none twice");
        outcome.ended = true;
    }

    #[track_caller]
    fn wait(&mut self, what: &str, done: impl Fn(&[Report; 2]) -> bool) {
        let begun = Instant::now();
        loop {
            self.hear();
            // An answer that was in flight when the end was told to stop counts, too.
            if done(&self.last) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} do not come: {:?}", self.last);
            sleep(TICK);
        }
    }
}
