//! Another network namespace of this machine, which the calling thread enters for one call at a time.
//!
//! A socket leads to its namespace (`SIOCGSKNS`), also after its program's death. Only namespaces that belong to the
//! same user namespace as the service's are entered. A user that may make others could fill them with rules and
//! entries, and the service would read these for ever.

use crate::error::{During, Failed};
use crate::sys;
use baton_policy::Refusal;
use rustix::fs::fstat;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A network namespace, and the way back from it.
pub(crate) struct Namespace {
    here: OwnedFd,
    there: OwnedFd,
}

impl Namespace {
    /// The namespace of `socket`, for threads that are in that of the socket `own`.
    ///
    /// # Errors
    /// [`Refusal::Permission`] if it may not be entered.
    pub fn of<E: From<Refusal> + From<Failed>>(socket: BorrowedFd<'_>, own: BorrowedFd<'_>) -> Result<Namespace, E> {
        let (here, there) = (open::<E>(own)?, open::<E>(socket)?);
        if owner::<E>(&here)? != owner::<E>(&there)? {
            return Err(Refusal::Permission.into());
        }
        // A thread that may not enter its own namespace could not come back.
        move_to(&here).map_err(|error| refused::<E>("entering the own network namespace", error))?;
        Ok(Namespace { here, there })
    }

    /// Calls `f` in the namespace.
    ///
    /// # Errors
    /// Errors of `setns(2)`; `f` was not called.
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> Result<T, Failed> {
        move_to(&self.there).during("entering a socket's network namespace")?;
        let back = Back(&self.here);
        let done = f();
        drop(back);
        Ok(done)
    }
}

/// Takes the thread back, also when a call panics.
struct Back<'a>(&'a OwnedFd);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        // `Namespace::of` has tried it, and the service gives up no right that it needs for that.
        move_to(self.0).expect("a thread may enter its own network namespace");
    }
}

fn move_to(namespace: &OwnedFd) -> io::Result<()> {
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

fn open<E: From<Refusal> + From<Failed>>(socket: BorrowedFd<'_>) -> Result<OwnedFd, E> {
    sys::network_namespace(socket).map_err(|error| refused("opening a socket's network namespace", error))
}

/// Device and inode of the user namespace to which a namespace belongs.
fn owner<E: From<Refusal> + From<Failed>>(namespace: &OwnedFd) -> Result<(u64, u64), E> {
    const WHAT: &str = "asking whose a network namespace is";
    let owner = sys::owning_namespace(namespace.as_fd()).map_err(|error| refused::<E>(WHAT, error))?;
    let found = fstat(owner).during(WHAT)?;
    Ok((found.st_dev, found.st_ino))
}

fn refused<E: From<Refusal> + From<Failed>>(during: &'static str, source: io::Error) -> E {
    match source.raw_os_error() {
        Some(libc::EPERM) => Refusal::Permission.into(),
        _ => Failed { during, source }.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_error::KernelError;
    use baton_testkit::{Netns, need_root};
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    use std::net::UdpSocket;

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    #[test]
    fn without_the_right_to_enter_it_is_refused() {
        need_root!();
        let there = Netns::new("there");
        let (theirs, ours) = (there.enter(socket), socket());
        // Capabilities are a thread's.
        let namespace = std::thread::spawn(move || {
            let all = capabilities(None).unwrap();
            let effective = all.effective.difference(CapabilitySet::SYS_ADMIN);
            set_capabilities(None, CapabilitySets { effective, ..all }).unwrap();
            Namespace::of::<KernelError>(theirs.as_fd(), ours.as_fd()).map(drop)
        });
        assert_eq!(namespace.join().unwrap().unwrap_err().refusal(), Some(Refusal::Permission));
    }

    #[test]
    fn a_call_runs_where_the_socket_is_and_the_thread_comes_back() {
        need_root!();
        let there = Netns::new("there");
        let (theirs, ours) = (there.enter(socket), socket());
        let network = |socket: &UdpSocket| sys::network(socket.as_fd()).unwrap();
        assert_ne!(network(&theirs), network(&ours));
        let namespace = Namespace::of::<KernelError>(theirs.as_fd(), ours.as_fd()).unwrap();
        assert_eq!(namespace.enter(|| network(&socket())).unwrap(), network(&theirs));
        assert_eq!(network(&socket()), network(&ours));
        let panics = std::panic::AssertUnwindSafe(|| namespace.enter(|| -> () { panic!("as a call may") }));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(network(&socket()), network(&ours));
    }
}
