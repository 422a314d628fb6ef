//! A consumer in another process, through its own mapping of the region.

use crate::ramp;
use baton_consumer::consumer::{Consumer, ConsumerConfig, SocketEvent};
use baton_consumer::memory::{Memory, SharedMemory};
use baton_engine::engine::Engine;
use baton_engine::frame_io::FrameIo;
use baton_engine::region::{ConsumerRegion, EngineRegion, Layout};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::Instant;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time;

/// Environment variable with the path of the region's file, for the other process.
const FILE: &str = "BATON_TEST_REGION";

const TOTAL: usize = 300_000;

fn config() -> ConsumerConfig {
    ConsumerConfig::new(16, (1 << 16, 16), (1 << 18, 2))
}

/// The code of the other process: echoes on one connection. Returns at once in the test's own
/// process.
#[test]
fn the_other_process() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let file = File::options().read(true).write(true).open(path).expect("the parent's file");
    let memory = SharedMemory::open(file.into()).expect("a region");
    let mut consumer = Consumer::new(&config(), memory.region().clone());
    consumer.listen("10.0.0.1:7".parse().unwrap(), 4).unwrap();
    let mut waiting = Vec::new();
    let mut buf = vec![0; 1 << 16];
    let started = time::Instant::now();
    let end = started + time::Duration::from_secs(60);
    while time::Instant::now() < end {
        consumer.poll(Instant(started.elapsed().as_nanos() as u64));
        while let Some(event) = consumer.next_event() {
            match event {
                SocketEvent::Ready { conn } | SocketEvent::Accepted { conn, .. } => waiting.push(conn),
                SocketEvent::Listening { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        let Some(conn) = waiting.first().copied() else {
            std::thread::yield_now();
            continue;
        };
        let room = consumer.writable(conn).min(buf.len());
        match consumer.read(conn, &mut buf[..room]) {
            Ok(0) if room > 0 => {
                consumer.close(conn);
                return;
            }
            Ok(count) => assert_eq!(consumer.write(conn, &buf[..count]).unwrap(), count),
            Err(_) => std::thread::yield_now(),
        }
    }
    panic!("the connection did not end");
}

#[test]
fn another_process_echoes_through_its_own_mapping() {
    let memory = SharedMemory::create(config().layout()).expect("a memfd");
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_fd().as_raw_fd());
    let (mut port, other) = MemoryPort::pair(MemoryOptions::default());
    let mut engine = Engine::new(&HostConfig::new("10.0.0.1/24".parse().unwrap()).engine, port.capabilities());
    engine.streamer().attach_consumer(EngineRegion::new(memory.region().clone()));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::the_other_process"])
        .env(FILE, path)
        .stdout(Stdio::null())
        .spawn()
        .expect("the test itself");
    let mut client = Host::new(&HostConfig::new("10.0.0.2/24".parse().unwrap()), other).unwrap();
    let started = time::Instant::now();
    let (mut conn, mut sent, mut got) = (None, 0, 0);
    let mut buf = vec![0; 1 << 16];
    let mut asked = Instant(0);
    while got < TOTAL {
        let now = Instant(started.elapsed().as_nanos() as u64);
        assert!(started.elapsed().as_secs() < 60, "stuck at {got}");
        engine.poll(now, &mut port, || 0).unwrap();
        client.poll(now).unwrap();
        // Connects are refused until the other process listens.
        if conn.is_none() && now.0 > asked.0 {
            asked = Instant(now.0 + 10_000_000);
            client.connect("10.0.0.1:7".parse().unwrap(), None).unwrap();
        }
        while let Some(event) = client.next_event() {
            if let SocketEvent::Ready { conn: ready } = event {
                match client.stream(ready).is_some_and(|stream| stream.is_established()) {
                    true if conn.is_none() => conn = Some(ready),
                    true => {}
                    false => client.close(ready),
                }
            }
        }
        let Some(conn) = conn else { continue };
        let chunk: Vec<u8> = (sent..TOTAL.min(sent + 8000)).map(|at| ramp(at as u64)).collect();
        sent += client.write(conn, &chunk).unwrap_or(0);
        if let Ok(count) = client.read(conn, &mut buf) {
            assert!(buf[..count].iter().enumerate().all(|(at, byte)| *byte == ramp((got + at) as u64)), "after {got}");
            got += count;
        }
    }
    client.shutdown(conn.expect("the other process has echoed")).unwrap();
    let status = loop {
        let now = Instant(started.elapsed().as_nanos() as u64);
        engine.poll(now, &mut port, || 0).unwrap();
        client.poll(now).unwrap();
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success());
}

#[test]
fn two_mappings_of_one_file_are_one_region() {
    let layout = Layout { qps: 4, queue_depth: 4, requests: 16, data_bytes: 1 << 16 };
    let memory = SharedMemory::create(layout).unwrap();
    let again = SharedMemory::open(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!(again.region().layout(), layout);
    let (here, there) = (ConsumerRegion::new(memory.region().clone()), ConsumerRegion::new(again.region().clone()));
    let extent = here.extent(1000, 5).unwrap();
    here.write(extent, b"hello");
    let mut bytes = [0; 5];
    there.read(extent, &mut bytes);
    assert_eq!(&bytes, b"hello");
}

#[test]
fn a_region_cannot_be_truncated_by_a_process_that_shares_it() {
    let memory = SharedMemory::create(config().layout()).unwrap();
    let file = File::from(memory.as_fd().try_clone_to_owned().unwrap());
    let error = file.set_len(0).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn an_invalid_region_is_not_opened() {
    let path = std::env::temp_dir().join(format!("baton-no-region-{}", std::process::id()));
    std::fs::write(&path, [0; 8192]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // An ordinary file can shrink while it is mapped.
    assert!(SharedMemory::open(file.into()).is_err());
    assert!(SharedMemory::create(Layout { qps: 0, queue_depth: 4, requests: 16, data_bytes: 0 }).is_err());
}

#[test]
fn a_host_works_in_shared_memory() {
    let (port, other) = MemoryPort::pair(MemoryOptions::default());
    let mut config = HostConfig::new("10.0.0.1/24".parse().unwrap());
    config.memory = Memory::Shared;
    let mut shared = Host::new(&config, port).unwrap();
    assert!(shared.memory().is_some());
    let mut heap = Host::new(&HostConfig::new("10.0.0.2/24".parse().unwrap()), other).unwrap();
    assert!(heap.memory().is_none());
    shared.listen("10.0.0.1:7".parse().unwrap(), 4).unwrap();
    shared.poll(Instant(1)).unwrap();
    heap.connect("10.0.0.1:7".parse().unwrap(), None).unwrap();
    let mut accepted = false;
    for step in 1..100 {
        heap.poll(Instant(step * 100_000)).unwrap();
        shared.poll(Instant(step * 100_000)).unwrap();
        while let Some(event) = shared.next_event() {
            accepted |= matches!(event, SocketEvent::Accepted { .. });
        }
    }
    assert!(accepted);
}
