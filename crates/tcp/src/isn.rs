//! Initial sequence numbers (RFC 6528) and timestamp offsets, both keyed.
//!
//! `ISN = M + F(local, remote, key)`: M ticks every 4 µs, so numbers of one
//! tuple grow with time and a new incarnation does not overlap an old one; F is
//! SipHash-2-4, so that nobody without the key can tell one tuple's numbers
//! from another's.

use crate::time::Instant;
use baton_wire::addr::Tuple;
use baton_wire::seq::Seq;
use core::hash::Hasher;
use siphasher::sip::SipHasher24;

/// A secret of 128 bits, drawn once when the host starts.
#[derive(Clone, Copy)]
pub struct Key(pub [u8; 16]);

/// The use of a keyed hash: one key serves several uses without one use
/// telling of another.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Purpose {
    Isn = 1,
    TimestampOffset = 2,
    Cookie = 3,
}

impl Key {
    /// SipHash-2-4 of the tuple and `extra`.
    pub(crate) fn hash(&self, purpose: Purpose, tuple: &Tuple, extra: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&tuple.local.octets());
        hasher.write(&tuple.remote.octets());
        hasher.write_u32(u32::from(tuple.local_port) << 16 | u32::from(tuple.remote_port));
        hasher.write_u8(purpose as u8);
        hasher.write_u64(extra);
        hasher.finish()
    }

    /// The initial sequence number for a new incarnation of `tuple`.
    pub fn iss(&self, now: Instant, tuple: &Tuple) -> Seq {
        // MUST-8 (RFC 9293 §3.4.1): a clock of 4 µs; it wraps in 4.8 hours.
        let m = (now.0 / 4_000) as u32;
        // MUST-9 (RFC 9293 §3.4.1): F is keyed, not to be computed from outside.
        Seq((self.hash(Purpose::Isn, tuple, 0) as u32).wrapping_add(m))
    }

    /// The offset added to the millisecond clock for this tuple's TSval
    /// (RFC 7323 §7.1): the same for each incarnation, so that RFC 6191 works.
    pub fn ts_offset(&self, tuple: &Tuple) -> u32 {
        self.hash(Purpose::TimestampOffset, tuple, 0) as u32
    }
}

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use baton_wire::addr::Addr;

    fn tuple(port: u16) -> Tuple {
        Tuple { local: Addr::v4([10, 0, 0, 1]), remote: Addr::v4([10, 0, 0, 2]), local_port: 80, remote_port: port }
    }

    // tests: MUST-8
    #[test]
    fn isn_ticks_every_four_microseconds() {
        let key = Key([7; 16]);
        let t = Instant(1 << 40);
        let a = key.iss(t, &tuple(1000));
        assert_eq!(key.iss(t + Duration::from_micros(4), &tuple(1000)).since(a), 1);
        assert_eq!(key.iss(t + Duration::from_secs(1), &tuple(1000)).since(a), 250_000);
    }

    // tests: MUST-9
    #[test]
    fn isn_depends_on_tuple_and_key() {
        let t = Instant(0);
        assert_ne!(Key([7; 16]).iss(t, &tuple(1000)), Key([7; 16]).iss(t, &tuple(1001)));
        assert_ne!(Key([7; 16]).iss(t, &tuple(1000)), Key([8; 16]).iss(t, &tuple(1000)));
        assert_ne!(Key([7; 16]).ts_offset(&tuple(1)), Key([7; 16]).ts_offset(&tuple(2)));
        assert_eq!(format!("{:?}", Key([7; 16])), "Key(..)", "a key is never printed");
    }
}
