//! Laws that hold whatever arrives, in whatever order: the bodies of the fuzz
//! targets over random bytes and over the committed corpora.

#[path = "../../../../fuzz/src/tcp.rs"]
mod fuzz;

use proptest::prelude::*;

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
    baton_testkit::corpus::replay(fuzz::TARGETS);
}
