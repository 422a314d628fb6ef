//! A reset reaches the peer, whatever was in flight.

use crate::common::kernels::wait_for;
use crate::common::{At, Line, World};
use baton_client::{Place, Service};
use baton_ipc::message::Selector;
use baton_testkit::{need_program, need_root};
use std::io::ErrorKind;
use std::time::Duration;

/// The number of connections that are reset.
const TIMES: usize = 40;

/// Resets a connection on the engine while bulk data is in flight. Returns the result of the peer's
/// last read.
fn reset(world: &World<'_>, service: &Service) -> ErrorKind {
    let mut line = world.line(false);
    line.adopt(service);
    let At::Service(stream) = &line.at else { unreachable!("it was adopted") };
    stream.set_linger(Some(Duration::ZERO)).unwrap();
    line.go_on(1_000_000);
    service.bring_home(Selector::All).unwrap();
    wait_for("the way home", || line.place() == Place::Kernel);
    service.handoff(Selector::All).unwrap();
    wait_for("the engine", || line.place() == Place::Engine);
    let Line { at, peer, .. } = line;
    drop(at);
    peer.set_nonblocking(false).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    std::io::copy(&mut &peer, &mut std::io::sink()).expect_err("the connection does not end in an orderly way").kind()
}

/// Some of what is in flight arrives late, and some is lost on the way home and back.
#[test]
fn a_reset_is_believed_whatever_was_in_flight() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        for time in 0..TIMES {
            assert_eq!(reset(world, &service), ErrorKind::ConnectionReset, "connection {time} of {TIMES}");
        }
    });
}
