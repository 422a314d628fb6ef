//! RSC, *Receive Side Coalescing for Accelerating TCP/IP Processing*: how much can be joined, and the
//! CPU time that this saves.

use crate::experiment::{Exhibit, Method};
use crate::papers::RSC;

/// Why figures here differ from the paper's.
pub const WHY: &str = "The paper's senders were machines of their own behind two switches, where packets of several \
    senders mix; here the senders share one queue at 1 Gb/s, which keeps a burst of a sender together. Their stacks \
    cut messages by the segmentation offload of 2006; today's sends up to 64 KB in a burst. A message of 2 KB is two \
    frames, of which one can be joined: 50 % is the most, and a window's end now and then parts the two.";

/// An exhibit about frames of real transfers.
const fn joined(id: &'static str, what: &'static str, about: &'static str) -> Exhibit {
    Exhibit { id, paper: &RSC, what, about, method: Method::Measured, why: WHY, from: &["rsc"] }
}

/// An exhibit that cannot be repeated.
const fn impossible(id: &'static str, what: &'static str, about: &'static str, why: &'static str) -> Exhibit {
    Exhibit { id, paper: &RSC, what, about, method: Method::NotPossible, why, from: &[] }
}

const WINDOWS: &str = "It needs Windows' stack.";

/// Its tables and figures.
pub const EXHIBITS: &[Exhibit] = &[
    impossible("rsc-figure-1", "Figure 1", "throughput and CPU time of Windows by payload", WINDOWS),
    joined("rsc-figure-4", "Figure 4", "frames joined with 4, 8 and 16 connections"),
    joined("rsc-figure-5", "Figure 5", "frames joined with 16 to 90 connections"),
    joined("rsc-figure-6", "Figure 6", "frames joined by the number of cache entries"),
    joined("rsc-figure-7", "Figure 7", "frames joined by the size of a buffer"),
    joined("rsc-figure-8", "Figure 8", "frames joined by the moderation window"),
    impossible(
        "rsc-figure-9",
        "Figure 9",
        "not described in the paper's text",
        "The paper's text refers to no figure 9, so nothing says what to repeat.",
    ),
    Exhibit {
        id: "rsc-figure-10",
        paper: &RSC,
        what: "Figure 10",
        about: "CPU time saved on Linux by payload and degree of coalescing",
        method: Method::Measured,
        why: "The paper's points are of CPU utilisation at 1 Gb/s. Here both CPUs are busy all the time, and the values \
              are CPU time for the same bytes, the sender's included.",
        from: &["bump-messages"],
    },
    impossible("rsc-figure-11", "Figure 11", "CPU time saved on Windows", WINDOWS),
    Exhibit {
        id: "rsc-figure-12",
        paper: &RSC,
        what: "Figure 12",
        about: "CPU time saved at several Gb/s, least and most over the payloads",
        method: Method::Measured,
        why: "The paper's receiver is at 100 % CPU without coalescing, so its points compare with CPU time for the same \
              bytes. The bump costs a system call and a wake-up for each frame that goes on alone, which makes coalescing \
              worth more here than in a driver.",
        from: &["bump-messages"],
    },
];
