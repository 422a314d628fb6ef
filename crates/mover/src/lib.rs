//! Hands live connections of the kernel to an engine in the same process, and back. Joins the
//! kernel's side ([`baton_kernel`]) and the engine's ([`baton_engine`], [`baton_consumer`]).
//!
//! ```text
//!   descriptor --handoff--> Connection    read, written and closed through a Consumer
//!              <--restore--
//!
//!   Mover          one thread, one process: interfaces, each steered, with an engine
//!     interface    an interface, its engine and port
//!     trip         one move: the steps of baton_kernel::handoff
//! ```
//!
//! A service of several processes runs the same steps elsewhere: its broker uses
//! [`baton_kernel::kernel_side`] and [`baton_bridge`], and [`Captured`](baton_kernel::Captured) is
//! passed between processes as bytes.
//!
//! [`Mover::poll`] drives everything here, and so do the moves themselves, which poll the engine of
//! their connection until it has answered.
#![forbid(unsafe_code)]

mod error;
mod interface;
mod log;
mod mover;
mod trip;

pub use error::{MoveError, Stayed};
pub use mover::{Connection, Mover, MoverConfig, MoverEvent};
