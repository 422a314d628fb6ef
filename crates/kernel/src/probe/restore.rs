//! Beliefs about the way back into the kernel.

use super::Belief;
use super::bench::{Bench, segments_sent, wait};
use crate::agreed::MOST_MAXSEG;
use crate::captured::Captured;
use crate::otherwise::{Otherwise, expect};
use crate::repair::{self, Leave, Queue, RepairOption, Windows};
use crate::sys::{self, Length};
use crate::tcp_info::TcpInfo;
use crate::{capture, make_husk, rebuild, restore, resume};
use baton_tcp::state::State;
use baton_wire::seq::Seq;
use rustix::event::{PollFlags, epoll};
use rustix::net::connect_unspec;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

pub(super) const BELIEFS: &[Belief] = &[
    Belief {
        name: "steps-have-an-order",
        believed: "numbers are accepted only before connect, options only after it, rcv_wup only up to rcv_nxt",
        needed: false,
        probe: steps_have_an_order,
    },
    Belief {
        name: "restore-goes-on",
        believed: "a connection restored on its descriptor continues, with its unread and unacknowledged bytes",
        needed: true,
        probe: restore_goes_on,
    },
    Belief {
        name: "epoll-survives",
        believed: "a registration with epoll survives, and fires for new data after a restore",
        needed: true,
        probe: epoll_survives,
    },
    Belief {
        name: "segment-size-is-lost",
        believed: "without TCP_MAXSEG before connect a restored socket uses the default MSS",
        needed: false,
        probe: segment_size_is_lost,
    },
    Belief {
        name: "closed-window-holds",
        believed: "data written outside repair mode behind a closed window stays unsent until the window opens",
        needed: true,
        probe: closed_window_holds,
    },
    Belief {
        name: "leaving-asks-the-peer",
        believed: "leaving repair mode sends one window probe, or none if so requested",
        needed: false,
        probe: leaving_asks_the_peer,
    },
    Belief {
        name: "fin-through-loopback",
        believed: "a FIN made here and sent to ourselves brings a rebuilt socket to CLOSE-WAIT",
        needed: false,
        probe: fin_through_loopback,
    },
    Belief {
        name: "retracted-window-drops",
        believed: "data in a window that a restore took back is dropped (Linux 6.17 and later)",
        needed: false,
        probe: retracted_window_drops,
    },
    Belief {
        name: "error-lowers-route-mtu",
        believed: "an ICMP error made here and sent to ourselves sets the MTU of a route",
        needed: false,
        probe: error_lowers_route_mtu,
    },
    Belief {
        name: "ecn-survives",
        believed: "ECN stays agreed on across a restore on the same descriptor",
        needed: false,
        probe: ecn_survives,
    },
];

fn husk_of(bench: &Bench) -> Result<Captured, Otherwise> {
    let captured = capture(&bench.ours)?;
    make_husk(&bench.ours, &captured)?;
    Ok(captured)
}

fn steps_have_an_order(bench: &Bench) -> Result<(), Otherwise> {
    let captured = husk_of(bench)?;
    let fd = bench.fd();
    let numbers = repair::set_queue_seq(fd, Queue::Send, Seq(1));
    expect(numbers.is_err(), "numbers are accepted after connect")?;
    let windows = repair::windows(fd)?;
    let ahead = repair::set_windows(fd, Windows { rcv_wup: captured.protocol.rcv_nxt + 1, ..windows });
    expect(ahead.is_err(), "a window update ahead of rcv_nxt is accepted")?;
    connect_unspec(fd)?;
    let options = repair::set_options(fd, &[RepairOption(4, 0)]);
    expect(options.is_err(), "options are accepted before connect")?;
    expect(repair::set_queue_seq(fd, Queue::Send, Seq(1)).is_ok(), "numbers are not accepted before connect")
}

fn restore_goes_on(bench: &Bench) -> Result<(), Otherwise> {
    bench.exchange()?;
    (&bench.peer).write_all(b"unread")?;
    Bench::wait_unread(&bench.ours, 6)?;
    bench.leave_unacked(1_000)?;
    let captured = husk_of(bench)?;
    sys::set_deaf(bench.peer.as_fd(), false)?;
    restore(&bench.ours, &captured)?;
    let error = sys::get_int(bench.fd(), libc::SOL_SOCKET, libc::SO_ERROR)?;
    expect(error == 0, format!("SO_ERROR is {error}"))?;
    let mss = TcpInfo::of(bench.fd())?.snd_mss();
    expect(mss + 12 >= u32::from(captured.protocol.peer_mss.min(MOST_MAXSEG)), format!("segments of {mss} bytes"))?;
    let clamp = sys::get_int(bench.fd(), libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP)?;
    expect(clamp >= captured.options.window_clamp, format!("a largest window of {clamp}"))?;
    expect(Bench::read(&bench.ours, 6)? == b"unread", "the unread bytes have changed")?;
    // This takes a timeout, because the kernel no longer has a round-trip time.
    let acked = (0..50).find(|_| {
        thread::sleep(Duration::from_millis(100));
        sys::length(bench.fd(), Length::Unacked).is_ok_and(|len| len == 0)
    });
    expect(acked.is_some(), "unacknowledged data is not sent again")?;
    expect(Bench::read(&bench.peer, 1_000)? == [7; 1_000], "the retransmitted bytes have changed")?;
    Ok(bench.exchange()?)
}

