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
    corpus::vary(socket::TARGETS, 300, 600, 40);
}
