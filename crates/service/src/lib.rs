//! The service of several processes: programs hand live connections over to an engine that
//! none of them runs, and get them back when they like, or when it dies.
//!
//! ```text
//!   program ---- unix socket ----> broker (privileged): steering, husks, memory's files
//!      |                              |  starts, and buries       \ guardian: keeps it all
//!      +---- shared memory ---->   engine (no privileges): a device, the ledger
//! ```
//!
//! * [`broker`] brings every connection home, from whatever dies.
//! * [`guardian`] keeps what the broker has ([`record`]) and starts another if it dies; the
//!   broker starts another guardian likewise ([`vault`]).
//! * [`engine`] is a process of the same binary. It has what the broker sent it, and
//!   nothing else.
//! * What the two say to each other is [`baton_socket::service::order`], also where the engine is
//!   inside a program; programs speak [`baton_socket::service`].
#![forbid(unsafe_code)]

pub mod broker;
pub mod checkpoints;
pub mod engine;
pub mod guardian;
mod priority;
mod privileges;
pub mod record;
