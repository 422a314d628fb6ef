//! The crate and the slow coalescer agree, frame by frame, on random traffic under
//! random rules.

mod pair;
mod slow;
mod traffic;

use pair::Pair;
use slow::{Frame, Out, Slow};
use std::collections::BTreeMap;
use traffic::Traffic;

/// Outputs without the order among connections, which the rules leave free.
fn sorted(mut out: Vec<Out>) -> Vec<Out> {
    out.sort_by_key(|out| match out {
        Out::Alone(at, _) => *at,
        Out::Run(frames) => frames[0],
    });
    out
}

#[test]
fn two_coalescers_agree_on_random_traffic() {
    let (mut reasons, mut runs, mut longest) = (BTreeMap::<&str, u64>::new(), 0, 0);
    for seed in 0..3000 {
        let mut traffic = Traffic::new(seed);
        let rules = traffic::rules(&mut traffic.dice);
        let mut frames: Vec<Frame> = Vec::new();
        while frames.len() < 150 {
            traffic.burst(&mut frames);
        }
        let mut slow = Slow::new(rules);
        frames.iter().for_each(|frame| slow.frame(frame));
        let (report, out) = slow.finish();
        let (ours, our_out) = Pair::run(rules, &frames);
        assert_eq!(sorted(our_out), sorted(out.clone()), "seed {seed}, {rules:?}");
        assert_eq!(ours, report, "seed {seed}, {rules:?}");
        report.reasons.iter().for_each(|(reason, count)| *reasons.entry(reason).or_default() += count);
        runs += report.runs;
        longest =
            longest.max(out.iter().map(|out| if let Out::Run(frames) = out { frames.len() } else { 0 }).max().unwrap());
    }
    println!("{runs} runs, the longest of {longest}; {reasons:?}");
    // The traffic has to be worth it.
    assert_eq!(reasons.len(), 11, "every reason occurs: {reasons:?}");
    assert!(
        reasons.values().all(|count| *count > 100) && runs > 20_000 && longest > 20,
        "{runs} {longest} {reasons:?}"
    );
}
