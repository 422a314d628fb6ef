//! CH, *Connection Handoff Policies for TCP Offload Network Interfaces*: which connections, how many,
//! when.

use crate::experiment::{Exhibit, Method};
use crate::papers::CH;

/// An exhibit that the testbed repeats in virtual time.
const fn simulated(id: &'static str, what: &'static str, about: &'static str, why: &'static str) -> Exhibit {
    Exhibit { id, paper: &CH, what, about, method: Method::Simulated, why, from: &["testbed"] }
}

/// Its tables and figures.
pub const EXHIBITS: &[Exhibit] = &[
    simulated(
        "ch-calibration",
        "Calibration",
        "rows that the costs come from",
        "These rows are not predicted: the costs are chosen so that they agree. All others are predictions.",
    ),
    simulated(
        "ch-table-1",
        "Table 1",
        "a heavily loaded NIC: delays of host packets, idle time, requests",
        "Costs come from the first row's requests, idle time and stack share; the delays and the other rows are predicted. \
         The paper does not print how long its queues are.",
    ),
    simulated(
        "ch-figure-4",
        "Figure 4",
        "share of packets by connection rank",
        "The traces are not at hand; generators with documented distributions stand for them.",
    ),
    simulated(
        "ch-figure-5",
        "Figure 5",
        "host first and load control: profiles, idle time, rates",
        "Only bars that the text names have a value of the paper.",
    ),
    simulated(
        "ch-gains",
        "Gains",
        "gains that the text prints, over the baseline or between configurations",
        "Gains of several workloads, predicted from the costs of W's baseline; the page of the paper says why magnitudes \
         differ.",
    ),
    simulated(
        "ch-figure-6",
        "Figure 6",
        "the limit of connections over time under load control",
        "The paper draws the course; its text says that it settles near 1,000 connections.",
    ),
    simulated(
        "ch-figure-7",
        "Figure 7",
        "which connections: first come, thresholds, and an oracle",
        "Only bars that the text names have a value of the paper. The oracle is ours: the paper estimates that the longest \
         tenth of the connections would bring 60 % of the packets.",
    ),
    simulated(
        "ch-selection",
        "Selection",
        "share of packets on the NIC, with places for a tenth of the connections",
        "The paper estimates 60 % for the longest tenth of W's connections (§5.2) and finds 24 % with T20. `predict` takes \
         the connections from which it expects most, and lets them replace others; the oracle knows what is still to come.",
    ),
    simulated(
        "ch-figure-8",
        "Figure 8",
        "a faster NIC: 400, 600 and 800 MIPS",
        "Only bars that the text names have a value of the paper.",
    ),
    simulated(
        "ch-response-times",
        "Response times",
        "mean time from a request to its whole response",
        "It falls here under naive offload, where the paper's rises: a dropped SYN parks a client before its request is \
         sent, and a request that is stuck when the run ends is not counted. The paper's clients wait within requests.",
    ),
    simulated(
        "ch-sensitivity",
        "Sensitivity",
        "gain over the baseline with each cost 20 % lower and higher",
        "The paper has no such table. It shows how much a conclusion depends on each cost of the testbed.",
    ),
];
