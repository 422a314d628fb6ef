//! The kernel's sockets: TCP, and Unix domain sockets to compare it with.

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// A connected socket, or one that is connecting.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket that listens.
pub(super) enum Listener {
    Tcp(TcpListener),
    /// With the address that stands for those of its peers, which have none.
    Unix(UnixListener, SocketAddr),
}

impl Socket {
    /// Starts a connection to an address, or to the socket at `path` if there is one.
    pub fn connect(addr: SocketAddr, path: Option<&Path>) -> io::Result<Socket> {
        Ok(match path {
            None => Socket::Tcp(TcpStream::connect(addr)?),
            Some(path) => Socket::Unix(UnixStream::connect(path)?),
        })
    }

    /// Sends small segments at once, as Unix domain sockets always do.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.set_nodelay(true),
            Socket::Unix(_) => Ok(()),
        }
    }

    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&mut &*socket).read(buf),
            Socket::Unix(socket) => (&mut &*socket).read(buf),
        }
    }

    pub fn write(&self, data: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&mut &*socket).write(data),
            Socket::Unix(socket) => (&mut &*socket).write(data),
        }
    }

    /// Ends the sending direction.
    pub fn finish(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Write),
        }
    }

    /// Returns true if a connect has succeeded and false if it is in progress.
    pub fn is_connected(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Socket::Tcp(socket) => (socket.take_error()?, socket.peer_addr().map(|_| ())),
            Socket::Unix(socket) => (socket.take_error()?, socket.peer_addr().map(|_| ())),
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(true),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Socket::Tcp(socket) => socket,
            Socket::Unix(socket) => socket,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.source().deregister(registry)
    }
}

impl Listener {
    /// Listens on an address, or at `path` if there is one, for up to `backlog` connections that nobody has
    /// accepted. Returns the address with its port filled in.
    pub fn bind(addr: SocketAddr, path: Option<&Path>, backlog: i32) -> io::Result<(Listener, SocketAddr)> {
        match path {
            None => {
                let listener = TcpListener::bind(addr)?;
                rustix::net::listen(&listener, backlog)?;
                let addr = listener.local_addr()?;
                Ok((Listener::Tcp(listener), addr))
            }
            Some(path) => {
                let listener = UnixListener::bind(path)?;
                rustix::net::listen(&listener, backlog)?;
                Ok((Listener::Unix(listener, addr), addr))
            }
        }
    }

    pub fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        match self {
            Listener::Tcp(listener) => listener.accept().map(|(socket, peer)| (Socket::Tcp(socket), peer)),
            Listener::Unix(listener, addr) => listener.accept().map(|(socket, _)| (Socket::Unix(socket), *addr)),
        }
    }

    /// Has a registry tell of connections to accept.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Listener::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }
}
