//! All that is known of a connection while neither the kernel nor the engine runs it.

use crate::socket_options::{SocketOptions, take};
use baton_tcp::snapshot::{Inconsistent, Snapshot, Words};
use baton_wire::addr::Tuple;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A connection as plain data, without a descriptor: enough to continue it in the engine or in the
/// kernel.
#[derive(Clone, PartialEq)]
pub struct Captured {
    /// Our end as the socket names it: on a dual-stack socket a mapped IPv4 address, and with a
    /// link-local address its scope.
    pub local: SocketAddr,
    /// The peer's end, in the same form.
    pub remote: SocketAddr,
    /// The protocol's state.
    pub protocol: Snapshot,
    /// Bytes sent and not acknowledged, then bytes not sent.
    pub send_queue: Vec<u8>,
    /// Bytes received and not read.
    pub receive_queue: Vec<u8>,
    /// The program has shut down the receiving side (`SHUT_RD`).
    pub shut_read: bool,
    /// The options that the program set.
    pub options: SocketOptions,
}

/// Why a captured connection cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The numbers contradict each other.
    #[error(transparent)]
    Numbers(#[from] Inconsistent),
    /// The length of a queue contradicts the numbers.
    #[error("the {0} queue holds more or fewer bytes than its sequence numbers say")]
    Queue(&'static str),
    /// The addresses have different IP versions, or not the snapshot's.
    #[error("the addresses do not have the same IP version")]
    Version,
}

impl Captured {
    /// Checks whether this can be a connection, before anything is done with it.
    ///
    /// # Errors
    /// The first contradiction found.
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

    /// Encodes the connection, without the bytes of its queues, for another process of the same
    /// version.
    pub fn head_to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        out.extend(FORMAT.to_le_bytes());
        for end in [self.local, self.remote] {
            end_to_bytes(end, &mut out);
        }
        out.extend(self.protocol.to_words().iter().flat_map(|word| word.to_le_bytes()));
        out.push(self.shut_read.into());
        self.options.to_bytes(&mut out);
        out
    }

    /// Decodes what [`Captured::head_to_bytes`] wrote, with empty queues. Returns `None` for
    /// anything else. Once the queues are filled in, [`Captured::check`] tells whether this can be
    /// a connection.
    pub fn head_from_bytes(mut bytes: &[u8]) -> Option<Captured> {
        let bytes = &mut bytes;
        if u32::from_le_bytes(take(bytes)?) != FORMAT {
            return None;
        }
        let (local, remote) = (end_from_bytes(bytes)?, end_from_bytes(bytes)?);
        let mut words = Words::default();
        for word in &mut words {
            *word = u64::from_le_bytes(take(bytes)?);
        }
        let protocol = Snapshot::from_words(&words)?;
        let [shut_read] = take(bytes)?;
        let options = SocketOptions::from_bytes(bytes)?;
        let (send_queue, receive_queue) = Default::default();
        let shut_read = shut_read != 0;
        let captured = Captured { local, remote, protocol, send_queue, receive_queue, shut_read, options };
        bytes.is_empty().then_some(captured)
    }

    /// The connection's addresses and ports on the wire.
    pub fn tuple(&self) -> Tuple {
        Tuple::new(self.local, self.remote)
    }

    /// The bytes sent but not acknowledged, and those not sent.
    pub fn sent_and_unsent(&self) -> (&[u8], &[u8]) {
        self.send_queue.split_at(self.protocol.unacked_bytes() as usize)
    }
}

/// Changes whenever the encoding does.
const FORMAT: u32 = u32::from_le_bytes(*b"btn1");

fn end_to_bytes(end: SocketAddr, out: &mut Vec<u8>) {
    let (octets, scope) = match end {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped().octets(), 0),
        SocketAddr::V6(v6) => (v6.ip().octets(), v6.scope_id()),
    };
    out.push(end.is_ipv6().into());
    out.extend(octets);
    out.extend(end.port().to_le_bytes());
    out.extend(scope.to_le_bytes());
}

fn end_from_bytes(bytes: &mut &[u8]) -> Option<SocketAddr> {
    let [is_v6] = take(bytes)?;
    let octets: [u8; 16] = take(bytes)?;
    let (port, scope) = (u16::from_le_bytes(take(bytes)?), u32::from_le_bytes(take(bytes)?));
    Some(if is_v6 != 0 {
        SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope).into()
    } else {
        let [.., a, b, c, d] = octets;
        (Ipv4Addr::new(a, b, c, d), port).into()
    })
}

impl fmt::Debug for Captured {
    /// Omits the bytes of the queues, which are long and private.
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

/// Returns true if packets of this end are IPv6.
pub(crate) fn is_v6(addr: SocketAddr) -> bool {
    match addr.ip() {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture;
    use baton_testkit::need_root;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_captured_connection_comes_out_of_its_bytes() {
        need_root!();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (&listener.accept().unwrap().0).write_all(b"unread").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            let captured = capture(&ours).unwrap();
            assert_eq!(captured.receive_queue, b"unread");
            let bytes = captured.head_to_bytes();
            let mut again = Captured::head_from_bytes(&bytes).unwrap();
            assert!(again.check().is_err(), "its queues are missing");
            again.receive_queue = b"unread".to_vec();
            assert_eq!((again.check(), &again), (Ok(()), &captured));
            // No cut, addition or change causes a panic or another length.
            for len in 0..bytes.len() {
                assert_eq!(Captured::head_from_bytes(&bytes[..len]), None, "{len} bytes");
            }
            assert_eq!(Captured::head_from_bytes(&[&bytes[..], &[0]].concat()), None);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0xff;
                if let Some(mut other) = Captured::head_from_bytes(&damaged) {
                    other.receive_queue = b"unread".to_vec();
                    let _ = other.check();
                }
            }
        }
    }
}
