//! Replays the committed corpora of the fuzz targets, and runs the targets with random scripts.

#[path = "../../../../fuzz/src/service.rs"]
mod service;

use baton_testkit::corpus;

#[test]
fn corpora_run_clean() {
    corpus::replay(service::TARGETS);
}

#[test]
fn scripts_at_random_run_clean() {
    let mut dice = fastrand::Rng::with_seed(1);
    for (name, body) in service::TARGETS {
        for input in corpus::inputs(name) {
            for _ in 0..4 {
                let mut changed = input.clone();
                for _ in 0..dice.usize(1..=4) {
                    let at = dice.usize(..changed.len());
                    changed[at] = dice.u8(..);
                }
                body(&changed);
            }
        }
    }
}
