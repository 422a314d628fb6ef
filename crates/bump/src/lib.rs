//! A bump in the wire: Baton as the software NIC in front of the kernel's own stack.
//!
//! ```text
//!   wire --burst--> classify, coalesce --> runs: one header, payloads gathered --> host
//!                        |    \----------> what does not coalesce, unchanged ----> host
//!                        v ends of segments
//!   wire <--------- Senders: an ACK becomes the ACKs of every second segment <---- host
//!   wire <--------- all else, unchanged; super-frames are the port's to cut <----- host
//! ```
//!
//! A [`Bump`] stands between two ports of frames with virtio headers
//! ([`baton_port::vnet`]): the wire, and the TAP device on whose other side the kernel's
//! stack is. It is a machine without a thread, a clock or a system call of its own:
//! its driver calls [`Bump::poll`].
//!
//! * *Towards the host* the project's one coalescer ([`baton_coalesce`]) makes runs (RA §3, RSC
//!   §4). A run goes to the host as one super-frame: the headers of RA §3.2, written over a
//!   copy of the first segment's, and the payloads where they lie. The virtio header says how
//!   long segments were, so that the stack still estimates its peer's segment size correctly,
//!   and that the checksum is settled.
//! * *Towards the wire* a stack that was handed a run answers with one ACK. The ends of
//!   the segments that it stands for are known, so it is expanded into the sequence that
//!   the sender would have got had nothing been coalesced (RA §4).
//! * *Nothing waits.* All runs end with the burst in which they began: with the input
//!   queue's end, or with the 256th frame of a longer one. A frame that does not coalesce
//!   goes at once, behind what was held of its connection.
//! * *Nothing is made up.* A segment that is lost, repeated or out of order is passed on
//!   as it came, and ends a run. No ACK is sent before the host's, nor beyond it.
//! * *A full wire pushes back.* Frames that it does not take are kept, and nothing more is read
//!   from the host until it is gone. A full host loses frames, counted, as a NIC does.
//!
//! The port bounds the frames of a burst. [`CONNECTIONS`] bounds the connections whose segments
//! are remembered; the least recently used one is forgotten first, and loses only the expansion
//! of its next ACK.

#![forbid(unsafe_code)]

mod bump;
mod counters;
mod inward;
mod outward;
mod senders;

pub use bump::{Bump, Options};
pub use counters::Counters;
pub use senders::CONNECTIONS;
