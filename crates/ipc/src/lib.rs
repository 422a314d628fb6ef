//! What the processes of a service say to each other: its broker, its engines, its guardian and
//! the programs.
//!
//! ```text
//!   program --message--> broker --order--> engine
//!                          | record
//!                          v
//!                       guardian
//! ```
//!
//! * [`message`] is between programs and the broker, [`order`] between the broker and an engine,
//!   [`record`] what the broker leaves with the guardian.
//! * [`codec`] turns each of these into bytes, [`channel`] carries them, with descriptors;
//!   [`queues`] carries what is too long for a message.
//! * [`placement`] names where a program's engine runs.
//! * [`environment`] and [`account`] are between `baton run` and the programs that it starts.
//! * [`engine`] is the engine's end: it carries orders out. The service runs it in a process of
//!   its own, and the client inside a program.
#![forbid(unsafe_code)]

pub mod account;
pub mod channel;
pub mod codec;
pub mod engine;
pub mod environment;
mod event;
pub mod message;
pub mod order;
pub mod placement;
pub mod queues;
pub mod record;
