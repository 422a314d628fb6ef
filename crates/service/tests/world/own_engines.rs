//! Engines inside programs, simulated here.

use crate::common::World;
use crate::common::kernels::wait_for;
use crate::strangers::{in_engine, next, say};
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::message::{Incoming, Reply, Request, Selector};
use baton_ipc::order::{Order, Report};
use baton_journal::tuple_of;
use baton_testkit::{need_program, need_root};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The answer of a simulated engine to an order.
type Played = fn(Order) -> Option<Report>;

/// Reports that it is there, adopts connections, and releases none.
fn greedy(order: Order) -> Option<Report> {
    match order {
        Order::Start { .. } => Some(Report::Started {}),
        Order::Hold { id, .. } => Some(Report::Held { id }),
        Order::Adopt { id, .. } => Some(Report::Adopted { id, conn: 0 }),
        Order::Ask {} => Some(Report::Here {}),
        _ => None,
    }
}

fn play(mut orders: Channel, engine: Played) {
    loop {
        match orders.receive() {
            Ok(Some(Parcel { bytes, .. })) => {
                if let Some(report) = Order::from_bytes(&bytes).and_then(engine) {
                    let _ = orders.send(report.to_bytes(), Vec::new());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            _ => return,
        }
    }
}

/// Moves a connection to a program's own engine, up to the point at which the engine is to adopt
/// it. The program speaks this version of the protocol. Returns its channel, the engine's, and the
/// connection's number.
fn bring_to(world: &World<'_>, version: u32, engine: Played, ours: OwnedFd) -> (Channel, Channel, u64) {
    let mut program = world.channel();
    say(&mut program, &Request::Hello { oldest: 1, newest: version }, Vec::new());
    say(&mut program, &Request::Direct {}, Vec::new());
    say(&mut program, &Request::Adopt { seq: 7 }, vec![ours]);
    let mut engine_says = None;
    let id = loop {
        match next(&mut program) {
            Some((Reply::Engine {} | Reply::LocalEngine { .. }, mut fds)) => {
                let orders = Channel::new(fds.pop().unwrap());
                let answers = orders.as_fd().try_clone_to_owned().unwrap();
                engine_says = Some(Channel::new(answers));
                std::thread::spawn(move || play(orders, engine));
            }
            Some((Reply::Bring { incoming: Incoming { id, .. } }, _)) => {
                say(&mut program, &Request::Brought { id, taken: true }, Vec::new());
                break id;
            }
            Some((Reply::BringToEngine { incoming: Incoming { id, .. }, order }, _)) => {
                if let Some(report) = Order::from_bytes(&order).and_then(engine) {
                    engine_says.as_mut().unwrap().send(report.to_bytes(), Vec::new()).unwrap();
                }
                break id;
            }
            Some((Reply::Welcome { .. } | Reply::Region { .. }, _)) => {}
            other => panic!("{other:?}"),
        }
    };
    (program, engine_says.expect("the engine came first"), id)
}

#[test]
fn a_programs_engine_that_keeps_what_is_asked_for_is_not_waited_for() {
    need_root!();
    need_program!("clang");
    [1, 2].into_iter().for_each(|version| {
        World::enter(|world| {
            let service = world.service();
            let (ours, peer) = world.wire.connect(false);
            let own = ours.try_clone().unwrap();
            let (_greedy, _engine, id) = bring_to(world, version, greedy, ours.into());
            in_engine(&service, id);
            let tally = service.bring_home(Selector::All).unwrap();
            assert_eq!((tally.count, tally.failed), (1, 0));
            assert!(service.list().unwrap().iter().all(|entry| entry.place == "kernel" && entry.why == "engine-hung"));
            (&own).write_all(b"an ordinary socket").unwrap();
            let mut heard = [0; 18];
            wait_for("what it says", || (&peer).read(&mut heard).is_ok());
            assert_eq!(&heard, b"an ordinary socket");
        })
    });
}

/// An engine's result is in the program's memory before the broker has the report.
#[test]
fn what_is_asked_about_a_connection_of_whose_arrival_the_broker_has_not_heard_is_answered() {
    need_root!();
    need_program!("clang");
    let silent: Played = |order| match order {
        Order::Adopt { .. } => None,
        Order::Info { id } => Some(Report::Info { id, bytes: vec![1, 2, 3] }),
        order => greedy(order),
    };
    [1, 2].into_iter().for_each(|version| {
        World::enter(|world| {
            let (ours, _peer) = world.wire.connect(false);
            let (mut program, _engine, id) = bring_to(world, version, silent, ours.into());
            say(&mut program, &Request::Info { id }, Vec::new());
            let answer = next(&mut program).map(|(reply, _)| reply);
            assert_eq!(answer, Some(Reply::Info { id, bytes: vec![1, 2, 3] }));
        })
    });
}

/// An engine that was never asked to hold the frames of any connection but the first.
fn asked_once(order: Order) -> Option<Report> {
    match order {
        Order::Hold { id: 2.., .. } => None,
        order => greedy(order),
    }
}

#[test]
fn a_connection_whose_frames_are_held_already_takes_three_messages() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let (first, _first_peer) = world.wire.connect(false);
        let (mut program, mut engine, id) = bring_to(world, 2, asked_once, first.into());
        in_engine(&service, id);
        let (second, _second_peer) = world.wire.connect(true);
        let request = Request::AdoptHeld { seq: 8, tuple: tuple_of(&second).unwrap(), engine: u64::MAX };
        say(&mut program, &request, vec![second.into()]);
        let Some((Reply::BringToEngine { incoming, order }, _)) = next(&mut program) else { panic!("it is brought") };
        assert_eq!(incoming.seq, 8);
        engine.send(asked_once(Order::from_bytes(&order).unwrap()).unwrap().to_bytes(), Vec::new()).unwrap();
        in_engine(&service, incoming.id);
    });
}

