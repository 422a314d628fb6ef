//! Firewall rules that change while connections are away.

use crate::common::kernels::wait_for;
use crate::common::{At, Line, World};
use baton_client::{Place, Service};
use baton_kernel::Rules;
use baton_testkit::{need_program, need_root};
use std::time::{Duration, Instant};

/// One transaction: a table whose rules accept everything except what is banned.
const TABLE: &str = "nft table inet t { \
    set banned { type ipv4_addr; flags interval; }; \
    chain in { type filter hook input priority 0; ip saddr @banned drop; }; }";
const BAN: &str = "nft add element inet t banned { 10.66.0.2 }";
const UNBAN: &str = "nft delete element inet t banned { 10.66.0.2 }";

/// Exchanges bytes until the connection is where it should be.
#[track_caller]
fn goes_on_to(line: &mut Line, place: Place) {
    let begun = Instant::now();
    while line.place() != place {
        line.turn(1000);
        std::thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < Duration::from_secs(20), "the connection is not in the {place:?}");
    }
}

fn why(service: &Service) -> String {
    service.list().unwrap().first().map_or(String::new(), |entry| entry.why.clone())
}

/// Tries to exchange bytes for a while. Returns true if any arrived from the peer, whose packets
/// the rules of these tests drop. Ours still leave: a timeout may send new ones (F-RTO, RFC 5682).
fn passes_any(line: &mut Line) -> bool {
    let before = line.back.read;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        line.turn(1000);
        std::thread::sleep(Duration::from_millis(5));
    }
    before != line.back.read
}

#[test]
fn a_connection_comes_home_for_new_rules_and_goes_back_once_it_passed_them() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    World::with_line(|world, service, mut line| {
        line.go_on(100_000);
        line.come_to_rest();
        world.wire.ours.run("nft add table inet t");
        wait_for("its way home", || line.place() == Place::Kernel);
        assert_eq!(why(service), "rules-changed");
        // It sends nothing, so no packet of it has passed the rules.
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(line.place(), Place::Kernel);
        goes_on_to(&mut line, Place::Engine);
        line.go_on(100_000);
        line.finish();
    });
}

