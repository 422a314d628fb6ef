//! Unmodified programs at both ends of a connection on this machine.

use crate::programs::start_nginx;
use crate::world::{Account, World, baton, content, digest, times};
use baton_client::Service;
use baton_testkit::{Netns, Running, wait_for};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// Redis and its benchmark, over loopback in a namespace. Every connection of both is joined with its other end, and
/// every request is answered.
pub fn redis_and_its_clients_share_memory(world: &World) {
    redis_and_its_clients(world, |program| Command::new(program));
}

/// The same where all of them have one CPU, on which none goes to an engine.
pub fn redis_and_its_clients_share_memory_on_one_cpu(world: &World) {
    redis_and_its_clients(world, |program| {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program);
        command
    });
}

fn redis_and_its_clients(world: &World, begin: fn(&Path) -> Command) {
    const PORT: &str = "7000";
    let run = |words: &[&str]| {
        let mut command = begin(baton());
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
    let moved = Account::of(&said).moved;
    assert!(moved >= 40, "{said}");
    assert!(world.end(redis).moved >= 40, "{}", world.said());
}

/// Answers whatever comes.
const ECHO: &str = "\
import socket, threading
listener = socket.create_server(('127.0.0.1', 7002))
def serve(ours):
    while got := ours.recv(100): ours.sendall(got)
while True: threading.Thread(target=serve, args=(listener.accept()[0],)).start()
";

/// Asks over one connection after another, each for so long that the library learns whether its other end comes.
const ASKER: &str = "\
import socket, time
for _ in range(8):
    with socket.create_connection(('127.0.0.1', 7002), timeout=60) as ours:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            ours.sendall(b'x')
            assert ours.recv(1) == b'x'
";

/// The connections of a program whose server uses no service end before the service gives one back. The library
/// sees from the server's answers that it waits in vain, and has no more of them wait.
pub fn few_connections_wait_for_a_server_that_uses_no_service(world: &World) {
    let mut echo = Command::new("python3");
    echo.args(["-c", ECHO]).stdin(Stdio::null());
    let _echo = world.ours.enter(|| Running::start(&mut echo));
    world.listens(7002);
    let out = world.run(&["python3", "-c", ASKER]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    let count = |reason: &str| {
        let line = said.lines().find_map(|line| line.strip_suffix(&format!(" stayed in the kernel: {reason}")));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u32>().ok()).unwrap_or(0)
    };
    // If the machine is slow, another one or two.
    assert!(count("loopback") >= 5 && count("peer-not-served") >= 1, "{said}");
}

/// Redis and its benchmark in two namespaces, with a service in a third one.
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

/// Returns what a client under `baton run` prints. It succeeds, and some of its connections are joined.
#[track_caller]
fn asks(world: &World, words: &[&str]) -> Vec<u8> {
    let out = world.run(words);
    let said = String::from_utf8_lossy(&out.stderr);
    let told = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{words:?}: {}\n{told}{said}{}", out.status, world.lost());
    assert!(Account::of(&said).moved > 0, "{said}");
    out.stdout
}

/// Downloads at once.
const AT_ONCE: usize = 3;

/// One server of nginx passes requests on to another, whose workers are the same or others.
pub fn nginx_passes_on_to_nginx(world: &World) {
    let sum = content(&world.file("file"), 2_000_000 * times());
    let nginx = start_nginx(
        world,
        "upstream behind { server 127.0.0.1:8001; keepalive 4; }\n\
         server { listen 127.0.0.1:8000; location / {\n\
         proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ''; } }\n\
         server { listen 127.0.0.1:8001; root HOME; }",
    );
    world.listens(8001);
    let url = "http://127.0.0.1:8000/file";
    let fetch = || digest(&asks(world, &["curl", "--silent", "--fail", "--max-time", "60", url]));
    world.load(|| {
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| assert_eq!(fetch(), sum));
            }
        });
    });
    world.some_joined(&world.end(nginx));
}

pub fn redis_answers_its_clients(world: &World) {
    let redis = world.start(&["redis-server", "--port", "7000", "--save", "", "--bind", "127.0.0.1"]);
    world.listens(7000);
    let requests = (5000 * times()).to_string();
    world.load(|| {
        let words = ["redis-benchmark", "-p", "7000", "-t", "set,get", "-c", "20", "-d", "100", "--csv", "-n"];
        let told = String::from_utf8(asks(world, &[&words[..], &[&requests]].concat())).unwrap();
        assert!(told.contains("\"SET\"") && told.contains("\"GET\""), "{told}");
    });
    world.some_joined(&world.end(redis));
}

/// Gives memcached values over several connections at once, and gets each back.
const KEEPER: &str = "\
import random, socket, sys
held = [socket.create_connection(('127.0.0.1', 11211), timeout=60) for _ in range(16)]
files = [each.makefile('rb') for each in held]
for turn in range(int(sys.argv[1])):
    values = [random.randbytes(random.randrange(20000)) for _ in held]
    for at, (each, value) in enumerate(zip(held, values)):
        each.sendall(b'set k%d 0 0 %d\\r\\n%b\\r\\nget k%d\\r\\n' % (at, len(value), value, at))
    for at, (file, value) in enumerate(zip(files, values)):
        assert file.readline() == b'STORED\\r\\n'
        assert file.readline() == b'VALUE k%d 0 %d\\r\\n' % (at, len(value))
        assert file.read(len(value) + 7) == value + b'\\r\\nEND\\r\\n'
";

pub fn memcached_keeps_what_python_gives_it(world: &World) {
    let words = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", "11211", "-t", "4", "-U", "0"];
    let memcached = world.start(&words);
    world.listens(11211);
    let turns = (50 * times()).to_string();
    world.load(|| drop(asks(world, &["python3", "-c", KEEPER, &turns])));
    world.some_joined(&world.end(memcached));
}

/// Fetches a file several times over each of several connections, and prints the digest of all that it got.
const FETCHER: &str = "\
import concurrent.futures, hashlib, http.client
def fetch(_):
    connection = http.client.HTTPConnection('127.0.0.1', 8000, timeout=60)
    got = set()
    for _ in range(20):
        connection.request('GET', '/file')
        got.add(connection.getresponse().read())
    return got
with concurrent.futures.ThreadPoolExecutor(8) as threads: got = set.union(*threads.map(fetch, range(8)))
assert len(got) == 1
print(hashlib.sha256(got.pop()).hexdigest(), end='')
";

pub fn python_serves_python(world: &World) {
    let sum = content(&world.file("file"), 1_000_000 * times());
    let words = ["python3", "-m", "http.server", "--protocol", "HTTP/1.1", "--bind", "127.0.0.1", "8000"];
    let python = world.start(&words);
    world.listens(8000);
    world.load(|| assert_eq!(String::from_utf8(asks(world, &["python3", "-c", FETCHER])).unwrap(), sum));
    world.some_joined(&world.end(python));
}
