//! The walk over IPv6 extension headers, for finding TCP behind them.
//!
//! It differs from the walk of [`baton_wire::ipv6`], which stops at an authentication header,
//! as an endpoint has to.

use baton_wire::ipv6::{self, MAX_EXTENSIONS, next_header};

/// Authentication header (RFC 4302).
const AUTHENTICATION: u8 = 51;

/// Result of a walk over IPv6 extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extensions {
    /// Protocol of what follows, or of what this is a later fragment of.
    pub protocol: u8,
    /// Their length in bytes.
    pub len: usize,
    /// There is a fragment header.
    pub fragment: bool,
    /// Its offset is not 0.
    pub later: bool,
}

/// True for the protocols that are walked over.
#[inline]
pub(crate) const fn is_extension(protocol: u8) -> bool {
    ipv6::is_extension(protocol) || protocol == AUTHENTICATION
}

/// Walks the extension headers at the start of `data`, what there is of the payload
/// of an IPv6 header that says `protocol`; `None` if they pass its end or are more
/// than eight.
pub(crate) fn walk(mut protocol: u8, data: &[u8]) -> Option<Extensions> {
    let (mut len, mut fragment, mut later) = (0, false, false);
    let mut count = 0;
    while !later && is_extension(protocol) {
        if count == MAX_EXTENSIONS {
            return None;
        }
        count += 1;
        let rest = data.get(len..)?;
        let header: &[u8; 8] = rest.first_chunk()?;
        let header_len = match protocol {
            next_header::FRAGMENT => {
                fragment = true;
                later = u16::from_be_bytes([header[2], header[3]]) & !7 != 0;
                8
            }
            // RFC 4302 §2.2: in units of four bytes, less two.
            AUTHENTICATION => 8 + 4 * usize::from(header[1]),
            _ => 8 + 8 * usize::from(header[1]),
        };
        rest.get(..header_len)?;
        len += header_len;
        protocol = header[0];
    }
    Some(Extensions { protocol, len, fragment, later })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_up_to_eight_and_not_past_the_end() {
        for (count, ok) in [(0, true), (1, true), (8, true), (9, false)] {
            let data: Vec<u8> =
                (0..count).flat_map(|i| [if i + 1 == count { 6 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]).collect();
            let walked = walk(if count == 0 { 6 } else { 60 }, &data);
            assert_eq!(walked.map(|found| (found.protocol, found.len)), ok.then_some((6, data.len())), "{count}");
            if count > 0 {
                assert_eq!(walk(60, &data[..data.len() - 1]), None);
            }
        }
    }

    #[test]
    fn each_kind_has_its_length() {
        // Authentication: 8 + 4 * 4; fragment: 8 whatever its second byte says.
        let mut data = vec![44, 4];
        data.extend([0; 22]);
        data.extend([6, 200, 0, 1, 0, 0, 0, 0]);
        let found = walk(AUTHENTICATION, &data).unwrap();
        assert_eq!(found, Extensions { protocol: 6, len: 32, fragment: true, later: false });
        data[24 + 3] = 8;
        data[24] = 60;
        let found = walk(AUTHENTICATION, &data).unwrap();
        assert_eq!(found, Extensions { protocol: 60, len: 32, fragment: true, later: true });
    }
}
