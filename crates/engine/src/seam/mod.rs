//! The interface between the Streamer and the TCE. Both import this; neither imports the other.
//!
//! ```text
//!   Streamer --event::Event--> TCE       Streamer --companion::Companion--> (the TCE's memory)
//!   Streamer <--order::Order-- TCE
//! ```

pub(crate) mod companion;
pub mod event;
pub mod kinds;
pub mod order;
