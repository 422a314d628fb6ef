//! Replays the committed corpus of the fuzz target, and inputs made from it.

#[path = "../../../fuzz/src/port.rs"]
mod port;

use baton_testkit::corpus;

#[test]
fn corpora_run_clean() {
    corpus::replay(port::TARGETS);
}

#[test]
fn damaged_captures_run_clean() {
    for (name, body) in port::TARGETS {
        for seed in corpus::inputs(name).iter().filter(|seed| seed.len() < 400) {
            for at in 0..seed.len() {
                body(&seed[..at]);
                for value in [0, 0xff, seed[at] ^ 1, seed[at] ^ 0x80] {
                    let mut damaged = seed.clone();
                    damaged[at] = value;
                    body(&damaged);
                }
            }
        }
    }
}
