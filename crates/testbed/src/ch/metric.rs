//! Quantities of a run.

use crate::measure::{Measured, mean_us, median_us};

/// A quantity of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Requests a second.
    RequestRate,
    /// Packets a second.
    PacketRate,
    /// Connections a second.
    ConnectionRate,
    /// Content that clients receive, in Mb/s.
    ContentRate,
    /// Median time that a host packet to be sent is on the NIC, in µs.
    SendDelay,
    /// The same for one received, in µs.
    ReceiveDelay,
    /// Mean of both, in µs.
    MeanDelay,
    /// Cycles of the host below the system calls, in percent.
    Stack,
    /// Cycles of the host in system calls and the server program, in percent.
    Program,
    /// Idle time of the host, in percent.
    HostIdle,
    /// Idle time of the NIC, in percent.
    NicIdle,
    /// Connections handed off, in percent.
    HandedOff,
    /// Packets of connections on the NIC, in percent.
    NicPackets,
    /// Connections on the NIC at a time, on average.
    OnNic,
    /// Mean response time, in ms.
    Response,
}

impl Metric {
    /// All of them, in the order of declaration.
    pub const ALL: [Metric; 15] = [
        Metric::RequestRate,
        Metric::PacketRate,
        Metric::ConnectionRate,
        Metric::ContentRate,
        Metric::SendDelay,
        Metric::ReceiveDelay,
        Metric::MeanDelay,
        Metric::Stack,
        Metric::Program,
        Metric::HostIdle,
        Metric::NicIdle,
        Metric::HandedOff,
        Metric::NicPackets,
        Metric::OnNic,
        Metric::Response,
    ];

    /// The unit that rows print.
    pub const fn unit(self) -> &'static str {
        match self {
            Metric::RequestRate => "requests/s",
            Metric::PacketRate => "packets/s",
            Metric::ConnectionRate => "connections/s",
            Metric::ContentRate => "Mb/s",
            Metric::SendDelay | Metric::ReceiveDelay | Metric::MeanDelay => "us",
            Metric::Stack
            | Metric::Program
            | Metric::HostIdle
            | Metric::NicIdle
            | Metric::HandedOff
            | Metric::NicPackets => "%",
            Metric::OnNic => "connections",
            Metric::Response => "ms",
        }
    }

    /// Its name in output.
    pub const fn label(self) -> &'static str {
        match self {
            Metric::RequestRate => "request rate",
            Metric::PacketRate => "packet rate",
            Metric::ConnectionRate => "connection rate",
            Metric::ContentRate => "content rate",
            Metric::SendDelay => "send delay",
            Metric::ReceiveDelay => "receive delay",
            Metric::MeanDelay => "mean delay",
            Metric::Stack => "host below system calls",
            Metric::Program => "host in system calls and program",
            Metric::HostIdle => "host idle",
            Metric::NicIdle => "NIC idle",
            Metric::HandedOff => "connections handed off",
            Metric::NicPackets => "packets on the NIC",
            Metric::OnNic => "connections on the NIC",
            Metric::Response => "mean response time",
        }
    }

    /// The quantity of a run.
    pub fn of(self, measured: &Measured) -> f64 {
        let delays = [&measured.send_delays, &measured.receive_delays];
        match self {
            Metric::RequestRate => measured.request_rate(),
            Metric::PacketRate => measured.packet_rate(),
            Metric::ConnectionRate => measured.connection_rate(),
            Metric::ContentRate => measured.content_rate(),
            Metric::SendDelay => median_us(delays[0]),
            Metric::ReceiveDelay => median_us(delays[1]),
            Metric::MeanDelay => mean_us(&delays),
            Metric::Stack => measured.stack(),
            Metric::Program => 100.0 - measured.stack() - measured.host_idle(),
            Metric::HostIdle => measured.host_idle(),
            Metric::NicIdle => measured.nic_idle(),
            Metric::HandedOff => measured.handed_off_share(),
            Metric::NicPackets => measured.nic_packet_share(),
            Metric::OnNic => measured.mean_on_nic(),
            Metric::Response => measured.response_ms(),
        }
    }
}
