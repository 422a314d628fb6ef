//! `baton run --log` and `baton events`.

use crate::ends::services;
use crate::explaining::TALK;
use crate::sharing::{echo, place};
use crate::world::{World, baton};
use baton_testkit::{Running, output, wait_for};
use rustix::process::{Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts a program that talks, says so, and waits to be told to talk once more and to end.
fn start(world: &World, engine: &str, log: &Path) -> Running {
    let code = format!(
        "{TALK}one = talk()\nopen('began', 'w')\nwhile not os.path.exists('end'): time.sleep(0.01)\n\
         one.sendall(b'x')\nassert one.recv(1) == b'x'\none.close()"
    );
    let mut command = Command::new(baton());
    command.args(["run", "--interface", "wire", "--steer", "tc", "--policy", "fcfs", "--engine", engine, "--log"]);
    command.arg(log).args(["--", "python3", "-c", &code]).current_dir(world.home.path());
    command.stdin(Stdio::null());
    let running = world.ours.enter(|| Running::start(&mut command));
    wait_for("the program", || world.file("began").exists());
    running
}

fn end(world: &World, mut running: Running) {
    fs::write(world.file("end"), "").unwrap();
    wait_for("its end", || running.child().try_wait().unwrap().is_some());
    assert!(running.child().wait().unwrap().success());
}

/// The lines that `baton events` prints with these words.
fn events(world: &World, words: &[&str]) -> Vec<String> {
    let socket = place(world).unwrap().join("socket");
    let out = output(Command::new(baton()).arg("events").args(words).arg("--socket").arg(socket));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A line that has all of these words.
#[track_caller]
fn has(lines: &[String], words: &[&str]) -> String {
    let found = lines.iter().find(|line| words.iter().all(|word| line.contains(word)));
    found.unwrap_or_else(|| panic!("no line with {words:?} in\n{}", lines.join("\n"))).clone()
}

pub fn a_log_and_events_say_what_moved_and_who_died(world: &World) {
    let (_echo, log) = (echo(world), world.file("log"));
    let running = start(world, "service", &log);
    let engine = services(world).into_iter().find(|(_, role)| role == "engine").expect("an engine").0;
    kill_process(engine, Signal::KILL).unwrap();
    wait_for("the way home", || events(world, &[]).iter().any(|line| line.contains(" home: ")));

    let told = events(world, &[]);
    let moved = has(&told, &[" debug moved: ", "reason=handed-over", "connection=10.67.0.1:", " uid=0 us="]);
    has(&told, &[" error engine: ", "(signal: 9 (SIGKILL))", "reason=engine-died"]);
    let home = has(&told, &[" debug home: ", "reason=engine-died"]);
    let connection = |line: &str| line.split(' ').find(|word| word.starts_with("connection=")).map(str::to_owned);
    assert_eq!(connection(&moved), connection(&home));
    assert_eq!(events(world, &["-n", "1"]).len(), 1);

    let rows = events(world, &["--json"]);
    let rows: Vec<serde_json::Value> = rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
    let row = rows.iter().find(|row| row["kind"] == "home").unwrap();
    assert_eq!((&row["reason"], &row["level"]), (&"engine-died".into(), &"debug".into()));
    assert!(row["remote"] == "10.67.0.2:8103" && row["us"].is_u64() && row["pid"].is_u64(), "{row}");

    let mut follows = Command::new(baton());
    follows.args(["events", "--follow", "-n", "1", "--socket"]).arg(place(world).unwrap().join("socket"));
    let followed = fs::File::create(world.file("followed")).unwrap();
    let mut follows = Running::start(follows.stdin(Stdio::null()).stdout(followed));
    wait_for("its first event", || fs::metadata(world.file("followed")).unwrap().len() > 0);
    end(world, running);
    wait_for("its end", || follows.child().try_wait().unwrap().is_some());
    assert!(follows.child().wait().unwrap().success(), "a service that ends is no failure");

    let lines: Vec<String> = fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    has(&lines, &[" info  broker[", " service: serves wire at "]);
    has(&lines, &[" debug broker[", " moved: ", "reason=handed-over"]);
    has(&lines, &[" error broker[", " engine: ", "reason=engine-died"]);
    has(&lines, &[" debug broker[", " home: ", "reason=engine-died"]);
    has(&lines, &[" info  engine[", "drives "]);
    has(&lines, &[" info  guardian[", "the broker is process "]);
    has(&lines, &[" debug python3[", " moved: ", "reason=handed-over"]);
    has(&lines, &[" warn  python3[", " engine: "]);
    has(&lines, &[" info  broker[", "every connection is in the kernel again"]);
    assert!(lines.iter().all(|line| !line.contains(" trace ")), "{lines:#?}");
}

pub fn a_log_of_engines_inside_programs_has_both_sides(world: &World) {
    let (_echo, log) = (echo(world), world.file("log"));
    fs::write(&log, "what was there before\n").unwrap();
    end(world, start(world, "direct", &log));
    let lines: Vec<String> = fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "what was there before");
    has(&lines, &[" debug broker[", " moved: it is in the engine of wire/1 "]);
    has(&lines, &[" info  python3[", "this program gets an engine of its own"]);
    has(&lines, &[" debug python3[", " moved: "]);
}
