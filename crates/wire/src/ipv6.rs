//! IPv6 (RFC 8200): header view and builder, and the bounded walk over extension
//! headers.

use crate::bytes::be16;
use crate::error::ParseError;

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 40;

/// Most extension headers that a walk passes.
pub const MAX_EXTENSIONS: usize = 8;

/// Next-header values of the extension headers that a walk passes or stops at.
pub mod next_header {
    /// Hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing (RFC 8200 §4.4).
    pub const ROUTING: u8 = 43;
    /// Fragment (RFC 8200 §4.5).
    pub const FRAGMENT: u8 = 44;
    /// Destination options (RFC 8200 §4.6).
    pub const DESTINATION: u8 = 60;
    /// Mobility (RFC 6275 §6.1).
    pub const MOBILITY: u8 = 135;
    /// Host identity (RFC 7401 §5.1).
    pub const HIP: u8 = 139;
    /// Shim6 (RFC 5533 §5.1).
    pub const SHIM6: u8 = 140;
}

/// A fragment header's facts (RFC 8200 §4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentInfo {
    /// Offset of this fragment in the original's fragmentable part, in bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// Identification of the original packet.
    pub id: u32,
}

/// What the walk over extension headers found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// Protocol of what follows the last header walked. After a fragment header
    /// with an offset other than 0, what follows is the middle of something, and
    /// this is the header's word for what it is the middle of.
    pub protocol: u8,
    /// Length of all extension headers in bytes.
    pub len: usize,
    /// Their number.
    pub count: usize,
    /// The fragment header, if there is one.
    pub fragment: Option<FragmentInfo>,
}

/// True for a header that the walk passes.
pub const fn is_extension(protocol: u8) -> bool {
    use next_header::{DESTINATION, FRAGMENT, HIP, HOP_BY_HOP, MOBILITY, ROUTING, SHIM6};
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION | MOBILITY | HIP | SHIM6)
}

/// Walks the extension headers at the start of `data`, the payload of an IPv6
/// header whose next-header field is `protocol`.
///
/// Authentication and encryption headers end the walk: what they protect is not
/// ours to read.
///
/// # Errors
/// [`ParseError::Truncated`] if a header passes the end of `data`,
/// [`ParseError::TooManyExtensions`] if there are more than [`MAX_EXTENSIONS`].
pub fn walk_extensions(mut protocol: u8, data: &[u8]) -> Result<Chain, ParseError> {
    let (mut len, mut count, mut fragment) = (0, 0, None);
    while is_extension(protocol) {
        if count == MAX_EXTENSIONS {
            return Err(ParseError::TooManyExtensions);
        }
        let rest = data.get(len..).ok_or(ParseError::Truncated)?;
        let header: &[u8; 8] = rest.first_chunk().ok_or(ParseError::Truncated)?;
        let header_len = if protocol == next_header::FRAGMENT { 8 } else { 8 + 8 * usize::from(header[1]) };
        if rest.len() < header_len {
            return Err(ParseError::Truncated);
        }
        len += header_len;
        count += 1;
        if protocol == next_header::FRAGMENT {
            let field = be16(header, 2);
            let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            fragment = Some(FragmentInfo { offset: field & !7, more: field & 1 != 0, id });
            if field & !7 != 0 {
                protocol = header[0];
                break;
            }
        }
        protocol = header[0];
    }
    Ok(Chain { protocol, len, count, fragment })
}
