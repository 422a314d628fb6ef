//! The kernel's facts about a connection, for a policy.

use crate::error::{During, Failed};
use crate::tcp_info::TcpInfo;
use baton_policy::conditions::Facts;
use rustix::net::{getpeername, getsockname};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// Reads both addresses of a connected TCP socket, its round-trip time, the bytes that it has carried,
/// and the number of data segments that it has sent, retransmissions included. The latter stands for
/// the number of sends of a program whose sends nobody counts. Takes three system calls.
///
/// # Errors
/// If the socket is not a connected TCP socket.
pub fn known(fd: impl AsFd) -> Result<Facts, Failed> {
    let fd = fd.as_fd();
    let [local, remote] = addresses(fd).during("asking for the addresses")?;
    let info = TcpInfo::of(fd).during("reading TCP_INFO")?;
    Ok(Facts {
        local,
        remote,
        sends: Some(info.data_segs_out().into()),
        bytes: Some(info.payload()),
        // 0 before the first measurement.
        round_trip_us: Some(info.rtt_us().into()).filter(|us| *us > 0),
        ..Facts::default()
    })
}

/// The number of segments that a connection has received and sent in the kernel. The numbers wrap
/// around.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn segments(fd: impl AsFd) -> Result<[u32; 2], Failed> {
    Ok(TcpInfo::of(fd.as_fd()).during("reading TCP_INFO")?.segs())
}

fn addresses(fd: BorrowedFd<'_>) -> io::Result<[(Option<IpAddr>, u16); 2]> {
    let local = SocketAddr::try_from(getsockname(fd)?)?;
    let remote = SocketAddr::try_from(getpeername(fd)?.ok_or(ErrorKind::NotConnected)?)?;
    Ok([local, remote].map(|end| (Some(end.ip().to_canonical()), end.port())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn sends_are_counted_and_ports_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, from) = listener.accept().unwrap();
        for sends in 0..4 {
            let facts = known(&ours).unwrap();
            let end = |at: SocketAddr| (Some(at.ip()), at.port());
            assert_eq!((facts.local, facts.remote), (end(from), end(listener.local_addr().unwrap())));
            // The SYN counts as an acknowledged byte.
            assert_eq!((facts.sends, facts.bytes), (Some(sends), Some(sends * 13 + 1)));
            assert!(facts.round_trip_us.is_some_and(|us| us < 1_000_000), "{facts:?}");
            let [received, sent] = segments(&ours).unwrap();
            // Each direction carries a SYN or its ACK, then data.
            assert!(received > sends as u32 && sent > sends as u32, "{received} {sent}");
            ours.write_all(b"request").unwrap();
            peer.read_exact(&mut [0; 7]).unwrap();
            peer.write_all(b"answer").unwrap();
            ours.read_exact(&mut [0; 6]).unwrap();
        }
    }

    #[test]
    fn of_what_has_no_connection_nothing_is_known() {
        assert!(known(TcpListener::bind("127.0.0.1:0").unwrap()).is_err());
        assert!(known(UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
