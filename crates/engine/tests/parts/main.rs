//! The parts beneath Streamer and TCE, each against a simple model of itself.

#[path = "../../../../fuzz/src/engine.rs"]
mod fuzz;

mod flow_table;
mod hostile;
mod ranges;
mod reassembly;
mod region;
mod region_threads;
mod ring;
mod wheel;
