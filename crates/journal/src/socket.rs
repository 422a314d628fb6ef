//! The name of a socket's connection.

use baton_wire::addr::Tuple;
use rustix::net::{getpeername, getsockname};
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Both addresses of a connected socket. `None` if it has no connection of IP, or is
/// no socket. Two system calls.
pub fn tuple_of(fd: impl AsFd) -> Option<Tuple> {
    let local = SocketAddr::try_from(getsockname(&fd).ok()?).ok()?;
    let remote = SocketAddr::try_from(getpeername(&fd).ok()??).ok()?;
    Some(Tuple::new(local, remote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connected_socket_has_a_name() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let ours = TcpStream::connect(at).unwrap();
        assert_eq!(tuple_of(&ours), Some(Tuple::new(ours.local_addr().unwrap(), at)));
        assert_eq!(tuple_of(&listener), None);
        assert_eq!(tuple_of(std::io::stdin()), None);
    }
}
