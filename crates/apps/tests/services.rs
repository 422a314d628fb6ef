//! The services on kernel sockets, tested with plain blocking clients.

use baton_apps::fetch::{Body, Fetch, Progress};
use baton_apps::load::{self, Check, Kind as LoadKind, Load};
use baton_apps::net::Net;
use baton_apps::net::kernel::KernelNet;
use baton_apps::services::{Kind, Message, ramp};
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A service on a free loopback port, in a thread that ends with this value.
struct Server {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(kind: Kind) -> Server {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = std::sync::mpsc::channel();
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut net = KernelNet::new(100).unwrap();
            let addr = net.listen("127.0.0.1:0".parse().unwrap(), kind.accept(Message::default()).unwrap()).unwrap();
            tell.send(addr).unwrap();
            while !seen.load(Ordering::Relaxed) {
                net.turn(Duration::from_millis(10)).unwrap();
            }
        });
        Server { addr: told.recv().unwrap(), stop, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends `request`, closes the sending side, and returns the whole response.
    fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let (Some(thread), false) = (self.thread.take(), std::thread::panicking()) {
            thread.join().unwrap();
        }
    }
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n")
}

/// A directory with one entry of each kind, and a secret file outside it.
fn site() -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("sub & <dir>")).unwrap();
    std::fs::write(root.join("page.html"), "<p>hello").unwrap();
    std::fs::write(root.join("sub & <dir>/ramp"), &ramp::from(0)[..1000]).unwrap();
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(dir.path().join("secret"), root.join("link")).unwrap();
    let server = Server::start(Kind::Http(root));
    (dir, server)
}

#[test]
fn echo_returns_what_a_slow_reader_sent() {
    let server = Server::start(Kind::Echo);
    let mut stream = server.connect();
    let mut writer = stream.try_clone().unwrap();
    let sent: Vec<u8> = ramp::from(0).iter().copied().cycle().take(20_000_000).collect();
    let expected = sent.clone();
    // Nothing is read until everything is written, or until the service stops reading.
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    std::thread::sleep(Duration::from_millis(200));
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == expected);
}

#[test]
fn chargen_sends_the_ramp_and_discard_takes_it() {
    let server = Server::start(Kind::Chargen);
    let mut got = vec![0; 5_000_000];
    server.connect().read_exact(&mut got).unwrap();
    assert!(ramp::matches(0, &got));
    let server = Server::start(Kind::Discard);
    let mut stream = server.connect();
    stream.write_all(&got).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn http_serves_files_heads_and_ranges() {
    let (_dir, server) = site();
    let whole = server.exchange(&get("/page.html", ""));
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n") && whole.ends_with("\r\n\r\n<p>hello"), "{whole}");
    assert!(whole.contains("Content-Type: text/html; charset=utf-8\r\n") && whole.contains("Content-Length: 8\r\n"));
    let head = server.exchange("HEAD /page.html HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(head.contains("Content-Length: 8\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    let part = server.exchange(&get("/page.html", "Range: bytes=1-3\r\n"));
    assert!(part.starts_with("HTTP/1.1 206 ") && part.contains("Content-Range: bytes 1-3/8\r\n"), "{part}");
    assert!(part.ends_with("\r\n\r\np>h"));
    let outside = server.exchange(&get("/page.html", "Range: bytes=8-\r\n"));
    assert!(outside.starts_with("HTTP/1.1 416 ") && outside.contains("Content-Range: bytes */8\r\n"), "{outside}");
    let stale = "Range: bytes=1-3\r\nIf-Range: Thu, 01 Jan 1970 00:00:00 GMT\r\n";
    assert!(server.exchange(&get("/page.html", stale)).starts_with("HTTP/1.1 200 "));
}

#[test]
fn http_keeps_the_connection_and_answers_pipelined_requests_in_order() {
    let (_dir, server) = site();
    let three = [get("/page.html", ""), get("/nothing", ""), get("/page.html", "Connection: close\r\n")].concat();
    let answers = server.exchange(&(three + &get("/never-answered", "")));
    let codes: Vec<&str> = answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
    assert_eq!(codes, ["200", "404", "200"], "{answers}");
}

#[test]
fn http_lists_directories_and_links_work() {
    let (_dir, server) = site();
    let listing = server.exchange(&get("/", ""));
    assert!(listing.contains("<a href=\"sub%20%26%20%3Cdir%3E/\">sub &amp; &lt;dir&gt;/</a>"), "{listing}");
    let moved = server.exchange(&get("/sub%20%26%20%3Cdir%3E", ""));
    assert!(moved.contains("Location: /sub%20%26%20%3Cdir%3E/\r\n"), "{moved}");
    let file = server.exchange(&get("/sub%20%26%20%3Cdir%3E/ramp?query", ""));
    assert!(file.contains("Content-Length: 1000\r\n"), "{file}");
}

#[test]
fn http_serves_nothing_outside_its_directory() {
    let (_dir, server) = site();
    for path in ["/../secret", "/%2e%2e/secret", "/..%2fsecret", "/sub/../../secret", "/link", "//../secret", "/a%00b"]
    {
        let answer = server.exchange(&get(path, ""));
        assert!(answer.starts_with("HTTP/1.1 40") && !answer.contains("\r\n\r\nsecret"), "{path}: {answer}");
    }
}

#[test]
fn http_refuses_what_it_cannot_read_and_says_so() {
    let (_dir, server) = site();
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(20_000));
    for (request, status) in [
        ("nonsense\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\n\r\n", "405"),
        (long.as_str(), "431"),
    ] {
        let answer = server.exchange(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains("Connection: close"), "{answer}");
    }
}

#[test]
fn loads_measure_and_notice_a_wrong_byte() {
    let load = |kind, target, check| Load {
        kind,
        target,
        connections: 3,
        size: if kind == LoadKind::Echo { 64 } else { 0 },
        warmup: Duration::from_millis(20),
        length: Duration::from_millis(200),
        check,
        peer_pids: Vec::new(),
        peer_cpu: None,
    };
    let run = |load: &Load| load::run(&mut KernelNet::new(10).unwrap(), load, None);
    for (kind, service) in
        [(LoadKind::Echo, Kind::Echo), (LoadKind::Send, Kind::Discard), (LoadKind::Receive, Kind::Chargen)]
    {
        let server = Server::start(service);
        let outcome = run(&load(kind, server.addr, Check::All)).unwrap();
        assert!(outcome.bytes > 0 && outcome.connections == 3 && outcome.seconds >= 0.2, "{outcome:?}");
        assert_eq!(outcome.latency_ns.is_some(), kind == LoadKind::Echo);
    }
    // Chargen as the answer to requests: sooner or later the offset of its bytes is wrong.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"not the ramp");
        }
    });
    let error = run(&load(LoadKind::Receive, addr, Check::Ends)).unwrap_err();
    assert!(error.to_string().contains("differ from the bytes sent"), "{error}");
}

