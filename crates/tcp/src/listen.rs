//! LISTEN: how a listener answers a segment (RFC 9293 §3.10.7.2).
//!
//! A listener is a bound on half-open connections and the memory of when it last
//! answered with a cookie. It makes no connection itself: its [`Disposition`]
//! says what the engine is to do.
//!
//! ```text
//!   RST                       -> Ignore
//!   ACK, cookie valid         -> Established(decoded)     (only after cookies went out)
//!   ACK otherwise             -> Reset
//!   SYN with FIN              -> Ignore
//!   SYN, backlog has room     -> Accept
//!   SYN, backlog full         -> Cookie
//!   anything else             -> Ignore
//! ```

use crate::command::Command;
use crate::config::Config;
use crate::cookie::{self, Cookie, Decoded, TICK};
use crate::handshake::Agreed;
use crate::isn::Key;
use crate::path::Path;
use crate::reset::reset_for;
use crate::segment::Segment;
use crate::time::{Duration, Instant};
use baton_wire::addr::Tuple;
use baton_wire::tcp::Flags;

/// The answer to a segment that reached a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// Nothing.
    Ignore,
    /// Send this reset.
    Reset(Command),
    /// Make a connection ([`crate::tcb::Tcb::accept`]); the listener counts it
    /// as half-open until [`Listener::on_half_open_done`].
    Accept,
    /// Send this SYN-ACK, with this TSval if it carries timestamps; keep nothing.
    Cookie {
        /// The SYN-ACK, a [`Command::Control`].
        reply: Command,
        /// TSval of its timestamps option.
        ts_val: u32,
    },
    /// A cookie came back: make a connection ([`crate::tcb::Tcb::from_cookie`]).
    Established(Decoded),
}

/// One listening socket.
#[derive(Clone, Debug)]
pub struct Listener {
    backlog: u32,
    half_open: u32,
    cookies_until: Instant,
}

/// Facts that a listener needs in addition to the segment.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Time of the segment's arrival.
    pub now: Instant,
    /// The host's choices.
    pub config: &'a Config,
    /// The host's secret.
    pub key: &'a Key,
    /// The connection's addresses and ports, from our side.
    pub tuple: &'a Tuple,
    /// Limits of the path: its MTU and IP version.
    pub path: Path,
}

impl Listener {
    /// A listener that holds at most `backlog` half-open connections; with 0 it
    /// answers every SYN with a cookie.
    pub fn new(backlog: u32) -> Listener {
        Listener { backlog, half_open: 0, cookies_until: Instant(0) }
    }

    /// Connections between SYN and ESTABLISHED.
    pub fn half_open(&self) -> u32 {
        self.half_open
    }

    /// A connection that [`Disposition::Accept`] made is established or gone.
    pub fn on_half_open_done(&mut self) {
        assert!(self.half_open > 0, "each half-open connection ends once");
        self.half_open -= 1;
    }

    /// Decides on a segment for which there is no connection.
    pub fn handle_segment(&mut self, at: &Arrival<'_>, seg: &Segment) -> Disposition {
        if seg.flags.contains(Flags::RST) {
            return Disposition::Ignore;
        }
        if seg.flags.contains(Flags::ACK) {
            return self.handle_ack(at, seg);
        }
        // RFC 9293 §3.10.7.2 would take a FIN beside the SYN. Only scanners send that, and
        // Linux discards it.
        if !seg.flags.contains(Flags::SYN) || seg.flags.contains(Flags::FIN) {
            return Disposition::Ignore;
        }
        if self.half_open < self.backlog {
            self.half_open += 1;
            return Disposition::Accept;
        }
        self.cookies_until = at.now + Duration(2 * TICK.0);
        let agreed = cookie::limit(Agreed::with(at.config, at.path, seg));
        let ts_offset = at.key.ts_offset(at.tuple);
        let Cookie { iss, ts_val } = cookie::make(at.key, at.now, at.tuple, seg, &agreed, ts_offset);
        let ecn = if agreed.ecn { Flags::ECE } else { Flags::NONE };
        let reply = Command::Control {
            flags: Flags::SYN | Flags::ACK | ecn,
            seq: iss,
            ack: seg.seq + 1,
            wnd: at.config.unposted_window.min(0xffff) as u16,
            syn: Some(agreed.reply(at.config, at.path)),
            ts_ecr: ts_val.and(seg.timestamps).map(|t| t.val),
        };
        Disposition::Cookie { reply, ts_val: ts_val.unwrap_or(0) }
    }

    fn handle_ack(&self, at: &Arrival<'_>, seg: &Segment) -> Disposition {
        let plain = !seg.flags.contains(Flags::SYN);
        if plain
            && at.now < self.cookies_until
            && let Some(decoded) = cookie::check(at.key, at.now, at.tuple, seg, at.config)
        {
            return Disposition::Established(decoded);
        }
        reset_for(seg).map_or(Disposition::Ignore, Disposition::Reset)
    }
}
