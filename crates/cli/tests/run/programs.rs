//! Real programs, each under its usual load.

use crate::world::{Account, World, content, curl, curl_with, digest, listens, times};
use baton_testkit::{Running, need_program, need_root, output, run, wait_for};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;

/// nginx with several workers and these servers; `HOME` is the world's directory.
pub fn start_nginx(world: &World, servers: &str) -> Running {
    let home = world.home.path().display();
    let temporary =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {home};"));
    let text = format!(
        "user root; worker_processes 2; daemon off; pid {home}/pid; error_log {home}/log;\n\
         events {{ }}\nhttp {{ sendfile on; tcp_nopush on; access_log off; {}\n{} }}",
        temporary.concat(),
        servers.replace("HOME", &home.to_string())
    );
    let configuration = world.file("nginx.conf");
    fs::write(&configuration, text).unwrap();
    world.start(&["nginx", "-p", "/", "-c", configuration.to_str().unwrap()])
}

/// Downloads at once.
const AT_ONCE: u64 = 4;

pub fn nginx_serves_from_several_workers(world: &World) {
    let sum = content(&world.file("file"), 3_000_000 * times());
    let nginx = start_nginx(world, "server { listen 8000; root HOME; }");
    world.listens(8000);
    world.load(|| {
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| assert_eq!(curl(&world.peer, "http://10.67.0.1:8000/file"), sum));
            }
        });
    });
    world.all_moved(&world.end(nginx), AT_ONCE);
}

pub fn python_serves(world: &World) {
    let sum = content(&world.file("file"), 4_000_000 * times());
    let python = world.start(&["python3", "-m", "http.server", "8000"]);
    world.listens(8000);
    world.load(|| {
        for _ in 0..2 {
            // Slowly enough for somebody to move it meanwhile.
            assert_eq!(curl_with(&world.peer, &["--limit-rate", "10M"], "http://10.67.0.1:8000/file"), sum);
        }
    });
    world.all_moved(&world.end(python), 2);
}

