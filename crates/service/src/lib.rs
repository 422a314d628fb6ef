//! The service of several processes: programs hand live connections over to an engine that
//! none of them runs, and get them back when they like, or when it dies.
//!
//! ```text
//!   program ---- unix socket ----> broker (privileged): steering, husks, memory's files
//!      |                              |  starts, and buries
//!      +---- shared memory ---->   engine (no privileges): a device, the ledger
//! ```
//!
//! * [`broker`] is guardian too: what it holds is enough to bring every connection home.
//! * [`engine`] is a process of the same binary. It has what the broker sent it, and
//!   nothing else.
//! * [`order`] is what the two say to each other; programs speak
//!   [`baton_socket::service`].
#![forbid(unsafe_code)]

pub mod broker;
pub mod engine;
pub mod order;
mod privileges;
