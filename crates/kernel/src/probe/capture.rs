//! Beliefs about what repair mode shows.

use super::Belief;
use super::bench::{Bench, segments_sent, wait};
use crate::diag::diagnose;
use crate::otherwise::{Otherwise, expect};
use crate::repair::{self, Leave, Queue};
use crate::sequence::capture_marks;
use crate::socket_options::{IntOption, restore_reuse_address};
use crate::{capture, release, sys};
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

pub(super) const BELIEFS: &[Belief] = &[
    Belief {
        name: "repair-shows-all",
        believed: "TCP_REPAIR gives numbers, queues, windows, clock and options, as the peer has them",
        needed: true,
        probe: repair_shows_all,
    },
    Belief {
        name: "keys-are-told",
        believed: "sock_diag tells whether a connection has TCP-MD5 keys",
        needed: true,
        probe: keys_are_told,
    },
    Belief {
        name: "capture-is-silent",
        believed: "capturing sends nothing, and leaving repair mode makes the socket ordinary again",
        needed: true,
        probe: capture_is_silent,
    },
    Belief {
        name: "repair-does-not-stop",
        believed: "in repair mode arriving segments are processed, so steering must come first",
        needed: false,
        probe: repair_does_not_stop,
    },
    Belief {
        name: "selected-queue-swallows",
        believed: "with the send queue selected, what the kernel would transmit counts as sent but does not leave",
        needed: false,
        probe: selected_queue_swallows,
    },
    Belief {
        name: "repair-forgets-reuse",
        believed: "leaving repair mode turns SO_REUSEADDR off",
        needed: false,
        probe: repair_forgets_reuse,
    },
];

fn repair_shows_all(bench: &Bench) -> Result<(), Otherwise> {
    bench.exchange()?;
    (&bench.peer).write_all(b"unread")?;
    Bench::wait_unread(&bench.ours, 6)?;
    bench.leave_unacked(3)?;
    let ours = capture(&bench.ours)?;
    sys::set_deaf(bench.peer.as_fd(), false)?;
    let peer = capture(&bench.peer)?;
    let (o, p) = (&ours.protocol, &peer.protocol);
    expect(ours.receive_queue == b"unread", format!("receive queue {:?}", ours.receive_queue))?;
    expect(ours.send_queue == [7; 3], format!("send queue {:?}", ours.send_queue))?;
    // The peer has not received the three bytes.
    let numbers = (o.snd_una, o.snd_nxt, o.rcv_nxt) == (p.rcv_nxt, p.rcv_nxt + 3, p.snd_nxt);
    expect(numbers, format!("{o:?} against {p:?}"))?;
    let wnd = o.snd_wnd as i32 - p.right_edge.since(o.snd_una);
    expect(o.scales.is_some() && wnd.abs() < 1 << 14, format!("send window {} against {p:?}", o.snd_wnd))?;
    let scales = o.scales.zip(p.scales).is_some_and(|(o, p)| (o.snd, o.rcv) == (p.rcv, p.snd));
    expect(scales, format!("scales {:?} against {:?}", o.scales, p.scales))?;
    expect(o.sack && o.timestamps.is_some(), format!("options of {o:?}"))?;
    expect(o.peer_mss == p.advmss || o.peer_mss == p.advmss + 12, format!("MSS {} of {}", o.peer_mss, p.advmss))
}

fn keys_are_told(bench: &Bench) -> Result<(), Otherwise> {
    let told = diagnose(bench.fd(), bench.ours.local_addr()?, bench.ours.peer_addr()?);
    let told = told.map_err(|e| Otherwise(format!("{e}; is the module tcp_diag available?")))?;
    expect(!told.md5, "keys are reported that do not exist")
}

fn capture_is_silent(bench: &Bench) -> Result<(), Otherwise> {
    bench.exchange()?;
    let before = segments_sent()?;
    let captured = capture(&bench.ours)?;
    expect(segments_sent()? == before, "a segment was sent")?;
    release(&bench.ours, &captured)?;
    bench.exchange()?;
    Ok(())
}

fn repair_does_not_stop(bench: &Bench) -> Result<(), Otherwise> {
    let fd = bench.fd();
    repair::enter(fd)?;
    let before = capture_marks(fd)?.rcv_nxt;
    (&bench.peer).write_all(b"four")?;
    std::thread::sleep(Duration::from_millis(5));
    expect(repair::queue_seq(fd, Queue::Receive)? == before + 4, "the segment was not processed")
}

fn repair_forgets_reuse(bench: &Bench) -> Result<(), Otherwise> {
    let fd = bench.fd();
    let reuse = || sys::get_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR);
    sys::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    let captured = capture(&bench.ours)?;
    repair::leave(fd, Leave::Quietly)?;
    let forgotten = reuse()? == 0;
    restore_reuse_address(fd, &captured.options)?;
    expect(reuse()? == 1, "SO_REUSEADDR cannot be set again")?;
    // The socket is still an ordinary one.
    IntOption::NoDelay.write(fd, 1)?;
    wait("a writable socket", || Ok((&bench.ours).write(b"x")? == 1))?;
    expect(forgotten, "SO_REUSEADDR stays on")
}

fn selected_queue_swallows(bench: &Bench) -> Result<(), Otherwise> {
    let fd = bench.fd();
    bench.exchange()?;
    IntOption::Cork.write(fd, 1)?;
    (&bench.ours).write_all(b"corked")?;
    expect(sys::length(fd, sys::Length::Unsent)? == 6, "a corked socket sends")?;
    repair::enter(fd)?;
    let before = segments_sent()?;
    repair::with_queue(fd, Queue::Send, || IntOption::Cork.write(fd, 0))?;
    let (unsent, sent) = (sys::length(fd, sys::Length::Unsent)?, segments_sent()? - before);
    expect((unsent, sent) == (0, 0), format!("{unsent} bytes are unsent, {sent} segments were sent"))
}
