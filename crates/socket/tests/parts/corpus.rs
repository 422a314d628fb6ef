//! Replays the committed corpora of the fuzz targets, and runs the targets on random scripts.

#[path = "../../../../fuzz/src/socket.rs"]
mod socket;

use baton_testkit::corpus;

#[test]
fn corpora_run_clean() {
    corpus::replay(socket::TARGETS);
}

#[test]
fn scripts_at_random_run_clean() {
    let mut dice = fastrand::Rng::with_seed(1);
    for (name, body) in socket::TARGETS {
        for _ in 0..300 {
            let len = dice.usize(..600);
            body(&(0..len).map(|_| dice.u8(..)).collect::<Vec<u8>>());
        }
        for input in corpus::inputs(name) {
            for _ in 0..40 {
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
