//! Real programs on two kernels, with `baton bump` in front of one of them, and between
//! them a wire that loses, repeats and reorders frames.
//!
//! `BATON_BUMP_BYTES` sets how many bytes each program transfers in total (default 48 MB).
//! `cargo xtask bump` runs the tests with 10 GB.

mod faults;
mod programs;
mod wire;
mod world;
