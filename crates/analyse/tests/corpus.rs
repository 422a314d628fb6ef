//! Replays the committed corpus of the fuzz target, and inputs made from it.

#[path = "../../../fuzz/src/trace.rs"]
mod trace;

use baton_testkit::corpus;

#[test]
fn corpora_run_clean() {
    corpus::replay(trace::TARGETS);
}

#[test]
fn damaged_captures_run_clean() {
    for (name, body) in trace::TARGETS {
        for seed in corpus::inputs(name).iter().filter(|seed| seed.len() < 400) {
            // Every third byte: the fuzzer does the rest.
            for at in (seed.len() % 3..seed.len()).step_by(3) {
                body(&seed[..at]);
                let mut damaged = seed.clone();
                damaged[at] ^= 0x80;
                body(&damaged);
                damaged[at] = 0xff;
                body(&damaged);
            }
        }
    }
}
