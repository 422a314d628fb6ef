//! Calibration: the four costs that the paper's baseline fixes, and nothing else.
//!
//! It reads [`BASELINE`] and the sentence of CH §4.1 on one connection on each side. It never reads
//! [`crate::figures`], whose rows are predicted; a test asserts both.

use crate::costs::Costs;
use crate::measure::Measured;
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

/// The rows that the calibration reads. The packet delay of 2 µs is the third one's check.
pub const BASELINE: Baseline = Baseline { request_rate: 23_031.0, stack: 57.0, nic_idle: 62.0 };

/// Instructions a second of the baseline's NIC, and cycles a second of its host.
const NIC_RATE: f64 = 400e6;
const HOST_RATE: f64 = 2e9;

/// Packets a second each way of 1 Gb/s in frames of 1,518 bytes and 20 of preamble and gap.
const BULK_RATE: f64 = 1e9 / 8.0 / 1538.0;

/// The cost of a NIC packet by CH §4.1: at 400 MIPS one connection on the NIC and one on the host send
/// 1 Gb/s each. A pair of data packets has one ACK, which the lookup sees. The sentence does not say
/// that the NIC has no time left; we take it so.
pub fn nic_tcp_packet(costs: &Costs) -> u64 {
    let packets = 1.5 * BULK_RATE;
    let lookups = BULK_RATE * costs.nic_lookup as f64;
    let left = NIC_RATE - packets * costs.nic_host_packet as f64 - lookups;
    (left / packets).round() as u64
}

/// Corrects the costs by what a baseline run with them measured.
pub fn correct(costs: &Costs, here: &Measured) -> Costs {
    let packets = here.packets as f64 / here.requests as f64;
    let cycles = |percent: f64, rate: f64| percent / 100.0 * HOST_RATE / rate;
    let stack = cycles(BASELINE.stack, BASELINE.request_rate) - cycles(here.stack(), here.request_rate());
    let program = cycles(100.0 - BASELINE.stack, BASELINE.request_rate)
        - cycles(100.0 - here.stack() - here.host_idle(), here.request_rate());
    let nic = (100.0 - BASELINE.nic_idle) / 100.0 * NIC_RATE / BASELINE.request_rate
        - (100.0 - here.nic_idle()) / 100.0 * NIC_RATE / here.request_rate();
    let add = |cost: u64, more: f64| (cost as f64 + more).round().max(0.0) as u64;
    let mut corrected = Costs {
        host_packet: add(costs.host_packet, stack / packets),
        host_request: add(costs.host_request, program),
        nic_host_packet: add(costs.nic_host_packet, nic / packets),
        ..*costs
    };
    corrected.nic_tcp_packet = nic_tcp_packet(&corrected);
    // The estimates that follow a packet's cost.
    (corrected.host_bypass, corrected.host_handoff) = (corrected.host_packet / 3, corrected.host_packet * 2);
    corrected
}

/// Runs the baseline and corrects, `rounds` times.
pub fn calibrate(config: &Config, rounds: u32) -> Costs {
    (0..rounds)
        .fold(config.costs, |costs, _| correct(&costs, &run(&Config { costs, ..config.clone() }, &mut Rule::FirstCome)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{FIGURES, Metric};

    /// The only figures of the baseline that are predicted are its delays and response time.
    #[test]
    fn no_row_that_is_read_is_also_predicted() {
        let read = [Metric::RequestRate, Metric::NicIdle, Metric::HostIdle];
        let both = FIGURES.iter().find(|&&(_, name, metric, _)| name == "W-0-N-N-FCFS-400" && read.contains(&metric));
        assert_eq!(both, None);
        let source = include_str!("calibration.rs");
        let code = source.split("mod tests").next().unwrap_or_default();
        assert!(!code.contains("FIGURES"), "the calibration reads a predicted row");
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
        let here = run(&config, &mut Rule::FirstCome);
        for (value, paper) in [
            (here.request_rate(), BASELINE.request_rate),
            (here.stack(), BASELINE.stack),
            (here.nic_idle(), BASELINE.nic_idle),
        ] {
            assert!((value / paper - 1.0).abs() < 0.1, "{value} for the paper's {paper}");
        }
    }
}
