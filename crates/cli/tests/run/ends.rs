//! After `baton run` has ended, everything that it started is gone, however it ended.

use crate::world::{Account, World, baton};
use baton_testkit::{Running, run, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Answers each byte of each connection.
const PEER: &str = "\
import selectors, socket
listener = socket.create_server(('10.67.0.2', 8003), backlog=4096)
set = selectors.DefaultSelector()
set.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in set.select():
        if key.fileobj is listener:
            set.register(listener.accept()[0], selectors.EVENT_READ)
        else:
            read = key.fileobj.recv(100)
            key.fileobj.send(read) if read else set.unregister(key.fileobj)
";

/// Opens this many connections on the engine, and ends without closing them.
const HOLDER: &str = "\
import os, socket, sys
held = [socket.create_connection(('10.67.0.2', 8003)) for _ in range(int(sys.argv[1]))]
for _ in range(2):
    for connection in held: connection.send(b'x')
    for connection in held: assert connection.recv(1) == b'x'
os._exit(0)
";

/// Processes of services, as their command lines have it.
pub fn services(world: &World) -> Vec<(Pid, String)> {
    let pids = run(Command::new("ip").args(["netns", "pids", world.ours.name()]));
    let pids = pids.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    let of = |pid: Pid| {
        let own = fs::read_link(format!("/proc/{pid}/exe")).ok()? == baton();
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let role = words.split('\0').nth(1)?.to_owned();
        (own && role != "run").then_some((pid, role))
    };
    pids.filter_map(of).collect()
}

fn pid_of(world: &World, role: &str) -> Option<Pid> {
    services(world).into_iter().find(|(_, is)| is == role).map(|(pid, _)| pid)
}

/// A program that waits until there is a file `end`.
fn start_waiting(world: &World) -> Running {
    let running = world.start(&[
        "sh",
        "-c",
        "printf %s ${BATON_ACCOUNT%/account} > home; touch began; until [ -e end ]; do sleep 0.01; done",
    ]);
    wait_for("the program", || world.file("began").exists());
    running
}

pub fn after_many_connections(world: &World) {
    let mut peer = world.peer.command("python3");
    let _peer = Running::start(peer.args(["-c", PEER]).stdin(Stdio::null()));
    wait_for("who listens", || crate::world::listens(&world.peer, 8003));
    let out = world.run(&["python3", "-c", HOLDER, "2000"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert_eq!(services(world), []);
    assert_eq!(Account::of(&said).moved, 2000, "{said}");
}

/// Left-over processes behave as under a plain shell, except that `baton run` waits for them and forwards
/// signals to them.
pub fn after_what_the_program_left_was_told_to_end(world: &World) {
    let mut running = world.start(&["sh", "-c", "sleep 1000 & exit 3"]);
    wait_for("the list of processes waited for", || world.said().contains("waiting for the processes it left: "));
    assert_eq!(running.child().try_wait().unwrap(), None);
    running.signal(Signal::TERM);
    let mut status = None;
    wait_for("its end", || {
        status = running.child().try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(3), "{}", world.said());
    assert_eq!(services(world), []);
}

pub fn after_its_own_death(world: &World) {
    let mut running = start_waiting(world);
    assert!(pid_of(world, "broker").is_some());
    let home = fs::read_to_string(world.file("home")).unwrap();
    assert!(Path::new(&home).exists(), "{home}");
    running.child().kill().unwrap();
    wait_for("the service's end", || services(world).is_empty());
    // Its directories go with it: the service's, and its own.
    let said = world.said();
    let socket = said.split_whitespace().find(|word| word.ends_with("/socket")).unwrap();
    assert!(!Path::new(socket).parent().unwrap().exists());
    assert!(!Path::new(&home).exists(), "{home}");
}

pub fn after_a_guardian_was_replaced(world: &World) {
    let mut running = start_waiting(world);
    kill_process(pid_of(world, "service").unwrap(), Signal::KILL).unwrap();
    wait_for("another guardian", || pid_of(world, "guardian").is_some());
    fs::write(world.file("end"), "").unwrap();
    wait_for("its end", || running.child().try_wait().unwrap().is_some());
    assert_eq!(services(world), []);
}

pub fn after_a_broker_stood_still(world: &World) {
    let mut running = start_waiting(world);
    kill_process(pid_of(world, "broker").unwrap(), Signal::STOP).unwrap();
    fs::write(world.file("end"), "").unwrap();
    wait_for("its end", || running.child().try_wait().unwrap().is_some());
    assert_eq!(services(world), []);
}
