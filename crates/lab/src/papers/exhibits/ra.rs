//! RA, *Optimizing TCP Receive Performance*: receive aggregation and ACK offload in front of the kernel.

use crate::experiment::{Exhibit, Method};
use crate::papers::RA;

const PERF: &str = "The receiver's time by routine is sampled by perf on a CPU of its own; without perf there are no \
    rows. The sender's segments arrive at a bump and pass a TAP device, which the paper's driver did not have. Off, \
    each segment wakes the receiving program, which is most of `misc` here.";
const XEN: &str = "No hypervisor runs a guest at hardware speed on the machines of this project, and the costs of an \
    emulated one say nothing about Xen's.";

/// Its tables and figures.
pub const EXHIBITS: &[Exhibit] = &[
    Exhibit {
        id: "ra-figure-1",
        paper: &RA,
        what: "Figure 1",
        about: "per-byte and per-packet cost by the degree of prefetching",
        method: Method::NotPossible,
        why: "The firmware switches prefetching, and a guest of a hypervisor cannot reach it.",
        from: &[],
    },
    Exhibit {
        id: "ra-figure-2",
        paper: &RA,
        what: "Figure 2",
        about: "per-byte and per-packet cost",
        method: Method::Measured,
        why: PERF,
        from: &["bump-receiver"],
    },
    Exhibit {
        id: "ra-figure-3",
        paper: &RA,
        what: "Figure 3",
        about: "cost of receiving by routine, one processor",
        method: Method::Measured,
        why: PERF,
        from: &["bump-receiver"],
    },
    Exhibit {
        id: "ra-figure-4",
        paper: &RA,
        what: "Figure 4",
        about: "cost of receiving by routine, several processors",
        method: Method::Measured,
        why: PERF,
        from: &["bump-receiver"],
    },
    Exhibit {
        id: "ra-figure-6",
        paper: &RA,
        what: "Figure 6",
        about: "cost of receiving by routine, in a guest of Xen",
        method: Method::NotPossible,
        why: XEN,
        from: &[],
    },
    Exhibit {
        id: "ra-figure-7",
        paper: &RA,
        what: "Figure 7",
        about: "throughput with and without the optimizations, scaled to a whole CPU",
        method: Method::Measured,
        why: "Compared with the paper's SMP kernel, which ours is; it has neither a kernel for one processor nor Xen. A \
              system call and a wake-up a segment, which an interrupt for several frames does not need, make the way \
              without aggregation dearer here, so there is more to gain.",
        from: &["bump-receiver", "bump-limit"],
    },
    Exhibit {
        id: "ra-figure-8",
        paper: &RA,
        what: "Figure 8",
        about: "cost by routine with and without aggregation, one processor",
        method: Method::NotPossible,
        why: "It needs a kernel that is built for one processor, without locks. Figure 9 has the same for several.",
        from: &[],
    },
    Exhibit {
        id: "ra-figure-9",
        paper: &RA,
        what: "Figure 9",
        about: "cost by routine with and without aggregation, several processors",
        method: Method::Measured,
        why: PERF,
        from: &["bump-receiver"],
    },
    Exhibit {
        id: "ra-figure-10",
        paper: &RA,
        what: "Figure 10",
        about: "cost by routine with and without aggregation, in a guest of Xen",
        method: Method::NotPossible,
        why: XEN,
        from: &[],
    },
    Exhibit {
        id: "ra-figure-11",
        paper: &RA,
        what: "Figure 11",
        about: "CPU time a packet by the limit of aggregation",
        method: Method::Measured,
        why: "The paper prints no values; it says that they follow x + y/k over the limit k, and that little is gained \
              beyond 20. CPU time is that of sender and receiver together.",
        from: &["bump-limit"],
    },
    Exhibit {
        id: "ra-figure-12",
        paper: &RA,
        what: "Figure 12",
        about: "gain by the number of connections",
        method: Method::Measured,
        why: "One wire and one CPU for each side here, five cards and their senders there. Of more connections each has \
              fewer segments in a burst, so runs are shorter.",
        from: &["bump-connections"],
    },
    Exhibit {
        id: "ra-table-1",
        paper: &RA,
        what: "Table 1",
        about: "one-byte requests a second, original and optimized",
        method: Method::Measured,
        why: "A veth pair has no latency of a wire. What matters is that both columns are alike.",
        from: &["bump-latency"],
    },
];
