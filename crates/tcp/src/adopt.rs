//! Connections that come from another stack, and go to one.
//!
//! [`Tcb::snapshot`] contains everything that a successor needs; [`Tcb::adopt`] continues from
//! it. An adoption issues the commands of a completed handshake, then those for everything that
//! has happened since:
//!
//! ```text
//!   Synchronized   numbers, scale, timestamps, and how much is in flight
//!   Established
//!   PeerFin        if the peer's FIN was received
//!   Receive        the window as the other stack promised it
//!   Transmit       window and congestion window
//!   Fin            if the consumer closed and the FIN was never sent
//!   Ack            if something received was never acknowledged
//! ```
//!
//! Out-of-order payload is not part of a snapshot: it is forgotten, and the peer, which may
//! have seen it in our SACK blocks, sends it again (RFC 2018 §8 lets a receiver take back what
//! it reported). Running timers start anew.

use crate::ack::AckPolicy;
use crate::command::{Command, CommandSink, Notice, Synchronized};
use crate::handshake::Open;
use crate::manner::Manner;
use crate::options::SocketOption;
use crate::path::Path;
use crate::rcv::Receiver;
use crate::snapshot::{Inconsistent, Scales, Seeds, Snapshot, Timestamps};
use crate::snd::{Seed, Sender};
use crate::state::State;
use crate::tcb::{Context, Is, Tcb};
use crate::time::Instant;
use baton_wire::seq::{Window, WindowScale};

impl Tcb {
    /// Takes a connection over. `mtu` is the largest packet of our interface, in
    /// bytes. Options that the consumer had set are set afterwards, by
    /// [`Tcb::set_option`].
    ///
    /// # Errors
    /// The first rule that the snapshot breaks; then nothing was commanded.
    pub fn adopt(
        cx: &mut Context<'_>,
        from: &Snapshot,
        mtu: u16,
        out: &mut impl CommandSink,
    ) -> Result<Tcb, Inconsistent> {
        from.check()?;
        let path = Path { mtu: from.path_mtu.min(mtu), ipv6: from.ipv6, on_link: false };
        let ts_offset = from.ts_offset(cx.now);
        let scales = from.scales.unwrap_or_default();
        let open = Open { iss: from.snd_una, path, rcv_space: 0, ts_offset };
        let mut tcb = Tcb::new(cx, &open, from.state, Receiver::adopt(from, cx.config.unposted_window));
        tcb.is = facts(from);
        tcb.snd_wscale = scales.snd;
        tcb.peer_mss = from.peer_mss;
        // The kernel has taken the room for timestamps off (`tcp_rcv_state_process`).
        let headers = if from.ipv6 { 60 } else { 40 } + if from.timestamps.is_some() { 12 } else { 0 };
        tcb.link_mtu = from.advmss.saturating_add(headers).min(mtu).max(path.mtu);
        (tcb.snd_wnd, tcb.snd_wl1, tcb.max_wnd) = (from.snd_wnd, from.snd_wl1, from.max_wnd);
        tcb.ack = AckPolicy::adopt(from.seeds.rcv_mss);
        if from.timestamps.is_some_and(|ts| ts.microseconds) {
            tcb.rare().ts_micros = true;
        }
        tcb.snd = Sender::adopt(cx.config, &tcb.seed(from), cx.now);
        tcb.adopt_path_mtu(cx.now);
        tcb.announce(from, out);
        Ok(tcb)
    }

    fn seed(&self, from: &Snapshot) -> Seed {
        let seeds = &from.seeds;
        Seed {
            snd_una: from.snd_una,
            snd_nxt: from.snd_nxt,
            snd_wnd: Window(from.snd_wnd),
            queued: from.write_seq.since(from.snd_nxt).max(0) as u32,
            mss: self.eff_snd_mss(),
            srtt: seeds.srtt,
            rttvar: seeds.rttvar,
            min_rtt: seeds.min_rtt,
            cwnd: seeds.cwnd,
            ssthresh: seeds.ssthresh,
            sack: from.sack,
            // A clock that ticked in microseconds so far gives no span in milliseconds.
            timestamps: from.timestamps.is_some_and(|ts| !ts.microseconds),
        }
    }

    fn announce(&mut self, from: &Snapshot, out: &mut impl CommandSink) {
        let peer_fin = u32::from(from.has_peer_fin());
        let sync = self.synchronized();
        out.command(Command::Synchronized(Synchronized { rcv_nxt: from.rcv_nxt - peer_fin, ..sync }));
        out.command(Command::Notify(Notice::Established));
        if from.has_peer_fin() {
            out.command(Command::PeerFin { seq: from.rcv_nxt - 1 });
            out.command(Command::Notify(Notice::PeerFin));
        }
        self.tell_receive(out);
        self.tell_transmit(out);
        if self.is.shut && !self.is.fin_sent {
            out.command(Command::Fin);
        }
        if from.rcv_nxt.after(from.last_ack_sent) {
            self.send_ack(None, out);
        }
    }

