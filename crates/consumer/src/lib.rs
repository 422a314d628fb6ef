//! A consumer of an engine: a program's side of a memory region that it shares with an engine.
//!
//! ```text
//!  Consumer      streams, listeners and connection attempts over one region
//!    stream      a byte stream over one queue pair: two rings posted lap by lap
//!    buffers     where those rings are in the data area
//!    adoption    streams whose connections arrive from another stack or leave for one
//!  qp            raw queue pairs: buffers posted one by one, for messages
//!  memory        a region that another process can map
//!  clock         points of time that agree with the kernel's
//!  secret        random numbers for an engine in the consumer's own process
//!  wake          how a thread sleeps until another wakes it
//!    waiters     tasks that wait for the same thing
//!  pace          whether to sleep or to poll again
//!  held          whether this thread holds a lock
//!  signals       keeps signals away from this library's threads and locks
//!  fork          what a child process does not inherit
//! ```
//!
//! There is no protocol state here; a stream consists of cursors. There is no thread and no engine
//! either: the crates above drive engines.

pub mod adoption;
pub mod buffers;
pub mod clock;
pub mod consumer;
mod expected;
pub mod held;
pub mod link;
pub mod lookers;
pub mod memory;
mod moved;
pub mod pace;
pub mod pacing;
pub mod qp;
pub mod secret;
pub mod stream;
mod sys;
pub mod waiters;
pub mod wake;

pub use sys::{fork, signals};
