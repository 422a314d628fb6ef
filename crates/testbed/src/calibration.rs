//! Calibration: the five costs that the paper's baselines fix, and nothing else.
//!
//! It reads [`BASELINE`], [`STATIC_NIC_IDLE`] and the sentence of CH §4.1 on one connection on each side. It
//! never reads [`crate::ch::figures`], whose rows are predicted; a test asserts both.

use crate::costs::Costs;
use crate::measure::Measured;
use crate::stack::MSS;
use crate::workload::Kind;
use crate::world::{Config, run};
use baton_policy::rules::Rule;

/// The baseline W-0-N-N-FCFS-400 (CH table 1, first row, and §5.1).
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    /// Requests completed a second.
    pub request_rate: f64,
    /// Host cycles below the system calls, in percent.
    pub stack: f64,
    /// Idle time of the NIC, in percent.
    pub nic_idle: f64,
}

/// The rows of W that the calibration reads. The packet delay of 2 µs is the third one's check.
pub const BASELINE: Baseline = Baseline { request_rate: 23_031.0, stack: 57.0, nic_idle: 62.0 };

/// Idle time of the NIC in S-0-N-N-FCFS-400, whose host has none (CH §5.1), in percent. That more than
/// 70 % of the host's cycles are the kernel's is its check.
pub const STATIC_NIC_IDLE: f64 = 69.0;

/// Instructions a second of the baseline's NIC, and cycles a second of its host.
const NIC_RATE: f64 = 400e6;
const HOST_RATE: f64 = 2e9;

/// Packets a second that carry 1 Gb/s of TCP throughput in frames of 1,518 bytes.
const BULK_RATE: f64 = 1e9 / 8.0 / MSS as f64;

/// The cost of a NIC packet by CH §4.1: at 400 MIPS one connection on the NIC and one on the host have
/// 1 Gb/s of TCP throughput each. A pair of data packets has one ACK, which the lookup sees. The sentence
/// does not say that the NIC has no time left; we take it so.
pub fn nic_tcp_packet(costs: &Costs) -> u64 {
    let packets = 1.5 * BULK_RATE;
    let lookups = BULK_RATE * costs.nic_lookup as f64;
    let left = NIC_RATE - packets * costs.nic_host_packet as f64 - lookups;
    (left / packets).round() as u64
}

/// Corrects the costs by what baseline runs of W and S with them measured.
pub fn correct(costs: &Costs, w: &Measured, s: &Measured) -> Costs {
    let cycles = |percent: f64, rate: f64| percent / 100.0 * HOST_RATE / rate;
    let stack = cycles(BASELINE.stack, BASELINE.request_rate) - cycles(w.stack(), w.request_rate());
    let turns = w.turns as f64 / w.requests as f64;
    let program = cycles(100.0 - BASELINE.stack, BASELINE.request_rate)
        - cycles(100.0 - w.stack() - w.host_idle(), w.request_rate());
    let nic = (100.0 - BASELINE.nic_idle) / 100.0 * NIC_RATE / BASELINE.request_rate
        - (100.0 - w.nic_idle()) / 100.0 * NIC_RATE / w.request_rate();
    let packets = w.packets as f64 / w.requests as f64;
    // The requests of S that keep its NIC as busy as the paper says, and the cycles that each may take.
    let rate = s.request_rate() * (100.0 - STATIC_NIC_IDLE) / (100.0 - s.nic_idle());
    let pages = s.pages as f64 / s.requests as f64;
    let page = (cycles(100.0, rate) - cycles(100.0 - s.host_idle(), s.request_rate())) / pages;
    let add = |cost: u64, more: f64| (cost as f64 + more).round().max(0.0) as u64;
    let mut corrected = Costs {
        host_packet: add(costs.host_packet, stack / packets),
        host_turn: add(costs.host_turn, program / turns),
        host_page: add(costs.host_page, page),
        nic_host_packet: add(costs.nic_host_packet, nic / packets),
        ..*costs
    };
    corrected.nic_tcp_packet = nic_tcp_packet(&corrected);
    // The estimates that follow another cost.
    (corrected.host_bypass, corrected.host_handoff) = (corrected.host_packet / 3, corrected.host_packet * 2);
    corrected.host_dynamic = 8 * corrected.host_turn;
    corrected.nic_message = corrected.nic_host_packet;
    corrected
}

/// The two baseline runs.
pub fn baselines(config: &Config) -> [Measured; 2] {
    [Kind::WorldCup, Kind::SpecWebStatic]
        .map(|workload| run(&Config { workload, clients: workload.clients(), ..config.clone() }, &mut Rule::FirstCome))
}

/// Runs the baselines and corrects, `rounds` times.
pub fn calibrate(config: &Config, rounds: u32) -> Costs {
    (0..rounds).fold(config.costs, |costs, _| {
        let [w, s] = baselines(&Config { costs, ..config.clone() });
        correct(&costs, &w, &s)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ch::figures::{FIGURES, GAINS};
    use crate::ch::metric::Metric;

    /// Delays and response time of the baselines are predicted, and no other of their figures.
    #[test]
    fn no_row_that_is_read_is_also_predicted() {
        let read = [Metric::RequestRate, Metric::Stack, Metric::NicIdle, Metric::HostIdle];
        let baselines = ["W-0-N-N-FCFS-400", "S-0-N-N-FCFS-400"];
        let both = FIGURES.iter().find(|(_, name, metric, _)| baselines.contains(name) && read.contains(metric));
        assert_eq!(both, None);
        assert!(GAINS.iter().all(|(name, ..)| !baselines.contains(name)));
        let source = include_str!("calibration.rs");
        let code = source.split("mod tests").next().unwrap_or_default();
        for table in ["FIGURES", "GAINS"] {
            assert!(!code.contains(table), "the calibration reads a predicted row");
        }
    }

    #[test]
    fn the_sentence_on_bulk_gives_the_cost_of_a_nic_packet() {
        let costs = Costs::default();
        assert_eq!(nic_tcp_packet(&costs), costs.nic_tcp_packet);
    }

    /// A shorter run than the paper's; the costs come from a full one.
    #[test]
    fn the_costs_give_the_baseline() {
        let config = Config { warm_up: 60_000, measured: 150_000, ..Config::baseline() };
        let [here, there] = baselines(&config);
        for (value, paper) in [
            (there.nic_idle(), STATIC_NIC_IDLE),
            (here.request_rate(), BASELINE.request_rate),
            (here.stack(), BASELINE.stack),
            (here.nic_idle(), BASELINE.nic_idle),
        ] {
            assert!((value / paper - 1.0).abs() < 0.1, "{value} for the paper's {paper}");
        }
    }
}
