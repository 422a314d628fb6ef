//! Which of the sockets that programs hand over move, and when.

use crate::common::{At, Line, World};
use baton_client::Place;
use baton_policy::rules::{PortRule, Rule, Side};
use baton_testkit::{need_program, need_root};
use std::net::TcpStream;

/// Returns why the connection stays.
#[track_caller]
fn stays(world: &World<'_>, line: &mut Line) -> String {
    let At::Kernel(stream) = &line.at else { panic!("the connection is away") };
    let copy: TcpStream = stream.try_clone().unwrap();
    let Err(refused) = world.service().adopt(copy.into()) else { panic!("the connection moved") };
    refused.to_string()
}

#[test]
fn it_moves_once_it_has_sent_so_often() {
    need_root!();
    need_program!("clang");
    let rule = Rule::AfterSends(3.try_into().unwrap());
    World::enter_with(
        |config| config.policy.otherwise = rule,
        |world| {
            let service = world.service();
            let mut line = world.line(false);
            for sends in 0..3 {
                let why = stays(world, &mut line);
                assert!(why.contains(&format!("after {} more sends", 3 - sends)), "{why}");
                line.turn(10);
            }
            line.adopt(&service);
            assert_eq!(line.place(), Place::Engine);
            line.go_on(100_000);
            line.finish();
        },
    );
}

#[test]
fn a_port_whose_rule_is_never_stays_in_the_kernel() {
    need_root!();
    need_program!("clang");
    World::enter_with(
        |config| config.policy.ports = vec![PortRule { side: Side::Remote, ports: 1..=65_535, rule: Rule::Never }],
        |world| {
            let mut line = world.line(true);
            let why = stays(world, &mut line);
            assert!(why.contains("never to move"), "{why}");
            line.go_on(100_000);
            line.finish();
        },
    );
}

#[test]
fn what_finds_no_room_waits_until_there_is_some() {
    need_root!();
    need_program!("clang");
    World::enter_with(
        |config| config.tuning.connections = 1,
        |world| {
            let service = world.service();
            let (mut first, mut second) = (world.line(false), world.line(false));
            first.adopt(&service);
            let why = stays(world, &mut second);
            assert!(why.contains("as many connections as it may have"), "{why}");
            first.restore();
            second.adopt(&service);
            assert_eq!(second.place(), Place::Engine);
            first.finish();
            second.finish();
        },
    );
}