    /// The state that a successor needs to continue from here; `None` if the connection's state
    /// cannot move, if it has no owner any more, or if its peer has reset it. `write_seq` and
    /// `copied_seq` are what they would be if the consumer had written no more than was sent
    /// and had read everything received; a caller that knows better fills them in.
    pub fn snapshot(&self, cx: &Context<'_>) -> Option<Snapshot> {
        if !self.may_move() {
            return None;
        }
        let rcv_nxt = self.rcv.rcv_nxt;
        let fin_unsent = self.is.shut && !self.is.fin_sent;
        Some(Snapshot {
            state: self.state,
            snd_una: self.snd.snd_una(),
            snd_nxt: self.snd.snd_nxt(),
            write_seq: self.snd.snd_nxt() + u32::from(fin_unsent),
            snd_wnd: self.snd_wnd,
            snd_wl1: self.snd_wl1,
            max_wnd: self.max_wnd,
            copied_seq: rcv_nxt - u32::from(self.state == State::CloseWait),
            rcv_nxt,
            last_ack_sent: self.rcv.last_ack_sent.earliest(rcv_nxt),
            right_edge: self.rcv.right_edge().latest(rcv_nxt),
            peer_mss: self.peer_mss,
            advmss: self.advmss(),
            path_mtu: self.path.mtu,
            ipv6: self.path.ipv6,
            scales: self.is.scaled.then_some(Scales { snd: self.snd_wscale, rcv: self.rcv.scale }),
            sack: self.is.sack,
            ecn: self.is.ecn,
            timestamps: self.is.timestamps.then(|| Timestamps {
                tsval: cx.now.timestamp_ms().wrapping_add(self.ts_offset),
                microseconds: self.rare.as_ref().is_some_and(|rare| rare.ts_micros),
                ts_recent: (!self.rcv.ts_unknown).then_some(self.rcv.ts_recent),
            }),
            seeds: self.seeds(),
        })
    }

    fn seeds(&self) -> Seeds {
        let sender = self.snd.info();
        Seeds {
            srtt: sender.srtt,
            rttvar: sender.rttvar,
            min_rtt: sender.min_rtt,
            // In recovery it may be less for a moment (RFC 6937).
            cwnd: sender.cwnd.max(u32::from(sender.mss)),
            ssthresh: sender.ssthresh,
            rcv_mss: self.ack.rcv_mss,
            ..Seeds::default()
        }
    }

    /// Drops parked payload and returns what a successor needs, as [`Tcb::snapshot`]: the
    /// connection is about to leave. A delayed acknowledgment goes first: a kernel cannot be
    /// told that it is owed, and a peer whose one segment in flight was taken would wait for
    /// its retransmission timer, here and wherever else the connection leaves before an
    /// acknowledgment is due.
    pub fn suspend(&mut self, cx: &Context<'_>, out: &mut impl CommandSink) -> Option<Snapshot> {
        if !self.may_move() {
            if self.reset_waits() {
                // Nobody would send the dropped data again, so the connection ends here.
                self.reset(out);
            }
            return None;
        }
        self.rcv.drop_parked(out);
        if self.rcv.rcv_nxt.after(self.rcv.last_ack_sent) {
            self.send_ack(None, out);
        }
        self.snapshot(cx)
    }

    fn may_move(&self) -> bool {
        let state = matches!(self.state, State::Established | State::CloseWait | State::FinWait1 | State::FinWait2);
        state && !self.is.orphan && !self.reset_waits()
    }

    /// The connection stays after all. Timers that ran out meanwhile are due now.
    pub fn resume(&mut self, _cx: &mut Context<'_>, out: &mut impl CommandSink) {
        self.is.untold = true;
        self.tell_transmit(out);
        // The peer may have waited for an answer to dropped segments.
        if self.state.is_synchronized() {
            self.send_ack(None, out);
        }
    }

    /// The options that the consumer changed, to be set again by a successor.
    pub fn options(&self) -> impl Iterator<Item = SocketOption> {
        let rare = self.rare.as_deref();
        let nodelay = self.manner.has(Manner::NODELAY).then_some(SocketOption::NoDelay(true));
        let cork = self.manner.has(Manner::CORK).then_some(SocketOption::Cork(true));
        let keepalive = rare.and_then(|r| r.keepalive).map(|k| SocketOption::KeepAlive(Some(k)));
        let user = rare.and_then(|r| r.user_timeout).map(|t| SocketOption::UserTimeout(Some(t)));
        let linger = rare.and_then(|r| r.linger2).map(|t| SocketOption::Linger2(Some(t)));
        [nodelay, cork, keepalive, user, linger].into_iter().flatten()
    }
}

impl Snapshot {
    /// The offset to our millisecond clock for TSvals that continue from the snapshot's, if the
    /// snapshot was taken just `now`.
    pub fn ts_offset(&self, now: Instant) -> u32 {
        self.timestamps.map_or(0, |ts| ts.tsval.wrapping_sub(now.timestamp_ms()))
    }
}

/// The yes-or-no facts that a snapshot tells of.
fn facts(from: &Snapshot) -> Is {
    let shut = from.has_our_fin();
    Is {
        timestamps: from.timestamps.is_some(),
        sack: from.sack,
        scaled: from.scales.is_some(),
        ecn: from.ecn,
        shut,
        fin_sent: shut && from.snd_nxt == from.write_seq,
        untold: true,
        ..Is::default()
    }
}

impl Receiver {
    /// A receiver that continues where another stack's stopped: no buffer is posted, and the
    /// promised window stays promised.
    fn adopt(from: &Snapshot, unposted: u32) -> Receiver {
        let scale = from.scales.map_or(WindowScale::default(), |scales| scales.rcv);
        let ts_recent = from.timestamps.map_or(Some(0), |ts| ts.ts_recent);
        Receiver::restored(from.rcv_nxt, from.right_edge, from.last_ack_sent, ts_recent, unposted, scale)
    }
}
