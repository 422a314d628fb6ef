//! The order of a move and how it is undone, with a fault at each step: on a model of both sides,
//! and on real connections.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

use crate::common::{Pair, Wire};
use baton_kernel::handoff::{Aborted, Event, Handoff, Outcome, Phase, Step, Steps};
use baton_kernel::{Captured, capture, make_husk, rebuild, recapture, resume};
use baton_testkit::need_root;

#[test]
fn every_phase_and_every_event() {
    use Event as E;
    let events = [E::Begin, E::Captured, E::Started, E::Stop, E::Resumed, E::Failed, E::InKernel, E::InEngine, E::Lost];
    let mut table = String::new();
    for phase in Phase::ALL {
        for event in events {
            if let Some(next) = phase.next(event) {
                table += &format!("{phase} {event:?} {next}\n");
            }
        }
    }
    assert_eq!(
        table,
        "kernel Begin quiescing\n\
         quiescing Captured captured\n\
         quiescing Failed aborted\n\
         captured Started engine\n\
         captured Failed aborted\n\
         engine Stop restoring\n\
         restoring Resumed kernel\n\
         restoring Failed aborted\n\
         aborted InKernel kernel\n\
         aborted InEngine engine\n\
         aborted Lost lost\n"
    );
}

/// The calls that fail, before or after they have done their work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Before(u32),
    /// Not for `capture`, `start`, `stop`, `recapture` and `resume`, which guarantee that nothing
    /// is done if they fail.
    After(u32),
}

/// Real steps, some of which fail. The engine of this test only keeps what it is given.
struct Faulty<'a> {
    wire: &'a Wire,
    ours: &'a TcpStream,
    engine: Option<Captured>,
    steered: bool,
    calls: u32,
    faults: Vec<Fault>,
    log: Vec<Step>,
}

impl<'a> Faulty<'a> {
    fn new(wire: &'a Wire, ours: &'a TcpStream, faults: &[Fault]) -> Faulty<'a> {
        Faulty { wire, ours, engine: None, steered: false, calls: 0, faults: faults.to_vec(), log: Vec::new() }
    }

    fn step<T>(&mut self, step: Step, atomic: bool, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let call = self.calls;
        self.calls += 1;
        self.log.push(step);
        let after = self.faults.contains(&Fault::After(call));
        if self.faults.contains(&Fault::Before(call)) || after && atomic {
            return Err(io::Error::other(format!("call {call} was made to fail")));
        }
        let done = work(self)?;
        if after { Err(io::Error::other(format!("call {call} failed afterwards"))) } else { Ok(done) }
    }
}

fn other(e: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(e)
}

impl Steps for Faulty<'_> {
    type Error = io::Error;

    fn steer(&mut self) -> io::Result<()> {
        self.step(Step::Steer, false, |s| {
            s.wire.let_go();
            s.wire.hold();
            s.steered = true;
            Ok(())
        })
    }

    fn capture(&mut self) -> io::Result<Captured> {
        self.step(Step::Capture, true, |s| s.wire.ours.enter(|| capture(s.ours)).map_err(other))
    }

    fn make_husk(&mut self, captured: &Captured) -> io::Result<()> {
        self.step(Step::MakeHusk, false, |s| s.wire.ours.enter(|| make_husk(s.ours, captured)).map_err(other))
    }

    fn start(&mut self, captured: &Captured) -> io::Result<()> {
        self.step(Step::Start, true, |s| {
            s.engine = Some(captured.clone());
            Ok(())
        })
    }

    fn stop(&mut self) -> io::Result<Captured> {
        self.step(Step::Stop, true, |s| Ok(s.engine.take().expect("the engine runs it")))
    }

    fn rebuild(&mut self, captured: &Captured) -> io::Result<()> {
        self.step(Step::Rebuild, false, |s| s.wire.ours.enter(|| rebuild(s.ours, captured)).map_err(other))
    }

    fn unsteer(&mut self) -> io::Result<()> {
        self.step(Step::Unsteer, false, |s| {
            s.wire.let_go();
            s.steered = false;
            Ok(())
        })
    }

    fn recapture(&mut self, previous: &Captured) -> io::Result<Captured> {
        self.step(Step::Capture, true, |s| s.wire.ours.enter(|| recapture(s.ours, previous)).map_err(other))
    }

    fn resume(&mut self, captured: &Captured) -> io::Result<()> {
        self.step(Step::Resume, true, |s| s.wire.ours.enter(|| resume(s.ours, captured)).map_err(other))
    }
}

