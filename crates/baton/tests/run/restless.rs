//! Programs whose connections go to and fro all the time, on a wire that loses segments.

use crate::programs::start_nginx;
use crate::world::{World, content, curl_with};
use baton_socket::service::Service;
use baton_socket::service::message::Selector;
use baton_testkit::{Netns, need_program, need_root, run};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

/// Time between two moves of one who moves.
const PACE: Duration = Duration::from_millis(20);
const ENOUGH: u64 = 20;

/// One in a hundred frames is lost on its way in, and on its way out.
fn lose(namespace: &Netns) {
    namespace.run("nft add table netdev faults");
    for (chain, hook) in [("in", "ingress"), ("out", "egress")] {
        let chain_is = format!("{{ type filter hook {hook} device wire priority 0 ; }}");
        namespace.run(&format!("nft add chain netdev faults {chain} {chain_is}"));
        namespace.run(&format!("nft add rule netdev faults {chain} numgen random mod 100 < 1 drop"));
    }
}

/// Moves a connection to the other side, again and again.
fn move_some(admin: &Service, stop: &AtomicBool, moves: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let entries = admin.list().unwrap();
        if let Some(entry) = fastrand::choice(&entries) {
            let which = Selector::Tuple(entry.tuple);
            let away = entry.place == "engine";
            let tally = if away { admin.bring_home(which) } else { admin.handoff(which) }.unwrap();
            moves.fetch_add(tally.count - tally.failed, Ordering::Relaxed);
        }
        sleep(PACE);
    }
}

/// Does this while connections move, until they did so often enough.
fn restless(world: &World, work: impl Fn()) {
    let (stop, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            let admin = Service::connect(world.socket()).unwrap();
            let (stop, moves) = (&stop, &moves);
            scope.spawn(move || move_some(&admin, stop, moves));
        }
        // Also if it panics.
        let _ends = Ends(&stop);
        while moves.load(Ordering::Relaxed) < ENOUGH {
            work();
        }
    });
    println!("{} moves", moves.into_inner());
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn downloads_go_on_while_their_connections_move() {
    need_root!();
    for program in ["clang", "nginx", "curl", "nft"] {
        need_program!(program);
    }
    let (world, _admin) = World::with_service();
    lose(&world.peer);
    let sum = content(&world.file("file"), 4_000_000);
    let nginx = start_nginx(&world, "server { listen 8000; root HOME; }");
    world.listens(8000);
    restless(&world, || {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let words = ["--limit-rate", "2M"];
                    assert_eq!(curl_with(&world.peer, &words, "http://10.67.0.1:8000/file"), sum);
                });
            }
        });
    });
    world.end(nginx).all_moved(8);
}

#[test]
fn requests_are_answered_while_their_connections_move() {
    need_root!();
    for program in ["clang", "redis-server", "redis-benchmark", "nft"] {
        need_program!(program);
    }
    let (world, _admin) = World::with_service();
    lose(&world.peer);
    let words = ["redis-server", "--port", "7000", "--protected-mode", "no", "--save", "", "--bind", "10.67.0.1"];
    let redis = world.start(&words);
    world.listens(7000);
    restless(&world, || {
        let mut benchmark = world.peer.command("redis-benchmark");
        let words = ["-h", "10.67.0.1", "-p", "7000", "-t", "set,get", "-n", "20000", "-c", "20", "-d", "100", "--csv"];
        let told = run(benchmark.args(words));
        assert!(told.contains("\"SET\"") && told.contains("\"GET\""), "{told}");
    });
    world.end(redis).all_moved(40);
}
