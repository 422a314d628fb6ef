//! How much a receiving engine saves by handling segments in runs, next to the figures of RA
//! §5.
//!
//! `cargo bench -p baton-engine --bench runs`. Senders are simulated by their numbers; frames
//! of 1448 bytes of payload are made before the clock runs, and no cache holds them. The time
//! covers the engine's whole work on them: parse, coalesce, look up, copy with checksum,
//! decide, acknowledge. There is no kernel, driver or program, which make up most of the
//! paper's figures: its per-packet work was buffers, queues and hooks, and there are none here
//! to save. A run has at most 65,535 bytes (RA §3), so of a burst of 64 such segments at most
//! the first 45 are one run.

#[path = "../peers/mod.rs"]
mod peers;
mod rig;

use baton_tcp::config::Acks;
use baton_testkit::rounds::{Effort, Rounds};
use rig::Rig;
use std::cell::RefCell;

/// Segments in a turn.
const SEGMENTS: u32 = 2048;
/// Frames of a burst.
const BURST: usize = 64;
const LIMITS: [u16; 9] = [1, 2, 3, 5, 10, 20, 35, 44, 64];

fn main() {
    let effort = Effort::asked();
    for (name, acks) in [("an ACK a run", Acks::PerRun), ("every second acknowledged", Acks::EverySecond)] {
        limits(effort, name, acks);
    }
    connections(effort);
    nothing_to_coalesce(effort);
    one_at_a_time(effort);
}

fn medians(effort: Effort, set: &mut Rounds<'_>) -> Vec<f64> {
    set.run(effort.rounds(101));
    set.report();
    set.medians()
}

/// RA Fig. 11: the cost of a segment over the limit, and how far it is x + y/k. Measured side
/// by side with checksums and with a port that vouches for them: rigs made at other times have
/// their memory elsewhere, which changes the cost by more than a checksum does.
fn limits(effort: Effort, name: &str, acks: Acks) {
    let kinds = [("checksums", false), ("port vouches", true)];
    let all: Vec<(u16, [RefCell<Rig>; 2])> = [0]
        .into_iter()
        .chain(LIMITS)
        .map(|limit| (limit, kinds.map(|(_, vouched)| RefCell::new(Rig::new(1, limit, acks, vouched)))))
        .collect();
    let mut set = Rounds::new(&format!("a segment of one connection, {name}"), SEGMENTS as usize);
    for (limit, rigs) in &all {
        for ((kind, _), rig) in kinds.iter().zip(rigs) {
            let label = if *limit == 0 { format!("no coalescer, {kind}") } else { format!("runs of {limit}, {kind}") };
            set.add_timed(label, || rig.borrow_mut().receive([(0, SEGMENTS)].into_iter(), BURST));
        }
    }
    let ns = medians(effort, &mut set);
    drop(set);
    for (at, (kind, _)) in kinds.iter().enumerate() {
        println!("  {kind}\n  {:<12} {:>14} {:>16}", "limit", "mean run", "ACKs a segment");
        let ns: Vec<f64> = ns.iter().skip(at).step_by(kinds.len()).copied().collect();
        let mut points = Vec::new();
        for ((limit, rigs), ns) in all.iter().zip(&ns).skip(1) {
            let [frames, coalesced, sent] = rigs[at].borrow_mut().counts().map(|count| count as f64);
            let run = frames / (frames - coalesced);
            println!("  {limit:<12} {run:>14.2} {:>16.3}", sent / frames);
            points.push((run, *ns));
        }
        if let Some((x, y, r2)) = fit(&points) {
            println!("  x + y/k over mean runs k: x = {x:.1} ns, y = {y:.1} ns, R² = {r2:.3}");
            println!(
                "  y / (x + y) = {:.0} %; RA: rx, tx, buffer and non-proto 46 %, cut by 4.3 at 20",
                100.0 * y / (x + y)
            );
            println!(
                "  limit 20 over limit 1: {:+.0} % segments a CPU second; RA §5.1: +45 % (UP), +67 % (SMP)",
                100.0 * (ns[1] / ns[6] - 1.0)
            );
            println!("  limit 1 over no coalescer: {:.3}", ns[1] / ns[0]);
        }
    }
}

/// RA Fig. 12, RSC Fig. 5: connections that take turns of a few segments.
fn connections(effort: Effort) {
    for connections in [1, 10, 100, 1_000, effort.pick(10_000, 1_000)] {
        let rigs: Vec<_> = [0, 20, 64].map(|n| RefCell::new((Rig::new(connections, n, Acks::PerRun, false), 0))).into();
        let mut set = Rounds::new(&format!("a segment, {connections} connections in turns of 8"), SEGMENTS as usize);
        for (name, rig) in ["no coalescer", "runs of 20", "runs of 64"].into_iter().zip(&rigs) {
            set.add_timed(name, || {
                let (rig, at) = &mut *rig.borrow_mut();
                let turns = (0..SEGMENTS / 8).map(|_| (step(at, connections), 8));
                rig.receive(turns, BURST)
            });
        }
        let ns = medians(effort, &mut set);
        println!(
            "  runs of 20 over no coalescer: {:+.0} %; RA Fig. 12 at 400 connections: +40 %",
            100.0 * (ns[0] / ns[1] - 1.0)
        );
    }
}

/// Each segment is of another connection than those around it.
fn nothing_to_coalesce(effort: Effort) {
    for connections in [100, 10_000] {
        let connections = effort.pick(connections, 100);
        let mut set = Rounds::new(&format!("a segment, {connections} connections in turns of 1"), SEGMENTS as usize);
        for (name, limit) in [("no coalescer", 0), ("runs of 64", 64)] {
            let (mut rig, mut at) = (Rig::new(connections, limit, Acks::PerRun, false), 0);
            set.add_timed(name, move || {
                let turns = (0..SEGMENTS).map(|_| (step(&mut at, connections), 1));
                rig.receive(turns, BURST)
            });
        }
        medians(effort, &mut set);
    }
}

/// RA Table 1: single segments wait for nothing and are acknowledged as before.
fn one_at_a_time(effort: Effort) {
    let mut set = Rounds::new("a segment that comes alone", SEGMENTS as usize);
    for (name, limit) in [("no coalescer", 0), ("runs of 20", 20), ("runs of 64", 64)] {
        let mut rig = Rig::new(1, limit, Acks::PerRun, false);
        set.add_timed(name, move || rig.receive([(0, SEGMENTS)].into_iter(), 1));
    }
    let ns = medians(effort, &mut set);
    println!("  requests a second, original and optimized, RA Table 1: 7874 and 7894 (UP), 7970 and 7985 (SMP)");
    println!("  segments a second here: {:.0} and {:.0}", 1e9 / ns[0], 1e9 / ns[1]);
}

/// The next connection of a scattered walk.
fn step(at: &mut u32, connections: u32) -> u32 {
    *at = (*at + 6_101) % connections;
    *at
}

/// Least squares of y = x + y/k: x, y, and the coefficient of determination.
fn fit(points: &[(f64, f64)]) -> Option<(f64, f64, f64)> {
    let n = points.len() as f64;
    let mean = |f: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (u, v) = (mean(&|p| 1.0 / p.0), mean(&|p| p.1));
    let cross = mean(&|p| (1.0 / p.0 - u) * (p.1 - v));
    let (uu, vv) = (mean(&|p| (1.0 / p.0 - u).powi(2)), mean(&|p| (p.1 - v).powi(2)));
    (uu > 0.0 && vv > 0.0).then(|| (v - cross / uu * u, cross / uu, cross * cross / (uu * vv)))
}