/// Moves the connection there and, if it got there, back. `faults` count the calls of both moves.
fn there_and_back(steps: &mut Faulty<'_>) -> (Handoff, Vec<Aborted<io::Error>>) {
    let mut handoff = Handoff::new();
    let mut aborted = Vec::new();
    if let Err(e) = handoff.hand_off(steps) {
        aborted.push(e);
    }
    // Each failed restore leaves the connection in the engine, from which it is tried again.
    while handoff.phase() == Phase::Engine {
        if let Err(e) = handoff.restore(steps) {
            aborted.push(e);
        }
    }
    (handoff, aborted)
}

#[test]
fn one_fault_at_any_step_leaves_the_connection_whole() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut calls = 0;
    // Both moves together have eight calls. A fault adds calls and never removes any.
    for call in 0..8 {
        for fault in [Fault::Before(call), Fault::After(call)] {
            let mut pair = Pair::new(&wire, call % 2 == 1);
            pair.exchange(5_000);
            pair.leave_unread(20_000);
            pair.fill_send_queue();
            let ours = pair.ours.as_fd().try_clone_to_owned().unwrap().into();
            let mut steps = Faulty::new(&wire, &ours, &[fault]);
            let (handoff, aborted) = there_and_back(&mut steps);
            assert_eq!(aborted.len(), 1, "{fault:?}: {:?}", steps.log);
            assert!(!matches!(aborted[0].outcome, Outcome::Lost { .. }), "{fault:?}: {}", aborted[0]);
            assert_eq!(handoff.phase(), Phase::Kernel, "{fault:?}: {:?}", steps.log);
            assert!(!steps.steered && steps.engine.is_none(), "{fault:?}");
            calls += steps.calls;
            pair.exchange(50_000);
            pair.close();
        }
    }
    assert_eq!(wire.resets(), 0);
    assert!(calls > 16 * 8 / 2, "the faults occurred");
}

#[test]
fn two_faults_in_a_row_lose_a_connection_only_where_undoing_fails_twice() {
    need_root!();
    let wire = Wire::new(&[]);
    for first in 0..8 {
        let mut pair = Pair::new(&wire, false);
        pair.exchange(1_000);
        let ours = pair.ours.as_fd().try_clone_to_owned().unwrap().into();
        let mut steps = Faulty::new(&wire, &ours, &[Fault::Before(first), Fault::Before(first + 1)]);
        let (handoff, _) = there_and_back(&mut steps);
        assert_eq!(handoff.phase(), Phase::Kernel, "{first}: {:?}", steps.log);
        pair.exchange(10_000);
        pair.close();
    }
    assert_eq!(wire.resets(), 0);
}

#[test]
fn what_is_lost_says_where_and_why_and_can_still_be_rebuilt() {
    need_root!();
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, false);
    pair.exchange(1_000);
    let ours: TcpStream = pair.ours.as_fd().try_clone_to_owned().unwrap().into();
    // Steer, capture and the husk succeed; start fails, and rebuild fails twice.
    let mut steps = Faulty::new(&wire, &ours, &[Fault::Before(3), Fault::Before(4), Fault::After(5)]);
    let (handoff, mut aborted) = there_and_back(&mut steps);
    assert_eq!(handoff.phase(), Phase::Lost);
    let text = aborted[0].to_string();
    assert_eq!(text, "Start: call 3 was made to fail; the connection is lost: Rebuild: call 5 failed afterwards");
    let Outcome::Lost { captured: Some(captured), .. } = aborted.remove(0).outcome else {
        panic!("the error contains the captured connection");
    };
    steps.rebuild(&captured).unwrap();
    steps.unsteer().unwrap();
    steps.resume(&captured).unwrap();
    pair.exchange(10_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}
