//! What a host puts on the wire, segment by segment, against a peer that is made
//! of frames.

mod early;
mod opens;
mod peer;
mod segments;
mod soft;
