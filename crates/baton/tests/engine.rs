//! The services and clients on the engine, over a wire in memory; and `serve` and
//! `get` on a TAP device, against programs on the kernel's TCP.

use baton::demo::memory::{Pair, run_pair};
use baton_apps::fetch::{Body, Fetch, Progress};
use baton_apps::load::{Check, Kind as LoadKind, Load};
use baton_apps::net::Net;
use baton_apps::net::engine::EngineNet;
use baton_apps::services::{Kind, Message, ramp};
use baton_port::{MemoryOptions, MemoryPort};
use baton_socket::host::HostConfig;
use baton_testkit::{Netns, need_program, need_root};
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

fn load(kind: LoadKind, connections: usize, size: usize) -> Load {
    let port = match kind {
        LoadKind::Echo => 7,
        LoadKind::Send => 9,
        LoadKind::Receive => 19,
    };
    Load {
        kind,
        target: SocketAddr::new([10, 77, 0, 2].into(), port),
        connections,
        size,
        warmup: Duration::ZERO,
        length: Duration::from_millis(100),
        check: Check::All,
        peer_pid: None,
        peer_cpu: None,
    }
}

#[test]
fn every_byte_of_every_load_is_right_between_two_engines() {
    for offloads in [false, true] {
        for (kind, connections, size) in [
            (LoadKind::Echo, 1, 8 << 20),
            (LoadKind::Echo, 300, 1000),
            (LoadKind::Send, 2, 0),
            (LoadKind::Receive, 2, 0),
            (LoadKind::Receive, 1, 777),
        ] {
            let mut pair = Pair::new(offloads).unwrap();
            for service in [Kind::Echo, Kind::Discard, Kind::Chargen] {
                pair.offer(&service, Message(5000)).unwrap();
            }
            let run = run_pair(&mut pair, &load(kind, connections, size)).unwrap();
            assert!(run.tce.is_some_and(|share| share > 0.0 && share < 1.0), "{run:?}");
            assert_eq!(pair.server.stats().accepted, connections as u64);
        }
    }
}

#[derive(Clone, Default)]
struct Kept(Rc<RefCell<Vec<u8>>>);

impl Body for Kept {
    fn on_head(&mut self, _len: Option<u64>) {}
    fn on_data(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().extend_from_slice(data);
        Ok(())
    }
}

/// Fetches a path over a pair of engines; the outcome and the body.
fn fetch(pair: &mut Pair, port: u16, path: &str) -> (Progress, Vec<u8>) {
    let kept = Kept::default();
    let (fetch, progress) = Fetch::new("test", path, kept.clone());
    pair.client.connect(SocketAddr::new([10, 77, 0, 2].into(), port), Box::new(fetch)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while *progress.borrow() == Progress::Running {
        assert!(Instant::now() < deadline);
        pair.client.turn(Duration::ZERO).unwrap();
        pair.server.turn(Duration::ZERO).unwrap();
    }
    let outcome = progress.borrow().clone();
    (outcome, kept.0.take())
}

#[test]
fn files_cross_between_two_engines_and_connections_end() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = ramp::from(0).iter().copied().cycle().take(3_000_000).collect();
    std::fs::write(dir.path().join("file"), &content).unwrap();
    let mut pair = Pair::new(false).unwrap();
    pair.offer(&Kind::Http(dir.path().into()), Message::default()).unwrap();
    for _ in 0..3 {
        let (progress, body) = fetch(&mut pair, 80, "/file");
        assert!(progress == Progress::Complete && body == content);
    }
    assert!(
        matches!(fetch(&mut pair, 80, "/nothing").0, Progress::Refused { status, .. } if status.starts_with("404"))
    );
    assert!(matches!(fetch(&mut pair, 81, "/file").0, Progress::Failed(why) if why.contains("refused")));
    let deadline = Instant::now() + Duration::from_secs(5);
    while pair.server.open() + pair.client.open() > 0 {
        assert!(Instant::now() < deadline, "{} and {} remain", pair.server.open(), pair.client.open());
        pair.client.turn(Duration::ZERO).unwrap();
        pair.server.turn(Duration::ZERO).unwrap();
    }
}