fn epoll_survives(bench: &Bench) -> Result<(), Otherwise> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&watch, bench.fd(), epoll::EventData::new_u64(42), flags)?;
    let captured = husk_of(bench)?;
    restore(&bench.ours, &captured)?;
    let mut events = Vec::with_capacity(4);
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    // The events that the move itself caused.
    epoll::wait(&watch, rustix::buffer::spare_capacity(&mut events), Some(&none))?;
    (&bench.peer).write_all(b"new")?;
    Bench::wait_unread(&bench.ours, 3)?;
    events.clear();
    epoll::wait(&watch, rustix::buffer::spare_capacity(&mut events), Some(&none))?;
    let fired = events.iter().any(|e| {
        let (data, flags) = (e.data, e.flags);
        data.u64() == 42 && flags.contains(epoll::EventFlags::IN)
    });
    expect(fired, format!("{} events, not the one", events.len()))?;
    expect(!bench.poll(Duration::ZERO)?.contains(PollFlags::HUP), "poll shows POLLHUP after a restore")
}

fn segment_size_is_lost(bench: &Bench) -> Result<(), Otherwise> {
    let captured = husk_of(bench)?;
    let fd = bench.fd();
    connect_unspec(fd)?;
    sys::set_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, 0)?;
    rustix::net::connect(fd, &captured.remote)?;
    crate::agreed::restore_agreed(fd, &captured.protocol)?;
    let lost = TcpInfo::of(fd)?.snd_mss();
    rebuild(&bench.ours, &captured)?;
    let kept = TcpInfo::of(fd)?.snd_mss();
    let most = captured.protocol.peer_mss.min(MOST_MAXSEG);
    expect(u32::from(most) - kept <= 12, format!("{kept} bytes with it"))?;
    expect(lost < 600, format!("{lost} bytes without it, {kept} with it"))
}

fn closed_window_holds(bench: &Bench) -> Result<(), Otherwise> {
    bench.exchange()?;
    let mut captured = capture(&bench.ours)?;
    // As if the program had written these bytes earlier.
    captured.send_queue.extend([9; 5_000]);
    captured.protocol.write_seq += 5_000;
    make_husk(&bench.ours, &captured)?;
    let before = segments_sent()?;
    rebuild(&bench.ours, &captured)?;
    let unsent = sys::length(bench.fd(), Length::Unsent)?;
    expect(segments_sent()? == before && unsent == 5_000, format!("{unsent} of 5000 bytes are unsent"))?;
    resume(&bench.ours, &captured)?;
    expect(Bench::read(&bench.peer, 5_000)? == [9; 5_000], "other bytes arrived")?;
    Ok(bench.exchange()?)
}

fn leaving_asks_the_peer(bench: &Bench) -> Result<(), Otherwise> {
    for (how, expected) in [(Leave::Quietly, 0), (Leave::Probing, 2)] {
        repair::enter(bench.fd())?;
        let before = segments_sent()?;
        repair::leave(bench.fd(), how)?;
        thread::sleep(Duration::from_millis(10));
        // A probe and its answer count, because both ends are in this namespace.
        let sent = segments_sent()? - before;
        expect(sent == expected, format!("{how:?}: {sent} segments"))?;
    }
    Ok(())
}

fn fin_through_loopback(bench: &Bench) -> Result<(), Otherwise> {
    bench.peer.shutdown(Shutdown::Write)?;
    wait("CLOSE-WAIT", || Ok(TcpInfo::of(bench.fd())?.state() == Some(State::CloseWait)))?;
    let captured = husk_of(bench)?;
    rebuild(&bench.ours, &captured)?;
    expect(TcpInfo::of(bench.fd())?.state() == Some(State::CloseWait), "it is in another state")?;
    resume(&bench.ours, &captured)?;
    expect(bench.poll(Duration::ZERO)?.contains(PollFlags::RDHUP), "poll does not show the end")?;
    (&bench.ours).write_all(b"tail")?;
    expect(Bench::read(&bench.peer, 4)? == b"tail", "the other direction is dead")
}

fn retracted_window_drops(bench: &Bench) -> Result<(), Otherwise> {
    bench.exchange()?;
    (&bench.peer).write_all(b"unread")?;
    Bench::wait_unread(&bench.ours, 6)?;
    let mut captured = husk_of(bench)?;
    captured.protocol.right_edge = captured.protocol.rcv_nxt + 1_000;
    captured.options.window_clamp = 1_000;
    rebuild(&bench.ours, &captured)?;
    // Without a probe, so that the peer does not learn of the restore.
    repair::leave(bench.fd(), Leave::Quietly)?;
    (&bench.peer).write_all(&[5; 5_000])?;
    thread::sleep(Duration::from_millis(5));
    let unread = sys::length(bench.fd(), Length::Unread)?;
    expect(unread == 6, format!("{} bytes of it were accepted", unread - 6))
}

fn error_lowers_route_mtu(bench: &Bench) -> Result<(), Otherwise> {
    bench.exchange()?;
    let mut captured = husk_of(bench)?;
    captured.protocol.path_mtu = 1300;
    restore(&bench.ours, &captured)?;
    let pmtu = TcpInfo::of(bench.fd())?.pmtu();
    expect(pmtu == 1300, format!("it is still {pmtu} bytes"))?;
    Ok(bench.exchange()?)
}

fn ecn_survives(_: &Bench) -> Result<(), Otherwise> {
    std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1")?;
    let own = Bench::new();
    std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "2")?;
    let own = own?;
    let captured = capture(&own.ours)?;
    expect(captured.protocol.ecn, "ECN is not agreed on at first")?;
    make_husk(&own.ours, &captured)?;
    restore(&own.ours, &captured)?;
    expect(TcpInfo::of(own.fd())?.ecn(), "the restored socket does not use ECN")
}
