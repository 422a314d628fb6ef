//! What is killed, and what comes of it: the service on real wires, under load from many
//! connections, each of its processes and its programs ended by `kill -9` at random moments.
//!
//! ```text
//!   this process                          namespace "ours"
//!     rig      what happens when            baton service and its children
//!     peers    the far ends, in    <=====>  programs: this binary once more (`program`),
//!              namespace "peer"     veth      each with its share of the connections
//!     census   what there is                  over `Service::adopt`
//! ```
//!
//! Every connection carries the ramp both ways all the time, and every byte is looked at.
//! A thread of each program moves connections to and fro meanwhile, so that moves, too, are
//! cut off in the middle. One test a kind; `cargo xtask kills` runs the same with more rounds:
//!
//! * `BATON_KILLS_ROUNDS`, `BATON_KILLS_CONNECTIONS`: how many;
//! * `BATON_KILLS_STEER`: how frames reach the engine, `tc` (unless said otherwise) or `xdp`;
//! * `BATON_KILLS_SEED`: the random moments, printed at the start;
//! * `BATON_KILLS_OUT`: a directory that gets the figures, a JSON file a kind.

mod census;
mod figures;
mod kinds;
mod lines;
mod peers;
mod program;
mod rig;
mod upgrade;
mod words;

/// Not a test: what the others start as a program.
#[test]
fn the_programs_process() {
    program::be_the_program();
}
