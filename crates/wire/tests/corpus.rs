//! Replays the committed fuzzing corpora through the bodies of the fuzz targets.

#[path = "../../../fuzz/src/wire.rs"]
mod wire;

use baton_testkit::corpus;

#[test]
fn corpora_run_clean() {
    corpus::replay(wire::TARGETS);
}

/// The same bodies over random bytes and over captured frames with one byte changed.
#[test]
fn random_bytes_run_clean() {
    let mut dice = fastrand::Rng::with_seed(1);
    for (name, body) in wire::TARGETS {
        body(&[]);
        for _ in 0..2000 {
            let len = dice.usize(..120);
            body(&(0..len).map(|_| dice.u8(..)).collect::<Vec<u8>>());
        }
        for input in corpus::inputs(name) {
            for _ in 0..20 {
                let mut changed = input.clone();
                if !changed.is_empty() {
                    let at = dice.usize(..changed.len());
                    changed[at] = dice.u8(..);
                }
                body(&changed);
            }
        }
    }
}
