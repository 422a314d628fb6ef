//! Errors of views and builders.

use thiserror::Error;

/// Why bytes are not what a view was asked to see in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the header does.
    #[error("the bytes end before the header does")]
    Truncated,
    /// A length field contradicts the header or the bytes there are.
    #[error("a length field contradicts the rest of the packet")]
    BadLength,
    /// The checksum is wrong.
    #[error("the checksum is wrong")]
    BadChecksum,
    /// A version, hardware type or other field that selects the format has a
    /// value that this view does not know.
    #[error("a field that selects the format has an unknown value")]
    BadFormat,
    /// More extension headers than [`crate::ipv6::MAX_EXTENSIONS`].
    #[error("too many IPv6 extension headers")]
    TooManyExtensions,
}

/// Why a header could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The buffer is smaller than what has to be written.
    #[error("the buffer is too small for the packet")]
    BufferTooSmall,
    /// Options, tags or payload are longer than the header can express.
    #[error("longer than the header can express")]
    TooLong,
}
