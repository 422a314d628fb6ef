//! Real servers, unchanged, in the kernel and under `baton run`: what `bench programs` and the
//! demo measure.
//!
//! ```text
//!   namespace "client"                      namespace "server"
//!   wrk, redis-benchmark,  -- veth pair --  nginx, redis-server,     the kernel alone
//!   iperf3, baton load                      iperf3, baton serve
//!                          -- veth pair --  baton run -- the same    each placement and kind
//! ```
//!
//! A [`ways::Way`] is one way to serve; a [`place`] is one that is up. Next to these real
//! servers are our own services ([`wires`], [`memory`]), and the bare device ([`bare`]).

pub mod bare;
pub mod client;
pub mod generate;
pub mod idle;
pub mod memory;
pub mod place;
pub mod server;
pub mod site;
pub mod ways;
pub mod wires;
