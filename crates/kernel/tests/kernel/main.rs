//! Connections between two kernels, whose end on our side moves. They form one binary, because
//! building their dependencies takes longer than building the tests.

#[path = "../common/mod.rs"]
mod common;

mod away;
mod engine_like;
mod gap;
mod half_closed;
mod handoff;
mod hops;
mod husk;
mod meanwhile;
mod moves;
mod steer;
mod steer_left;
