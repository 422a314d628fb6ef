//! Live connections of the kernel, handed to the engine and back: the kernel's side
//! ([`baton_kernel`]) and the engine's ([`baton_engine`], [`baton_socket`]) joined.
//!
//! ```text
//!   descriptor --handoff--> Connection    read, written and closed through a Consumer
//!              <--restore--
//!
//!   Mover          one thread, one process: interfaces, each steered, with an engine
//!     side         an interface, its engine and port
//!     trip         one move: the steps of baton_kernel::handoff, done for real
//!     engine_side  what the engine is told, and what it says: for any process
//! ```
//!
//! A service of several processes has the same steps elsewhere: its broker uses
//! [`baton_kernel::kernel_side`], its engine [`engine_side`], and
//! [`Captured`](baton_kernel::Captured) goes between them as bytes.
//!
//! Everything here is driven by [`Mover::poll`] and by the moves themselves, which poll
//! the engine of the one connection until it has answered.
#![forbid(unsafe_code)]

pub mod engine_side;
mod error;
mod interface;
mod mover;
mod trip;

pub use error::{MoveError, Stayed};
pub use mover::{Connection, Mover, MoverConfig, MoverEvent};