pub fn curl_fetches(world: &World) {
    let sum = content(&world.file("file"), 1_000_000 * times());
    let mut serve = world.peer.command("python3");
    serve.args(["-m", "http.server", "8001"]).current_dir(world.home.path());
    let _server = Running::start(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("who listens", || listens(&world.peer, 8001));
    world.load(|| {
        let out = world.run(&["curl", "--silent", "--fail", "--max-time", "60", "http://10.67.0.2:8001/file"]);
        assert!(out.status.success(), "{} after {} bytes", out.status, out.stdout.len());
        assert_eq!(digest(&out.stdout), sum);
        world.all_moved(&Account::of(&String::from_utf8_lossy(&out.stderr)), 1);
    });
}

#[test]
fn bulk_goes_home_and_what_is_small_stays() {
    need_root!();
    for program in ["clang", "nginx", "curl"] {
        need_program!(program);
    }
    let mut world = World::quiet();
    world.policy = Some("until bulk");
    let (small, large) = (content(&world.file("small"), 10_000), content(&world.file("large"), 40_000_000));
    let nginx = start_nginx(&world, "server { listen 8000; root HOME; }");
    world.listens(8000);
    for _ in 0..3 {
        assert_eq!(curl(&world.peer, "http://10.67.0.1:8000/small"), small);
    }
    assert_eq!(curl(&world.peer, "http://10.67.0.1:8000/large"), large);
    let account = world.end(nginx);
    assert_eq!((account.moved, account.all), (4, 4), "{}", account.said);
    assert!(account.said.contains("1 came back to the kernel: bulk"), "{}", account.said);
}

#[test]
fn a_firewall_rule_that_keeps_connections_is_named_and_can_be_followed() {
    need_root!();
    for program in ["clang", "nft", "curl", "python3"] {
        need_program!(program);
    }
    let world = World::quiet();
    let sum = content(&world.file("file"), 100_000);
    let mut serve = world.peer.command("python3");
    serve.args(["-m", "http.server", "8001"]).current_dir(world.home.path());
    let _server = Running::start(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("who listens", || listens(&world.peer, 8001));
    world
        .ours
        .run("nft table inet t { chain out { type filter hook output priority 0; tcp dport 8001 ip dscp set cs1; }; }");
    for (rules, moved) in [("refuse", 0), ("follow", 1)] {
        let mut command = world.command(&["curl", "--silent", "--fail", "http://10.67.0.2:8001/file"]);
        let words: Vec<_> = command.get_args().skip(1).map(ToOwned::to_owned).collect();
        let mut changed = Command::new(command.get_program());
        changed.args(["run", "--firewall", rules]).args(words).current_dir(world.home.path());
        command = changed;
        let out = world.ours.enter(|| output(&mut command));
        assert!(out.status.success(), "{}", out.status);
        assert_eq!(digest(&out.stdout), sum);
        let account = Account::of(&String::from_utf8_lossy(&out.stderr));
        assert_eq!((account.moved, account.all), (moved, 1), "{}", account.said);
        let named = "1 stayed in the kernel: firewall-rule";
        let rule = "1 for a firewall rule: payload set in table inet t, chain out";
        assert_eq!([named, rule].map(|line| account.said.contains(line)), [moved == 0; 2], "{}", account.said);
    }
}

pub fn redis_answers_many_connections(world: &World) {
    let words = ["redis-server", "--port", "7000", "--protected-mode", "no", "--save", "", "--bind", "10.67.0.1"];
    let redis = world.start(&words);
    world.listens(7000);
    let requests = (5000 * times()).to_string();
    world.load(|| {
        let mut benchmark = world.peer.command("redis-benchmark");
        let words =
            ["-h", "10.67.0.1", "-p", "7000", "-t", "set,get", "-c", "20", "-d", "100", "--csv", "-n", &requests];
        let told = run(benchmark.args(words));
        assert!(told.contains("\"SET\"") && told.contains("\"GET\""), "{told}");
    });
    // The benchmark ends with its requests, however many of its clients are connected by then.
    let mut asking = world.peer.command("redis-cli");
    let told = run(asking.args(["-h", "10.67.0.1", "-p", "7000", "info", "stats"]));
    let received = told.lines().find_map(|line| line.trim_end().strip_prefix("total_connections_received:"));
    let received = received.unwrap_or_else(|| panic!("{told}")).parse().unwrap();
    world.all_moved(&world.end(redis), received);
}

/// Clients of memcached at once.
const CLIENTS: u64 = 16;

pub fn memcached_serves_from_several_threads(world: &World) {
    let words = ["memcached", "-u", "root", "-l", "10.67.0.1", "-p", "11211", "-t", "4", "-U", "0"];
    let memcached = world.start(&words);
    world.listens(11211);
    world.load(|| {
        world.peer.enter(|| {
            thread::scope(|scope| {
                for number in 0..CLIENTS {
                    // In the namespace of who started it.
                    scope.spawn(move || keep_values(number, 50 * times()));
                }
            });
        });
    });
    world.all_moved(&world.end(memcached), CLIENTS);
}

/// Keeps values there, and gets each back.
fn keep_values(seed: u64, times: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut stream = BufReader::new(TcpStream::connect("10.67.0.1:11211").unwrap());
    for at in 0..times {
        let (key, mut line, len) = (format!("{seed}-{}", at % 10), String::new(), random.usize(..20_000));
        let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
        let set = [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
        stream.get_mut().write_all(&set).unwrap();
        stream.read_line(&mut line).unwrap();
        assert_eq!(line, "STORED\r\n");
        stream.get_mut().write_all(format!("get {key}\r\n").as_bytes()).unwrap();
        line.clear();
        stream.read_line(&mut line).unwrap();
        assert_eq!(line, format!("VALUE {key} 0 {}\r\n", value.len()));
        let mut answer = vec![0; value.len() + b"\r\nEND\r\n".len()];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(&value) && answer.ends_with(b"\r\nEND\r\n"));
    }
}

pub fn iperf_measures_in_both_directions(world: &World) {
    let words = ["iperf3", "--server", "--bind", "10.67.0.1", "--logfile", "told", "--forceflush"];
    let iperf = world.start(&words);
    world.listens(5201);
    // iperf3 refuses a client while it still serves the previous one.
    let (mut done, told) = (0, world.file("told"));
    let is_free = |done| fs::read_to_string(&told).is_ok_and(|told| told.matches("Server listening").count() > done);
    let bytes = (6 << 20) * times() as u64;
    world.load(|| {
        for direction in ["--version4", "--reverse"] {
            let mut client = world.peer.command("iperf3");
            client.args(["--client", "10.67.0.1", "--parallel", "3", "--json", direction]);
            client.args(["--bytes", &bytes.to_string()]);
            wait_for("the end of the one before", || is_free(done));
            let told: serde_json::Value = serde_json::from_str(&run(&mut client)).expect("JSON");
            // Of these the last are not received yet when it is over.
            let sent = told["end"]["sum_sent"]["bytes"].as_u64();
            assert!(sent.is_some_and(|sent| sent >= bytes), "{direction}: {sent:?} in {told}");
            done += 1;
        }
    });
    world.all_moved(&world.end(iperf), 8);
}
