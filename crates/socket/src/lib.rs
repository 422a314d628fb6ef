//! Sockets of an engine in this process.
//!
//! ```text
//!   Host          engine, port and streams on the caller's thread, driven by it
//!   Stack         a Host on a thread of its own, blocking and async sockets
//!     net         those sockets
//!     driver      the threads
//!   posix         a Host behind POSIX calls; the C ABI's core
//! ```
//!
//! What these do with the engine's region is [`baton_consumer`]'s.

mod driver;
pub mod host;
pub mod net;
pub mod posix;
pub mod stack;
mod sys;
