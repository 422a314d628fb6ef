//! Segments that a host sends, one by one, against a peer that the test builds from frames.

mod early;
mod ecn;
mod opens;
mod peer;
mod segments;
mod soft;
