//! Connections with one side closed.
//!
//! A rebuilt socket is ESTABLISHED, whatever it was. Our FIN is put back by
//! `shutdown`: with the send queue selected it counts as sent. The peer's FIN, and its
//! ACK of ours, cannot be put back by a call; the kernel has to receive them. So they
//! are made here and sent through a raw socket to our own address. They go over the
//! loopback device, where nothing is steered, and say nothing that the peer did not say
//! before.

use crate::captured::Captured;
use crate::repair::{self, Queue};
use crate::tcp_info::TcpInfo;
use crate::windows::windows_of;
use baton_tcp::state::State;
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::Flags;
use baton_wire::tcp::header::{self, Header, fill_checksum};
use baton_wire::{ipv4, ipv6};
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, ipproto, sendto, shutdown, socket_with,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::Duration;

/// A segment over loopback is received before `sendto` returns, unless another CPU
/// is asked to; then soon.
const PATIENCE: u32 = 200;
const A_WHILE: Duration = Duration::from_micros(100);

/// Takes the rebuilt socket from ESTABLISHED to the captured state. `false` if it does
/// not follow: something on the host drops the segment.
pub(crate) fn restore_state(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<bool> {
    let p = &captured.protocol;
    if captured.shut_read {
        shutdown(fd, Shutdown::Read)?;
    }
    match p.state {
        State::CloseWait => {
            repair::set_windows(fd, closed(captured, Seq(p.rcv_nxt.0.wrapping_sub(1))))?;
            hear(captured, Flags::FIN | Flags::ACK, Seq(p.rcv_nxt.0.wrapping_sub(1)), p.snd_una)?;
            Ok(reaches(fd, State::CloseWait)?)
        }
        State::FinWait1 if p.snd_nxt == p.write_seq => {
            repair::with_queue(fd, Queue::Send, || Ok(shutdown(fd, Shutdown::Write)?))?;
            Ok(true)
        }
        State::FinWait1 => {
            // Behind the closed window it waits with the unsent data.
            shutdown(fd, Shutdown::Write)?;
            Ok(true)
        }
        State::FinWait2 => {
            repair::with_queue(fd, Queue::Send, || Ok(shutdown(fd, Shutdown::Write)?))?;
            hear(captured, Flags::ACK, p.rcv_nxt, p.snd_una)?;
            Ok(reaches(fd, State::FinWait2)?)
        }
        _ => Ok(true),
    }
}

/// The windows with no room to send, so that nothing leaves before the time.
fn closed(captured: &Captured, rcv_nxt: Seq) -> repair::Windows {
    let in_flight = captured.protocol.snd_nxt.since(captured.protocol.snd_una).max(0) as u32;
    let windows = windows_of(captured, rcv_nxt);
    repair::Windows { snd_wnd: in_flight, max_window: windows.max_window.max(in_flight), ..windows }
}

fn reaches(fd: BorrowedFd<'_>, state: State) -> io::Result<bool> {
    for _ in 0..PATIENCE {
        if TcpInfo::of(fd)?.state() == Some(state) {
            return Ok(true);
        }
        sleep(A_WHILE);
    }
    Ok(false)
}

/// Lets the kernel hear a segment without payload as if from the peer.
fn hear(captured: &Captured, flags: Flags, seq: Seq, ack: Seq) -> io::Result<()> {
    let p = &captured.protocol;
    let in_flight = p.snd_nxt.since(p.snd_una).max(0) as u32;
    let header = Header {
        src_port: captured.remote.port(),
        dst_port: captured.local.port(),
        seq,
        ack,
        flags,
        window: p.scales.unwrap_or_default().snd.field(Window(in_flight)),
        ..Header::default()
    };
    let tuple = captured.tuple();
    let packet = packet(&header, tuple.remote.ip(), tuple.local.ip());
    let family = if p.ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let raw = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW))?;
    let mut to = SocketAddr::new(tuple.local.ip(), 0);
    if let (SocketAddr::V6(to), SocketAddr::V6(local)) = (&mut to, captured.local) {
        to.set_scope_id(local.scope_id());
    }
    sendto(raw, &packet, SendFlags::DONTWAIT, &to)?;
    Ok(())
}

/// An IP packet with nothing but a TCP header in it.
fn packet(header: &Header, src: IpAddr, dst: IpAddr) -> Vec<u8> {
    const TCP_LEN: usize = header::HEADER_LEN;
    const TTL: u8 = 64;
    let protocol = baton_wire::packet::PROTOCOL_TCP;
    let mut out = [0; ipv6::HEADER_LEN + TCP_LEN];
    let ip_len = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip = ipv4::Header {
                traffic_class: 0,
                id: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: TTL,
                protocol,
                src,
                dst,
            };
            ip.write(&[], TCP_LEN, &mut out)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            ipv6::Header { traffic_class: 0, flow_label: 0, next_header: protocol, hop_limit: TTL, src, dst }
                .write(TCP_LEN, &mut out)
        }
        _ => unreachable!("a captured connection is of one IP version"),
    }
    .expect("there is room for both headers");
    let out = &mut out[..ip_len + TCP_LEN];
    let segment = &mut out[ip_len..];
    header.write(&[], segment).expect("there is room for the header");
    fill_checksum(segment, src.into(), dst.into()).expect("the segment is short");
    out.to_vec()
}
