//! The kernel's facts about a connection, for a policy.

use crate::error::{During, Failed};
use crate::tcp_info::TcpInfo;
use baton_policy::rules::{History, Known};
use rustix::net::{getpeername, getsockname};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// Reads the ports of a connected TCP socket, the bytes that it has carried, and the number of data
/// segments that it has sent, retransmissions included. The latter stands for the number of sends
/// of a program whose sends nobody counts. Takes three system calls.
///
/// # Errors
/// If the socket is not a connected TCP socket.
pub fn known(fd: impl AsFd, history: History) -> Result<Known, Failed> {
    let fd = fd.as_fd();
    let [local_port, remote_port] = ports(fd).during("asking for the addresses")?;
    let info = TcpInfo::of(fd).during("reading TCP_INFO")?;
    let (sends, bytes) = (info.data_segs_out().into(), info.payload());
    Ok(Known { local_port, remote_port, sends, bytes, history })
}

/// The number of segments that a connection has received and sent in the kernel. The numbers wrap
/// around.
///
/// # Errors
/// If the socket is not a TCP socket.
pub fn segments(fd: impl AsFd) -> Result<[u32; 2], Failed> {
    Ok(TcpInfo::of(fd.as_fd()).during("reading TCP_INFO")?.segs())
}

fn ports(fd: BorrowedFd<'_>) -> io::Result<[u16; 2]> {
    let local = SocketAddr::try_from(getsockname(fd)?)?;
    let remote = SocketAddr::try_from(getpeername(fd)?.ok_or(ErrorKind::NotConnected)?)?;
    Ok([local.port(), remote.port()])
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
            let expected = Known {
                local_port: from.port(),
                remote_port: listener.local_addr().unwrap().port(),
                sends,
                // The SYN counts as an acknowledged byte.
                bytes: sends * 13 + 1,
                history: History::New,
            };
            assert_eq!(known(&ours, History::New).unwrap(), expected);
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
        assert!(known(TcpListener::bind("127.0.0.1:0").unwrap(), History::New).is_err());
        assert!(known(UdpSocket::bind("127.0.0.1:0").unwrap(), History::New).is_err());
    }
}
