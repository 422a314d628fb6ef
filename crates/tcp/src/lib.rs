//! TCP's decisions: pure functions of (state, input, time).
//!
//! The TCP Control Engine (TCE) makes its decisions with this crate, which never sees payload,
//! a device or a clock. A [`tcb::Tcb`] is told of arrivals as [`segment::Segment`]s, each with
//! its [`segment::Placement`]; it answers with [`command::Command`]s. The Streamer, which moves
//! the bytes, keeps its own copy of the few fields it needs (LC §3.1), and the two are weakly
//! consistent: a `Tcb` learns of transmitted data only by `on_transmitted`.

mod ack;
mod acknowledge;
mod adopt;
mod arrive;
mod cc;
pub mod challenge;
mod close;
pub mod command;
pub mod config;
pub mod cookie;
mod ecn;
mod expire;
pub mod handshake;
pub mod icmp;
pub mod info;
pub mod isn;
mod keepalive;
pub mod kind;
mod lazy;
pub mod listen;
pub mod manner;
pub mod nagle;
mod open;
pub mod options;
pub mod path;
mod persist;
mod pmtu;
pub mod predict;
mod rare;
mod rcv;
mod reassembly;
pub mod reset;
mod run;
pub mod segment;
mod set_option;
pub mod snapshot;
pub mod snd;
pub mod state;
pub mod tcb;
pub mod time;
mod time_wait;
mod timers;
mod urgent;
