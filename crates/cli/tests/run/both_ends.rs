//! Unmodified programs at both ends of a connection on this machine.

use crate::world::{World, baton};
use baton_client::Service;
use baton_testkit::{Netns, Running, wait_for};
use std::fs;
use std::process::{Command, Stdio};

/// Redis and its benchmark, over loopback in a namespace. Every connection of both is joined with its other end, and
/// every request is answered.
pub fn redis_and_its_clients_share_memory(world: &World) {
    const PORT: &str = "7000";
    let run = |words: &[&str]| {
        let mut command = Command::new(baton());
        command.args(["run", "--explain", "--pair", "same-user", "--interface", "wire", "--steer", "tc", "--"]);
        command.args(words).stdin(Stdio::null());
        command
    };
    let mut serve = run(&["redis-server", "--port", PORT, "--save", "", "--bind", "127.0.0.1"]);
    serve.stdout(Stdio::null()).stderr(fs::File::create(world.file("said")).unwrap());
    let redis = world.ours.enter(|| Running::start(&mut serve));
    world.listens(7000);
    let mut ask = run(&["redis-benchmark", "-p", PORT, "-c", "20", "-n", "20000", "-t", "get,set", "--csv"]);
    let asked = world.ours.enter(|| ask.output()).unwrap();
    let (out, said) = (String::from_utf8_lossy(&asked.stdout), String::from_utf8_lossy(&asked.stderr));
    assert!(asked.status.success() && out.contains("\"SET\"") && out.contains("\"GET\""), "{out}{said}");
    // The benchmark asks for the server's configuration over connections of their own, which end at once.
    let moved = crate::world::Account::of(&said).moved;
    assert!(moved >= 40, "{said}");
    assert!(world.end(redis).moved >= 40, "{}", world.said());
}

/// The same between two namespaces, with a service in a third one.
pub fn redis_and_its_clients_in_two_namespaces(world: &World) {
    let (elsewhere, config) = (Netns::new("service"), world.file("pairs.toml"));
    fs::write(&config, "[pair]\nusers = \"same-user\"\n").unwrap();
    let mut serve = Command::new(baton());
    serve.args(["service", "--no-interface", "--config"]).arg(&config).arg("--socket").arg(world.socket());
    serve.stdin(Stdio::null()).stderr(fs::File::create(world.file("service")).unwrap());
    let _service = elsewhere.enter(|| Running::start(&mut serve));
    wait_for("the service", || Service::connect(world.socket()).is_ok());
    let run = |words: &[&str]| {
        let mut command = Command::new(baton());
        command.args(["run", "--explain", "--pair", "same-user", "--socket"]).arg(world.socket());
        command.arg("--").args(words).stdin(Stdio::null());
        command
    };
    let words = ["redis-server", "--port", "7001", "--save", "", "--bind", "10.67.0.1", "--protected-mode", "no"];
    let mut serve = run(&words);
    serve.stdout(Stdio::null()).stderr(fs::File::create(world.file("said")).unwrap());
    let redis = world.ours.enter(|| Running::start(&mut serve));
    world.listens(7001);
    let mut ask =
        run(&["redis-benchmark", "-h", "10.67.0.1", "-p", "7001", "-c", "20", "-n", "20000", "-t", "get,set"]);
    let asked = world.peer.enter(|| ask.arg("--csv").output()).unwrap();
    let (out, said) = (String::from_utf8_lossy(&asked.stdout), String::from_utf8_lossy(&asked.stderr));
    assert!(asked.status.success() && out.contains("\"SET\"") && out.contains("\"GET\""), "{out}{said}");
    let moved = crate::world::Account::of(&said).moved;
    assert!(moved >= 40, "{said}");
    assert!(world.end(redis).moved >= 40, "{}", world.said());
}
