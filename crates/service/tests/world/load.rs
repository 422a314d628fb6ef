//! An engine that gets too little CPU time sends connections home, and takes them back.

use crate::common::World;
use baton_client::{Place, Service, Stream};
use baton_policy::Reason;
use baton_policy::conditions::Condition;
use baton_policy::load::most_moves;
use baton_policy::rules::{Entry, Policy, Rule};
use baton_policy::watermarks::Choice;
use baton_testkit::throttle::Throttle;
use baton_testkit::{need_program, need_root, skip};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// More than a burst, several times.
const CONNECTIONS: usize = 300;
/// The part of a CPU that the engine gets, in hundredths.
const PART: u64 = 5;
/// How long the load may take to show an effect, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// These tests take turns: each would be the other's load.
static TURN: Mutex<()> = Mutex::new(());

/// Ends the test where no engine can be started and throttled; waits for its turn otherwise.
macro_rules! need_throttle {
    () => {
        need_root!();
        need_program!("clang");
        if !can_throttle() {
            skip!("no cgroup gives out CPU time here");
        }
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    };
}

/// A connection whose peer sends back what it gets, one number at a time.
struct Call {
    stream: Stream,
    peer: TcpStream,
    sent: u64,
    answered: u64,
}

impl Call {
    fn new(service: &Service, world: &World<'_>) -> Call {
        let (ours, peer) = world.wire.connect(false);
        ours.set_nodelay(true).unwrap();
        peer.set_nodelay(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let stream = service.adopt(ours.into()).unwrap_or_else(|refused| panic!("{refused}"));
        stream.set_nonblocking(true);
        Call { stream, peer, sent: 0, answered: 0 }
    }

    /// Calls again if the last call was answered.
    fn turn(&mut self) {
        if self.sent == self.answered {
            let number = (self.sent + 1).to_le_bytes();
            match (&mut &self.stream).write(&number) {
                Ok(count) => {
                    assert_eq!(count, number.len(), "a few bytes are written whole");
                    self.sent += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
        self.hear();
    }

    /// Carries on with the last call, and begins no other.
    fn hear(&mut self) {
        let mut bytes = [0; 8];
        if let Some(count) = there(self.peer.read(&mut bytes)) {
            assert_eq!((count, u64::from_le_bytes(bytes)), (8, self.sent), "the request is lost or repeated");
            self.peer.write_all(&bytes).unwrap();
        }
        if let Some(count) = there((&mut &self.stream).read(&mut bytes)) {
            assert_eq!((count, u64::from_le_bytes(bytes)), (8, self.sent), "the answer is lost or repeated");
            self.answered = self.sent;
        }
    }
}

/// The number of bytes that were read; `None` if nothing was there.
#[track_caller]
fn there(read: std::io::Result<usize>) -> Option<usize> {
    match read {
        Ok(0) => panic!("the connection has ended"),
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// Has all connections call until `done`, which is asked now and then.
#[track_caller]
fn call_until(what: &str, calls: &mut [Call], mut done: impl FnMut(&mut [Call]) -> bool) {
    let begun = Instant::now();
    loop {
        for _ in 0..20 {
            calls.iter_mut().for_each(Call::turn);
        }
        if done(calls) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
    }
}

/// Waits until every call is answered, and begins none.
#[track_caller]
fn hear_all(calls: &mut [Call]) {
    let begun = Instant::now();
    while calls.iter().any(|call| call.answered != call.sent) {
        calls.iter_mut().for_each(Call::hear);
        assert!(begun.elapsed() < PATIENCE, "calls are not answered within {PATIENCE:?}");
    }
}

fn at_engine(calls: &[Call]) -> usize {
    calls.iter().filter(|call| call.stream.place() == Place::Engine).count()
}

#[test]
fn an_engine_with_too_little_time_sheds_connections_and_takes_them_back() {
    need_throttle!();
    World::enter_with(
        |config| config.load = Choice::Auto,
        |world| {
            let service = world.service();
            let begun = Instant::now();
            let mut calls: Vec<Call> = (0..CONNECTIONS).map(|_| Call::new(&service, world)).collect();
            let limit = || service.loads().unwrap().last().map(|(_, past)| past.load.soft_limit);

            let throttle = Throttle::new(world.engine, PART).unwrap();
            call_until("connections go home", &mut calls, |calls| at_engine(calls) < CONNECTIONS * 3 / 4);
            assert!(limit().is_some_and(|limit| (limit as usize) < CONNECTIONS));
            let home = service.list().unwrap().into_iter().filter(|entry| entry.place == "kernel");
            assert!(home.into_iter().all(|entry| entry.why == Reason::Load.code()));
            let some = calls.iter().map(|call| call.answered).sum::<u64>();
            call_until("calls are answered", &mut calls, |calls| {
                calls.iter().map(|call| call.answered).sum::<u64>() > some + 10 * CONNECTIONS as u64
            });

            drop(throttle);
            call_until("connections come back", &mut calls, |calls| at_engine(calls) == CONNECTIONS);
            assert!(limit().is_some_and(|limit| limit as usize >= CONNECTIONS));
            let most = most_moves(begun.elapsed().as_secs());
            for entry in service.list().unwrap() {
                assert!(entry.moves <= most, "{} moves, at most {most} in {:?}", entry.moves, begun.elapsed());
            }
            hear_all(&mut calls);
        },
    );
}

/// A connection that goes home for load is an ordinary socket, which the service takes back only after a pause.
#[test]
fn what_goes_home_for_load_is_given_back_and_may_return() {
    need_throttle!();
    World::enter_with(
        |config| config.load = Choice::Auto,
        |world| {
            let service = world.service();
            let mut calls: Vec<Call> = (0..CONNECTIONS).map(|_| Call::new(&service, world)).collect();
            let throttle = Throttle::new(world.engine, PART).unwrap();
            let given_back = |calls: &[Call]| calls.iter().position(|call| call.stream.is_given_back());
            call_until("a connection is given back", &mut calls, |calls| given_back(calls).is_some());
            let mut call = calls.swap_remove(given_back(&calls).unwrap());
            assert_eq!(call.stream.why_given_back(), Some(Reason::Load));
            let mut socket = TcpStream::from(call.stream.take_back().unwrap());
            socket.set_nonblocking(false).unwrap();
            if call.answered < call.sent {
                // The last call is under way.
                call.peer.set_nonblocking(false).unwrap();
                let mut bytes = [0; 8];
                socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                if socket.read_exact(&mut bytes).is_err() {
                    call.peer.read_exact(&mut bytes).unwrap();
                }
                assert_eq!(u64::from_le_bytes(bytes), call.sent);
            }
            socket.write_all(b"an ordinary socket").unwrap();
            let mut bytes = [0; 18];
            call.peer.set_nonblocking(false).unwrap();
            call.peer.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"an ordinary socket");

            // The throttle stays for a while, in which the pause is over and the engine's limit is reached.
            let refused = service.adopt(socket.into()).err().expect("the pause is a second at least");
            assert_eq!(refused.code, Reason::Load.code());
            drop(throttle);
            let mut socket = refused.fd;
            call_until("it returns", &mut calls, |_| {
                let Some(fd) = socket.take() else { return true };
                match service.adopt(fd) {
                    Ok(stream) => assert_eq!(stream.place(), Place::Engine),
                    Err(refused) => {
                        assert!(Reason::from_code(&refused.code).is_some_and(Reason::may_pass), "{refused}");
                        socket = refused.fd;
                    }
                }
                socket.is_none()
            });
        },
    );
}

/// The engine gets its CPU time and loses it again, and the policy changes, once a second, for so many
/// seconds: no call is lost, and no connection moves more often than the pauses allow.
fn swing(seconds: u64) {
    World::enter_with(
        |config| config.load = Choice::Auto,
        |world| {
            let service = world.service();
            let begun = Instant::now();
            let mut calls: Vec<Call> = (0..CONNECTIONS).map(|_| Call::new(&service, world)).collect();
            for second in 1..=seconds {
                let throttle = (second % 2 == 0).then(|| Throttle::new(world.engine, PART).unwrap());
                // Both let these connections be where they are.
                let conditions = vec![Condition::parse("local-port", "1").unwrap()];
                let elsewhere = Entry { conditions, rule: Rule::Never };
                let entries = if second % 2 == 0 { vec![elsewhere] } else { Vec::new() };
                let tally = service.reload(Some(&Policy { entries, otherwise: Rule::FirstCome })).unwrap();
                assert_eq!((tally.count, tally.failed), (0, 0), "a policy that concerns no connection moves none");
                let until = Instant::now() + Duration::from_secs(1);
                call_until("a second passes", &mut calls, |_| Instant::now() >= until);
                drop(throttle);
            }
            hear_all(&mut calls);
            let most = most_moves(begun.elapsed().as_secs());
            let entries = service.list().unwrap();
            assert_eq!(entries.len(), CONNECTIONS, "connections are lost");
            assert!(entries.iter().all(|entry| entry.moves <= most), "more than {most} moves in {:?}", begun.elapsed());
        },
    );
}

/// Returns true if a cgroup gives out CPU time here.
fn can_throttle() -> bool {
    !matches!(Throttle::new(std::process::id(), 100), Err(error) if error.kind() == ErrorKind::Unsupported)
}

#[test]
fn load_that_swings_every_second_loses_nothing() {
    need_throttle!();
    // A soak takes longer.
    let seconds = std::env::var("BATON_SWINGS").map_or(12, |text| text.parse().expect("a number of seconds"));
    swing(seconds);
}
