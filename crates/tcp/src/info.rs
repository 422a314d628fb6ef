//! Everything that a consumer or `TCP_INFO` may ask of a connection.

use crate::path::Path;
use crate::snd::SenderInfo;
use crate::state::State;
use crate::tcb::{Context, Tcb};
use crate::time::Duration;
use baton_wire::seq::{Seq, WindowScale};

/// A connection's facts at one time. Sizes and windows are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// State.
    pub state: State,
    /// Timestamps were agreed on.
    pub timestamps: bool,
    /// SACK was agreed on.
    pub sack: bool,
    /// ECN was agreed on.
    pub ecn: bool,
    /// Peer's window shift, if windows are scaled.
    pub snd_wscale: Option<WindowScale>,
    /// Our window shift, if windows are scaled.
    pub rcv_wscale: Option<WindowScale>,
    /// The sender's figures.
    pub sender: SenderInfo,
    /// Payload bytes of a full segment that we send.
    pub snd_mss: u16,
    /// Payload bytes of the peer's full segments, as far as seen.
    pub rcv_mss: u16,
    /// MSS that we announced.
    pub advmss: u16,
    /// Largest packet that the path is taken to carry.
    pub pmtu: u16,
    /// Unanswered window probes or keepalive probes.
    pub probes: u8,
    /// Oldest unacknowledged sequence number.
    pub snd_una: Seq,
    /// Next sequence number to send.
    pub snd_nxt: Seq,
    /// Send window.
    pub snd_wnd: u32,
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// Receive window.
    pub rcv_wnd: u32,
    /// Bytes of buffers that the consumer has posted ahead of `rcv_nxt`.
    pub rcv_space: u32,
    /// Payloads parked in the reassembly area.
    pub parked: u32,
    /// Time since an acceptable segment was last received.
    pub last_received: Duration,
}

impl Tcb {
    /// The MSS that we announce.
    pub(crate) fn advmss(&self) -> u16 {
        Path { mtu: self.link_mtu, ..self.path }.mss_limit()
    }

    /// All facts (STATUS of RFC 9293 §3.10.6).
    pub fn info(&self, cx: &Context<'_>) -> Info {
        let keepalive_sent = self.rare.as_ref().map_or(0, |r| r.keepalive_sent);
        Info {
            state: self.state,
            timestamps: self.is.timestamps,
            sack: self.is.sack,
            ecn: self.is.ecn,
            snd_wscale: self.is.scaled.then_some(self.snd_wscale),
            rcv_wscale: self.is.scaled.then_some(self.rcv.scale),
            sender: self.snd.info(),
            snd_mss: self.eff_snd_mss(),
            rcv_mss: self.ack.rcv_mss,
            advmss: self.advmss(),
            pmtu: self.path.mtu,
            probes: self.probes.max(keepalive_sent),
            snd_una: self.snd.snd_una(),
            snd_nxt: self.snd.snd_nxt(),
            snd_wnd: self.snd_wnd,
            rcv_nxt: self.rcv.rcv_nxt,
            rcv_wnd: self.rcv.rcv_wnd(),
            rcv_space: self.rcv.room(),
            parked: self.rcv.parked() as u32,
            last_received: cx.now.since(self.last_heard),
        }
    }
}
