//! The NIC's queues and their order (CH §3.1, figure 2).
//!
//! ```text
//!   wire ─> lookup ─> host packets ─────> host            host first: lookup, then both queues of
//!                └──> NIC packets ──> TCP                 host packets, then NIC packets, commands
//!   host ─> host packets to send ──> wire                 FCFS: by the time of arrival
//!        └> commands ──> TCP
//! ```

use baton_tcp::segment::Segment;
use std::collections::VecDeque;

/// Received packets that fit into the NIC's memory. Estimated: twice the paper's `Hiwat` of 1,024
/// (CH §5.1), which is to leave room before packets are dropped.
pub const RECEIVE_QUEUE: usize = 2048;

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
    /// The host hands a connection off.
    HandOff(Id),
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
    /// Packets that found the queue full.
    pub dropped: u64,
}

impl Queues {
    /// Empty queues; `host_first` gives host packets precedence.
    pub fn new(host_first: bool) -> Queues {
        Queues {
            host_first,
            arrived: VecDeque::new(),
            host: VecDeque::new(),
            nic: VecDeque::new(),
            nic_packets: 0,
            dropped: 0,
        }
    }

    /// A packet arrives from the wire, unless there is no memory for it.
    pub fn arrive(&mut self, id: Id, segment: Segment, now: u64) {
        let waiting = if self.host_first { self.arrived.len() + self.nic_packets } else { self.nic_packets };
        if waiting >= RECEIVE_QUEUE {
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
        next
    }

    /// `Qlen`: received packets that wait for TCP; without host first, all that wait.
    pub fn queued(&self) -> u32 {
        self.nic_packets as u32
    }
}
