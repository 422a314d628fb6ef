//! Connections whose both ends are on this machine: out of the kernel together, and back together.
//!
//! ```text
//!   capture_both         each end is read; each one's SND.NXT is the other's RCV.NXT
//!   make_husk, twice
//!   go_away              numbers as of when nothing of what is carried had been sent
//!   come_home            numbers advanced by what was carried; nothing is in flight
//!   rebuild, twice       both are rebuilt before either may send
//!   resume, twice
//! ```
//!
//! No segment carries the bytes meanwhile, so none is needed on the way back: both ends have the
//! numbers that they would have if segments had carried them.

use crate::capture_error::CaptureError;
use crate::captured::Captured;
use crate::error::{During, Failed};
use crate::tcp_info::TcpInfo;
use crate::{capture, release, sys};
use baton_policy::Refusal;
use baton_tcp::snapshot::{Scales, Snapshot};
use baton_tcp::state::State;
use baton_wire::seq::Seq;
use std::os::fd::{AsFd, BorrowedFd};

/// Why both ends were not captured. Both sockets are as they were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Apart {
    /// Nothing is in flight, and the numbers or the options disagree nevertheless.
    #[error("these are ends of two connections")]
    Strangers,
    /// An end has to stay, or did not stand still.
    #[error(transparent)]
    Stays(#[from] CaptureError),
}

impl From<Refusal> for Apart {
    fn from(refusal: Refusal) -> Apart {
        Apart::Stays(refusal.into())
    }
}

impl From<Failed> for Apart {
    fn from(failed: Failed) -> Apart {
        Apart::Stays(failed.into())
    }
}

/// How far one end's connection has come since it left the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Bytes that this end wrote, and the other end has or can read.
    pub written: u64,
    /// The same of the other end.
    pub received: u64,
    /// This end has finished (FIN), behind those bytes.
    pub finished: bool,
    /// The other end has finished.
    pub peer_finished: bool,
}

impl Carried {
    /// As the other end sees it.
    pub fn reversed(self) -> Carried {
        let Carried { written, received, finished, peer_finished } = self;
        Carried { written: received, received: written, finished: peer_finished, peer_finished: finished }
    }
}

/// True if everything that this end has sent is acknowledged. A capture drops what is in flight, which is sent
/// again only after a timeout; but what arrived may be acknowledged late.
///
/// # Errors
/// Errors of `getsockopt(2)`.
pub fn is_acknowledged(fd: impl AsFd) -> Result<bool, Failed> {
    Ok(TcpInfo::of(fd.as_fd()).during("reading TCP_INFO")?.unacknowledged() == 0)
}

/// Bytes that were written to this end and not sent yet. A capture has them, too.
///
/// # Errors
/// Errors of `ioctl(2)`.
pub fn unsent(fd: impl AsFd) -> Result<u32, Failed> {
    sys::length(fd.as_fd(), sys::Length::Unsent).during("asking what was not sent")
}

/// Bytes that have arrived at this end and were not read.
///
/// # Errors
/// Errors of `ioctl(2)`.
pub fn unread(fd: impl AsFd) -> Result<u32, Failed> {
    sys::length(fd.as_fd(), sys::Length::Unread).during("asking what was not read")
}

/// Takes bytes that its program has had out of a socket, as far as they are there.
pub fn discard(fd: impl AsFd, mut bytes: u64) {
    let mut nowhere = [0; 4096];
    while bytes > 0 {
        let most = nowhere.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        match rustix::net::recv(&fd, &mut nowhere[..most], rustix::net::RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(_) => return,
            Ok((count, _)) => bytes -= count as u64,
        }
    }
}

/// Captures both ends of a connection and leaves both sockets in repair mode. Neither program may use
/// them meanwhile. Call it in the network namespace of both.
///
/// # Errors
/// Errors of [`capture()`]; [`Refusal::Unsettled`] if something is in flight, which may be over soon;
/// [`Refusal::State`] if an end has finished; [`Apart::Strangers`].
pub fn capture_both(ours: impl AsFd, theirs: impl AsFd) -> Result<[Captured; 2], Apart> {
    capture_each([ours.as_fd(), theirs.as_fd()], |fd| capture(fd))
}

