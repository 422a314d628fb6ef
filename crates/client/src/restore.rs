//! The way back of a stream whose program wants a plain socket again.
//!
//! ```text
//!   in the engine     Restore --> Stand --> LeftBehind --> Home, whole
//!   in the kernel     nothing is held here: the descriptor is the socket
//!                     what an engine's death left here: PutBack --> Home, whole
//!   on its way        looked at again where it arrives
//! ```

use super::line::Whereabouts;
use super::shared::Inner;
use baton_ipc::message::Request;
use baton_ipc::queues::write_queues;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

impl Inner {
    pub fn begin_restore(&mut self, id: u64) -> io::Result<()> {
        let line = self.lines.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        line.restoring = true;
        match line.at {
            Whereabouts::Engine { .. } => self.say(&Request::Restore { id }, Vec::new()),
            // It is asked for where it arrives.
            _ => Ok(()),
        }
    }

    pub fn poll_restored(&mut self, id: u64, cx: &Context<'_>) -> Poll<io::Result<OwnedFd>> {
        let gone = self.channel.is_none();
        let line = self.lines.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let over = match &mut line.at {
            _ if line.refusal.is_some() => line.refusal.take().map(io::Error::other),
            Whereabouts::Kernel => match self.restore_from_kernel(id) {
                Ok(fd) => return Poll::Ready(Ok(fd)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(error) => Some(error),
            },
            Whereabouts::Ended(error) => Some(error.take().unwrap_or(ErrorKind::NotConnected.into())),
            // Nobody is left who could bring it.
            _ if gone => Some(ErrorKind::NotConnected.into()),
            _ => None,
        };
        let line = self.lines.get_mut(&id).expect("only what was restored is not there");
        if let Some(error) = over {
            line.restoring = false;
            return Poll::Ready(Err(error));
        }
        line.wait(true, cx);
        Poll::Pending
    }

    /// The descriptor, once the kernel has all that is held here. `WouldBlock` until then.
    fn restore_from_kernel(&mut self, id: u64) -> io::Result<OwnedFd> {
        let Inner { lines, ready, .. } = self;
        let line = lines.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        line.skip_known(id, ready.as_fd())?;
        let flushed = line.flush(id, ready.as_fd());
        let full = matches!(&flushed, Err(error) if error.kind() == ErrorKind::WouldBlock);
        if line.unread.is_empty() && !full {
            flushed?;
            let line = lines.remove(&id).expect("it was there just now");
            // They find the socket.
            line.watchers.wake();
            let fd = line.into_fd(ready.as_fd());
            // A broker that has gone holds no duplicate.
            let _ = self.say(&Request::Close { id }, Vec::new());
            return Ok(fd);
        }
        self.put_back(id)?;
        Err(ErrorKind::WouldBlock.into())
    }

    /// What is held here goes behind, and before, what the socket has: the broker can do that.
    /// All stays here too until it is done.
    fn put_back(&mut self, id: u64) -> io::Result<()> {
        let line = self.lines.get_mut(&id).ok_or(ErrorKind::NotConnected)?;
        let file = write_queues(line.unread.make_contiguous(), line.unsent.make_contiguous())?;
        let (unread, unsent) = (line.unread.len() as u32, line.unsent.len() as u32);
        self.say(&Request::PutBack { id, unread, unsent }, file.into_iter().collect())?;
        let line = self.lines.get_mut(&id).expect("it was there just now");
        line.at = Whereabouts::Away;
        Ok(())
    }
}
