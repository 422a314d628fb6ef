//! Replays the committed corpora of the fuzz targets, and runs them over scripts
//! at random.

#[path = "../../../fuzz/src/socket.rs"]
mod socket;

use std::path::Path;

#[test]
fn corpora_run_clean() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, body) in socket::TARGETS {
        let entries = std::fs::read_dir(corpora.join(name)).unwrap_or_else(|error| panic!("corpus of {name}: {error}"));
        let mut replayed = 0;
        for entry in entries {
            body(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 0, "the corpus of {name} is empty");
    }
}

#[test]
fn scripts_at_random_run_clean() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for (name, body) in socket::TARGETS {
        for _ in 0..300 {
            let len = next() as usize % 600;
            body(&(0..len).map(|_| (next() >> 32) as u8).collect::<Vec<u8>>());
        }
        for entry in std::fs::read_dir(corpora.join(name)).unwrap() {
            let seed = std::fs::read(entry.unwrap().path()).unwrap();
            for _ in 0..40 {
                let mut changed = seed.clone();
                for _ in 0..1 + next() % 4 {
                    let at = next() as usize % changed.len();
                    changed[at] = (next() >> 32) as u8;
                }
                body(&changed);
            }
        }
    }
}
