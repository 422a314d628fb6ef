//! Restoring a stream's connection for a program that wants a plain socket again.
//!
//! ```text
//!  in the engine     Restore --> Stand --> LeftBehind --> Home, whole
//!  in the kernel     nothing is held here: the descriptor is the socket
//!                    bytes held here after an engine died: PutBack --> Home, whole
//!  moving            decided again on arrival
//! ```

use super::location::Location;
use super::shared::Inner;
use baton_ipc::message::Request;
use baton_ipc::queues::write_queues;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

impl Inner {
    pub fn begin_restore(&mut self, id: u64) -> io::Result<()> {
        let connection = self.connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        connection.restoring = true;
        match connection.location() {
            Location::Engine(_) | Location::Pair(_) => self.say(&Request::Restore { id }, Vec::new()),
            // The request is made on arrival.
            _ => Ok(()),
        }
    }

    pub fn poll_restored(&mut self, id: u64, cx: &Context<'_>) -> Poll<io::Result<OwnedFd>> {
        let gone = self.channel.is_none();
        let connection = self.connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let over = match connection.location() {
            _ if connection.refusal.is_some() => connection.refusal.take().map(io::Error::other),
            Location::Kernel(_) => match self.restore_from_kernel(id) {
                Ok(fd) => return Poll::Ready(Ok(fd)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(error) => Some(error),
            },
            // The program's next read shows the error that it ended with, and that takes it.
            Location::Ended(Some(error)) => Some(io::Error::new(error.kind(), error.to_string())),
            Location::Ended(None) => Some(ErrorKind::NotConnected.into()),
            // The service has gone, so nobody can restore the connection.
            _ if gone => Some(ErrorKind::NotConnected.into()),
            _ => None,
        };
        let connection = self.connections.get_mut(&id).expect("only a restored connection is removed");
        if let Some(error) = over {
            connection.restoring = false;
            return Poll::Ready(Err(error));
        }
        connection.wait(true, cx);
        Poll::Pending
    }

    /// Returns the descriptor once the kernel has all bytes that are held here; `WouldBlock` until
    /// then.
    fn restore_from_kernel(&mut self, id: u64) -> io::Result<OwnedFd> {
        let Inner { connections, ready, .. } = self;
        let connection = connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        connection.skip_known(id, ready.as_fd())?;
        let flushed = connection.flush(id, ready.as_fd());
        let full = matches!(&flushed, Err(error) if error.kind() == ErrorKind::WouldBlock);
        if connection.unread.is_empty() && !full {
            flushed?;
            let connection = connections.remove(&id).expect("the connection was found above");
            // The watchers will find the plain socket.
            connection.watchers.wake();
            let fd = connection.into_fd(ready.as_fd());
            // If the broker has gone, it holds no duplicate.
            let _ = self.say(&Request::Close { id }, Vec::new());
            return Ok(fd);
        }
        self.put_back(id)?;
        Err(ErrorKind::WouldBlock.into())
    }

    /// Asks the broker to insert the bytes held here into the socket's queues: unread bytes before
    /// those that it has received, unsent bytes after those that it has to send. A copy stays here
    /// until that is done.
    fn put_back(&mut self, id: u64) -> io::Result<()> {
        let connection = self.connections.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let file = write_queues(connection.unread.make_contiguous(), connection.unsent.make_contiguous())?;
        let (unread, unsent) = (connection.unread.len() as u32, connection.unsent.len() as u32);
        self.say(&Request::PutBack { id, unread, unsent }, file.into_iter().collect())?;
        let connection = self.connections.get_mut(&id).expect("the connection was found above");
        connection.leave_kernel();
        Ok(())
    }
}
