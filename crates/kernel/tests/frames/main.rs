//! Steering frame by frame: a TAP device stands for the wire.

mod frames;
mod steer_frames;
mod steer_sent;
