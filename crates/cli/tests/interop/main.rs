//! Baton against the kernel, on real wires.
//!
//! ```text
//!   wire          a namespace with the kernel's TCP, a device, Baton on it
//!   transfer      one bulk transfer, checked byte by byte
//!   matrix        every wire, MTU, IP version, with and without faults
//!   conversation  traffic other than bulk data
//!   path          a narrow link in the middle
//!   many          ten thousand connections
//!   unsummed      checksums that two engines leave out, and the kernel gets
//! ```

mod conversation;
mod many;
mod matrix;
mod path;
mod transfer;
mod unsummed;
mod wire;
