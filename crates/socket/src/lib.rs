//! Sockets on an engine in this process.
//!
//! ```text
//!  Host          engine, port and streams on the caller's thread, driven by it
//!  Stack         a Host on its own threads, with blocking and async sockets
//!    net         those sockets
//!    driver      the threads
//!  posix         a Host behind POSIX calls; the core of the C ABI
//! ```
//!
//! [`baton_consumer`] handles the region that they share with the engine.

mod driver;
pub mod host;
pub mod net;
pub mod posix;
mod shared;
pub mod stack;
mod sys;
