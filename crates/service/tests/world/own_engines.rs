//! Engines inside programs, simulated here.

use crate::common::World;
use crate::common::kernels::wait_for;
use crate::strangers::{greet, in_engine, next, say};
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::message::{Reply, Request, Selector};
use baton_ipc::order::{Order, Report};
use baton_testkit::{need_program, need_root};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
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
/// it. Returns the program's channel and the connection's number.
fn bring_to(world: &World<'_>, engine: Played, ours: OwnedFd) -> (Channel, u64) {
    let mut program = greet(world);
    say(&mut program, &Request::Direct {}, Vec::new());
    say(&mut program, &Request::Adopt { seq: 7 }, vec![ours]);
    let id = loop {
        match next(&mut program) {
            Some((Reply::Engine {}, mut fds)) => {
                let orders = Channel::new(fds.pop().unwrap());
                std::thread::spawn(move || play(orders, engine));
            }
            Some((Reply::Bring { id, .. }, _)) => break id,
            Some((Reply::Welcome { .. } | Reply::Region { .. }, _)) => {}
            other => panic!("{other:?}"),
        }
    };
    say(&mut program, &Request::Brought { id, taken: true }, Vec::new());
    (program, id)
}

#[test]
fn a_programs_engine_that_keeps_what_is_asked_for_is_not_waited_for() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let (ours, peer) = world.wire.connect(false);
        let own = ours.try_clone().unwrap();
        let (_greedy, id) = bring_to(world, greedy, ours.into());
        in_engine(&service, id);
        let tally = service.bring_home(Selector::All).unwrap();
        assert_eq!((tally.count, tally.failed), (1, 0));
        assert!(service.list().unwrap().iter().all(|entry| entry.place == "kernel" && entry.why == "engine-hung"));
        (&own).write_all(b"an ordinary socket").unwrap();
        let mut heard = [0; 18];
        wait_for("what it says", || (&peer).read(&mut heard).is_ok());
        assert_eq!(&heard, b"an ordinary socket");
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
    World::enter(|world| {
        let (ours, _peer) = world.wire.connect(false);
        let (mut program, id) = bring_to(world, silent, ours.into());
        say(&mut program, &Request::Info { id }, Vec::new());
        let answer = next(&mut program).map(|(reply, _)| reply);
        assert_eq!(answer, Some(Reply::Info { id, bytes: vec![1, 2, 3] }));
    });
}
