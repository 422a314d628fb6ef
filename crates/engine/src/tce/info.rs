//! TCP_INFO in the kernel's layout (`include/uapi/linux/tcp.h` of Linux 6.18). The structure only
//! ever grows at its end, so a shorter one is the beginning of this. Fields that the engine does
//! not know are 0.

use super::{Tce, push};
use crate::region::Completion;
use crate::seam::event::ConnId;
use crate::seam::kinds::{Carried, Errno, Unused};
use crate::seam::order::{Order, WRITE_BYTES};
use baton_tcp::info::Info;
use baton_tcp::snd::{Phase, SenderInfo};
use baton_tcp::state::State;
use baton_tcp::time::{Duration, Instant};

/// Bytes of the structure.
pub const TCP_INFO_BYTES: usize = 280;

const OPT_TIMESTAMPS: u8 = 1;
const OPT_SACK: u8 = 2;
const OPT_WSCALE: u8 = 4;
const OPT_ECN: u8 = 8;

/// `tcpi_reordering`: how many segments may overtake one before it counts as lost. RACK does
/// not raise it (RFC 8985 §6.2: DupThresh), as Linux does.
const REORDERING: u32 = 3;

/// A connection's facts as `struct tcp_info`; times in microseconds or
/// milliseconds and windows in segments, as the kernel has them.
pub fn tcp_info_bytes(info: &Info) -> [u8; TCP_INFO_BYTES] {
    let mut out = [0; TCP_INFO_BYTES];
    let option = |on: bool, bit: u8| if on { bit } else { 0 };
    let sender = &info.sender;
    out[0] = info.state.linux();
    out[1] = ca_state(sender);
    out[2] = sender.retransmits;
    out[3] = info.probes;
    out[4] = sender.retransmits;
    out[5] = option(info.timestamps, OPT_TIMESTAMPS)
        | option(info.sack, OPT_SACK)
        | option(info.snd_wscale.is_some(), OPT_WSCALE)
        | option(info.ecn, OPT_ECN);
    out[6] = info.snd_wscale.map_or(0, |s| s.shift()) | info.rcv_wscale.map_or(0, |s| s.shift()) << 4;
    let mss = u32::from(info.snd_mss).max(1);
    let micros = |span: Duration| span.as_micros().min(u64::from(u32::MAX)) as u32;
    let words = [
        (8, micros(sender.rto)),
        (16, u32::from(info.snd_mss)),
        (20, u32::from(info.rcv_mss)),
        (24, sender.in_flight.div_ceil(mss)),
        (28, sender.sacked.div_ceil(mss)),
        // Linux counts what was lost until it is acknowledged, sent again or not.
        (32, (sender.lost + if recovers(sender) { sender.repeated } else { 0 }).div_ceil(mss)),
        (36, sender.repeated.div_ceil(mss)),
        (52, info.last_received.as_millis().min(u64::from(u32::MAX)) as u32),
        // Every acceptable segment carries an ACK.
        (56, info.last_received.as_millis().min(u64::from(u32::MAX)) as u32),
        (60, u32::from(info.pmtu)),
        (68, micros(sender.srtt)),
        (72, micros(sender.rttvar)),
        (76, if sender.ssthresh == u32::MAX { 0x7fff_ffff } else { sender.ssthresh / mss }),
        (80, sender.cwnd / mss),
        // `tcp_rcv_state_process` takes the room for timestamps off.
        (84, u32::from(info.advmss) - if info.timestamps { 12 } else { 0 }),
        (88, REORDERING),
        (96, info.rcv_space),
        (100, sender.total_retransmits),
        (144, sender.queued),
        (148, if sender.min_rtt == Duration::ZERO { u32::MAX } else { micros(sender.min_rtt) }),
        (220, u32::from(sender.reordering_seen)),
        (228, info.snd_wnd),
        (232, info.rcv_wnd),
    ];
    for (at, word) in words {
        out[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    out
}

/// It repeats what was lost.
fn recovers(sender: &SenderInfo) -> bool {
    matches!(sender.phase, Phase::Recovery | Phase::Loss)
}

/// `enum tcp_ca_state`: Open, Disorder, CWR, Recovery, Loss.
fn ca_state(sender: &SenderInfo) -> u8 {
    match sender.phase {
        Phase::Open => u8::from(sender.disordered),
        Phase::Reduced => 2,
        Phase::Recovery => 3,
        Phase::Loss => 4,
    }
}

/// Adds what a connection has carried since it came to the engine, which the Streamer knows.
pub fn add_carried(bytes: &mut [u8; TCP_INFO_BYTES], carried: &Carried) {
    bytes[120..128].copy_from_slice(&carried.acknowledged.to_ne_bytes());
    bytes[128..136].copy_from_slice(&carried.received.to_ne_bytes());
    let unsent = u32::try_from(carried.unsent).unwrap_or(u32::MAX);
    bytes[144..148].copy_from_slice(&unsent.to_ne_bytes());
}

/// TCP_INFO of a connection that has ended: nothing more is known of it.
pub fn tcp_info_of_closed() -> [u8; TCP_INFO_BYTES] {
    let mut out = [0; TCP_INFO_BYTES];
    out[0] = State::Closed.linux();
    out
}

impl Tce {
    /// Writes TCP_INFO to the consumer's data area, in as many orders as it takes.
    pub(super) fn write_info(&mut self, now: Instant, conn: ConnId, consumer: u16, token: u64, offset: u64, len: u32) {
        let Some(info) = self.info(now, conn) else {
            self.answer(consumer, Completion::Failed { token, errno: Errno::NOT_CONNECTED }, Unused::default());
            return;
        };
        let bytes = tcp_info_bytes(&info);
        let bytes = &bytes[..bytes.len().min(len as usize)];
        for (index, piece) in bytes.chunks(WRITE_BYTES).enumerate() {
            let mut data = [0; WRITE_BYTES];
            data[..piece.len()].copy_from_slice(piece);
            let offset = offset.saturating_add((index * WRITE_BYTES) as u64);
            push(&mut self.orders, Order::Write { consumer, offset, len: piece.len() as u8, bytes: data });
        }
        self.answer(consumer, Completion::Done { token, value: bytes.len() as u32 }, Unused::default());
    }
}
