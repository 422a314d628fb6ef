//! The path's figures in `TCP_INFO`. Linux shows them but does not accept them, so after
//! a restore it measures anew.

use crate::tcp_info::TcpInfo;
use baton_tcp::snapshot::Seeds;
use baton_tcp::time::Duration;

/// The kernel's figures in the engine's units.
pub(crate) fn capture_seeds(info: &TcpInfo) -> Seeds {
    let us = |us: u32| Duration::from_micros(u64::from(us));
    let mss = info.snd_mss();
    let measured = info.rtt_us() != 0;
    Seeds {
        srtt: us(info.rtt_us()),
        // Before the first sample, the kernel's field contains the initial timeout.
        rttvar: if measured { us(info.rttvar_us()) } else { Duration::ZERO },
        min_rtt: if info.min_rtt_us() == u32::MAX { Duration::ZERO } else { us(info.min_rtt_us()) },
        cwnd: info.cwnd().saturating_mul(mss),
        ssthresh: match info.ssthresh() {
            none if none >= i32::MAX as u32 => u32::MAX,
            segments => segments.saturating_mul(mss),
        },
        rcv_mss: info.rcv_mss().min(u32::from(u16::MAX)) as u16,
        rcv_rtt: us(info.rcv_rtt_us()),
        rcv_space: info.rcv_space(),
    }
}
