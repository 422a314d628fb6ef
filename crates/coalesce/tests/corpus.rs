//! Replays the committed fuzzing corpus through the body of the fuzz target, and
//! random scripts.

#[path = "../../../fuzz/src/coalesce.rs"]
mod coalesce;

use baton_testkit::corpus;

#[test]
fn corpora_run_clean() {
    corpus::replay(coalesce::TARGETS);
}

#[test]
fn random_scripts_run_clean() {
    let mut dice = fastrand::Rng::with_seed(1);
    for _ in 0..3000 {
        let len = dice.usize(..300);
        coalesce::traffic(&(0..len).map(|_| dice.u8(..)).collect::<Vec<u8>>());
    }
}
