//! The services and clients on the engine, over a wire in memory.

use baton_apps::fetch::{Body, Fetch, Progress};
use baton_apps::load::{Check, Kind as LoadKind, Load};
use baton_apps::net::Net;
use baton_apps::net::engine::EngineNet;
use baton_apps::services::{Kind, Message, ramp};
use baton_lab::workload::memory::{Pair, run_pair};
use baton_port::{MemoryOptions, MemoryPort};
use baton_socket::host::HostConfig;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
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
        peer_pids: Vec::new(),
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
