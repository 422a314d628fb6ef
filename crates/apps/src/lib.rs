//! Programs that use connections: services, a fetcher and load generators.
//!
//! [`services`], [`fetch`] and [`load`] use the trait [`net::Net`], so they run over kernel
//! sockets and over the engine. [`measure`] reads their cost in CPU time, and computes medians and
//! quartiles of repeated measurements.
//!
//! ```text
//!   services, fetch, load --> net::StreamIo --> net::kernel | net::engine
//! ```
//!
//! The other modules are small tools for such programs: signals,
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
