//! The loosely coupled engine (LC §3): a machine without a clock, driven by
//! `poll(now)`.

pub mod frame_io;
