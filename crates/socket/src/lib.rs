//! The consumer's side: what a program does with an engine.
//!
//! ```text
//!   Host          engine, port and streams on the caller's thread, driven by it
//!     stream      a byte stream over one queue pair: two rings posted lap by lap
//!     buffers     where in the data area those rings lie
//!   Stack         a Host on a thread of its own, blocking and async sockets
//!   C ABI         a Host behind POSIX-like calls
//! ```
//!
//! No protocol state is held here; what a stream knows is cursors.

pub mod buffers;
pub mod consumer;
mod driver;
pub mod host;
pub mod net;
pub mod posix;
pub mod stack;
pub mod stream;