/// A program that has heard of no engine yet, or means another connection, has promised nothing.
#[test]
fn frames_that_nobody_holds_are_asked_for() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let (first, _first_peer) = world.wire.connect(false);
        let other = tuple_of(&first).unwrap();
        let (mut program, _engine, _) = bring_to(world, 2, asked_once, first.into());
        for (tuple, engine) in [(None, 0), (Some(other), u64::MAX)] {
            let (second, _peer) = world.wire.connect(false);
            let tuple = tuple.or_else(|| tuple_of(&second)).unwrap();
            say(&mut program, &Request::AdoptHeld { seq: 8, tuple, engine }, vec![second.into()]);
            // Its engine does not answer that, so no message follows.
            program_hears_nothing(&mut program);
        }
    });
}

fn program_hears_nothing(program: &mut Channel) {
    std::thread::sleep(Duration::from_millis(200));
    assert!(program.receive().is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
}

/// Bytes that a program cannot take in go back to the kernel with the rest.
#[test]
fn a_connection_that_the_program_cannot_take_in_goes_back_whole() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let (ours, mut peer) = world.wire.connect(false);
        let own = ours.try_clone().unwrap();
        peer.write_all(b"unread").unwrap();
        wait_for("the bytes", || own.peek(&mut [0; 6]).is_ok_and(|count| count == 6));
        let no_answer: Played = |order| if matches!(order, Order::Adopt { .. }) { None } else { greedy(order) };
        let (mut program, _engine, id) = bring_to(world, 2, no_answer, ours.into());
        say(&mut program, &Request::Brought { id, taken: false }, Vec::new());
        let answer = next(&mut program).map(|(reply, _)| reply);
        assert!(matches!(answer, Some(Reply::Stays { seq: 7, ref code, .. }) if code == "no-buffers"), "{answer:?}");
        let mut read = [0; 6];
        (&own).read_exact(&mut read).unwrap();
        assert_eq!(&read, b"unread");
    });
}
