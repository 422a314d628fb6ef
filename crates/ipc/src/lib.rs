//! Protocols between the processes of a service: its broker, its engines, its guardian and the
//! programs.
//!
//! ```text
//!  program --message--> broker --order--> engine
//!                         | record
//!                         v
//!                      guardian
//! ```
//!
//! * [`message`]: between programs and the broker.
//! * [`order`]: between the broker and an engine, which begins with [`begin`].
//! * [`record`]: what the broker stores with the guardian.
//! * [`codec`] encodes all three, [`channel`] transports them together with descriptors, and
//!   [`queues`] transports data that is too long for a message.
//! * [`placement`] names the places where a program's engine can run.
//! * [`environment`] and [`account`] connect `baton run` with the programs that it starts.
//! * [`engine`] is the engine's end, which carries out orders. The service runs it in a process of
//!   its own, the client inside a program.
#![forbid(unsafe_code)]

pub mod account;
pub mod begin;
pub mod channel;
pub mod codec;
pub mod engine;
pub mod environment;
mod event;
pub mod load;
pub mod message;
pub mod order;
pub mod placement;
pub mod queues;
pub mod record;
pub mod version;
