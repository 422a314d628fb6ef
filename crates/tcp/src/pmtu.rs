//! Path MTU: reported by ICMP (RFC 1191, RFC 8201), or suspected when full segments keep
//! getting lost without a report (black hole; RFC 4821 in its simplest form, as Linux's
//! `tcp_mtu_probing`).

use crate::command::{Command, CommandSink, Notice};
use crate::expire::R1;
use crate::icmp::{IcmpError, IcmpKind};
use crate::path::Path;
use crate::state::{Event, State};
use crate::tcb::{Context, Tcb};
use crate::time::{Duration, Instant};

/// Wait before a larger packet is tried again (RFC 1191 §6.3).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// Typical MTUs below which a router that does not say may have one (RFC 1191 §7.1).
const PLATEAUS: [u16; 8] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 552];

/// Timeouts in a row after which segments are made smaller, and after which their size is no
/// longer suspected. The first time is R1.
const FURTHER: u8 = R1 + 2;
const INNOCENT: u8 = R1 + 4;

/// MTU that works nearly everywhere, to fall back on first (RFC 4821 §7.2).
const SAFE: u16 = 1_064;

/// The least MTU that we go down to: Linux's `min_pmtu`; RFC 8200 §5.
const fn least(path: Path) -> u16 {
    if path.ipv6 { 1_280 } else { 552 }
}

impl Tcb {
    /// An ICMP error about a segment of ours.
    ///
    /// MUST-54 (RFC 9293 §3.9.2.2): the endpoint found the connection by the quoted header.
    pub fn on_icmp(&mut self, cx: &mut Context<'_>, error: &IcmpError, out: &mut impl CommandSink) {
        let (una, nxt) = (self.snd.snd_una(), self.snd.snd_nxt());
        // RFC 5927 §4.1: only what quotes a sequence number in flight is believed.
        if self.is_closed() || self.state == State::TimeWait || !error.seq.within(una, nxt) {
            return;
        }
        if let IcmpKind::TooBig { mtu } = error.kind {
            return self.too_big(cx, mtu, out);
        }
        // SHLD-26 (RFC 9293 §3.9.2.2): where nothing is lost by it; once synchronized,
        // RFC 5927 §5.2 takes hard errors as soft ones.
        if !error.kind.is_soft() && self.is_opening() {
            self.step(Event::Abort);
            return self.finish(error.kind.reason(), out);
        }
        // MUST-56, MUST-47 (RFC 9293 §3.9.2.2, §3.9.1.8): reported, and nothing else.
        out.command(Command::Notify(Notice::SoftError(error.kind.reason())));
    }

    fn too_big(&mut self, cx: &Context<'_>, mtu: u16, out: &mut impl CommandSink) {
        let told =
            if mtu == 0 { PLATEAUS.into_iter().find(|&plateau| plateau < self.path.mtu).unwrap_or(0) } else { mtu };
        let mtu = told.max(least(self.path));
        if mtu >= self.path.mtu {
            return;
        }
        self.lower_path_mtu(cx, mtu);
        self.tell_transmit(out);
        self.send_again(cx, out);
    }

    /// The retransmission timer ran out for the `count`th time: is it the size?
    pub(crate) fn suspect_black_hole(&mut self, cx: &Context<'_>, count: u8) {
        match count {
            R1 | FURTHER => {
                let in_flight = self.snd.snd_nxt().since(self.snd.snd_una()).max(0) as u32;
                let least = least(self.path);
                let smaller = [(self.path.mtu / 2).min(SAFE).max(least), least];
                // An MTU at which what is in flight would be cut: segments that fit were not
                // lost because of their size.
                let mtu = smaller.into_iter().find(|&mtu| {
                    let saved = self.path.mtu.saturating_sub(mtu);
                    saved > 0 && in_flight > u32::from(self.eff_snd_mss().saturating_sub(saved))
                });
                // A peer that closed its window over data in flight drops it for that reason.
                if let Some(mtu) = mtu.filter(|_| self.snd_wnd > 0) {
                    self.lower_path_mtu(cx, mtu);
                }
            }
            // Small ones vanish too: it was not the size.
            INNOCENT if self.path.mtu < self.link_mtu => {
                self.path.mtu = self.link_mtu;
                self.snd.set_mss(self.eff_snd_mss());
                self.is.untold = true;
            }
            _ => {}
        }
    }

    /// A route may have changed: what the link carries is tried again.
    pub(crate) fn raise_path_mtu(&mut self, out: &mut impl CommandSink) {
        self.path.mtu = self.link_mtu;
        self.snd.set_mss(self.eff_snd_mss());
        self.is.untold = true;
        self.tell_transmit(out);
    }

    /// Another stack found that the path carries less than the link: what the link carries
    /// is tried in time.
    pub(crate) fn adopt_path_mtu(&mut self, now: Instant) {
        if self.path.mtu < self.link_mtu {
            self.rare().path_mtu_at = now + RAISE_AFTER;
            self.arm_rare();
        }
    }

    /// Data in flight is cut anew and sent again.
    fn lower_path_mtu(&mut self, cx: &Context<'_>, mtu: u16) {
        self.path.mtu = mtu;
        self.snd.on_mtu_reduced(cx.now, self.eff_snd_mss());
        self.is.untold = true;
        self.rare().path_mtu_at = cx.now + RAISE_AFTER;
        self.arm_rare();
    }
}
