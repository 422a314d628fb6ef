//! Kills with `kill -9`, at random moments, each process of a service and each of its programs, on
//! real wires and under load from many connections.
//!
//! ```text
//!   this process                          namespace "ours"
//!     rig      runs the scenario            baton service and its children
//!     peers    the far ends, in    <=====>  programs: this binary once more (`program`),
//!              namespace "peer"     veth      each with its share of the connections
//!     census   takes stock of resources       over `Service::adopt`
//! ```
//!
//! Every connection carries the ramp in both directions all the time, and every byte is checked.
//! A thread of each program moves connections back and forth at the same time, so that moves, too,
//! are interrupted. Pairs have both ends in programs, which need no peers (`pairs`). Each kind has one
//! test; `cargo xtask kills` runs them with more rounds:
//!
//! * `BATON_KILLS_ROUNDS`, `BATON_KILLS_CONNECTIONS`: numbers of rounds and connections;
//! * `BATON_KILLS_STEER`: how frames reach the engine, `tc` (the default) or `xdp`;
//! * `BATON_KILLS_SEED`: seed of the random moments, printed at the start;
//! * `BATON_KILLS_OUT`: a directory for the results, one JSON file per kind.

mod census;
mod figures;
mod kinds;
mod lines;
mod pairs;
mod peers;
mod program;
mod rig;
mod upgrade;
mod witness;
mod words;

/// Not a test: the other tests start this as a program.
#[test]
fn the_programs_process() {
    program::be_the_program();
}
