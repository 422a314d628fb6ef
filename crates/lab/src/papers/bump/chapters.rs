//! The chapters of `baton bump bench`: the measurements, and the papers' results.
//!
//! RA is *Optimizing TCP Receive Performance* (receive aggregation); RSC is *Receive Side Coalescing
//! for Accelerating TCP/IP Processing*.

use super::{Contender, Figure, Work};
use Contender::{Bare, Kernel, Limit, Rsc, Stretch};
use baton_apps::load::Kind;

/// A chapter: contenders, works, and a paper's results to compare with.
pub struct Chapter {
    /// A word, for `--only`.
    pub name: &'static str,
    /// A few words.
    pub title: &'static str,
    /// The contenders; "off", the base of the paper's comparison, is among them.
    pub contenders: &'static [Contender],
    /// The works.
    pub works: &'static [Work],
    /// True if requests are measured, and not bytes.
    pub requests: bool,
    /// Sender and receiver have CPUs of their own, and the receiver's is what counts.
    pub apart: bool,
    /// The receiver's time by routine is wanted.
    pub routines: bool,
    /// The paper's results, one per line.
    pub paper: &'static [&'static str],
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

const fn bulk(connections: usize, size: usize) -> Work {
    Work { kind: Kind::Send, connections, size }
}

const MESSAGE: usize = 64 << 10;

/// All chapters, in the order of measurement.
pub const CHAPTERS: [Chapter; 5] = [
    Chapter {
        name: "limit",
        title: "One connection, by limit (RA Fig. 7 and 11, RSC Fig. 12)",
        contenders: &[Kernel, Bare, Limit(1), Limit(2), Limit(3), Limit(5), Limit(20), Limit(44), Stretch(20)],
        works: &[bulk(1, MESSAGE)],
        requests: false,
        apart: false,
        routines: false,
        paper: &[
            "RA Fig. 7, limit 20 over off, CPU-scaled: Linux UP +45 % (3452 to 4660 Mb/s at 93 % CPU), SMP +67 % \
             (2988 to 4660 Mb/s at 93 %), Xen +86 % (1088 to 1877 Mb/s)",
            "RA §5.1, aggregation without ACK offload: +26 %, +36 %, +45 %",
            "RA Fig. 11: CPU time a packet follows x + y/k over the limit k; little is gained beyond 20",
            "RSC Fig. 12, CPU saved at several Gb/s: RSC_2 4 to 12 points, RSC_3 and RSC_5 4 to 18",
        ],
        differs: &[
            "the papers' CPU time is the receiver's; here the sender's is in it too, the same whatever the limit",
            "the papers coalesce in the driver; here a frame crosses to a program and, in a run, back",
            "off, a busy kernel of today acknowledges several segments at once (the counters in --json say how many); \
             ACK offload sends one for every second, and what that costs both ends is in the figures",
        ],
    },
    Chapter {
        name: "receiver",
        title: "The same, the receiver on a CPU of its own (RA Fig. 7 to 9)",
        contenders: &[Kernel, Limit(1), Limit(2), Limit(5), Limit(20), Limit(44), Stretch(20)],
        works: &[bulk(1, MESSAGE)],
        requests: false,
        apart: true,
        routines: true,
        paper: &[
            "RA Fig. 7, limit 20 over off, CPU-scaled: Linux UP +45 %, SMP +67 %, Xen +86 %",
            "RA §5.1, aggregation without ACK offload: +26 %, +36 %, +45 %",
            "RA Fig. 8 and 9, cost of rx, tx, buffer and non-proto at limit 20: divided by 4.3 (UP), 5.5 (SMP)",
        ],
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
        title: "By number of connections (RA Fig. 12)",
        contenders: &[Limit(1), Limit(20)],
        works: &[bulk(1, MESSAGE), bulk(5, MESSAGE), bulk(25, MESSAGE), bulk(100, MESSAGE), bulk(400, MESSAGE)],
        requests: false,
        apart: true,
        routines: false,
        paper: &["RA Fig. 12: +40 % at 400 connections (SMP)"],
        differs: &[
            "one wire and a CPU for each side here; five 1 Gb/s cards and senders of their own there",
            "off, each segment wakes the receiving program (see above), so there is more to be saved",
            "of more connections each has fewer segments in a burst, so runs are shorter; and their windows together \
             fill any queue, here the ring's 2,048 frames: what is lost there is sent again (lost, in --json)",
        ],
    },
    Chapter {
        name: "messages",
        title: "By size of messages, with RSC's rules (RSC Fig. 10 and 12)",
        contenders: &[Rsc(1), Rsc(2), Rsc(3), Rsc(5)],
        works: &[bulk(1, 4 << 10), bulk(1, 8 << 10), bulk(1, 16 << 10), bulk(1, 32 << 10), bulk(1, MESSAGE)],
        requests: false,
        apart: false,
        routines: false,
        paper: &[
            "RSC Fig. 10, Linux at 1 Gb/s, CPU saved: RSC_2 2 to 4 points, RSC_5 5 to 7",
            "RSC Fig. 12, several Gb/s: RSC_2 4 to 12 points, RSC_3 and RSC_5 4 to 18",
        ],
        differs: &[
            "the papers' points are of CPU utilisation at one rate; here both CPUs are busy, and less work is more bytes",
        ],
    },
    Chapter {
        name: "latency",
        title: "One-byte requests, one connection (RA Table 1)",
        contenders: &[Kernel, Limit(1), Limit(20)],
        works: &[Work { kind: Kind::Echo, connections: 1, size: 1 }],
        requests: true,
        apart: false,
        routines: false,
        paper: &[
            "RA Table 1, requests a second, off and limit 20: Linux UP 7874 and 7894, SMP 7970 and 7985, Xen 6965 and 6953",
        ],
        differs: &[
            "a veth pair has no wire's latency; the bump adds its own two hops to the kernel's round trip",
            "off and limit 20 do the same with a segment that comes alone: which is ahead changes from run to run, by less \
             than the rounds of one spread",
        ],
    },
];
