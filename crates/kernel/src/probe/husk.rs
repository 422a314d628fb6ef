//! Beliefs about a socket whose connection is away.

use super::Belief;
use super::bench::{Bench, segments_sent, settle, wait};
use crate::otherwise::{Otherwise, expect};
use crate::repair;
use crate::tcp_info::TcpInfo;
use crate::{capture, make_husk, sys};
use baton_tcp::state::State;
use rustix::event::PollFlags;
use rustix::net::connect_unspec;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

pub(super) const BELIEFS: &[Belief] = &[
    Belief {
        name: "husk-keeps-its-place",
        believed: "a husk keeps its descriptor, its addresses and its entry among the established connections",
        needed: true,
        probe: husk_keeps_its_place,
    },
    Belief {
        name: "husk-keeps-programs-out",
        believed: "reading and writing a husk fails with EPERM and EINVAL",
        needed: false,
        probe: husk_keeps_programs_out,
    },
    Belief {
        name: "disconnect-is-silent",
        believed: "connect(AF_UNSPEC) in repair mode sends nothing, and leaves ECONNABORTED until connect",
        needed: true,
        probe: disconnect_is_silent,
    },
    Belief {
        name: "disconnect-wakes-waiters",
        believed: "connect(AF_UNSPEC) wakes waiters on the descriptor, with POLLHUP",
        needed: false,
        probe: disconnect_wakes_waiters,
    },
    Belief {
        name: "repair-retransmits",
        believed: "repair mode does not stop the retransmission of unacknowledged data",
        needed: false,
        probe: repair_retransmits,
    },
    Belief {
        name: "husk-is-silent",
        believed: "a socket rebuilt empty sends nothing",
        needed: true,
        probe: husk_is_silent,
    },
    Belief {
        name: "closing-is-silent",
        believed: "closing a husk sends nothing, even with SO_LINGER 0",
        needed: true,
        probe: closing_is_silent,
    },
];

/// Longer than the first timeout of a retransmission or a probe on loopback (RTO 200 ms).
const A_TIMEOUT: Duration = Duration::from_millis(700);

fn husk_keeps_its_place(bench: &Bench) -> Result<(), Otherwise> {
    let entry = || -> std::io::Result<bool> {
        let port = format!(":{:04X} ", bench.ours.local_addr()?.port());
        let table = fs::read_to_string("/proc/thread-self/net/tcp")?;
        // Local address first; state 01 is ESTABLISHED.
        Ok(table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let ours = words.next().is_some_and(|local| format!("{local} ").ends_with(&port));
            ours && words.nth(1) == Some("01")
        }))
    };
    let (number, name) = (bench.fd().as_raw_fd(), bench.ours.local_addr()?);
    expect(entry()?, "the table of connections does not show it at first")?;
    let captured = capture(&bench.ours)?;
    make_husk(&bench.ours, &captured)?;
    expect(bench.fd().as_raw_fd() == number && bench.ours.local_addr()? == name, "the socket's name changed")?;
    expect(bench.ours.peer_addr()? == bench.peer.local_addr()?, "the peer's name changed")?;
    expect(entry()?, "the table of connections does not show it")
}

fn husk_keeps_programs_out(bench: &Bench) -> Result<(), Otherwise> {
    use std::io::{Read, Write};
    let captured = capture(&bench.ours)?;
    make_husk(&bench.ours, &captured)?;
    let read = (&bench.ours).read(&mut [0]).map_err(|e| e.raw_os_error());
    let write = (&bench.ours).write(b"x").map_err(|e| e.raw_os_error());
    let kept_out = (read, write) == (Err(Some(libc::EPERM)), Err(Some(libc::EINVAL)));
    expect(kept_out, format!("reading gave {read:?}, writing {write:?}"))
}

fn disconnect_is_silent(bench: &Bench) -> Result<(), Otherwise> {
    bench.leave_unacked(1_000)?;
    settle()?;
    sys::set_deaf(bench.peer.as_fd(), false)?;
    repair::enter(bench.fd())?;
    let before = segments_sent()?;
    connect_unspec(bench.fd())?;
    let after = segments_sent()?;
    let error = sys::get_int(bench.fd(), libc::SOL_SOCKET, libc::SO_ERROR)?;
    expect(after == before, format!("{} segments were sent", after - before))?;
    expect(TcpInfo::of(bench.peer.as_fd())?.state() == Some(State::Established), "the peer noticed")?;
    expect(error == libc::ECONNABORTED, format!("SO_ERROR is {error}"))
}

fn disconnect_wakes_waiters(bench: &Bench) -> Result<(), Otherwise> {
    let (seen, shows) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = seen.send(bench.poll(Duration::from_millis(500)));
        });
        thread::sleep(Duration::from_millis(50));
        repair::enter(bench.fd())?;
        connect_unspec(bench.fd()).map_err(std::io::Error::from)
    })?;
    let flags = shows.recv()??;
    expect(flags.contains(PollFlags::HUP), format!("poll shows {flags:?}"))
}

fn repair_retransmits(bench: &Bench) -> Result<(), Otherwise> {
    bench.exchange()?;
    bench.leave_unacked(1_000)?;
    repair::enter(bench.fd())?;
    let before = segments_sent()?;
    Ok(wait("a retransmission", || Ok(segments_sent()? > before))?)
}

fn husk_is_silent(bench: &Bench) -> Result<(), Otherwise> {
    sys::set_int(bench.fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    bench.exchange()?;
    settle()?;
    bench.leave_unacked(1_000)?;
    let captured = capture(&bench.ours)?;
    make_husk(&bench.ours, &captured)?;
    let before = segments_sent()?;
    thread::sleep(A_TIMEOUT);
    let sent = segments_sent()? - before;
    expect(sent == 0, format!("{sent} segments were sent"))?;
    let keepalive = sys::get_int(bench.fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE)?;
    expect(keepalive == 0, "keepalive is on")
}

fn closing_is_silent(bench: &Bench) -> Result<(), Otherwise> {
    for linger in [false, true] {
        let own = Bench::new()?;
        own.exchange()?;
        if linger {
            sys::set(own.fd(), libc::SOL_SOCKET, libc::SO_LINGER, [1u32, 0].map(u32::to_ne_bytes).as_flattened())?;
        }
        settle()?;
        let captured = capture(&own.ours)?;
        make_husk(&own.ours, &captured)?;
        let before = segments_sent()?;
        let Bench { ours, peer } = own;
        drop(ours);
        thread::sleep(Duration::from_millis(20));
        let sent = segments_sent()? - before;
        expect(sent == 0, format!("{sent} segments were sent, SO_LINGER 0: {linger}"))?;
        expect(TcpInfo::of(peer.as_fd())?.state() == Some(State::Established), "the peer noticed")?;
        // No connection is left either that the peer's segments would find.
        drop(peer);
    }
    expect(bench.exchange().is_ok(), "another connection suffered")
}
