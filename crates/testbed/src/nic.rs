//! The NIC's queues and their order (CH §3.1, figure 2).
//!
//! ```text
//!   wire ─> lookup ─> host packets ─────> host            host first: lookup, then both queues of
//!                └──> NIC packets ──> TCP                 host packets, then NIC packets, commands
//!   host ─> host packets to send ──> wire                 FCFS: by the time of arrival
//!        └> commands ──> TCP
//! ```
//!
//! With host first the lookup empties the ring of received packets at once, and NIC packets wait in the
//! NIC's memory. First come, first served leaves every packet in that ring until it is processed, so a
//! burst that the ring cannot hold is dropped, host packets with it (CH §3.1: "as the receive queue fills
//! up").

use baton_tcp::segment::Segment;
use std::collections::VecDeque;

/// Which connection.
pub type Id = u32;

/// Something for the NIC's processor to do.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// A packet from the wire.
    Arrived(Id, Segment),
    /// A packet of a host connection, from the wire.
    HostReceived(Id, Segment),
    /// A packet of a host connection, to the wire.
    HostSent(Id, Segment),
    /// A packet of a connection on the NIC.
    Tcp(Id, Segment),
    /// A timer of a connection on the NIC.
    Timer(Id),
    /// The host hands a connection off, or takes it back.
    HandOff(Id),
    /// See `HandOff`.
    Restore(Id),
    /// The host's program writes so many bytes.
    Write(Id, u32),
    /// The host's program closes.
    Close(Id),
}

/// Work that waits, and since when, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The packet or command that waits.
    pub work: Work,
    /// When the packet or command reached the NIC.
    pub since: u64,
}

/// All queues.
#[derive(Debug)]
pub struct Queues {
    host_first: bool,
    arrived: VecDeque<Waiting>,
    host: VecDeque<Waiting>,
    nic: VecDeque<Waiting>,
    nic_packets: usize,
    at_most: usize,
    sending: usize,
    ring: usize,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets of the host that found the ring of packets to send full.
    pub refused: u64,
}

impl Queues {
    /// Empty queues; `host_first` gives host packets precedence. They hold `at_most` received packets.
    pub fn new(host_first: bool, at_most: u64, ring: u64) -> Queues {
        Queues {
            host_first,
            at_most: at_most as usize,
            sending: 0,
            ring: ring as usize,
            arrived: VecDeque::new(),
            host: VecDeque::new(),
            nic: VecDeque::new(),
            nic_packets: 0,
            dropped: 0,
            refused: 0,
        }
    }

    /// A packet arrives from the wire, unless there is no memory for it.
    pub fn arrive(&mut self, id: Id, segment: Segment, now: u64) {
        let waiting = if self.host_first { self.arrived.len() + self.nic_packets } else { self.nic_packets };
        if waiting >= self.at_most {
            self.dropped += 1;
            return;
        }
        let waiting = Waiting { work: Work::Arrived(id, segment), since: now };
        if self.host_first {
            self.arrived.push_back(waiting);
        } else {
            self.nic_packets += 1;
            self.nic.push_back(waiting);
        }
    }

    /// Queues work that the lookup or the host made.
    pub fn push(&mut self, work: Work, since: u64) {
        let waiting = Waiting { work, since };
        if let Work::HostSent(..) = work {
            if self.sending >= self.ring {
                self.refused += 1;
                return;
            }
            self.sending += 1;
        }
        match work {
            Work::HostReceived(..) | Work::HostSent(..) if self.host_first => self.host.push_back(waiting),
            Work::Tcp(..) => {
                self.nic_packets += 1;
                self.nic.push_back(waiting);
            }
            _ => self.nic.push_back(waiting),
        }
    }

    /// Takes the work whose turn it is.
    pub fn pop(&mut self) -> Option<Waiting> {
        let next = self.arrived.pop_front().or_else(|| self.host.pop_front()).or_else(|| self.nic.pop_front());
        if let Some(Waiting { work: Work::Arrived(..), .. }) = next
            && !self.host_first
        {
            self.nic_packets -= 1;
        }
        if let Some(Waiting { work: Work::Tcp(..), .. }) = next {
            self.nic_packets -= 1;
        }
        if let Some(Waiting { work: Work::HostSent(..), .. }) = next {
            self.sending -= 1;
        }
        next
    }

    /// `Qlen`: received packets that wait for TCP; without host first, all that wait.
    pub fn queued(&self) -> u32 {
        self.nic_packets as u32
    }
}
