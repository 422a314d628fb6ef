//! The kernel's two sockets of a connection: their numbers, and the bytes between them. Bytes that are sent have
//! arrived at once, unless the receiver has no room.

use crate::stream::byte;
use baton_tcp::snapshot::{Seeds, Snapshot};
use baton_tcp::state::State;
use baton_wire::seq::Seq;
use std::collections::VecDeque;

/// The bytes that may be unread, and that may be unsent.
const ROOM: usize = 2000;
/// The numbers wrap early.
const ISS: [Seq; 2] = [Seq(u32::MAX - 5_000), Seq(u32::MAX - 100)];

struct Socket {
    snd_nxt: Seq,
    rcv_nxt: Seq,
    unsent: VecDeque<u8>,
    unread: VecDeque<u8>,
    /// The program has shut down its sending direction.
    shut: bool,
    fin_sent: bool,
    fin_received: bool,
}

pub struct Kernel {
    sockets: [Socket; 2],
}

/// One end, as it is captured.
pub struct Head {
    pub numbers: Snapshot,
    pub unread: Vec<u8>,
    pub unsent: Vec<u8>,
}

impl Kernel {
    pub fn new() -> Kernel {
        let socket = |at: usize| Socket {
            snd_nxt: ISS[at] + 1,
            rcv_nxt: ISS[1 - at] + 1,
            unsent: VecDeque::new(),
            unread: VecDeque::new(),
            shut: false,
            fin_sent: false,
            fin_received: false,
        };
        Kernel { sockets: [socket(0), socket(1)] }
    }

    /// Takes as many bytes as fit. Each has to be the one that its number says.
    pub fn send(&mut self, at: usize, bytes: &[u8]) -> usize {
        let socket = &mut self.sockets[at];
        assert!(!socket.shut, "bytes after the end");
        let count = bytes.len().min(ROOM - socket.unsent.len());
        let from = socket.snd_nxt.since(ISS[at] + 1) as u32 as u64 + socket.unsent.len() as u64;
        for (place, got) in (from..).zip(&bytes[..count]) {
            assert_eq!(*got, byte(at, place), "end {at} sends another byte at {place}");
        }
        socket.unsent.extend(&bytes[..count]);
        self.deliver(at);
        count
    }

    pub fn shutdown(&mut self, at: usize) {
        self.sockets[at].shut = true;
        self.deliver(at);
    }

    fn deliver(&mut self, at: usize) {
        let [ours, theirs] = self.both(at);
        while theirs.unread.len() < ROOM
            && let Some(byte) = ours.unsent.pop_front()
        {
            theirs.unread.push_back(byte);
            ours.snd_nxt += 1;
            theirs.rcv_nxt += 1;
        }
        if ours.shut && ours.unsent.is_empty() && !ours.fin_sent {
            (ours.fin_sent, theirs.fin_received) = (true, true);
            ours.snd_nxt += 1;
            theirs.rcv_nxt += 1;
        }
    }

    fn both(&mut self, at: usize) -> [&mut Socket; 2] {
        let [first, second] = &mut self.sockets;
        if at == 0 { [first, second] } else { [second, first] }
    }

    /// Reads up to `most` bytes; none at the end, and `None` if nothing has arrived.
    pub fn receive(&mut self, at: usize, most: usize) -> Option<Vec<u8>> {
        let socket = &mut self.sockets[at];
        let count = most.min(socket.unread.len());
        let bytes: Vec<u8> = socket.unread.drain(..count).collect();
        let ended = socket.fin_received && socket.unread.is_empty();
        self.deliver(1 - at);
        (count > 0 || ended).then_some(bytes)
    }

    /// Captures both ends, as for a pair. `None` if an end has finished, or if more than `most` bytes of one would
    /// come along.
    pub fn capture(&mut self, most: usize) -> Option<[Head; 2]> {
        let [first, second] = &self.sockets;
        let fits = |from: &Socket, to: &Socket| from.unsent.len() + to.unread.len() <= most;
        if self.sockets.iter().any(|socket| socket.shut) || !fits(first, second) || !fits(second, first) {
            return None;
        }
        Some([0, 1].map(|at| {
            let socket = &mut self.sockets[at];
            let unread: Vec<u8> = socket.unread.drain(..).collect();
            let unsent: Vec<u8> = socket.unsent.drain(..).collect();
            Head { numbers: numbers(socket, unread.len()), unread, unsent }
        }))
    }

    /// Rebuilds both ends with these numbers and unread bytes, and nothing in flight.
    pub fn rebuild(&mut self, numbers: [Snapshot; 2], unread: [Vec<u8>; 2]) {
        for ((socket, numbers), unread) in self.sockets.iter_mut().zip(&numbers).zip(unread) {
            assert_eq!(numbers.check(), Ok(()));
            let bytes = (numbers.unacked_bytes(), numbers.unsent_bytes(), numbers.unread_bytes());
            assert_eq!(bytes, (0, 0, unread.len() as u32));
            socket.unread = unread.into();
            (socket.snd_nxt, socket.rcv_nxt) = (numbers.snd_nxt, numbers.rcv_nxt);
            socket.fin_sent = numbers.has_our_fin();
            socket.fin_received = numbers.has_peer_fin();
            socket.shut = socket.fin_sent;
        }
        let [one, other] = &self.sockets;
        assert_eq!([one.snd_nxt, other.snd_nxt], [other.rcv_nxt, one.rcv_nxt], "neither has to send anything");
        assert_eq!([one.fin_sent, other.fin_sent], [other.fin_received, one.fin_received]);
    }
}

fn numbers(socket: &Socket, unread: usize) -> Snapshot {
    let window = ROOM as u32;
    Snapshot {
        state: State::Established,
        snd_una: socket.snd_nxt,
        snd_nxt: socket.snd_nxt,
        write_seq: socket.snd_nxt,
        snd_wnd: window,
        snd_wl1: socket.rcv_nxt,
        max_wnd: window,
        copied_seq: socket.rcv_nxt - unread as u32,
        rcv_nxt: socket.rcv_nxt,
        last_ack_sent: socket.rcv_nxt,
        right_edge: socket.rcv_nxt + window,
        peer_mss: 1460,
        advmss: 1460,
        path_mtu: 1500,
        ipv6: false,
        scales: None,
        sack: true,
        ecn: false,
        timestamps: None,
        seeds: Seeds::default(),
    }
}
