//! The kernel's side of a move: takes a live TCP connection out of the Linux kernel as plain data,
//! and puts it back.
//!
//! ```text
//!            capture            make_husk
//!   kernel ----------> frozen ------------> husk   + Captured, which the engine runs
//!     ^  ^               |                   |
//!     |  +--- release ---+                   | rebuild
//!     +------- resume -------- rebuilt <-----+
//! ```
//!
//! * [`capture`] reads everything through `TCP_REPAIR` and changes nothing.
//! * [`make_husk`] leaves an empty, silent socket that keeps the descriptor, the port and the
//!   program's registrations.
//! * [`rebuild`] puts the connection back onto it, and [`resume`] lets it run.
//!
//! Every step before [`resume`] can be undone. Between [`capture`] and [`resume`] the kernel must
//! not receive segments of the connection: in repair mode it would process them, and while it has
//! no connection it would answer them with a reset. [`steer`] keeps them away. They are lost, as if
//! the network had dropped them.
//!
//! Each concern has a file, with `capture_…` and `restore_…` next to each other: `sequence`,
//! `send_queue`, `receive_queue`, `windows`, `agreed`, `timestamps`, [`socket_options`], `buffers`,
//! `half_closed`, `seeds`. [`probe`] tests what this crate believes about the kernel. [`handoff`]
//! has the order of a move and how to undo it. `baton-policy` decides which connections move.
//!
//! Limits. `TCP_REPAIR` shows neither TS.Recent nor what is queued beyond a gap (the peer sends
//! that again, slowly: [`steer::Gaps`]). It accepts neither congestion state nor round-trip times:
//! after a restore Linux starts with ten segments and a timeout of 1 s (3 s before Linux 6.15),
//! unless its metrics cache knows the peer. Call everything in the socket's network namespace, with
//! CAP_NET_ADMIN, and for half-closed connections with CAP_NET_RAW.

mod agreed;
mod anyway;
mod beside;
pub mod both_ends;
mod buffers;
mod bypassing;
mod capture;
mod capture_error;
mod captured;
pub mod conntrack;
mod diag;
mod ended;
mod error;
mod examine;
#[cfg(test)]
mod fault_tests;
mod firewall;
mod half_closed;
pub mod handoff;
pub mod hops;
mod kernel_error;
pub mod kernel_side;
mod known;
pub mod latency;
pub mod lend;
mod namespace;
mod netlink;
mod otherwise;
mod path_mtu;
mod plan;
pub mod probe;
mod raw;
mod rebuild;
mod receive_queue;
mod repair;
mod seeds;
mod send_queue;
mod sequence;
pub mod socket_options;
pub mod steer;

mod sys;
mod tcp_info;
mod timestamps;
mod windows;

pub use buffers::make_room_to_send;
pub use bypassing::BypassingFrames;
pub use capture::{abandon, capture, is_captured, recapture, release};
pub use capture_error::CaptureError;
pub use captured::{Captured, Invalid};
pub use ended::{Ended, EndedSockets};
pub use error::Failed;
pub use firewall::{Hit, NoRules, Rules};
pub use known::{known, segments};
pub use rebuild::{RestoreError, make_husk, rebuild, restore, resume, vacate};
