//! Settings of a host; one `Config` serves all connections of an engine.

use crate::time::Duration;
pub use baton_wire::tcp::Acks;

/// Which congestion control a connection runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Congestion {
    /// NewReno (RFC 5681, RFC 6582).
    Reno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
}

impl Congestion {
    /// Its name in Linux, as `TCP_CONGESTION` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Congestion::Reno => "reno",
            Congestion::Cubic => "cubic",
        }
    }
}

/// Which segments of an established connection take the short way (header prediction, LA §3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Prediction {
    /// None; to compare.
    Off,
    /// Those of 4.4BSD (`tcp_input`; Stevens, *TCP/IP Illustrated*, volume 2, §28.4): the next bytes
    /// without a new acknowledgment, or a new acknowledgment without bytes, and the window has
    /// not changed; to compare. One of its tests is left out: that the congestion window is as
    /// large as the peer's, which is rare with windows of megabytes.
    Bsd,
    /// The next bytes, whatever they acknowledge, or an acknowledgment without bytes.
    #[default]
    Full,
}

/// Host-wide choices. The defaults are Linux's where it has them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Congestion control of new connections.
    pub congestion: Congestion,
    /// Offer and accept SACK (RFC 2018).
    pub sack: bool,
    /// Offer and accept timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer and accept window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Negotiate ECN (RFC 3168): ask for it when opening, grant it when asked.
    pub ecn: bool,
    /// Go without checksums with a peer on the same link that wants it too (LA §4.2): ask for it
    /// when opening, grant it when asked. Only for links whose own check is trusted.
    pub unsummed: bool,
    /// Receive window promised before the consumer posts any buffer, bytes.
    pub unposted_window: u32,
    /// Largest receive window, which decides the scale that we offer, bytes.
    pub max_window: u32,
    /// Lower bound of the retransmission timeout (RFC 6298 §2.4; Linux 200 ms).
    pub rto_min: Duration,
    /// Upper bound of the retransmission timeout (RFC 6298 §2.5: at least 60 s).
    pub rto_max: Duration,
    /// The longest delay of an ACK; 499 ms at most (RFC 9293 §3.8.6.3).
    pub delayed_ack: Duration,
    /// 2 MSL, the stay in TIME-WAIT (Linux 60 s).
    pub time_wait: Duration,
    /// The stay in FIN-WAIT-2 of a connection without an owner (Linux 60 s).
    pub fin_wait2: Duration,
    /// SYNs repeated before an active open fails: R2 of RFC 9293 §3.8.3, which asks
    /// for 3 minutes. Linux's 6 give 127 s, one more gives 247 s.
    pub syn_retries: u8,
    /// SYN-ACKs repeated before a half-open connection is forgotten (Linux 5).
    pub synack_retries: u8,
    /// Data retransmissions before giving up (Linux 15; R2 of RFC 9293 SHLD-11).
    pub retries: u8,
    /// How segments that arrive in a run are acknowledged: as if each had come alone, or
    /// all at once.
    pub acks: Acks,
    /// Which segments take the short way.
    pub prediction: Prediction,
    /// Urgent data is left to another stack that the connection can go to. A segment that
    /// points to some is dropped, except for its acknowledgment, and reported by
    /// [`Notice::UrgentRefused`](crate::command::Notice::UrgentRefused): the peer sends it
    /// again.
    pub refuse_urgent: bool,
    /// Challenge ACKs a second, all connections together (RFC 5961 §7).
    pub challenge_acks_per_second: u32,
}

impl Config {
    /// Returns this with the changes that `change` makes:
    ///
    /// ```
    /// # use baton_tcp::config::Config;
    /// let config = Config::default().with(|config| config.ecn = true);
    /// assert!(config.ecn && config.sack);
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Config {
        change(&mut self);
        self
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            congestion: Congestion::Cubic,
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: false,
            unsummed: false,
            unposted_window: 64 * 1024,
            max_window: 4 << 20,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            delayed_ack: Duration::from_millis(40),
            time_wait: Duration::from_secs(60),
            fin_wait2: Duration::from_secs(60),
            syn_retries: 7,
            synack_retries: 5,
            retries: 15,
            acks: Acks::PerRun,
            prediction: Prediction::Full,
            refuse_urgent: false,
            challenge_acks_per_second: 1000,
        }
    }
}
