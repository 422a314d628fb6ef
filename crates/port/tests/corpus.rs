//! Replays the committed corpus of the fuzz target, and inputs made from it.

#[path = "../../../fuzz/src/port.rs"]
mod port;

use std::path::Path;

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("corpus of {name}: {error}"));
    entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn corpora_run_clean() {
    for (name, body) in port::TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "the corpus of {name} is empty");
        seeds.iter().for_each(|seed| body(seed));
    }
}

#[test]
fn damaged_captures_run_clean() {
    for (name, body) in port::TARGETS {
        for seed in seeds(name).iter().filter(|seed| seed.len() < 400) {
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
