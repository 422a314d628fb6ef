//! Laws that hold whatever arrives, in whatever order: the bodies of the fuzz
//! targets over random bytes and over the committed corpora.

#[path = "../../../../fuzz/src/tcp.rs"]
mod fuzz;

use proptest::prelude::*;
use std::path::Path;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_breaks_a_connection(data in prop::collection::vec(any::<u8>(), 0..700)) {
        fuzz::connection(&data);
    }

    #[test]
    fn nothing_breaks_a_listener(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz::listener(&data);
    }
}

#[test]
fn corpora_run_clean() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, body) in fuzz::TARGETS {
        let entries = std::fs::read_dir(corpora.join(name)).unwrap_or_else(|error| panic!("corpus of {name}: {error}"));
        let mut replayed = 0;
        for entry in entries {
            body(&std::fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 0, "the corpus of {name} is empty");
    }
}
