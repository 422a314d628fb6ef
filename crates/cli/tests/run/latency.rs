//! Where the time of a program's messages goes, while its connections are in the kernel and in engines.

use crate::sharing::echo;
use crate::world::{World, baton};
use baton_client::Service;
use baton_ipc::message::Selector;
use baton_kernel::latency::{By, sights};
use baton_testkit::{Running, output, skip, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Sends and receives messages over one connection until a file says to end.
const TALK: &str = "\
import os, socket, sys
one = socket.create_connection(('10.67.0.2', 8103), timeout=20)
one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
turns = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 40
turn = 0
while turn < turns and not os.path.exists('end'):
    one.sendall(b'x' * 300)
    left = 300
    while left: left -= len(one.recv(left))
    turn += 1
";

/// True if this kernel lets programs see both ways.
fn sees_kernel() -> bool {
    sights().expect("the programs load").iter().all(|sight| sight.by != By::Nothing)
}

fn latency(world: &World, words: &[&str]) -> Output {
    let mut command = Command::new(baton());
    command.args(["latency", "--socket"]).arg(world.socket()).args(words).stdin(Stdio::null());
    world.ours.enter(|| output(&mut command))
}

/// The count of a layer on a way of a connection.
fn count(connection: &Value, way: usize, layer: &str) -> u64 {
    let layers = connection["ways"][way]["layers"].as_array().unwrap();
    layers.iter().find(|line| line["layer"] == layer).map_or(0, |line| line["count"].as_u64().unwrap())
}

/// A service that moves everything, an echo, and a program that talks.
struct Talk<'a> {
    world: &'a World,
    service: Running,
    _echo: Running,
    program: Running,
}

