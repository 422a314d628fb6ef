//! Replays the committed corpora of the fuzz targets, and runs the targets with random scripts.

#[path = "../../../../fuzz/src/service.rs"]
mod service;

use baton_testkit::corpus;

#[test]
fn corpora_run_clean() {
    corpus::replay(service::TARGETS);
}

#[test]
fn scripts_at_random_run_clean() {
    corpus::vary(service::TARGETS, 0, 0, 4);
}