#[test]
fn an_engine_whose_halves_have_a_thread_each_does_the_same() {
    let (near, far) = MemoryPort::wakeable_pair(MemoryOptions::default()).unwrap();
    let engine = |address: &str, port| EngineNet::new(&HostConfig::new(address.parse().unwrap()), port, true).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let mut server = engine("10.77.0.2/24", near);
        for service in [Kind::Echo, Kind::Discard, Kind::Chargen] {
            let addr = SocketAddr::new([10, 77, 0, 2].into(), service.default_port());
            server.listen(addr, service.accept(Message::default()).unwrap()).unwrap();
        }
        while told.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            server.turn(Duration::from_millis(10)).unwrap();
        }
        let stats = server.stats().engine.unwrap();
        assert!(stats.tce_busy_ns > 0 && stats.frames_in > 0, "{stats:?}");
    });
    let mut client = engine("10.77.0.1/24", far);
    for load in [load(LoadKind::Echo, 20, 100), load(LoadKind::Send, 1, 0), load(LoadKind::Receive, 1, 0)] {
        let outcome = baton_apps::load::run(&mut client, &load, None).unwrap();
        assert!(outcome.bytes > 0 && outcome.connections == load.connections, "{outcome:?}");
    }
    tell.send(()).unwrap();
    server.join().unwrap();
}

/// Starts `baton serve` in a namespace and waits until it is ready.
fn serve(netns: &Netns, args: &[&str]) -> Child {
    let mut command = netns.command(env!("CARGO_BIN_EXE_baton"));
    command.arg("serve").args(args).args(["--json", "--control"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.contains("ready"), "{ready}");
    child
}

#[test]
fn nginx_serves_to_baton_over_both_ip_versions_and_a_capture_shows_it() {
    need_root!();
    need_program!("nginx");
    let netns = Netns::new("get");
    netns.run("ip tuntap add dev tap0 mode tap");
    netns.run("ip addr add 10.77.0.1/24 dev tap0");
    netns.run("ip addr add fd77::1/64 dev tap0 nodad");
    netns.run("ip link set tap0 up");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let content: Vec<u8> = ramp::from(9).iter().copied().cycle().take(10_000_000).collect();
    std::fs::write(path("file"), &content).unwrap();
    let config = format!(
        "daemon off; pid {0}/pid; error_log stderr; user root; events {{}} http {{ access_log off; \
         client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path {0}; scgi_temp_path {0}; \
         server {{ listen 80; listen [::]:80; root {0}; location /old {{ return 301 /file; }} }} }}",
        dir.path().display()
    );
    std::fs::write(path("nginx.conf"), config).unwrap();
    let _nginx = netns.start(&format!("nginx -c {}", path("nginx.conf")));
    let deadline = Instant::now() + Duration::from_secs(10);
    while netns.enter(|| std::net::TcpStream::connect("10.77.0.1:80")).is_err() {
        assert!(Instant::now() < deadline, "nginx does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (out, capture) = (path("out"), path("capture.pcapng"));
    for (port, host) in [("tap:tap0", "10.77.0.1"), ("tap:tap0,novnet", "[fd77::1]")] {
        let get = |file: &str| {
            let mut command = netns.command(env!("CARGO_BIN_EXE_baton"));
            command.args([
                "get",
                "--port",
                port,
                "--addr",
                "10.77.0.2/24",
                "--addr",
                "fd77::2/64",
                "-o",
                &out,
                "--json",
            ]);
            command.args(["--pcap", &capture]).arg(format!("http://{host}/{file}")).output().unwrap()
        };
        let output = get("file");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(std::fs::read(&out).unwrap() == content, "{port}");
        assert!(std::fs::metadata(&capture).unwrap().len() > content.len() as u64);
        let moved = get("old");
        assert_eq!(moved.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&moved.stderr).contains("redirects are not followed"));
    }
}

#[test]
fn one_thread_or_two_serve_the_kernel_over_tap() {
    need_root!();
    need_program!("curl");
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = ramp::from(3).iter().copied().cycle().take(20_000_000).collect();
    std::fs::write(dir.path().join("file"), &content).unwrap();
    for (threads, cc) in [("1", "reno"), ("2", "cubic")] {
        let netns = Netns::new("serve");
        let site = format!("http={}", dir.path().display());
        let args = ["--port", "tap:tap0", "--addr", "10.77.0.2/24", "--threads", threads, "--cc", cc];
        let mut child = serve(&netns, &[&args[..], &["--service", &site, "--service", "echo@7000"]].concat());
        netns.run("ip addr add 10.77.0.1/24 dev tap0");
        netns.run("ip link set tap0 up");
        let got = netns.command("curl").args(["-sSf", "--noproxy", "*", "http://10.77.0.2/file"]).output().unwrap();
        assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
        assert!(got.stdout == content, "{} bytes with {threads} threads", got.stdout.len());
        let refused = netns.command("curl").args(["-sS", "--noproxy", "*", "http://10.77.0.2:81/"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(7), "a port that nobody listens on is refused");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
