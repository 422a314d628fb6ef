//! Figures of CH that the testbed predicts: what its text and tables print.
//!
//! The bars of figures 5, 7 and 8 are printed only where the text names their values. "Around",
//! "nearly" and "close to" are taken as the number that follows them.

use super::metric::Metric::{self, *};

/// One printed figure: experiment, configuration, metric, value.
pub type Figure = (&'static str, &'static str, Metric, f64);

/// All of them.
pub const FIGURES: &[Figure] = &[
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
    ("ch-figure-5", "W-4096-P-L-FCFS-400", OnNic, 1000.0),
    ("ch-figure-5", "W-4096-P-L-FCFS-400", RequestRate, 25_830.0),
    ("ch-figure-5", "S-2048-N-N-FCFS-400", HostIdle, 50.0),
    ("ch-figure-5", "S-2048-P-N-FCFS-400", NicIdle, 8.0),
    ("ch-figure-5", "S-4096-P-L-FCFS-400", OnNic, 2000.0),
    ("ch-figure-5", "D-4096-P-L-FCFS-400", ContentRate, 1000.0),
    ("ch-figure-7", "W-256-P-L-FCFS-400", HandedOff, 13.0),
    ("ch-figure-7", "W-256-P-L-FCFS-400", NicPackets, 12.0),
    ("ch-figure-7", "W-256-P-L-FCFS-400", NicIdle, 47.0),
    ("ch-figure-7", "W-256-P-L-T20-400", NicPackets, 24.0),
    ("ch-figure-7", "W-256-P-L-T20-400", NicIdle, 34.0),
    ("ch-figure-8", "W-4096-P-L-FCFS-600", HandedOff, 70.0),
    ("ch-figure-8", "W-4096-P-L-FCFS-600", RequestRate, 29_398.0),
    ("ch-figure-8", "W-4096-P-L-FCFS-800", HandedOff, 85.0),
    ("ch-figure-8", "W-4096-P-L-FCFS-800", RequestRate, 36_532.0),
    ("ch-figure-8", "I-4096-P-L-FCFS-600", HandedOff, 95.0),
    ("ch-response-times", "W-0-N-N-FCFS-400", Response, 61.0),
    ("ch-response-times", "W-1024-N-N-FCFS-400", Response, 99.0),
    ("ch-response-times", "W-1024-P-L-FCFS-400", Response, 60.0),
    ("ch-response-times", "W-4096-P-L-FCFS-600", Response, 53.0),
    ("ch-response-times", "W-4096-P-L-FCFS-800", Response, 40.0),
];

/// One printed gain: configuration, the one that it is compared with, metric, percent.
pub type Gain = (&'static str, &'static str, Metric, f64);

/// All of them (CH §3.1, §5.1 to §5.3).
pub const GAINS: &[Gain] = &[
    ("W-256-N-N-FCFS-400", "W-0-N-N-FCFS-400", RequestRate, 4.0),
    ("W-1024-N-N-FCFS-400", "W-0-N-N-FCFS-400", RequestRate, -30.0),
    ("W-1024-P-N-FCFS-400", "W-0-N-N-FCFS-400", RequestRate, 16.0),
    ("W-4096-P-N-FCFS-400", "W-0-N-N-FCFS-400", RequestRate, -44.0),
    ("W-4096-P-L-FCFS-400", "W-0-N-N-FCFS-400", PacketRate, 12.0),
    ("W-4096-P-L-FCFS-400", "W-0-N-N-FCFS-400", RequestRate, 12.0),
    ("W-4096-P-L-FCFS-400", "W-0-N-N-FCFS-400", ContentRate, 10.0),
    ("I-4096-P-L-FCFS-400", "I-0-N-N-FCFS-400", PacketRate, 19.0),
    ("I-4096-P-L-FCFS-400", "I-0-N-N-FCFS-400", RequestRate, 23.0),
    ("I-4096-P-L-FCFS-400", "I-0-N-N-FCFS-400", ContentRate, 18.0),
    ("S-4096-P-L-FCFS-400", "S-0-N-N-FCFS-400", RequestRate, 31.0),
    ("D-4096-P-L-FCFS-400", "D-0-N-N-FCFS-400", RequestRate, 28.0),
    ("W-256-P-L-T20-400", "W-256-P-L-FCFS-400", RequestRate, 6.0),
    ("W-4096-P-L-FCFS-600", "W-4096-P-L-FCFS-400", RequestRate, 14.0),
    ("W-4096-P-L-FCFS-800", "W-4096-P-L-FCFS-400", RequestRate, 41.0),
    ("I-4096-P-L-FCFS-600", "I-4096-P-L-FCFS-400", RequestRate, 21.0),
    ("I-4096-P-L-FCFS-800", "I-4096-P-L-FCFS-600", RequestRate, 3.0),
    ("S-4096-P-L-FCFS-600", "S-4096-P-L-FCFS-400", RequestRate, 16.0),
    ("S-4096-P-L-FCFS-800", "S-4096-P-L-FCFS-600", RequestRate, 13.0),
];