/// As [`capture_both`], for sockets that may be in two network namespaces: `capture` enters them.
pub(crate) fn capture_each(
    [ours, theirs]: [BorrowedFd<'_>; 2],
    mut capture: impl FnMut(BorrowedFd<'_>) -> Result<Captured, CaptureError>,
) -> Result<[Captured; 2], Apart> {
    let first = capture(ours)?;
    let second = match capture(theirs) {
        Ok(second) => second,
        Err(error) => {
            release(ours, &first)?;
            return Err(error.into());
        }
    };
    match face(&first, &second) {
        Ok(()) => Ok([first, second]),
        Err(why) => {
            release_both((ours, &first), (theirs, &second))?;
            Err(why)
        }
    }
}

/// Turns both captured sockets, which were not made husks, back into ordinary ones.
///
/// # Errors
/// Errors of [`release`]; both were tried.
pub fn release_both(first: (impl AsFd, &Captured), second: (impl AsFd, &Captured)) -> Result<(), Failed> {
    let released = release(first.0, first.1);
    release(second.0, second.1).and(released)
}

/// Checks whether these are the two ends of one connection and nothing of it is in flight.
fn face(first: &Captured, second: &Captured) -> Result<(), Apart> {
    let (a, b) = (&first.protocol, &second.protocol);
    if [a.state, b.state] != [State::Established; 2] || first.shut_read || second.shut_read {
        return Err(Refusal::State.into());
    }
    let scales = b.scales.map(|Scales { snd, rcv }| Scales { snd: rcv, rcv: snd });
    let options = a.timestamps.is_some() == b.timestamps.is_some() && a.sack == b.sack && a.scales == scales;
    if options && a.snd_nxt == b.rcv_nxt && b.snd_nxt == a.rcv_nxt {
        Ok(())
    } else if [a, b].iter().any(|end| end.snd_una != end.snd_nxt) {
        Err(Refusal::Unsettled.into())
    } else {
        Err(Apart::Strangers)
    }
}

/// Takes what was written and not sent out of the capture of one end, which the program writes again. The
/// bytes that were sent have arrived ([`capture_both`]), so nothing is left to be sent.
pub fn take_unsent(captured: &mut Captured) -> Vec<u8> {
    let sent = captured.protocol.unacked_bytes() as usize;
    let unsent = captured.send_queue.split_off(sent.min(captured.send_queue.len()));
    captured.send_queue.clear();
    let p = &mut captured.protocol;
    p.snd_una = p.snd_nxt;
    p.write_seq = p.snd_nxt;
    unsent
}

/// The numbers of one end while its bytes are carried. The first of them are those that it had yet to read, and the
/// `peer_unread` bytes that the other end had yet to read. So the numbers are as before these were sent. Call it after
/// [`take_unsent`].
pub fn go_away(head: &mut Snapshot, peer_unread: u32) {
    head.snd_nxt = head.snd_nxt - peer_unread;
    (head.snd_una, head.write_seq) = (head.snd_nxt, head.snd_nxt);
    head.rcv_nxt = head.copied_seq;
}

/// One end as the kernel is to have it after bytes were `carried`: nothing in flight, and the last of them `unread`.
/// `head` is what was captured, after [`go_away`]; `peer_window` is [`window_at_home`] of the other end. `None`
/// if both ends have finished: the connection is over.
pub fn come_home(head: &Captured, peer_window: u32, carried: Carried, unread: Vec<u8>) -> Option<Captured> {
    let protocol = numbers_at_home(&head.protocol, peer_window, carried, unread.len() as u32)?;
    Some(Captured { protocol, send_queue: Vec::new(), receive_queue: unread, ..head.clone() })
}

/// The numbers of [`come_home`].
pub fn numbers_at_home(head: &Snapshot, peer_window: u32, carried: Carried, unread: u32) -> Option<Snapshot> {
    let Carried { written, received, finished, peer_finished } = carried;
    let mut p = head.clone();
    p.state = match (finished, peer_finished) {
        (false, false) => State::Established,
        (true, false) => State::FinWait2,
        (false, true) => State::CloseWait,
        (true, true) => return None,
    };
    let window = window_at_home(head, unread);
    let ahead = |from: Seq, bytes: u64, fin: bool| from + (bytes as u32).wrapping_add(u32::from(fin));
    p.snd_nxt = ahead(head.snd_nxt, written, finished);
    (p.snd_una, p.write_seq) = (p.snd_nxt, p.snd_nxt);
    p.rcv_nxt = ahead(head.rcv_nxt, received, peer_finished);
    p.copied_seq = ahead(head.rcv_nxt, received, false) - unread;
    (p.last_ack_sent, p.snd_wl1) = (p.rcv_nxt, p.rcv_nxt);
    p.right_edge = p.rcv_nxt + window;
    p.snd_wnd = peer_window;
    p.max_wnd = p.max_wnd.max(peer_window);
    Some(p)
}

/// The bytes that the peer may send after the way home: as many as before, less those that are unread, and no more than
/// a segment can say. The kernel lets a window grow and never shrink, so one that came and went often would have no
/// bound.
pub fn window_at_home(head: &Snapshot, unread: u32) -> u32 {
    let scale = head.scales.map_or(0, |scales| scales.rcv.shift());
    head.rcv_wnd().min(u32::from(u16::MAX) << scale).saturating_sub(unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{make_husk, rebuild, resume};
    use baton_testkit::{need_root, wait_for};
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    fn ends(address: &str) -> [TcpStream; 2] {
        let listener = TcpListener::bind(address).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [ours, listener.accept().unwrap().0]
    }

    /// Takes both ends out, carries `carried` bytes by hand, and takes both home.
    fn there_and_back(ends: &[TcpStream; 2], carried: Carried) {
        let mut captured = capture_both(&ends[0], &ends[1]).unwrap();
        captured.iter_mut().for_each(|end| assert!(take_unsent(end).is_empty()));
        assert!(captured.iter().all(|end| end.receive_queue.is_empty()));
        let heads = captured.each_ref();
        for (end, captured) in ends.iter().zip(&captured) {
            make_husk(end, captured).unwrap();
        }
        let windows = heads.map(|head| window_at_home(&head.protocol, 0));
        let ways = [(0, carried), (1, carried.reversed())];
        let home = ways.map(|(at, carried)| come_home(heads[at], windows[1 - at], carried, Vec::new()).unwrap());
        ends.iter().zip(&home).for_each(|(end, home)| rebuild(end, home).unwrap());
        ends.iter().zip(&home).for_each(|(end, home)| resume(end, home).unwrap());
    }

    fn talk(ends: &mut [TcpStream; 2]) {
        for at in [0, 1, 0] {
            ends[at].write_all(b"after").unwrap();
            let mut got = [0; 5];
            ends[1 - at].read_exact(&mut got).unwrap();
            assert_eq!(&got, b"after");
        }
    }

    #[test]
    fn both_ends_go_on_with_the_numbers_of_what_was_carried() {
        need_root!();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let mut ends = ends(address);
            for carried in [
                Carried::default(),
                Carried { written: 5_000_000_000, received: 70_000, ..Carried::default() },
                Carried { received: 1, ..Carried::default() },
            ] {
                talk(&mut ends);
                there_and_back(&ends, carried);
            }
            talk(&mut ends);
        }
    }

    #[test]
    fn a_window_that_grew_beyond_what_segments_say_is_smaller_after_the_way_home() {
        need_root!();
        let ends = ends("127.0.0.1:0");
        let [mut head, other] = capture_both(&ends[0], &ends[1]).unwrap();
        let scale = head.protocol.scales.unwrap().rcv.shift();
        head.protocol.right_edge = head.protocol.rcv_nxt + (1 << 30);
        let window = window_at_home(&other.protocol, 0);
        let home = come_home(&head, window, Carried::default(), Vec::new()).unwrap();
        assert_eq!(home.protocol.rcv_wnd(), 65535 << scale);
        assert_eq!(home.protocol.snd_wnd, other.protocol.rcv_wnd());
    }

    #[test]
    fn an_end_that_finished_meanwhile_has_finished_in_the_kernel() {
        need_root!();
        for (at, carried) in [
            (0, Carried { finished: true, written: 10, ..Carried::default() }),
            (1, Carried { peer_finished: true, ..Carried::default() }),
        ] {
            let mut ends = ends("127.0.0.1:0");
            talk(&mut ends);
            there_and_back(&ends, carried);
            assert_eq!(ends[1 - at].read(&mut [0; 1]).unwrap(), 0, "end of file");
            ends[1 - at].write_all(b"rest").unwrap();
            ends[1 - at].shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            ends[at].read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"rest");
        }
    }

    #[test]
    fn two_sockets_of_other_connections_are_left_alone() {
        need_root!();
        let (mut one, mut other) = (ends("127.0.0.1:0"), ends("127.0.0.1:0"));
        talk(&mut one);
        // The last bytes may be acknowledged late.
        let settled = || [&one[0], &other[1]].iter().all(|end| is_acknowledged(end).unwrap());
        wait_for("nothing is in flight", settled);
        let refused = capture_both(&one[0], &other[1]);
        assert!(matches!(refused, Err(Apart::Strangers)));
        talk(&mut one);
        talk(&mut other);
    }

    #[test]
    fn bytes_that_are_not_read_come_along_both_ways() {
        need_root!();
        let mut ends = ends("127.0.0.1:0");
        talk(&mut ends);
        ends[0].write_all(b"unread").unwrap();
        wait_for("nothing is in flight", || is_acknowledged(&ends[0]).unwrap() && unread(&ends[1]).unwrap() == 6);
        let mut captured = capture_both(&ends[0], &ends[1]).unwrap();
        captured.iter_mut().for_each(|end| assert!(take_unsent(end).is_empty()));
        ends.iter().zip(&captured).for_each(|(end, captured)| make_husk(end, captured).unwrap());
        let brought = std::mem::take(&mut captured[1].receive_queue);
        go_away(&mut captured[0].protocol, brought.len() as u32);
        go_away(&mut captured[1].protocol, 0);
        // The other end has read two of them, and the first has written four more.
        let rest = [&brought[2..], b"more"].concat();
        let carried = Carried { written: 10, ..Carried::default() };
        let windows = [0, 8].into_iter().zip(&captured).map(|(unread, end)| window_at_home(&end.protocol, unread));
        let windows: Vec<u32> = windows.collect();
        let home = [
            come_home(&captured[0], windows[1], carried, Vec::new()).unwrap(),
            come_home(&captured[1], windows[0], carried.reversed(), rest).unwrap(),
        ];
        ends.iter().zip(&home).for_each(|(end, home)| rebuild(end, home).unwrap());
        ends.iter().zip(&home).for_each(|(end, home)| resume(end, home).unwrap());
        let mut got = [0; 8];
        ends[1].read_exact(&mut got).unwrap();
        assert_eq!(&got, b"readmore");
        talk(&mut ends);
    }

    #[test]
    fn unread_bytes_stay_with_their_end_and_unsent_ones_are_taken_out() {
        need_root!();
        let ends = ends("127.0.0.1:0");
        ends[0].set_nonblocking(true).unwrap();
        let (mut total, piece) = (0, vec![7; 100_000]);
        while let Ok(count) = (&ends[0]).write(&piece) {
            total += count;
        }
        let captured = (0..1000).find_map(|_| capture_both(&ends[0], &ends[1]).ok());
        let [mut writer, reader] = captured.expect("nothing is in flight");
        let unsent = take_unsent(&mut writer);
        assert!(!unsent.is_empty() && writer.check().is_ok());
        assert_eq!(reader.receive_queue.len() + unsent.len(), total);
    }
}
