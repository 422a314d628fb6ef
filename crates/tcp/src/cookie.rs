//! SYN cookies (RFC 4987 §3.6): a listener whose backlog is full answers a SYN
//! without keeping anything, and finds what it needs in the ACK that comes back.
//!
//! ```text
//!   iss   | tick mod 32 : 5 | MSS index : 3 | keyed hash : 24 |
//!   TSval | milliseconds : 26         | ECN : 1 | SACK : 1 | shift : 4 |
//! ```
//!
//! A tick is 64 s; a cookie is good for the tick it was made in and the next.
//! The hash covers the tuple, the peer's ISN, the tick and the MSS. The other
//! options come back only with a peer that echoes timestamps, in the low six
//! bits of the TSval (as in Linux, `net/ipv4/syncookies.c`).

use crate::config::Config;
use crate::handshake::Agreed;
use crate::isn::{Key, Purpose};
use crate::segment::Segment;
use crate::time::{Duration, Instant};
use baton_wire::addr::Tuple;
use baton_wire::seq::{Seq, WindowScale};

/// How long a tick is.
pub const TICK: Duration = Duration::from_secs(64);

/// The MSS values that a cookie can tell, in bytes, ascending: the defaults of
/// both IP versions, tunnels, PPPoE, Ethernet, jumbo frames.
const MSS: [u16; 8] = [216, 536, 1220, 1360, 1440, 1452, 1460, 8940];

const OPTION_BITS: u32 = 6;
const NO_SCALE: u32 = 0xf;

/// A SYN-ACK's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie {
    /// Initial sequence number to answer with.
    pub iss: Seq,
    /// TSval to answer with, if timestamps were agreed on.
    pub ts_val: Option<u32>,
}

/// Contents of a returned cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// Our initial sequence number.
    pub iss: Seq,
    /// The peer's initial sequence number.
    pub irs: Seq,
    pub(crate) agreed: Agreed,
}

/// Makes the cookie that answers `syn`.
pub(crate) fn make(key: &Key, now: Instant, tuple: &Tuple, syn: &Segment, agreed: &Agreed, ts_offset: u32) -> Cookie {
    let tick = now.0 / TICK.0;
    let index = MSS.iter().rposition(|&mss| mss <= agreed.peer_mss).unwrap_or(0) as u32;
    let ts_val = agreed.timestamps.then(|| {
        let scale = agreed.snd_wscale.map_or(NO_SCALE, |s| u32::from(s.shift()));
        let bits = scale | u32::from(agreed.sack) << 4 | u32::from(agreed.ecn) << 5;
        let clock = now.timestamp_ms().wrapping_add(ts_offset);
        let val = clock & !((1 << OPTION_BITS) - 1) | bits;
        // Never ahead of the clock: later TSvals must not go back.
        if Seq(val).after(Seq(clock)) { val.wrapping_sub(1 << OPTION_BITS) } else { val }
    });
    Cookie { iss: encode(key, tuple, syn.seq, tick, index), ts_val }
}

/// Reads the cookie that `ack` acknowledges; `None` if it is not one of ours or
/// too old.
pub(crate) fn check(key: &Key, now: Instant, tuple: &Tuple, ack: &Segment, config: &Config) -> Option<Decoded> {
    let (iss, irs) = (ack.ack - 1, ack.seq - 1);
    let index = iss.0 >> 24 & 7;
    let tick = now.0 / TICK.0;
    let is_of = |tick| encode(key, tuple, irs, tick, index) == iss;
    let valid = is_of(tick) || (tick > 0 && is_of(tick - 1));
    if !valid {
        return None;
    }
    let mut agreed = Agreed { peer_mss: MSS[index as usize], ..Agreed::default() };
    if let Some(timestamps) = ack.timestamps.filter(|_| config.timestamps) {
        let scale = timestamps.ecr & 0xf;
        agreed.timestamps = true;
        agreed.snd_wscale = (config.window_scaling && scale != NO_SCALE).then(|| WindowScale::new(scale as u8));
        agreed.sack = config.sack && timestamps.ecr & 1 << 4 != 0;
        agreed.ecn = config.ecn && timestamps.ecr & 1 << 5 != 0;
    }
    Some(Decoded { iss, irs, agreed })
}

fn encode(key: &Key, tuple: &Tuple, irs: Seq, tick: u64, index: u32) -> Seq {
    let hash = key.hash(Purpose::Cookie, tuple, (tick << 3 | u64::from(index)) << 32 | u64::from(irs.0));
    Seq((tick as u32 & 31) << 27 | index << 24 | hash as u32 & 0xff_ffff)
}

/// The part of `agreed` that a cookie can carry: without timestamps only the MSS, and never that
/// there are no checksums.
pub(crate) fn limit(agreed: Agreed) -> Agreed {
    if agreed.timestamps {
        return Agreed { unsummed: false, ..agreed };
    }
    Agreed { peer_mss: agreed.peer_mss, ..Agreed::default() }
}
