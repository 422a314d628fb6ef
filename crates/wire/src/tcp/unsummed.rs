//! Segments without a checksum, between two ends that both asked for it (LA §4.2).
//!
//! ```text
//!   SYN, SYN-ACK   kind 254 | length 7 | ExID 0x42544e43 | TTL      (RFC 6994 §3)
//!   afterwards     the checksum field holds 0xffff
//! ```
//!
//! **The mark.** A TCP checksum is the complement of a one's complement sum (RFC 1071) over
//! bytes that are never all zero: the pseudo header names protocol 6. Such a sum never comes to
//! 0, so no sender that computes a checksum writes 0xffff. 0, which UDP uses for "none", is a
//! true sum of one TCP segment in 65,535. A capture shows the mark, and a receiver that knows
//! nothing of it finds a wrong checksum and drops the segment. In one's complement 0xffff is
//! also a zero, so a router that updates a checksum of 0 by RFC 1141 may write it; the sum is
//! right then, and such a segment is an ordinary one to all who sum it.
//!
//! **The option.** RFC 1146's alternate checksum request, which Kay and Pasquale used, is
//! obsolete (RFC 6247), so this is an experiment with an identifier of its own, not registered
//! with IANA. It says the time to live that its packet left with. A router lowers that, even one
//! that answers ARP for the peer, so the peer of an unchanged value is on the same link (as RFC
//! 5082 reasons).

/// The checksum field of a segment without a checksum.
pub const MARK: u16 = 0xffff;

/// The experiment's identifier (RFC 6994 §3): "BTNC".
pub const EXID: u32 = 0x4254_4e43;

/// Length of the option's data: the identifier and the time to live.
pub(super) const DATA_LEN: usize = 5;

/// Offset of the checksum in a TCP header, in bytes.
const FIELD: usize = 16;

/// The time to live in an experimental option's data, if the experiment is this one.
pub(super) fn ttl_of(data: &[u8]) -> Option<u8> {
    let (exid, &[ttl]) = data.split_first_chunk::<4>()? else { return None };
    (*exid == EXID.to_be_bytes()).then_some(ttl)
}

/// True if the TCP header that begins `segment` carries the mark.
#[inline]
pub fn is_marked(segment: &[u8]) -> bool {
    segment.get(FIELD..FIELD + 2).is_some_and(|field| field == MARK.to_be_bytes())
}

/// Writes the mark into the TCP header that begins `segment`.
pub fn mark(segment: &mut [u8]) {
    if let Some(field) = segment.get_mut(FIELD..FIELD + 2) {
        field.copy_from_slice(&MARK.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Addr;
    use crate::tcp::header::{Header, fill_checksum};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_true_sum_is_the_mark(seq: u32, src: u32, dst: u32, mut payload: Vec<u8>, tail: u16) {
            let (src, dst) = (Addr::v4(src.to_be_bytes()), Addr::v4(dst.to_be_bytes()));
            let header = Header { seq: crate::seq::Seq(seq), ..Header::default() };
            payload.truncate(payload.len() & !1);
            payload.extend(tail.to_be_bytes());
            let mut segment = vec![0; 60];
            let len = header.write(&[], &mut segment).unwrap();
            segment.truncate(len);
            segment.extend(payload);
            fill_checksum(&mut segment, src, dst).unwrap();
            prop_assert!(!is_marked(&segment));
            // Adding the field to the last word takes the sum to the value whose complement is 0.
            let field = u16::from_be_bytes([segment[16], segment[17]]);
            let at = segment.len() - 2;
            let word = u32::from(tail) + u32::from(field);
            let word = (word & 0xffff) + (word >> 16);
            segment[at..].copy_from_slice(&(word as u16).to_be_bytes());
            fill_checksum(&mut segment, src, dst).unwrap();
            prop_assert_eq!(&segment[16..18], &[0, 0]);
        }
    }

    #[test]
    fn a_mark_is_where_the_checksum_is() {
        let mut segment = [0; 20];
        assert!(!is_marked(&segment));
        mark(&mut segment);
        assert!(is_marked(&segment) && segment[..16] == [0; 16] && segment[18..] == [0; 2]);
        let mut short = [0xff; 17];
        mark(&mut short);
        assert!(!is_marked(&short));
    }
}
