//! A consumer of an engine: what a program does with a region of memory that it shares
//! with one.
//!
//! ```text
//!   Consumer      streams, listeners and connection attempts over one region
//!     stream      a byte stream over one queue pair: two rings posted lap by lap
//!     buffers     where in the data area those rings lie
//!     adoption    streams of connections that come from another stack, or leave for one
//!   qp            queue pairs raw: buffers posted one by one, for messages
//!   memory        a region that another process can map
//!   secret        random numbers for an engine that is built next to its consumer
//!   wake          how a thread sleeps until another wakes it
//!     waiters     the tasks that wait for the same thing
//!   pace          whether to sleep or to look again
//!   held          whether this thread holds a lock
//!   signals       threads of ours take none; handlers wait while a lock is held
//!   fork          what a child process does not get from its parent
//! ```
//!
//! No protocol state is held here; what a stream knows is cursors. Neither is there a thread
//! or an engine: those who drive one are in the crates above.

pub mod adoption;
pub mod buffers;
pub mod consumer;
pub mod held;
pub mod memory;
pub mod pace;
pub mod qp;
pub mod secret;
pub mod stream;
mod sys;
pub mod waiters;
pub mod wake;

pub use sys::{fork, signals};
