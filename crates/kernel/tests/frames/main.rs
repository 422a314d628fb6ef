//! Tests steering frame by frame: a TAP device represents the wire.

mod frames;
mod steer_frames;
mod steer_notes;
mod steer_sent;
