//! The parts beneath Streamer and TCE, each against a simple model of itself.

mod flow_table;
mod hostile;
mod hostile_unsafe;
mod ranges;
mod reassembly;
mod region;
mod region_threads;
mod ring;
mod wheel;
