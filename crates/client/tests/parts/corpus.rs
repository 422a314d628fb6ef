//! Replays the committed corpora of the fuzz targets, and runs the targets on random scripts.

#[path = "../../../../fuzz/src/client.rs"]
mod client;

use baton_testkit::corpus;

#[test]
fn corpora_run_clean() {
    corpus::replay(client::TARGETS);
}

#[test]
fn scripts_at_random_run_clean() {
    corpus::vary(client::TARGETS, 300, 600, 40);
}
