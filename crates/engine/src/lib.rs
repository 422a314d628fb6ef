//! The loosely coupled engine (LC §3): a machine without a clock, driven by
//! `poll(now)`.

pub mod endpoint;
pub mod frame_io;
