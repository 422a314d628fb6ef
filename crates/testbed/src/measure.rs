//! Measurements of a run.

/// Counts and times of the measured part of a run.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Length, in ns of virtual time.
    pub span_ns: u64,
    /// Packets on the wire, both ways, and those of connections on the NIC.
    pub packets: u64,
    /// See `packets`.
    pub nic_packets: u64,
    /// Connections that were established, and those of them that were handed off.
    pub connections: u64,
    /// See `connections`.
    pub handed_off: u64,
    /// Connections that were taken back to make room for others.
    pub restored: u64,
    /// Responses that clients received whole.
    pub requests: u64,
    /// Turns of the server program.
    pub turns: u64,
    /// Pages of files that were read because main memory did not hold them.
    pub pages: u64,
    /// Content bytes of these responses, head included.
    pub bytes: u64,
    /// Sum of their response times, in ns.
    pub response_ns: u64,
    /// Time that the NIC's processor worked, in ns.
    pub nic_busy_ns: u64,
    /// Time that the host worked below the system calls, in ns.
    pub stack_ns: u64,
    /// Time that the host worked in system calls and the server program, in ns.
    pub program_ns: u64,
    /// Received packets that the NIC dropped, and packets that the host dropped since its ring was full.
    pub dropped: u64,
    /// See `dropped`.
    pub refused: u64,
    /// Times that host packets spent on the NIC: to be sent, and received, in ns.
    pub send_delays: Vec<u64>,
    /// See `send_delays`.
    pub receive_delays: Vec<u64>,
    /// The soft limit, and the connections on the NIC, by time in ns since the start of the run.
    pub course: Vec<(u64, u32, u32)>,
    /// The first point of `course` that is of the measured part.
    pub measured_from: usize,
}

impl Measured {
    fn share(&self, busy_ns: u64) -> f64 {
        100.0 * busy_ns as f64 / self.span_ns.max(1) as f64
    }

    /// The rest of the time. Work that goes on beyond the measured time counts as a whole, and may exceed it.
    fn idle(&self, busy_ns: u64) -> f64 {
        (100.0 - self.share(busy_ns)).max(0.0)
    }

    /// Idle time of the NIC's processor, in percent.
    pub fn nic_idle(&self) -> f64 {
        self.idle(self.nic_busy_ns)
    }

    /// Idle time of the host's processor, in percent.
    pub fn host_idle(&self) -> f64 {
        self.idle(self.stack_ns + self.program_ns)
    }

    /// Time of the host below the system calls, in percent.
    pub fn stack(&self) -> f64 {
        self.share(self.stack_ns)
    }

    /// Requests completed a second.
    pub fn request_rate(&self) -> f64 {
        self.requests as f64 * 1e9 / self.span_ns.max(1) as f64
    }

    /// Packets a second.
    pub fn packet_rate(&self) -> f64 {
        self.packets as f64 * 1e9 / self.span_ns.max(1) as f64
    }

    /// Connections established a second.
    pub fn connection_rate(&self) -> f64 {
        self.connections as f64 * 1e9 / self.span_ns.max(1) as f64
    }

    /// Connections on the NIC at a time, on average of the measured part's points.
    pub fn mean_on_nic(&self) -> f64 {
        let points = &self.course[self.measured_from.min(self.course.len())..];
        points.iter().map(|&(_, _, there)| f64::from(there)).sum::<f64>() / points.len().max(1) as f64
    }

    /// Packets of connections on the NIC, in percent.
    pub fn nic_packet_share(&self) -> f64 {
        100.0 * self.nic_packets as f64 / self.packets.max(1) as f64
    }

    /// Connections handed off, in percent.
    pub fn handed_off_share(&self) -> f64 {
        100.0 * self.handed_off as f64 / self.connections.max(1) as f64
    }

    /// Content delivered, in Mb/s.
    pub fn content_rate(&self) -> f64 {
        self.bytes as f64 * 8e3 / self.span_ns.max(1) as f64
    }

    /// Mean time from request to full response, in ms.
    pub fn response_ms(&self) -> f64 {
        self.response_ns as f64 / 1e6 / self.requests.max(1) as f64
    }
}

/// The median, in µs; 0 of nothing.
pub fn median_us(delays_ns: &[u64]) -> f64 {
    let mut sorted = delays_ns.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).map_or(0.0, |&ns| ns as f64 / 1e3)
}

/// The mean of all, in µs; 0 of nothing.
pub fn mean_us(delays_ns: &[&Vec<u64>]) -> f64 {
    let count: usize = delays_ns.iter().map(|delays| delays.len()).sum();
    let sum: u64 = delays_ns.iter().flat_map(|delays| delays.iter()).sum();
    sum as f64 / 1e3 / count.max(1) as f64
}
