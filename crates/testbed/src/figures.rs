//! Figures of CH that the testbed predicts: what its text and tables print.
//!
//! The bars of figures 5, 7 and 8 are printed only where the text names their values.

/// A quantity of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Requests a second.
    RequestRate,
    /// Median time that a host packet to be sent is on the NIC, in µs.
    SendDelay,
    /// The same for one received, in µs.
    ReceiveDelay,
    /// Idle time of the host, in percent.
    HostIdle,
    /// Idle time of the NIC, in percent.
    NicIdle,
    /// Connections handed off, in percent.
    HandedOff,
    /// Packets of connections on the NIC, in percent.
    NicPackets,
    /// Mean response time, in ms.
    Response,
}

/// One printed figure: experiment, configuration, metric, value.
pub type Figure = (&'static str, &'static str, Metric, f64);

/// All of them.
pub const FIGURES: &[Figure] = {
    use Metric::*;
    &[
        ("ch-table-1", "W-0-N-N-FCFS-400", SendDelay, 2.0),
        ("ch-table-1", "W-0-N-N-FCFS-400", ReceiveDelay, 2.0),
        ("ch-table-1", "W-256-N-N-FCFS-400", SendDelay, 3.0),
        ("ch-table-1", "W-256-N-N-FCFS-400", ReceiveDelay, 3.0),
        ("ch-table-1", "W-256-N-N-FCFS-400", HostIdle, 0.0),
        ("ch-table-1", "W-256-N-N-FCFS-400", NicIdle, 49.0),
        ("ch-table-1", "W-256-N-N-FCFS-400", RequestRate, 23_935.0),
        ("ch-table-1", "W-1024-N-N-FCFS-400", SendDelay, 679.0),
        ("ch-table-1", "W-1024-N-N-FCFS-400", ReceiveDelay, 301.0),
        ("ch-table-1", "W-1024-N-N-FCFS-400", HostIdle, 62.0),
        ("ch-table-1", "W-1024-N-N-FCFS-400", NicIdle, 3.0),
        ("ch-table-1", "W-1024-N-N-FCFS-400", RequestRate, 16_121.0),
        ("ch-table-1", "W-1024-P-N-FCFS-400", SendDelay, 10.0),
        ("ch-table-1", "W-1024-P-N-FCFS-400", ReceiveDelay, 6.0),
        ("ch-table-1", "W-1024-P-N-FCFS-400", HostIdle, 0.0),
        ("ch-table-1", "W-1024-P-N-FCFS-400", NicIdle, 5.0),
        ("ch-table-1", "W-1024-P-N-FCFS-400", RequestRate, 26_663.0),
        ("ch-figure-5", "W-1024-N-N-FCFS-400", HandedOff, 88.0),
        ("ch-figure-5", "W-1024-P-N-FCFS-400", HandedOff, 48.0),
        ("ch-figure-5", "W-4096-P-N-FCFS-400", HandedOff, 100.0),
        ("ch-figure-5", "W-4096-P-N-FCFS-400", HostIdle, 64.0),
        ("ch-figure-5", "W-4096-P-N-FCFS-400", RequestRate, 12_917.0),
        ("ch-figure-5", "W-4096-P-L-FCFS-400", HandedOff, 45.0),
        ("ch-figure-5", "W-4096-P-L-FCFS-400", NicIdle, 9.0),
        ("ch-figure-5", "W-4096-P-L-FCFS-400", RequestRate, 25_830.0),
        ("ch-figure-7", "W-256-P-L-FCFS-400", HandedOff, 13.0),
        ("ch-figure-7", "W-256-P-L-FCFS-400", NicPackets, 12.0),
        ("ch-figure-7", "W-256-P-L-FCFS-400", NicIdle, 47.0),
        ("ch-figure-7", "W-256-P-L-T20-400", NicPackets, 24.0),
        ("ch-figure-7", "W-256-P-L-T20-400", NicIdle, 34.0),
        ("ch-figure-8", "W-4096-P-L-FCFS-600", HandedOff, 70.0),
        ("ch-figure-8", "W-4096-P-L-FCFS-600", RequestRate, 29_398.0),
        ("ch-figure-8", "W-4096-P-L-FCFS-800", HandedOff, 85.0),
        ("ch-figure-8", "W-4096-P-L-FCFS-800", RequestRate, 36_532.0),
        ("ch-response-times", "W-0-N-N-FCFS-400", Response, 61.0),
        ("ch-response-times", "W-1024-N-N-FCFS-400", Response, 99.0),
        ("ch-response-times", "W-1024-P-L-FCFS-400", Response, 60.0),
        ("ch-response-times", "W-4096-P-L-FCFS-600", Response, 53.0),
        ("ch-response-times", "W-4096-P-L-FCFS-800", Response, 40.0),
    ]
};
