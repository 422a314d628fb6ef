//! Types for the protocols on the wire.
//!
//! Views borrow a frame and never panic on what they find in it; builders write
//! into a caller's buffer. Nothing here allocates, does I/O or keeps state (but
//! for the choice of a checksum kernel).
//!
//! ```text
//!   receive    frame --packet::Packet::parse--> addresses, ports, seq, ... or a Reject
//!   transmit   template::Template::emit --> headers, checksums filled in
//!   the rest   eth, arp, ipv4, ipv6, icmpv4, icmpv6, tcp: a view and a builder each
//! ```
//!
//! The first two are for every data segment; the views are for what is rare or
//! not TCP. `unsafe` stands only in the rooms of the checksum kernels and of the copy.

#![deny(unsafe_code)]

pub mod addr;
pub mod arp;
mod bytes;
pub mod checksum;
pub mod copy_unsafe;
pub mod error;
pub mod eth;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod packet;
pub mod predict;
pub mod quote;
pub mod seq;
pub mod stamp;
pub mod tcp;
pub mod template;