impl<'a> Talk<'a> {
    fn start(world: &'a World, engine: &str) -> Talk<'a> {
        let mut command = Command::new(baton());
        command.args(["service", "--interface", "wire", "--steer", "tc", "--socket"]).arg(world.socket());
        command.stdin(Stdio::null()).stderr(fs::File::create(world.file("service")).unwrap());
        let service = world.ours.enter(|| Running::start(&mut command));
        wait_for("the service", || Service::connect(world.socket()).is_ok());
        let echo = echo(world);
        let mut command = Command::new(baton());
        command.args(["run", "--engine", engine, "--policy", "fcfs", "--socket"]).arg(world.socket());
        command.args(["--", "python3", "-c", TALK]).current_dir(world.home.path()).stdin(Stdio::null());
        let program = world.ours.enter(|| Running::start(&mut command));
        let talk = Talk { world, service, _echo: echo, program };
        talk.until("engine");
        talk
    }

    fn service(&self) -> Service {
        Service::connect(self.world.socket()).unwrap()
    }

    /// Waits until the connection is there.
    fn until(&self, place: &str) {
        let service = self.service();
        wait_for(place, || service.list().unwrap().iter().any(|entry| entry.place == place));
    }

    fn end(mut self) {
        fs::write(self.world.file("end"), "").unwrap();
        wait_for("the program's end", || self.program.child().try_wait().unwrap().is_some());
        self.service.signal(Signal::TERM);
        wait_for("the service's end", || self.service.child().try_wait().unwrap().is_some());
    }
}

fn a_moved_connection_has_both_places(world: &World, engine: &str) {
    if !sees_kernel() {
        skip!("the kernel's points cannot be had");
    }
    let talk = Talk::start(world, engine);
    // Returns the output of a look during which the connection moves home and back.
    let looking = |form: &str| {
        let mut command = Command::new(baton());
        command.args(["latency", "--port", "8103", "--seconds", "1000", form, "--socket"]).arg(world.socket());
        command.stdin(Stdio::null()).stdout(fs::File::create(world.file("seen")).unwrap());
        let mut looking = world.ours.enter(|| Running::start(&mut command));
        let fds = format!("/proc/{}/fd", looking.child().id());
        let attached = |fd: std::io::Result<fs::DirEntry>| {
            fs::read_link(fd.unwrap().path()).is_ok_and(|to| to.to_string_lossy().contains("bpf_link"))
        };
        wait_for("the kernel's points", || fs::read_dir(&fds).unwrap().any(attached));
        let service = talk.service();
        let stay = |place: &str| {
            talk.until(place);
            std::thread::sleep(Duration::from_millis(700));
        };
        stay("engine");
        service.bring_home(Selector::All).unwrap();
        stay("kernel");
        service.handoff(Selector::All).unwrap();
        stay("engine");
        looking.signal(Signal::INT);
        assert!(looking.child().wait().unwrap().success());
        fs::read_to_string(world.file("seen")).unwrap()
    };
    let json: Value = serde_json::from_str(&looking("--json")).unwrap();
    let all = json["connections"].as_array().unwrap();
    let at = |place: &str| all.iter().find(|it| it["place"] == place).unwrap_or_else(|| panic!("{place} in {json}"));
    let (kernel, there) = (at("kernel"), at("engine"));
    assert_eq!(all.len(), 2, "it came back to the engine, and is one there: {json}");
    assert_eq!((&kernel["connection"], &kernel["pid"]), (&there["connection"], &there["pid"]));
    assert_eq!(there["closed"], false);
    for connection in [kernel, there] {
        for way in 0..2 {
            let layers = connection["ways"][way]["layers"].as_array().unwrap();
            assert!(count(connection, way, "whole") > 0, "{connection}");
            let share: f64 = layers.iter().map(|line| line["share"].as_f64().unwrap()).sum();
            let aside = ["copy-and-checksum", "decide-beside", "whole"];
            let of =
                |name: &str| layers.iter().find(|line| line["layer"] == name).and_then(|line| line["share"].as_f64());
            let aside: f64 = aside.iter().filter_map(|name| of(name)).sum();
            assert!((share - aside - 1.0).abs() < 0.02, "{connection}");
            assert!(of("between").unwrap() > -0.02, "layers do not overlap: {connection}");
        }
    }
    assert!(count(there, 0, "segment") > 0 && count(there, 1, "wake-up") > 0, "{there}");
    // The engine's receive begins when frames arrived, but for the first ones.
    let (waited, all) = (count(there, 1, "receive-device"), count(there, 1, "parse"));
    assert!(waited > 0 && waited + all / 100 + 5 >= all, "{waited} of {all}: {there}");

    let said = looking("--moves");
    for part in ["messages in the kernel", "engine p50", "difference", "wake-up", "whole"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("does not know when"), "{said}");
    // The next look begins with nothing, and sees the engine only.
    let seen = latency(world, &["--port", "8103", "--seconds", "0.5"]);
    let said = String::from_utf8_lossy(&seen.stdout);
    assert!(said.contains("  in the engine, ") && !said.contains("in the kernel"), "{said}");
    let seen = latency(world, &["--port", "8103", "--seconds", "0.5", "--moves"]);
    let said = String::from_utf8_lossy(&seen.stderr);
    assert!(seen.status.code() == Some(1) && said.contains("baton handoff"), "{said}");
    talk.end();
}

pub fn a_moved_connection_has_both_places_in_the_service(world: &World) {
    a_moved_connection_has_both_places(world, "service");
}

pub fn a_moved_connection_has_both_places_inside(world: &World) {
    a_moved_connection_has_both_places(world, "direct");
}

/// Without privileges the kernel's points cannot be had, and engines are shown.
pub fn engines_are_shown_where_the_kernel_cannot_be(world: &World) {
    let talk = Talk::start(world, "service");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(baton()).args(["latency", "--seconds", "0.5"]);
    command.args(["--port", "8103", "--socket"]).arg(world.socket()).stdin(Stdio::null());
    let seen = world.ours.enter(|| output(&mut command));
    let said = String::from_utf8_lossy(&seen.stdout);
    assert!(seen.status.success(), "{seen:?}");
    assert!(said.contains("  in the engine, ") && said.contains("\nkernel: "), "{said}");
    assert!(said.contains("run as root"), "{said}");
    talk.end();
}

/// A program that is killed while it observes.
pub fn an_observer_that_is_killed_ends_the_watching(world: &World) {
    let talk = Talk::start(world, "service");
    let mut command = Command::new(baton());
    command.args(["latency", "--all", "--watch", "--json", "--socket"]).arg(world.socket());
    command.stdin(Stdio::null()).stdout(fs::File::create(world.file("lines")).unwrap());
    let mut watching = world.ours.enter(|| Running::start(&mut command));
    wait_for("times", || fs::read_to_string(world.file("lines")).unwrap().contains("\"place\":\"engine\""));
    watching.signal(Signal::KILL);
    watching.child().wait().unwrap();
    // The next observer gets memory of its own, which is so only if nobody observes any more.
    let service = talk.service();
    wait_for("the end of the first", || {
        let next = talk.service();
        next.observe(Selector::All, None).unwrap();
        let fresh = next.sightings().iter().any(|it| matches!(it, baton_client::Sighting::Begun(it) if it.fresh));
        drop(next);
        fresh
    });
    assert_eq!(service.list().unwrap().len(), 1);
    talk.end();
}

/// A program that is stopped for a while wakes up late.
pub fn a_slow_message_of_an_engine_is_shown(world: &World) {
    const STOPPED: Duration = Duration::from_millis(300);
    let talk = Talk::start(world, "service");
    let mut command = Command::new(baton());
    command.args(["latency", "--port", "8103", "--seconds", "1000", "--json", "--pcap", "pcap", "--socket"]);
    command.arg(world.socket()).current_dir(world.home.path()).stdin(Stdio::null());
    command.stdout(fs::File::create(world.file("seen")).unwrap());
    let mut looking = world.ours.enter(|| Running::start(&mut command));
    // It has mapped the memory in which it finds the times.
    let maps = format!("/proc/{}/maps", looking.child().id());
    wait_for("the observer", || fs::read_to_string(&maps).unwrap().contains("/memfd:baton-latency"));
    let pid = Pid::from_raw(talk.service().list().unwrap()[0].program.pid as i32).unwrap();
    // Most often it waits for bytes when it is stopped.
    for _ in 0..3 {
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(STOPPED);
        kill_process(pid, Signal::CONT).unwrap();
        std::thread::sleep(STOPPED);
    }
    looking.signal(Signal::INT);
    assert!(looking.child().wait().unwrap().success());
    let json: Value = serde_json::from_str(&fs::read_to_string(world.file("seen")).unwrap()).unwrap();
    let all = json["slowest"].as_array().unwrap();
    let is_late = |it: &Value| {
        let wake_up = it["layers"].as_array().unwrap().iter().find(|part| part["layer"] == "wake-up");
        it["place"] == "engine"
            && wake_up.is_some_and(|part| part["ns"].as_u64() >= Some(STOPPED.as_nanos() as u64 / 2))
    };
    assert!(all.iter().any(is_late), "{json}");
    let notes = json["notes"].as_array().unwrap();
    // Each is at its frame in the capture, or said to have none.
    let pcap = fs::read(world.file("pcap")).unwrap();
    let marked = pcap.windows(6).filter(|bytes| bytes == b" took ").count();
    let unmarked = notes.iter().find_map(|note| {
        let text = note.as_str().unwrap().strip_prefix("engine: ")?;
        let (count, rest) = text.split_once(' ')?;
        rest.starts_with("of the slowest messages are not marked").then(|| count.parse().unwrap())
    });
    assert_eq!(marked + unmarked.unwrap_or(0), all.len(), "{json}");
    talk.end();
}

/// With all connections one message in so many is recorded, unless each is asked for.
pub fn all_connections_of_engines_are_sampled(world: &World) {
    let talk = Talk::start(world, "service");
    for (words, one_in) in [(&["--all"][..], 128), (&["--all", "--every", "1"], 1), (&["--port", "8103"], 1)] {
        let seen = latency(world, &[words, &["--seconds", "1.5", "--json"]].concat());
        let json: Value = serde_json::from_slice(&seen.stdout).unwrap_or_else(|error| panic!("{error}: {seen:?}"));
        let all = json["connections"].as_array().unwrap();
        let there = all.iter().find(|it| it["place"] == "engine").unwrap_or_else(|| panic!("{json}"));
        let counted = count(there, 0, "whole");
        assert!(there["one_in"] == one_in && counted > 0 && counted.is_multiple_of(one_in), "{there}");
        let notes = json["notes"].to_string();
        assert_eq!(notes.contains("one message in 128 is recorded"), one_in > 1, "{notes}");
        let slowest = json["slowest"].as_array().unwrap();
        assert!(slowest.iter().any(|it| it["place"] == "engine"), "{json}");
    }
    talk.end();
}

pub fn a_run_prints_where_the_time_went(world: &World) {
    let _echo = echo(world);
    for engine in ["service", "direct"] {
        let mut command = Command::new(baton());
        command.args(["run", "--latency", "--interface", "wire", "--steer", "tc", "--engine", engine]);
        command.args(["--policy", "after 20 sends", "--", "python3", "-c", TALK, "2000"]);
        let out = world.ours.enter(|| output(command.current_dir(world.home.path())));
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.contains("in the engine"), "{said}");
        // The last table has the times before and after the move.
        let (tables, moves) = said.split_once(" messages in the kernel, ").unwrap_or((&said, ""));
        let rows = |name: &str| tables.lines().filter(|line| line.split_whitespace().next() == Some(name)).count();
        assert!(rows("whole") >= 2, "{said}");
        if sees_kernel() {
            assert!(["engine p50", "answer", "whole"].iter().all(|part| moves.contains(part)), "{said}");
            assert!(said.contains("1 connections together in the kernel"), "{said}");
            assert!(said.contains("1 connections together in the engine"), "{said}");
            assert_eq!(rows("whole"), 4, "{said}");
            // All but the one during which the connection moves, or is first seen.
            let answers = tables.lines().filter_map(|line| line.trim().strip_prefix("answer"));
            let answers = answers.map(|rest| rest.split_whitespace().next().unwrap().parse::<u64>().unwrap());
            let all: u64 = answers.sum();
            assert!((1_990..=2_000).contains(&all), "{all} answers: {said}");
        } else {
            assert!(said.contains("kernel: "), "{said}");
        }
    }
}

pub fn a_service_that_is_not_there_is_said(world: &World) {
    let refused = latency(world, &["--all", "--seconds", "0.2"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("baton service"), "{said}");
}
