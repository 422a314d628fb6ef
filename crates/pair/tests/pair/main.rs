//! Pairs over memory of this process: against a model, between threads, and with a hostile peer.
#![cfg(not(loom))]

#[path = "../../../../fuzz/src/pair.rs"]
mod fuzz;

mod ends;
mod hostile;
mod model;
mod threads;
