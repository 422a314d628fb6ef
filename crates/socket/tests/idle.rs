//! Measures the total memory of an idle connection: engine, queue pair and stream. It is a separate
//! test program because it measures the whole process's memory.

use baton_consumer::consumer::SocketEvent;
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::Instant;

/// Number of connections between the two hosts. It is the hosts' maximum, so the shared rings are
/// divided among as many connections as possible.
const CONNECTIONS: usize = 60_000;

/// Number of listening ports, so that the ephemeral ports suffice for the connections to each.
const PORTS: usize = 3;

/// Number of connects per turn.
const PACE: usize = 64;

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn host(address: &str, port: MemoryPort) -> Host<MemoryPort> {
    let mut config = HostConfig::new(address.parse().unwrap());
    config.engine.max_connections = CONNECTIONS as u32;
    config.consumer.connections = (CONNECTIONS + PORTS) as u32;
    Host::new(&config, port).unwrap()
}

#[test]
fn an_idle_connection_takes_a_kilobyte_at_most() {
    let (a, b) = MemoryPort::pair(MemoryOptions::default());
    let (mut a, mut b) = (host("10.0.0.1/24", a), host("10.0.0.2/24", b));
    let mut now = 0;
    let mut step = |a: &mut Host<MemoryPort>, b: &mut Host<MemoryPort>| {
        now += 50_000;
        a.poll(Instant(now)).unwrap();
        b.poll(Instant(now)).unwrap();
    };
    for port in 7..7 + PORTS {
        b.listen(format!("10.0.0.2:{port}").parse().unwrap(), 4096).unwrap();
    }
    step(&mut a, &mut b);
    let before = resident();
    let (mut asked, mut established, mut accepted, mut turns) = (0, 0, 0, 0);
    while (established, accepted) != (CONNECTIONS, CONNECTIONS) {
        turns += 1;
        assert!(turns < 100_000, "stuck at {established} of {asked}");
        for _ in 0..PACE.min(CONNECTIONS - asked) {
            let port = 7 + asked % PORTS;
            if a.connect(format!("10.0.0.2:{port}").parse().unwrap(), None).is_ok() {
                asked += 1;
            }
        }
        step(&mut a, &mut b);
        while let Some(event) = a.next_event() {
            match event {
                SocketEvent::Ready { conn } => {
                    assert!(a.stream(conn).unwrap().is_established(), "{:?}", a.error(conn));
                    established += 1;
                }
                SocketEvent::Opening { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = b.next_event() {
            accepted += usize::from(matches!(event, SocketEvent::Accepted { .. }));
        }
    }
    let each = (resident() - before) / (2 * CONNECTIONS);
    assert!(each > 256, "{each} bytes: less than the Streamer's context alone, so nothing was measured");
    assert!(each <= 1024, "{each} bytes an idle connection");
    println!("{each} bytes an idle connection");
}
