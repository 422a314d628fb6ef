//! Replays the committed fuzzing corpora through the bodies of the fuzz targets.

#[path = "../../../fuzz/src/wire.rs"]
mod wire;

use std::path::Path;

#[test]
fn corpora_run_clean() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, body) in wire::TARGETS {
        let entries = std::fs::read_dir(corpora.join(name)).unwrap_or_else(|error| panic!("corpus of {name}: {error}"));
        let mut replayed = 0;
        for entry in entries {
            body(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 0, "the corpus of {name} is empty");
    }
}

/// The same bodies over random bytes and over captured frames with one byte changed.
#[test]
fn random_bytes_run_clean() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, body) in wire::TARGETS {
        body(&[]);
        for _ in 0..2000 {
            let len = next() as usize % 120;
            body(&(0..len).map(|_| next() as u8).collect::<Vec<u8>>());
        }
        for entry in std::fs::read_dir(corpora.join(name)).unwrap() {
            let seed = std::fs::read(entry.unwrap().path()).unwrap();
            for _ in 0..20 {
                let mut changed = seed.clone();
                if !changed.is_empty() {
                    let at = next() as usize % changed.len();
                    changed[at] = next() as u8;
                }
                body(&changed);
            }
        }
    }
}
