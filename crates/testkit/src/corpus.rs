//! The committed corpora of the fuzz targets, which the tests replay.

use std::fs;
use std::path::Path;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// The inputs of the corpus of a target; there have to be some.
///
/// # Panics
///
/// If the corpus is missing or empty.
pub fn inputs(name: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = fs::read_dir(corpus).unwrap_or_else(|error| panic!("corpus of {name}: {error}"));
    let mut inputs: Vec<_> = entries.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(!inputs.is_empty(), "the corpus of {name} is empty");
    // Seeds give the same result everywhere.
    inputs.sort();
    inputs
}

/// Runs each target over its corpus.
///
/// # Panics
///
/// If a target does, or a corpus is missing or empty.
pub fn replay(targets: &[Target]) {
    for (name, body) in targets {
        inputs(name).iter().for_each(|input| body(input));
    }
}

/// Runs each target over `random` random inputs of fewer than `longest` bytes, then over each input
/// of its corpus `changed` times, with one to four bytes changed. The seed is fixed.
///
/// # Panics
///
/// If a target does, or a corpus is missing or empty.
pub fn vary(targets: &[Target], random: usize, longest: usize, changed: usize) {
    let mut dice = fastrand::Rng::with_seed(1);
    for (name, body) in targets {
        for _ in 0..random {
            let len = dice.usize(..longest);
            body(&(0..len).map(|_| dice.u8(..)).collect::<Vec<u8>>());
        }
        for input in inputs(name) {
            for _ in 0..changed {
                let mut input = input.clone();
                for _ in 0..dice.usize(1..=4) {
                    let at = dice.usize(..input.len());
                    input[at] = dice.u8(..);
                }
                body(&input);
            }
        }
    }
}
