//! Connections between two kernels, whose end on our side moves. One binary: what all of
//! these are built from takes longer to build than they do themselves.

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
