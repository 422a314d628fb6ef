//! Pairs are made and come home under every load: every byte arrives once and in order, and nobody sends a reset.
//!
//! ```text
//!   this process                   a venue's namespaces
//!     rig     runs the cases         baton service, which joins both ends
//!     matrix  loads x places           |                       |
//!                                    program ==== pair ==== program: this binary once more
//! ```
//!
//! Both programs hold one end each, under `baton run` or over `Service::adopt`, and do what the rig tells them.

mod links;
#[path = "../../../kernel/tests/common/load.rs"]
#[allow(dead_code, reason = "the matrix of moves to engines uses the rest")]
mod load;
mod matrix;
mod program;
mod rig;
mod venue;
mod words;

/// Not a test: the other tests start this as a program.
#[test]
fn the_programs_process() {
    program::be_the_program();
}
