//! The loosely coupled engine (LC §3): a machine without a clock, driven by
//! `poll(now)`.

pub mod endpoint;
pub mod flow_table;
pub mod frame_io;
pub mod prefetch_unsafe;
pub mod ranges;
pub mod reassembly;
pub mod region;
pub mod ring;
pub mod wheel;
