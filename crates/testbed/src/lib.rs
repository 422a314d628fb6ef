//! The simulated testbed of CH (§4.1) in virtual time: what handoff policies do to a web server.
//!
//! The protocol is the real [`baton_tcp::tcb::Tcb`], on host, NIC and clients alike; a handoff is a real
//! snapshot. The load control and the rules are those of `baton_policy`. Costs alone are modelled
//! ([`costs`], [`cache`]). A seed replays a run exactly.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cache;
pub mod calibration;
pub mod ch;
pub mod costs;
pub mod measure;
pub mod nic;
pub mod select;
pub mod stack;
pub mod trace;
pub mod workload;
pub mod world;
