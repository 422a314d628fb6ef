//! An engine in a loop of one's own: no thread, no lock, and time is what the loop says it is.

use baton::host::{Host, HostConfig, SocketEvent};
use baton::port::{MemoryOptions, MemoryPort};
use baton::time::Instant;
use std::io;

pub(crate) fn main() -> io::Result<()> {
    let (server_port, client_port) = MemoryPort::pair(MemoryOptions::default());
    let address = |text: &str| HostConfig::new(text.parse().expect("an address with its prefix"));
    let mut server = Host::new(&address("10.0.0.1/24"), server_port)?;
    let mut client = Host::new(&address("10.0.0.2/24"), client_port)?;
    let echo = "10.0.0.1:7".parse().expect("an address with its port");
    server.listen(echo, 16)?;
    client.connect(echo, None)?;

    let (mut greeted, mut answer) = (false, Vec::new());
    let mut now = Instant(0);
    while answer.len() < 5 {
        server.poll(now).map_err(io::Error::other)?;
        while let Some(event) = server.next_event() {
            if let SocketEvent::Ready { conn, .. } = event {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = server.read(conn, &mut buffer) {
                    server.write(conn, &buffer[..count])?;
                }
            }
        }
        client.poll(now).map_err(io::Error::other)?;
        while let Some(event) = client.next_event() {
            if let SocketEvent::Ready { conn } = event {
                greeted = greeted || client.write(conn, b"hello").is_ok();
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = client.read(conn, &mut buffer) {
                    answer.extend(&buffer[..count]);
                }
            }
        }
        // A loop with something else to do would sleep until then.
        let next = [server.next_deadline(), client.next_deadline()].into_iter().flatten().min();
        now = next.unwrap_or(now).max(Instant(now.0 + 1_000));
        assert!(now.0 < 60_000_000_000, "no answer came");
    }
    println!("the answer is {}", String::from_utf8_lossy(&answer));
    assert_eq!(answer, b"hello");
    Ok(())
}
