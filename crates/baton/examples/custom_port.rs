//! A port of one's own: frames as datagrams of a pair of Unix sockets.

use baton::engine::{BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta};
use baton::host::{Host, HostConfig, SocketEvent};
use baton::time::Instant;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;

/// Largest frame: an Ethernet header and 1,500 bytes.
const FRAME: usize = 1514;

/// One end of the pair.
struct DatagramPort {
    socket: UnixDatagram,
    slot: [u8; FRAME],
}

impl DatagramPort {
    fn pair() -> io::Result<(DatagramPort, DatagramPort)> {
        let (a, b) = UnixDatagram::pair()?;
        let port = |socket: UnixDatagram| {
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>(DatagramPort { socket, slot: [0; FRAME] })
        };
        Ok((port(a)?, port(b)?))
    }
}

impl FrameIo for DatagramPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(1500)
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut count = 0;
        let mut frame = [0; FRAME];
        while count < limit.min(BURST) {
            match self.socket.recv(&mut frame) {
                Ok(len) => sink.burst(&[RxFrame { data: &frame[..len], meta: RxMeta::default() }]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(source) => return Err(PortError::new("datagrams: receiving", source)),
            }
            count += 1;
        }
        Ok(count)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.slot.get_mut(..len)
    }

    fn commit(&mut self, len: usize, _: TxMeta) {
        // A full socket loses the frame, as a full network card does; TCP sends it again.
        let _ = self.socket.send(&self.slot[..len]);
    }

    fn gather(&mut self, _: &[u8], _: &[PayloadPart], _: TxMeta) -> bool {
        unreachable!("only ports with `tx_gather` are asked")
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}

pub(crate) fn main() -> io::Result<()> {
    let (server_port, client_port) = DatagramPort::pair()?;
    let address = |text: &str| HostConfig::new(text.parse().expect("an address with its prefix"));
    let mut server = Host::new(&address("10.0.0.1/24"), server_port)?;
    let mut client = Host::new(&address("10.0.0.2/24"), client_port)?;
    let daytime = "10.0.0.1:13".parse().expect("an address with its port");
    server.listen(daytime, 16)?;
    client.connect(daytime, None)?;

    let mut answer = Vec::new();
    for turn in 0.. {
        let now = Instant(turn * 100_000);
        server.poll(now).map_err(io::Error::other)?;
        while let Some(event) = server.next_event() {
            if let SocketEvent::Accepted { conn, .. } = event {
                server.write(conn, b"noon")?;
                server.close(conn);
            }
        }
        client.poll(now).map_err(io::Error::other)?;
        while let Some(event) = client.next_event() {
            if let SocketEvent::Ready { conn, .. } = event {
                let mut buffer = [0; 64];
                while let Ok(count @ 1..) = client.read(conn, &mut buffer) {
                    answer.extend(&buffer[..count]);
                }
            }
        }
        if answer.len() == 4 {
            break;
        }
        assert!(turn < 100_000, "no answer came");
    }
    println!("it is {}", String::from_utf8_lossy(&answer));
    assert_eq!(answer, b"noon");
    Ok(())
}
