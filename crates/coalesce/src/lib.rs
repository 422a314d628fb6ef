//! The coalescer: segments that follow each other within a connection become a
//! **run**, which the next stage handles as one segment.
//!
//! ```text
//!   frame --classify--> Bypass(reason, flow?) --------------------> pass     Sink
//!                 \---> Data(segment) --Coalescer--> start, append  ------>
//!                                        cache of    flush(run, cause)
//!                                        C runs
//! ```
//!
//! Receive aggregation (RA §3) and receive side coalescing (RSC §4) are two
//! [`Profile`]s of one machine. It looks at headers only, copies nothing, keeps no
//! frame: each frame comes with a handle of the caller's, and a [`Sink`], also the
//! caller's, is told what becomes of it. A capture analyser counts; a bump in the
//! wire keeps handles by slot ([`Parts`]) and writes one header for a run
//! ([`write_headers`]); an engine, which parses each frame anyway, hands over what it
//! found ([`Class::of_packet`]) and chains a run's frames by their places in the
//! burst. The receiver's one ACK for a run is expanded into the ACKs that its
//! peer expects ([`Unacked`], [`AckTemplate`]; RA §4). Time is an argument, in
//! nanoseconds of any clock. Nothing is allocated after construction.
//!
//! # What holds for any input
//!
//! * Every frame has one [`Verdict`], counted in [`Counts`].
//! * Every frame comes out once, in `pass` or in a run; within a connection in the
//!   order in which it came in.
//! * Nothing waits past the end of its window, or past [`Coalescer::flush`].
//!
//! # What was left to decide
//!
//! * A connection, here [`Flow`], is addresses, ports, IP version and VLAN tags
//!   (with priority). The same addresses and ports under other tags are another
//!   flow, with a run of its own.
//! * Up to four VLAN tags are read; behind a fifth nothing is IP. An IEEE 802.3
//!   length in place of an ethertype is not IP either.
//! * `malformed` comes before `not_tcp` and `fragment`: a first fragment too short
//!   for its TCP header is malformed. The TCP header of anything that is not TCP,
//!   or a later fragment, is not looked at. An IP length beyond the frame's end is
//!   that of a truncated capture, not a contradiction.
//! * Walked as IPv6 extension headers: hop-by-hop, routing, fragment, destination,
//!   authentication, mobility, HIP, shim6. The walk ends at a later fragment, whose
//!   next-header field says what it is a fragment of.
//! * The four reserved bits of the TCP header (RFC 9293 §3.1) count as flags, so "nothing
//!   else" holds of them. Of several timestamps options the last counts.
//! * Where checksums are verified, a segment that was cut short by the capture
//!   cannot be shown right, so it is not eligible: `checksum`.
//! * Sequence numbers, acknowledgments and timestamp values are compared modulo
//!   2^32. The echoed timestamp is not compared, nor is anything of an IPv6 flow
//!   label, an IPv4 identification or a window.
//! * The headers that count towards 65,535 bytes in a run are its first segment's.
//! * A segment that goes on alone (`psh_alone`, `too_big`) flushes its flow's run first and
//!   starts none. PSH is looked at before size: a segment too big for the buffer that has PSH
//!   is `psh_alone`.
//! * A segment that starts a run takes its place in the cache also where the run is
//!   flushed at once (a limit of 1).
//! * A window in time begins with its first frame and ends, exclusive, that long
//!   after it; a clock that goes back does not end it. A window in frames ends right
//!   after its last. [`Coalescer::flush`] begins a new one.

#![forbid(unsafe_code)]

mod acks;
mod cache;
mod classify;
mod coalescer;
mod extensions;
mod flow;
mod frame;
mod headers;
mod ip;
mod network;
mod parsed;
mod parts;
mod profile;
mod run;
mod verdict;

pub use acks::{AckTemplate, Unacked};
pub use classify::classify;
pub use coalescer::{Coalescer, Sink};
pub use flow::{Flow, Tags};
pub use frame::{Checksums, Class, Frame, Link, Segment};
pub use headers::{HeadersError, write_headers};
pub use ip::Ip;
pub use network::Network;
pub use parts::{Collector, Output, Part, Parts};
pub use profile::{Limits, Profile, Window};
pub use run::Run;
pub use verdict::{Cause, Counts, Reason, Verdict};
