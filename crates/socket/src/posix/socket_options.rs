//! The options that a socket remembers.

use baton_consumer::buffers::Share;
use baton_engine::options::{self as bits, IpFields};
use baton_tcp::options::{KeepAlive, SocketOption};
use baton_tcp::time::Duration;
use libc::c_int;

/// Options that the socket has to remember.
#[derive(Clone)]
pub(super) struct Options {
    pub reuse_address: bool,
    pub v6only: bool,
    pub nodelay: bool,
    pub cork: bool,
    pub quickack: bool,
    pub keepalive: bool,
    pub probing: KeepAlive,
    pub user_timeout: Duration,
    /// `SO_LINGER`, in seconds.
    pub linger: Option<u32>,
    /// `TCP_LINGER2`, in seconds; `None` for the host's value.
    pub linger2: Option<u32>,
    /// IP header fields from `IP_TOS`, `IP_TTL` and `IP_MTU_DISCOVER`.
    pub ip: IpFields,
    /// `IP_MTU_DISCOVER` as it was set.
    pub mtu_discover: c_int,
    /// `TCP_MAXSEG` in bytes; 0 for the path's value.
    pub most_mss: u16,
    /// `TCP_NOTSENT_LOWAT` in bytes.
    pub notsent_low: u32,
    /// `TCP_INQ`: each `recvmsg` reports the number of bytes left to read.
    pub inq: bool,
    pub send_share: Share,
    pub receive_share: Share,
    /// `SO_RCVTIMEO`; 0 for none.
    pub receive_timeout: Duration,
    pub send_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            reuse_address: false,
            v6only: false,
            nodelay: false,
            cork: false,
            quickack: true,
            keepalive: false,
            probing: KeepAlive::default(),
            user_timeout: Duration::ZERO,
            linger: None,
            linger2: None,
            ip: IpFields::default(),
            mtu_discover: libc::IP_PMTUDISC_WANT,
            most_mss: 0,
            notsent_low: u32::MAX,
            inq: false,
            send_share: Share::default(),
            receive_share: Share::default(),
            receive_timeout: Duration::ZERO,
            send_timeout: Duration::ZERO,
        }
    }
}

impl Options {
    /// Returns the option bits that a connection starts with.
    pub fn bits(&self) -> u64 {
        let nodelay = if self.nodelay { bits::NODELAY } else { 0 };
        self.ip.bits() | bits::most_mss(self.most_mss) | nodelay | if self.keepalive { bits::KEEPALIVE } else { 0 }
    }

    /// Returns the options that an accepted socket inherits from its listener: all of them, as in
    /// Linux.
    pub fn inherited(&self) -> Options {
        self.clone()
    }

    /// The keepalive option as it is told to the engine.
    pub fn keepalive(&self) -> SocketOption {
        SocketOption::KeepAlive(self.keepalive.then_some(self.probing))
    }

    /// Returns the options that have no option bit.
    pub fn beyond_bits(&self) -> Vec<SocketOption> {
        let usual = Options::default();
        let mut list = Vec::new();
        if self.keepalive && self.probing != usual.probing {
            list.push(self.keepalive());
        }
        if self.cork {
            list.push(SocketOption::Cork(true));
        }
        if self.user_timeout != usual.user_timeout {
            list.push(SocketOption::UserTimeout(Some(self.user_timeout)));
        }
        if let Some(seconds) = self.linger2 {
            list.push(SocketOption::Linger2(Some(Duration::from_secs(seconds.into()))));
        }
        list
    }
}
