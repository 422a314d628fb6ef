//! Pairs' bytes, as the segments that would have carried them.
//!
//! ```text
//!   service --pairs--> Conversation --reads along--> Segment --> Sink: pcapng, and its sums
//! ```

mod conversation;
mod segment;
mod sink;

pub use conversation::{Conversation, Step};
pub use sink::{Sink, Sums};
