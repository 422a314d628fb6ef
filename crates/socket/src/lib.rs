//! The consumer's side: what a program does with an engine.
//!
//! ```text
//!   Host          engine, port and streams on the caller's thread, driven by it
//!     stream      a byte stream over one queue pair: two rings posted lap by lap
//!     buffers     where in the data area those rings lie
//!   qp            queue pairs raw: buffers posted one by one, for messages
//!   memory        a region that another process can map
//!   Stack         a Host on a thread of its own, blocking and async sockets
//!   service       connections of the kernel handed to a service's engine
//!   pace          whether to sleep or to look again
//!   posix         a Host behind POSIX calls; the C ABI's core
//!   signals       threads of ours take none; handlers wait while a lock is held
//!   held          whether this thread holds one
//! ```
//!
//! No protocol state is held here; what a stream knows is cursors.

pub mod adoption;
pub mod buffers;
pub mod consumer;
mod driver;
pub mod held;
pub mod host;
pub mod memory;
pub mod net;
pub mod pace;
pub mod posix;
pub mod qp;
pub mod service;
pub mod stack;
pub mod stream;
mod sys;
mod waiters;

pub use sys::signals;
