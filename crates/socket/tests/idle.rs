//! What an idle connection costs, all told: engine, queue pair, stream. A test
//! program of its own, since it looks at the whole process's memory.

use baton_consumer::consumer::SocketEvent;
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::Instant;

/// Connections, each with an end at either host: as many as the hosts are made
/// for, so that the shared rings are shared by all.
const CONNECTIONS: usize = 60_000;

/// Ports that are listened on: fewer ephemeral ones than connections go to each.
const PORTS: usize = 3;

/// Connects in each turn.
const PACE: usize = 64;

/// Memory of this process that is resident, in bytes.
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
