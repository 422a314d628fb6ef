//! TCP's decisions: pure functions of (state, input, time).
//!
//! This crate is what the TCP Control Engine (TCE) thinks with. It never sees
//! payload, a device or a clock. What arrived is told to a [`tcb::Tcb`] as a
//! [`segment::Segment`] with its [`segment::Placement`]; what shall happen comes
//! back as [`command::Command`]s. The Streamer, which moves the bytes, keeps its
//! own copy of the few fields it needs (LC §3.1), and the two are weakly
//! consistent: a `Tcb` knows of transmitted data only once `on_transmitted` has
//! told it.

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
mod lazy;
pub mod listen;
pub mod nagle;
mod open;
pub mod options;
pub mod path;
mod persist;
mod pmtu;
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
