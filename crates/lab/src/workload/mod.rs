//! The workloads of `bench programs` and of the demo: real, unmodified servers on the kernel's TCP and
//! under `baton run`, and their clients.
//!
//! ```text
//!   namespace "client"                      namespace "server"
//!   wrk, redis-benchmark,  -- veth pair --  nginx, redis-server,     the kernel alone
//!   iperf3, baton load                      iperf3, baton serve
//!                          -- veth pair --  baton run -- the same    each placement and kind
//! ```
//!
//! Client and server can also be in one namespace, both under `baton run`, which joins their connections.
//!
//! A [`ways::Way`] is one way to serve, and a [`place`] is one that has been set up. In addition to
//! the real servers there are our own services ([`wires`], [`memory`]) and the bare device ([`bare`]).

pub mod account;
pub mod at;
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
