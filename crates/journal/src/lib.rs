//! What the processes of a service tell about themselves: [`Event`]s.
//!
//! ```text
//!   broker:   Journal::tell --> Limit --> Ring (the last thousand: `baton events`)
//!                                 \
//!                                  +----> tracing --> sink: standard error, or a file
//!                                 /
//!   others:   tell ---------> Limit
//! ```
//!
//! Nothing here is called for a packet. An event whose level is off costs one atomic load, except
//! in the broker, whose [`Ring`] keeps all levels down to [`Level::Debug`].
//!
//! Events leave through the `tracing` crate, so that a Rust program that uses the library sees them
//! in its own subscriber. The processes of a service, and programs under `baton run --log`, install
//! the subscriber of [`sink`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod event;
mod journal;
mod limit;
mod ring;
pub mod sink;
mod socket;
mod time;

pub use event::{Event, Kind, Level};
pub use journal::{Journal, is_on, tell};
pub use limit::{Limit, PER_SECOND, Suppressed};
pub use ring::{Numbered, RING, Ring};
pub use socket::tuple_of;
