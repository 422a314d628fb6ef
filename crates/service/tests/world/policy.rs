//! Which of the sockets that programs hand over move, and when.

use crate::common::{At, Line, Role, World};
use baton_client::{Place, Told};
use baton_policy::conditions::Condition;
use baton_policy::rules::{Entry, Policy, Rule, for_ports};
use baton_testkit::{need_program, need_root};
use rustix::process::{Pid, Signal, kill_process};
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
        |config| config.policy = for_ports(Rule::Never, &["1-65535".to_owned()]).unwrap(),
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

/// A policy that keeps connections with this local port in the kernel.
fn without(port: u16) -> Policy {
    let conditions = vec![Condition::parse("local-port", &port.to_string()).unwrap()];
    Policy { entries: vec![Entry { conditions, rule: Rule::Never }], otherwise: Rule::FirstCome }
}

fn local_port(line: &Line) -> u16 {
    let At::Kernel(stream) = &line.at else { panic!("the connection is away") };
    stream.local_addr().unwrap().port()
}

#[test]
fn a_new_policy_brings_home_what_may_not_be_there_and_nothing_else() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut lines: Vec<Line> = (0..4).map(|n| world.line(n % 2 == 0)).collect();
        let port = local_port(&lines[1]);
        lines.iter_mut().for_each(|line| line.adopt(&service));
        lines.iter_mut().for_each(|line| line.go_on(50_000));
        let policy = without(port);
        let tally = world.service().reload(Some(&policy)).unwrap();
        assert_eq!((tally.count, tally.failed), (1, 0));
        assert_eq!(world.service().policy().unwrap(), policy);
        let place = |at: usize| if at == 1 { Place::Kernel } else { Place::Engine };
        lines.iter_mut().for_each(|line| line.go_on(50_000));
        assert!(lines.iter().enumerate().all(|(at, line)| line.place() == place(at)));
        let home: Vec<_> = service.list().unwrap().into_iter().filter(|entry| entry.place == "kernel").collect();
        assert_eq!((home.len(), home[0].why.as_str(), home[0].tuple.local_port), (1, "policy-changed", port));
        // Without a file of its own, the service has nothing to read again, and goes on as it is.
        let error = world.service().reload(None).unwrap_err();
        assert!(error.to_string().contains("no configuration file; name the file to load"), "{error}");
        assert_eq!(world.service().policy().unwrap(), policy);
        lines.into_iter().for_each(Line::finish);
    });
}

#[test]
fn a_loaded_policy_outlives_the_broker() {
    need_root!();
    need_program!("clang");
    World::enter_guarded(|world| {
        let policy = without(1);
        world.service().reload(Some(&policy)).unwrap();
        let pid = world.process(Role::Broker);
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
        world.process_but(Role::Broker, Some(pid));
        assert_eq!(world.service().policy().unwrap(), policy);
    });
}

/// A rule may ask who runs the program, who opened the connection, and how it went so far.
#[test]
fn conditions_on_program_and_course_are_asked_of_each_connection() {
    need_root!();
    need_program!("clang");
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    let entry = |conditions: &[(&str, &str)], rule| Entry {
        conditions: conditions.iter().map(|(key, text)| Condition::parse(key, text).unwrap()).collect(),
        rule,
    };
    let policy = Policy {
        entries: vec![
            entry(&[("program", "another"), ("user", "0")], Rule::FirstCome),
            entry(&[("program", comm.trim_end()), ("family", "ipv6"), ("interface", "wire")], Rule::FirstCome),
            entry(&[("direction", "connected"), ("bytes", ">= 1 KiB")], Rule::FirstCome),
        ],
        otherwise: Rule::Never,
    };
    World::enter_with(
        |config| config.policy = policy.clone(),
        |world| {
            let service = world.service();
            let (mut four, mut six) = (world.line(false), world.line(true));
            six.adopt(&service);
            assert_eq!(six.place(), Place::Engine);
            // Nobody has said who opened it.
            assert!(stays(world, &mut four).contains("waits-for-condition"));
            let told = |accepted| Told { accepted: Some(accepted), ..Told::default() };
            let offer = |four: &Line, accepted| {
                let At::Kernel(stream) = &four.at else { panic!("the connection is away") };
                service.adopt_told(stream.try_clone().unwrap().into(), told(accepted)).map(drop)
            };
            assert_eq!(offer(&four, true).unwrap_err().code, "rule-never");
            assert_eq!(offer(&four, false).unwrap_err().code, "waits-for-condition");
            four.go_on(2_000);
            assert!(offer(&four, false).is_ok());
            six.go_on(10_000);
            six.finish();
        },
    );
}
