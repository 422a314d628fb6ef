//! The service: programs hand live connections over to an engine that runs in another process, and
//! get them back when they like, or when the engine dies.
//!
//! ```text
//!   program ---- unix socket ----> broker (privileged): steering, husks, memory's files
//!      |                              |  starts and reaps        \ guardian: keeps its records
//!      +---- shared memory ---->   engine (no privileges): a device, the ledger
//! ```
//!
//! * [`broker`] brings every connection home, whichever process dies.
//! * [`guardian`] keeps the broker's records ([`baton_ipc::record`]) and starts another broker if it
//!   dies; the broker in turn starts another guardian ([`checkpoints`]).
//! * [`engine`] is a process of the same binary. It has only what the broker sent it.
//! * Broker and engine speak [`baton_ipc::order`], even if the engine is inside a program. Programs
//!   speak [`baton_ipc::message`].
#![forbid(unsafe_code)]

pub mod broker;
pub mod checkpoints;
pub mod engine;
pub mod guardian;
mod priority;
mod privileges;
