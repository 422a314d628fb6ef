//! The parts of `TCP_INFO` (`struct tcp_info` of `linux/tcp.h`) that a move needs.

use crate::sys;
use baton_tcp::state::State;
use std::io;
use std::os::fd::BorrowedFd;

/// The kernel's figures for a connection, in its units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpInfo([u8; 256]);

// `tcpi_options`.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WSCALE: u8 = 4;
const ECN: u8 = 8;

impl TcpInfo {
    /// Queries the kernel. A field that an older kernel lacks reads as 0.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
        let mut bytes = [0; 256];
        sys::get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Ok(TcpInfo(bytes))
    }

    /// The figures in a report of the kernel. A field that it lacks reads as 0.
    pub fn in_report(report: &[u8]) -> TcpInfo {
        let mut bytes = [0; 256];
        let len = report.len().min(bytes.len());
        bytes[..len].copy_from_slice(&report[..len]);
        TcpInfo(bytes)
    }

    /// The state, if it is one of RFC 9293.
    pub fn state(&self) -> Option<State> {
        State::ALL.into_iter().find(|state| state.linux() == self.0[0])
    }

    fn agreed(&self, bit: u8) -> bool {
        self.0[5] & bit != 0
    }

    pub fn timestamps(&self) -> bool {
        self.agreed(TIMESTAMPS)
    }

    pub fn sack(&self) -> bool {
        self.agreed(SACK)
    }

    pub fn ecn(&self) -> bool {
        self.agreed(ECN)
    }

    /// The shifts of the windows that the peer sends and that we send, if agreed on.
    pub fn scales(&self) -> Option<(u8, u8)> {
        self.agreed(WSCALE).then_some((self.0[6] & 15, self.0[6] >> 4))
    }

    /// The payload that the peer has acknowledged plus the payload that it has sent, in bytes.
    pub fn payload(&self) -> u64 {
        let long = |offset| u64::from(self.word(offset)) | u64::from(self.word(offset + 4)) << 32;
        long(120) + long(128)
    }

    fn word(&self, offset: usize) -> u32 {
        let b = &self.0[offset..offset + 4];
        u32::from_ne_bytes([b[0], b[1], b[2], b[3]])
    }

    /// Segments sent and not acknowledged.
    pub fn unacknowledged(&self) -> u32 {
        self.word(24)
    }

    pub fn snd_mss(&self) -> u32 {
        self.word(16)
    }

    pub fn rcv_mss(&self) -> u32 {
        self.word(20)
    }

    pub fn pmtu(&self) -> u32 {
        self.word(60)
    }

    /// The smoothed round-trip time in microseconds; 0 before the first sample.
    pub fn rtt_us(&self) -> u32 {
        self.word(68)
    }

    pub fn rttvar_us(&self) -> u32 {
        self.word(72)
    }

    /// The slow-start threshold in segments; `i32::MAX` if there is none.
    pub fn ssthresh(&self) -> u32 {
        self.word(76)
    }

    /// The congestion window in segments.
    pub fn cwnd(&self) -> u32 {
        self.word(80)
    }

    pub fn advmss(&self) -> u32 {
        self.word(84)
    }

    pub fn rcv_rtt_us(&self) -> u32 {
        self.word(92)
    }

    pub fn rcv_space(&self) -> u32 {
        self.word(96)
    }

    /// The smallest round-trip time in microseconds; `u32::MAX` before the first sample.
    pub fn min_rtt_us(&self) -> u32 {
        self.word(148)
    }

    /// The receive window that the kernel last announced, in bytes (since Linux 6.2).
    pub fn rcv_wnd(&self) -> u32 {
        self.word(232)
    }

    /// The number of segments received and sent.
    pub fn segs(&self) -> [u32; 2] {
        [self.word(140), self.word(136)]
    }

    /// The number of data segments sent, including retransmissions.
    pub fn data_segs_out(&self) -> u32 {
        self.word(156)
    }
}
