//! Everything that a connection is while it is on neither side.

use crate::socket_options::SocketOptions;
use baton_tcp::snapshot::{Inconsistent, Snapshot};
use baton_wire::addr::Tuple;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A connection as plain data, without a descriptor: enough to go on with it in the
/// engine or in the kernel.
#[derive(Clone, PartialEq)]
pub struct Captured {
    /// Our end as the socket names it: a mapped IPv4 address on a socket of both
    /// versions, the scope with a link-local address.
    pub local: SocketAddr,
    /// The peer's end, likewise.
    pub remote: SocketAddr,
    /// What the protocol knows.
    pub protocol: Snapshot,
    /// Bytes sent and not acknowledged, then bytes not sent.
    pub send_queue: Vec<u8>,
    /// Bytes received and not read.
    pub receive_queue: Vec<u8>,
    /// The program shut its receiving side down (`SHUT_RD`).
    pub shut_read: bool,
    /// What the program set.
    pub options: SocketOptions,
}

/// Why a captured connection cannot be acted upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// The numbers contradict each other.
    #[error(transparent)]
    Numbers(#[from] Inconsistent),
    /// A queue does not hold what the numbers say.
    #[error("the {0} queue holds more or fewer bytes than its sequence numbers say")]
    Queue(&'static str),
    /// The addresses are of different IP versions, or not of the snapshot's.
    #[error("the addresses are not of one IP version")]
    Version,
}

impl Captured {
    /// Whether it can be a connection; asked before anything is done with it.
    ///
    /// # Errors
    /// What contradicts what.
    pub fn check(&self) -> Result<(), Invalid> {
        self.protocol.check()?;
        let send = self.protocol.unacked_bytes() + self.protocol.unsent_bytes();
        if self.send_queue.len() != send as usize {
            return Err(Invalid::Queue("send"));
        }
        if self.receive_queue.len() != self.protocol.unread_bytes() as usize {
            return Err(Invalid::Queue("receive"));
        }
        let family = self.local.is_ipv6() == self.remote.is_ipv6();
        if !family || [self.local, self.remote].map(is_v6) != [self.protocol.ipv6; 2] {
            return Err(Invalid::Version);
        }
        Ok(())
    }

    /// The connection's name on the wire.
    pub fn tuple(&self) -> Tuple {
        Tuple::new(self.local, self.remote)
    }

    /// The bytes sent and not acknowledged, and those not sent.
    pub(crate) fn sent_and_unsent(&self) -> (&[u8], &[u8]) {
        self.send_queue.split_at(self.protocol.unacked_bytes() as usize)
    }
}

impl fmt::Debug for Captured {
    /// Without what the queues hold: it is long, and nobody else's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured")
            .field("local", &self.local)
            .field("remote", &self.remote)
            .field("protocol", &self.protocol)
            .field("send_queue", &self.send_queue.len())
            .field("receive_queue", &self.receive_queue.len())
            .field("shut_read", &self.shut_read)
            .field("options", &self.options)
            .finish()
    }
}

/// True if packets of this end are IPv6.
pub(crate) fn is_v6(addr: SocketAddr) -> bool {
    match addr.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_none(),
    }
}