#[test]
fn a_ban_stops_a_connection_that_is_away_and_its_end_lets_it_go_on() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    World::enter(|world| {
        let service = world.service();
        world.wire.ours.run(TABLE);
        let resets = world.wire.resets();
        let [mut away, mut stays] = [world.line(false), world.line(false)];
        away.adopt(&service);
        away.go_on(100_000);
        for _ in 0..2 {
            world.wire.ours.run(BAN);
            wait_for("its way home", || away.place() == Place::Kernel);
            // The bytes in the queues arrive first.
            passes_any(&mut stays);
            passes_any(&mut away);
            assert!(!passes_any(&mut stays), "the kernel's connection continues");
            assert!(!passes_any(&mut away), "the connection that moved continues");
            assert_eq!(away.place(), Place::Kernel);
            world.wire.ours.run(UNBAN);
            away.go_on(100_000);
            stays.go_on(100_000);
            goes_on_to(&mut away, Place::Engine);
        }
        away.finish();
        stays.finish();
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn a_ban_by_legacy_iptables_stops_a_connection_that_is_away() {
    need_root!();
    need_program!("clang");
    need_program!("iptables-legacy");
    for ipv6 in [false, true] {
        World::enter(|world| {
            let iptables = if ipv6 { "ip6tables-legacy" } else { "iptables-legacy" };
            world.wire.ours.run(&format!("{iptables} -w -A INPUT -p udp --dport 9 -j ACCEPT"));
            // The new table is noticed within a second.
            std::thread::sleep(Duration::from_millis(1500));
            let service = world.service();
            let mut line = world.line(ipv6);
            line.adopt(&service);
            line.go_on(100_000);
            // Changed counters are not a change.
            std::thread::sleep(Duration::from_secs(2));
            line.go_on(100_000);
            assert_eq!(line.place(), Place::Engine, "{}", why(&service));
            world.wire.ours.run(&format!("{iptables} -w -I INPUT -p tcp -j DROP"));
            wait_for("its way home", || line.place() == Place::Kernel);
            assert_eq!(why(&service), "rules-changed");
            passes_any(&mut line);
            assert!(!passes_any(&mut line), "the connection continues");
            world.wire.ours.run(&format!("{iptables} -w -D INPUT -p tcp -j DROP"));
            line.go_on(100_000);
            goes_on_to(&mut line, Place::Engine);
            line.finish();
        });
    }
}

#[test]
fn rules_that_change_all_the_time_do_not_move_connections_all_the_time() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    World::enter(|world| {
        let service = world.service();
        world.wire.ours.run(TABLE);
        let mut lines: Vec<Line> = (0..8).map(|n| world.line(n % 2 == 0)).collect();
        lines.iter_mut().for_each(|line| line.adopt(&service));
        let moves = |service: &Service| service.list().unwrap().iter().map(|entry| entry.moves).max().unwrap();
        let before = moves(&service);
        let script = "for n in $(seq 200); do nft add element inet t banned { 192.0.2.1 }; \
                      nft delete element inet t banned { 192.0.2.1 }; sleep 0.01; done";
        let mut churn = world.wire.ours.command("sh");
        let mut churn = churn.args(["-c", script]).spawn().unwrap();
        while churn.try_wait().unwrap().is_none() {
            lines.iter_mut().for_each(|line| line.turn(1000));
        }
        let after = moves(&service);
        assert!((1..=4).contains(&(after - before)), "{} moves", after - before);
        // Once the rules have been stable for a while, the connections go back.
        lines.iter_mut().for_each(|line| goes_on_to(line, Place::Engine));
        lines.iter_mut().for_each(|line| line.go_on(10_000));
        lines.into_iter().for_each(Line::finish);
    });
}

/// Returns why a connection stays, if it does.
fn stays(world: &World<'_>, line: &Line) -> Option<String> {
    let At::Kernel(stream) = &line.at else { panic!("the connection is away") };
    let refused = world.service().adopt(stream.try_clone().unwrap().into()).err()?;
    Some(refused.to_string())
}

#[test]
fn a_connection_that_a_rule_limits_stays_and_goes_on() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    let table = "nft table inet t { \
        chain in { type filter hook input priority 0; limit rate over 100/second drop; }; }";
    World::enter(|world| {
        world.wire.ours.run(table);
        let mut line = world.line(true);
        let why = stays(world, &line).expect("a limit keeps the connection");
        assert!(why.contains("limit in table inet t, chain in"), "{why}");
        line.turn(1000);
        world.wire.ours.run("nft flush ruleset");
        line.go_on(10_000);
        line.come_to_rest();
        let begun = Instant::now();
        while let Some(why) = stays(world, &line) {
            assert!(why.contains("rules-changed") && begun.elapsed() < Duration::from_secs(10), "{why}");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    World::enter_with(
        |config| config.rules = Rules::Follow,
        |world| {
            world.wire.ours.run(table);
            let mut line = world.line(true);
            line.adopt(&world.service());
            assert_eq!(line.place(), Place::Engine);
            line.turn(1000);
            world.wire.ours.run("nft flush ruleset");
            line.go_on(10_000);
            line.finish();
        },
    );
}

#[test]
fn a_connection_that_is_dead_in_the_kernel_does_not_live_by_moving() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    World::enter_with(
        |config| config.rules = Rules::Follow,
        |world| {
            let mut line = world.line(false);
            line.go_on(10_000);
            world.wire.ours.run(&TABLE.replace("ip saddr @banned drop", "tcp sport 1-65535 ip daddr 10.66.0.1 drop"));
            let why = stays(world, &line).expect("all packets of the connection are dropped");
            assert!(why.contains("drop in table inet t, chain in"), "{why}");
            passes_any(&mut line);
            assert!(!passes_any(&mut line), "the connection continues");
            world.wire.ours.run("nft flush ruleset");
            line.go_on(10_000);
            line.finish();
        },
    );
}

/// A connection that came home because of rules that keep it in the kernel stays, and leaves when
/// those rules are gone.
#[test]
fn a_connection_that_new_rules_limit_stays_home_until_they_are_gone() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    World::with_line(|world, service, mut line| {
        world.wire.ours.run(
            "nft table inet t { chain out { type filter hook output priority 0; limit rate over 90000/second drop; }; }",
        );
        wait_for("its way home", || line.place() == Place::Kernel);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            line.turn(100);
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(line.place(), Place::Kernel);
        }
        assert_eq!(why(service), "rules-changed");
        world.wire.ours.run("nft flush ruleset");
        goes_on_to(&mut line, Place::Engine);
        line.finish();
    });
}
