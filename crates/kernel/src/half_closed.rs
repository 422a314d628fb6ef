//! Connections with one side closed.
//!
//! A rebuilt socket is ESTABLISHED, whatever it was before. `shutdown` restores our FIN: with the
//! send queue selected, it counts as sent. No call can restore the peer's FIN, or its ACK of ours;
//! the kernel has to receive them. So they are made here and sent through a raw socket to our own
//! address. They go over the loopback device, where nothing is steered, and say nothing that the
//! peer has not said before. Segments from us to the peer leave in the same way ([`ask_peer`],
//! [`tell_peer`]).

use crate::captured::Captured;
use crate::raw;
use crate::repair::{self, Queue};
use crate::tcp_info::TcpInfo;
use crate::windows::windows_of;
use baton_tcp::state::State;
use baton_wire::addr::Addr;
use baton_wire::packet::PROTOCOL_TCP;
use baton_wire::seq::{Seq, Window};
use baton_wire::tcp::header::{self, Header, fill_checksum};
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::{Flags, Timestamps};
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::Duration;

/// A segment over loopback is received before `sendto` returns, unless another CPU handles it. Then
/// it is received soon after.
const PATIENCE: u32 = 200;
const A_WHILE: Duration = Duration::from_micros(100);

/// Takes the rebuilt socket from ESTABLISHED to the captured state. Returns `false` if the socket
/// does not get there, because something on the host drops the segment.
pub(crate) fn restore_state(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<bool> {
    let p = &captured.protocol;
    if captured.shut_read {
        shutdown(fd, Shutdown::Read)?;
    }
    match p.state {
        State::CloseWait => {
            repair::set_windows(fd, closed(captured, Seq(p.rcv_nxt.0.wrapping_sub(1))))?;
            hear(fd, captured, Flags::FIN | Flags::ACK, Seq(p.rcv_nxt.0.wrapping_sub(1)), p.snd_una)?;
            Ok(reaches(fd, State::CloseWait)?)
        }
        State::FinWait1 if p.snd_nxt == p.write_seq => {
            repair::with_queue(fd, Queue::Send, || Ok(shutdown(fd, Shutdown::Write)?))?;
            Ok(true)
        }
        State::FinWait1 => {
            // Behind the closed window the FIN waits with the unsent data.
            shutdown(fd, Shutdown::Write)?;
            Ok(true)
        }
        State::FinWait2 => {
            repair::with_queue(fd, Queue::Send, || Ok(shutdown(fd, Shutdown::Write)?))?;
            hear(fd, captured, Flags::ACK, p.rcv_nxt, p.snd_una)?;
            Ok(reaches(fd, State::FinWait2)?)
        }
        _ => Ok(true),
    }
}

/// The windows with no room to send, so that nothing leaves too early.
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

/// Makes the kernel receive a segment without payload, as if from the peer.
fn hear(fd: BorrowedFd<'_>, captured: &Captured, flags: Flags, seq: Seq, ack: Seq) -> io::Result<()> {
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
    let packet = segment(&header, &[], &[], captured.remote, captured.local);
    raw::send_to_ourselves(fd, &packet, captured.local)
}

/// Asks the peer what it has and how much room it has. It answers a byte that it has acknowledged
/// before with an ACK at once. The kernel's own window probe, which the kernel sends only in
/// ESTABLISHED, carries no byte. Linux answers only one such segment in 500 ms
/// (`tcp_oow_rate_limited()`, `net/ipv4/tcp_input.c`), and something that came during the move may
/// have used up that answer.
pub(crate) fn ask_peer(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<()> {
    let p = &captured.protocol;
    say(fd, captured, Seq(p.snd_una.0.wrapping_sub(1)), p.rcv_wnd(), &[0])
}

/// Tells the peer how much room there is now. A peer that sees the window closed waits for its
/// timer, 200 ms at least. The kernel's probe carries the window too, but with an old sequence
/// number, and the peer ignores the window of such a segment (RFC 9293 §3.10.7.4, SND.WL1).
pub(crate) fn tell_peer(fd: BorrowedFd<'_>, captured: &Captured) -> io::Result<()> {
    let room = TcpInfo::of(fd)?.rcv_wnd();
    if room <= captured.protocol.rcv_wnd() {
        return Ok(());
    }
    say(fd, captured, captured.protocol.snd_nxt, room, &[])
}

/// Sends the peer a segment.
fn say(fd: BorrowedFd<'_>, captured: &Captured, seq: Seq, room: u32, payload: &[u8]) -> io::Result<()> {
    let p = &captured.protocol;
    let header = Header {
        src_port: captured.local.port(),
        dst_port: captured.remote.port(),
        seq,
        ack: p.rcv_nxt,
        flags: Flags::ACK,
        window: p.scales.unwrap_or_default().rcv.field(Window(room)),
        ..Header::default()
    };
    let clock = |timestamps: baton_tcp::snapshot::Timestamps| {
        let ecr = timestamps.ts_recent.unwrap_or(0);
        repair::timestamp(fd).map(|val| TcpOption::Timestamps(Timestamps { val, ecr }))
    };
    let option = p.timestamps.map(clock).transpose()?;
    let packet = segment(&header, option.as_slice(), payload, captured.local, captured.remote);
    raw::send(fd, &packet, captured.remote)
}

/// An IP packet with a TCP segment.
pub(crate) fn segment(
    header: &Header,
    options: &[TcpOption<'_>],
    payload: &[u8],
    from: SocketAddr,
    to: SocketAddr,
) -> Vec<u8> {
    let [src, dst] = [from, to].map(|end| Addr::from(end.ip()));
    let mut segment = [0; header::MAX_HEADER_LEN];
    let len = header.write(options, &mut segment).expect("one option fits");
    let segment = &mut [&segment[..len], payload].concat()[..];
    fill_checksum(segment, src, dst).expect("the segment is short");
    raw::packet(PROTOCOL_TCP, segment, src, dst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use crate::{capture, make_husk, rebuild, resume};
    use baton_testkit::{Netns, need_root, veth};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::fd::{AsFd, OwnedFd};

    /// Both ends of a wire, and a listener at the far one.
    fn wire() -> (Netns, Netns, TcpListener) {
        let (ours, peer) = (Netns::new("bound"), Netns::new("peer"));
        veth(&ours, "wire", &peer, "wire");
        ours.run("ip addr add 10.67.0.1/24 dev wire");
        peer.run("ip addr add 10.67.0.2/24 dev wire");
        let listener = peer.enter(|| TcpListener::bind("10.67.0.2:7").unwrap());
        (ours, peer, listener)
    }

    /// Moves a connection whose peer has closed away and back.
    fn comes_back(socket: OwnedFd, listener: &TcpListener) {
        rustix::net::connect(&socket, &listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        assert!(reaches(socket.as_fd(), State::CloseWait).unwrap());
        let captured = capture(&socket).unwrap();
        make_husk(&socket, &captured).unwrap();
        rebuild(&socket, &captured).unwrap();
        resume(&socket, &captured).unwrap();
        assert_eq!(std::net::TcpStream::from(socket).read(&mut [0]).unwrap(), 0, "the end of the stream is visible");
    }

    fn socket() -> OwnedFd {
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// Packets that go over the loopback device must appear to come in by that device.
    #[test]
    fn a_socket_that_is_bound_to_a_device_hears_the_fin() {
        need_root!();
        let (ours, _peer, listener) = wire();
        let index = ours.run("cat /sys/class/net/wire/ifindex").trim().parse().unwrap();
        ours.enter(|| {
            let socket = socket();
            sys::set_int(socket.as_fd(), libc::SOL_SOCKET, sys::SO_BINDTOIFINDEX, index).unwrap();
            comes_back(socket, &listener);
        });
    }

    /// A setup with both ends of a wire in one namespace, which still communicate over the wire.
    #[test]
    fn the_fin_is_heard_where_rules_send_what_is_for_us_over_the_wire() {
        need_root!();
        let (ours, _peer, listener) = wire();
        for line in [
            "route add 10.67.0.1 dev wire table 100",
            "rule add pref 1 iif wire lookup local",
            "rule add pref 2 from 10.67.0.1 to 10.67.0.1 lookup local",
            "rule add pref 10 lookup 100",
            "rule add pref 20 lookup local",
            "rule del pref 0",
        ] {
            ours.run(&format!("ip {line}"));
        }
        ours.enter(|| comes_back(socket(), &listener));
    }
}
