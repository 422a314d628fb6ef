//! Tells the kernel the MTU of a path.
//!
//! While a connection is away, ICMP errors about its segments go to the engine, which learns from
//! them that a packet was too big. The kernel would ignore such an error: it believes only one that
//! quotes a sequence number in flight, and a husk has nothing in flight. So the kernel's route
//! keeps the old MTU, and a restored connection would lose its first flight before it learned the
//! new one.
//!
//! There is no call that sets this in a route's cache. So the error that the kernel needs is made
//! here and sent to our own address. It says no more than a router said to the engine (RFC 1191,
//! RFC 8201). [`half_closed`](crate::half_closed) does the same with a FIN.

use crate::captured::Captured;
use crate::raw;
use crate::tcp_info::TcpInfo;
use baton_wire::addr::Addr;
use baton_wire::packet::PROTOCOL_TCP;
use baton_wire::seq::Seq;
use baton_wire::{icmpv4, icmpv6};
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::Duration;

/// The number of attempts, as for a segment from us to ourselves.
const PATIENCE: u32 = 50;
const A_WHILE: Duration = Duration::from_micros(100);

/// Lowers the MTU of a socket's route. The socket has just been connected, is in repair mode and
/// has nothing queued; its next sequence number is `snd`. Returns true if the MTU is now at most
/// the captured one. It is not if the host drops ICMP or was told not to believe it; the kernel
/// then discovers the MTU by itself.
pub(crate) fn restore_path_mtu(fd: BorrowedFd<'_>, captured: &Captured, snd: Seq) -> io::Result<bool> {
    let told = captured.protocol.path_mtu;
    let before = pmtu(fd)?;
    if before <= told {
        return Ok(true);
    }
    raw::send_to_ourselves(fd, &too_big(captured, snd, told), captured.local)?;
    for _ in 0..PATIENCE {
        // The kernel has a minimum of its own (`min_pmtu`).
        if pmtu(fd)? < before {
            return Ok(true);
        }
        sleep(A_WHILE);
    }
    Ok(false)
}

/// The path's MTU as in a [`Captured`]. That of the loopback device does not fit into 16 bits by
/// one byte.
fn pmtu(fd: BorrowedFd<'_>) -> io::Result<u16> {
    Ok(TcpInfo::of(fd)?.pmtu().min(u16::MAX.into()) as u16)
}

/// The error that a router would send for a segment with that sequence number.
fn too_big(captured: &Captured, snd: Seq, mtu: u16) -> Vec<u8> {
    let [local, remote] = [captured.local, captured.remote].map(|end| Addr::from(end.ip()));
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&captured.local.port().to_be_bytes());
    segment[2..4].copy_from_slice(&captured.remote.port().to_be_bytes());
    segment[4..8].copy_from_slice(&snd.0.to_be_bytes());
    // The header's length, in words.
    segment[12] = 5 << 4;
    let quote = &raw::packet(PROTOCOL_TCP, &segment, local, remote);
    let mut message = [0; 128];
    let (protocol, written) = match local.ip() {
        IpAddr::V4(_) => {
            let error = icmpv4::Message::FragmentationNeeded { mtu, quote };
            (icmpv4::PROTOCOL, error.write(&mut message))
        }
        IpAddr::V6(ip) => {
            let error = icmpv6::Message::PacketTooBig { mtu: mtu.into(), quote };
            (icmpv6::PROTOCOL, error.write(ip, ip, &mut message))
        }
    };
    let len = written.expect("there is room for two headers");
    raw::packet(protocol, &message[..len], local, local)
}
