//! Programs that use connections: services, a fetcher and load generators.
//!
//! [`services`], [`fetch`] and [`load`] are written once, against the trait
//! [`net::Net`], and run over kernel sockets or over the engine. [`measure`]
//! reads what they cost: CPU time, and the spread of repeated measurements.
//!
//! ```text
//!   services, fetch, load --> net::StreamIo --> net::kernel | net::engine
//! ```
//!
//! The other modules are small tools that programs of this kind need: signals,
//! child processes, exit codes, and escaping for HTML.
#![forbid(unsafe_code)]

pub mod background;
pub mod children;
pub mod fail;
pub mod fetch;
pub mod html_text;
pub mod load;
pub mod measure;
pub mod net;
pub mod services;
pub mod signal;
