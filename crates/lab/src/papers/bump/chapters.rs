//! The chapters of `baton bump bench`, each an experiment.
//!
//! RA is *Optimizing TCP Receive Performance* (receive aggregation); RSC is *Receive Side Coalescing
//! for Accelerating TCP/IP Processing*.

use super::{Figure, Results, claims};
use crate::experiment::{Axis, Experiment, Need, Statement};

/// A chapter: what it compares, and a paper's statements about it. A plan has the contenders and works;
/// "off", the base of the paper's comparison, is among the contenders.
pub struct Chapter {
    /// A word, for `--only`.
    pub name: &'static str,
    /// The chapter as an experiment.
    pub experiment: &'static Experiment,
    /// True if requests are measured, and not bytes.
    pub requests: bool,
    /// Sender and receiver have CPUs of their own, and the receiver's is what counts.
    pub apart: bool,
    /// The receiver's time by routine is wanted.
    pub routines: bool,
    /// The papers' statements.
    pub statements: &'static [Statement<Results>],
    /// Reasons for differences, one per line.
    pub differs: &'static [&'static str],
}

impl Chapter {
    /// The value by which its contenders are compared.
    pub fn figure(&self) -> Figure {
        match (self.requests, self.apart) {
            (true, _) => Figure::Requests,
            (_, true) => Figure::PerReceiverSecond,
            _ => Figure::PerCpuSecond,
        }
    }
}

const AXES: &[Axis] = &[
    Axis { name: "contender", about: "what stands in front of the kernel's stack: nothing, or a bump with its limit" },
    Axis { name: "connections", about: "connections at once" },
    Axis::MESSAGES,
];

const PERF: Need = Need { what: "perf", without: Some("leaves out CPU time by routine") };

/// One connection, by limit.
pub const LIMIT: Experiment = Experiment {
    id: "bump-limit",
    title: "Coalescing in front of the kernel: one connection, by limit",
    needs: &[Need::ROOT],
    axes: AXES,
    command: "baton bump bench --only limit",
    run: |lab, extent| CHAPTERS[0].alone(lab, extent),
};

/// One connection, by limit, the receiver on a CPU of its own.
pub const RECEIVER: Experiment = Experiment {
    id: "bump-receiver",
    title: "Coalescing in front of the kernel: one connection, by limit, the receiver on a CPU of its own",
    needs: &[Need::ROOT, PERF],
    axes: AXES,
    command: "baton bump bench --only receiver",
    run: |lab, extent| CHAPTERS[1].alone(lab, extent),
};

/// By number of connections.
pub const CONNECTIONS: Experiment = Experiment {
    id: "bump-connections",
    title: "Coalescing in front of the kernel: by number of connections",
    needs: &[Need::ROOT],
    axes: AXES,
    command: "baton bump bench --only connections",
    run: |lab, extent| CHAPTERS[2].alone(lab, extent),
};

/// By size of messages, with RSC's rules.
pub const MESSAGES: Experiment = Experiment {
    id: "bump-messages",
    title: "Coalescing in front of the kernel: by size of messages, with RSC's rules",
    needs: &[Need::ROOT],
    axes: AXES,
    command: "baton bump bench --only messages",
    run: |lab, extent| CHAPTERS[3].alone(lab, extent),
};

/// One-byte requests, one connection.
pub const LATENCY: Experiment = Experiment {
    id: "bump-latency",
    title: "Coalescing in front of the kernel: one-byte requests, one connection",
    needs: &[Need::ROOT],
    axes: AXES,
    command: "baton bump bench --only latency",
    run: |lab, extent| CHAPTERS[4].alone(lab, extent),
};

/// All chapters, in the order of measurement.
pub static CHAPTERS: [Chapter; 5] = [
    Chapter {
        name: "limit",
        experiment: &LIMIT,
        requests: false,
        apart: false,
        routines: false,
        statements: claims::LIMIT,
        differs: &[
            "the papers' CPU time is the receiver's; here the sender's is in it too, the same whatever the limit",
            "the papers coalesce in the driver; here a frame crosses to a program and, in a run, back",
            "off, a busy kernel of today acknowledges several segments at once (the counters in --json say how many); \
             ACK offload sends one for every second, and what that costs both ends is in the figures",
        ],
    },
    Chapter {
        name: "receiver",
        experiment: &RECEIVER,
        requests: false,
        apart: true,
        routines: true,
        statements: claims::RECEIVER,
        differs: &[
            "the bump is on the receiver's CPU, as the papers' drivers were; aggr is the program, driver the way of a \
             frame into its ring and of ACKs to the wire, tap the way of a run to the kernel",
            "off, each segment is a system call and wakes the receiving program on the same CPU (most of misc), which an \
             interrupt for several frames does not: so there is more to be saved here than there",
            "samples are taken by a timer: work with interrupts off is attributed to where they are enabled again",
        ],
    },
    Chapter {
        name: "connections",
        experiment: &CONNECTIONS,
        requests: false,
        apart: true,
        routines: false,
        statements: claims::CONNECTIONS,
        differs: &[
            "one wire and a CPU for each side here; five 1 Gb/s cards and senders of their own there",
            "off, each segment wakes the receiving program (see above), so there is more to be saved",
            "of more connections each has fewer segments in a burst, so runs are shorter; and their windows together \
             fill any queue, here the ring's 2,048 frames: what is lost there is sent again (lost, in --json)",
        ],
    },
    Chapter {
        name: "messages",
        experiment: &MESSAGES,
        requests: false,
        apart: false,
        routines: false,
        statements: claims::MESSAGES,
        differs: &[
            "the papers' points are of CPU utilisation at one rate; here both CPUs are busy, and less work is more bytes",
        ],
    },
    Chapter {
        name: "latency",
        experiment: &LATENCY,
        requests: true,
        apart: false,
        routines: false,
        statements: claims::LATENCY,
        differs: &[
            "a veth pair has no wire's latency; the bump adds its own two hops to the kernel's round trip",
            "off and limit 20 do the same with a segment that comes alone: which is ahead changes from run to run, by less \
             than the rounds of one spread",
        ],
    },
];