#[test]
fn what_a_load_has_yet_to_send_is_taken_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut net = KernelNet::new(1).unwrap();
    let load = Load {
        kind: LoadKind::Send,
        target: listener.local_addr().unwrap(),
        connections: 1,
        size: 0,
        warmup: Duration::ZERO,
        length: Duration::from_millis(50),
        check: Check::None,
        peer_pids: Vec::new(),
        peer_cpu: None,
    };
    load::run(&mut net, &load, None).unwrap();
    net.abort();
    assert_eq!(net.open(), 0);
    let (mut stream, _) = listener.accept().unwrap();
    let error = io::copy(&mut stream, &mut io::sink()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[derive(Clone, Default)]
struct Kept(Rc<RefCell<(Option<u64>, Vec<u8>)>>);

impl Body for Kept {
    fn on_head(&mut self, len: Option<u64>) {
        self.0.borrow_mut().0 = len;
    }
    fn on_data(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().1.extend_from_slice(data);
        Ok(())
    }
}

/// Fetches from a server that sends `response` in pieces of a few bytes.
fn fetch(response: &'static [u8], at_a_time: usize) -> (Progress, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in response.chunks(at_a_time) {
            if stream.write_all(piece).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let kept = Kept::default();
    let (fetch, progress) = Fetch::new("test", "/", kept.clone());
    let mut net = KernelNet::new(1).unwrap();
    net.connect(addr, Box::new(fetch)).unwrap();
    while *progress.borrow() == Progress::Running {
        net.turn(Duration::from_millis(10)).unwrap();
    }
    serving.join().unwrap();
    let body = kept.0.borrow().1.clone();
    (progress.borrow().clone(), body)
}

#[test]
fn fetch_reads_every_framing_however_it_is_cut() {
    let bodies: [&[u8]; 4] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ];
    for response in bodies {
        for at_a_time in [1, 3, 7, 4096] {
            let (progress, body) = fetch(response, at_a_time);
            assert_eq!(progress, Progress::Complete);
            assert_eq!(body, if response.ends_with(b": 0\r\n\r\n") { &b""[..] } else { b"hello" });
        }
    }
}

#[test]
fn fetch_tells_why_it_has_no_file() {
    let moved = fetch(b"HTTP/1.1 302 Found\r\nLocation: http://b/\r\nContent-Length: 0\r\n\r\n", 4096).0;
    assert_eq!(moved, Progress::Refused { status: "302 Found".into(), location: Some("http://b/".into()) });
    for broken in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloxx0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        b"SSH-2.0-x\r\n",
    ] {
        assert!(matches!(fetch(broken, 4096).0, Progress::Failed(_)), "{}", String::from_utf8_lossy(broken));
    }
}

#[test]
fn a_kernel_net_runs_over_a_unix_domain_socket() {
    let dir = tempfile::tempdir().unwrap();
    let net = || KernelNet::over_unix(10, dir.path().join("socket")).unwrap();
    let target = "0.0.0.0:7".parse().unwrap();
    let mut server = net();
    server.listen(target, Kind::Echo.accept(Message::default()).unwrap()).unwrap();
    let load = Load {
        kind: LoadKind::Echo,
        target,
        connections: 3,
        size: 100_000,
        warmup: Duration::ZERO,
        length: Duration::from_millis(20),
        check: Check::All,
        peer_pids: Vec::new(),
        peer_cpu: None,
    };
    let outcome = load::run(&mut net(), &load, Some(&mut server)).unwrap();
    assert_eq!((outcome.connections, server.stats().accepted), (3, 3));
    // Nobody listens there, so the load has an error to tell.
    std::fs::remove_file(dir.path().join("socket")).unwrap();
    assert!(load::run(&mut net(), &load, None).is_err());
}

#[test]
fn a_kernel_net_refuses_what_is_beyond_its_limit() {
    let mut net = KernelNet::new(0).unwrap();
    let addr = net.listen("127.0.0.1:0".parse().unwrap(), Kind::Echo.accept(Message::default()).unwrap()).unwrap();
    let mut stream = TcpStream::connect(addr).unwrap();
    net.turn(Duration::from_secs(1)).unwrap();
    assert_eq!(net.stats().refused, 1);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    assert!(Kind::new("http", Some(Path::new("/no/such/directory").into())).is_err());
}
