//! TCP sockets that end, as the kernel reports them to who listens (`ss -E` does, too): the addresses
//! and what each has sent. A socket ends once nobody holds it; one that goes on in TIME-WAIT is reported
//! as it enters that.
//!
//! The kernel makes a report of each socket of the network namespace, and only while somebody listens.

use crate::netlink::{Socket, attribute};
use crate::tcp_info::TcpInfo;
use baton_wire::addr::Tuple;
use rustix::net::netlink::SOCK_DIAG;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// `linux/sock_diag.h`: `SKNLGRP_INET_TCP_DESTROY` and `SKNLGRP_INET6_TCP_DESTROY`.
const GROUPS: [u32; 2] = [1, 3];
const INET_DIAG_INFO: u16 = 2;
/// `struct inet_diag_msg`.
const MESSAGE_LEN: usize = 72;

/// A socket that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its addresses and ports.
    pub tuple: Tuple,
    /// The data segments that it has sent, retransmissions included.
    pub packets: u32,
}

/// Sockets that end in a network namespace.
pub struct EndedSockets(Socket);

impl EndedSockets {
    /// Listens in the thread's network namespace.
    ///
    /// # Errors
    /// If the kernel has no `CONFIG_INET_DIAG`, or refuses.
    pub fn listen() -> io::Result<EndedSockets> {
        Socket::listen(SOCK_DIAG, &GROUPS).map(EndedSockets)
    }

    /// Hands over those that have sent data, without waiting. Some are missing if more end than the
    /// socket's buffer holds.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn drain(&mut self, mut each: impl FnMut(Ended)) -> io::Result<()> {
        let whole = self.0.drain(|_, body| ended(body).filter(|it| it.packets > 0).into_iter().for_each(&mut each));
        whole.map(drop)
    }
}

impl AsFd for EndedSockets {
    /// Readable when [`EndedSockets::drain`] has something to hand over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads a report: `struct inet_diag_msg`, and its attributes.
fn ended(body: &[u8]) -> Option<Ended> {
    let message = body.get(..MESSAGE_LEN)?;
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = message[at..at + 16].try_into().ok()?;
        match i32::from(message[0]) {
            libc::AF_INET => Some(IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]])),
            libc::AF_INET6 => Some(IpAddr::from(bytes).to_canonical()),
            _ => None,
        }
    };
    let port = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let local = SocketAddr::new(address(8)?, port(4));
    let remote = SocketAddr::new(address(24)?, port(6));
    let info = TcpInfo::in_report(attribute(&body[MESSAGE_LEN..], INET_DIAG_INFO)?);
    Some(Ended { tuple: Tuple::new(local, remote), packets: info.data_segs_out() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Body;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn a_report_is_read() {
        let mut message = [0; MESSAGE_LEN];
        message[0] = libc::AF_INET as u8;
        message[4..8].copy_from_slice(&[0x1f, 0x40, 0xc3, 0x50]);
        message[8..12].copy_from_slice(&[10, 0, 0, 1]);
        message[24..28].copy_from_slice(&[10, 0, 0, 2]);
        let mut info = [0; 240];
        info[156..160].copy_from_slice(&77u32.to_ne_bytes());
        let report = |info: &[u8]| Body::new(&message).attr(9, &[6]).attr(INET_DIAG_INFO, info).bytes().to_vec();
        let tuple = Tuple::new("10.0.0.1:8000".parse().unwrap(), "10.0.0.2:50000".parse().unwrap());
        assert_eq!(ended(&report(&info)), Some(Ended { tuple, packets: 77 }));
        // An older kernel has less to say.
        assert_eq!(ended(&report(&info[..100])).map(|it| it.packets), Some(0));
        let whole = report(&info);
        assert!((0..MESSAGE_LEN).all(|len| ended(&whole[..len]).is_none()), "a report that is cut short");
        assert_eq!(ended(Body::new(&message).bytes()), None, "one without figures");
    }

    #[test]
    fn the_kernel_reports_what_a_socket_has_sent() {
        let mut sockets = EndedSockets::listen().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        ours.set_nodelay(true).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        for byte in 0..5 {
            ours.write_all(&[byte]).unwrap();
            peer.read_exact(&mut [0]).unwrap();
        }
        let tuple = Tuple::new(ours.local_addr().unwrap(), ours.peer_addr().unwrap());
        drop((ours, peer));
        let begun = Instant::now();
        let mut found = None;
        while found.is_none() {
            sockets.drain(|it| found = found.or(Some(it).filter(|it| it.tuple == tuple))).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(20), "no report comes");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(found, Some(Ended { tuple, packets: 5 }));
    }
}
