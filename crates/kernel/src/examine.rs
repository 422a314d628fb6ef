//! Checks whether a connection may move, before anything about it is changed.

use crate::capture_error::CaptureError;
use crate::error::During;
use crate::tcp_info::TcpInfo;
use crate::{diag, repair, sys};
use baton_policy::Refusal;
use baton_tcp::state::State;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{getpeername, getsockname};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// `TCP_AO_INFO` of `linux/tcp.h`, and the size of its structure.
const TCP_AO_INFO: i32 = 40;
const AO_INFO_LEN: usize = 64;

/// A connection that may move, as far as its socket shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Examined {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The number of its control group; 0 if the kernel reports none.
    pub cgroup: u64,
}

/// Examines a socket.
pub(crate) fn examine(fd: BorrowedFd<'_>) -> Result<Examined, CaptureError> {
    is_tcp(fd)?;
    let info = TcpInfo::of(fd).during("reading TCP_INFO")?;
    match info.state() {
        Some(State::Established | State::CloseWait | State::FinWait1 | State::FinWait2) => {}
        Some(State::Closed | State::Listen) => return Err(Refusal::NotConnected.into()),
        _ => return Err(Refusal::State.into()),
    }
    if repair::is_on(fd).during("asking for repair mode")? {
        return Err(Refusal::AlreadyAway.into());
    }
    let local = getsockname(fd).during("asking for the local address")?;
    let remote = getpeername(fd).during("asking for the peer's address")?;
    let (Ok(local), Some(Ok(remote))) = (SocketAddr::try_from(local), remote.map(SocketAddr::try_from)) else {
        return Err(Refusal::NotTcp.into());
    };
    if has_upper_protocol(fd) {
        return Err(Refusal::UpperProtocol.into());
    }
    let diag::Diagnosis { md5, cgroup } = diag::diagnose(fd, local, remote).during("asking sock_diag")?;
    if md5 || has_ao(fd) {
        return Err(Refusal::Signed.into());
    }
    if sys::filter(fd).during("asking for the socket's filter")? == sys::Filter::Other {
        return Err(Refusal::SocketFilter.into());
    }
    if ready(fd, PollFlags::PRI).during("polling the socket")? {
        return Err(Refusal::Urgent.into());
    }
    Ok(Examined { local, remote, cgroup })
}

fn is_tcp(fd: BorrowedFd<'_>) -> Result<(), Refusal> {
    let protocol = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).map_err(|_| Refusal::NotTcp)?;
    match protocol {
        libc::IPPROTO_MPTCP => Err(Refusal::Mptcp),
        // For another kind of socket with this protocol number, `TCP_INFO` fails later.
        libc::IPPROTO_TCP => {
            let kind = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_TYPE).map_err(|_| Refusal::NotTcp)?;
            if kind == libc::SOCK_STREAM { Ok(()) } else { Err(Refusal::NotTcp) }
        }
        _ => Err(Refusal::NotTcp),
    }
}

/// `TCP_ULP` returns the protocol's name, which is empty if there is none.
fn has_upper_protocol(fd: BorrowedFd<'_>) -> bool {
    let mut name = [0; 16];
    sys::get(fd, libc::IPPROTO_TCP, libc::TCP_ULP, &mut name).is_ok_and(|len| len > 0 && name[0] != 0)
}

/// Without keys, `TCP_AO_INFO` fails with `ENOENT`; in a kernel without TCP-AO, with `ENOPROTOOPT`.
fn has_ao(fd: BorrowedFd<'_>) -> bool {
    sys::get(fd, libc::IPPROTO_TCP, TCP_AO_INFO, &mut [0; AO_INFO_LEN]).is_ok()
}

fn ready(fd: BorrowedFd<'_>, what: PollFlags) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(fd, what)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents().contains(what))
}

/// Returns true if the program called `shutdown(SHUT_RD)`: the stream shows its end although the
/// peer has not closed.
pub(crate) fn receiving_side_is_shut(fd: BorrowedFd<'_>, state: State) -> io::Result<bool> {
    Ok(state != State::CloseWait && ready(fd, PollFlags::RDHUP)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_testkit::bpf::Programs;
    use baton_testkit::{need_program, need_root, note_skip};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    fn refusal(socket: &TcpStream) -> Option<Refusal> {
        match examine(socket.as_fd()) {
            Ok(_) => None,
            Err(CaptureError::Refused(refusal)) => Some(refusal),
            Err(CaptureError::Failed(e)) => panic!("{e}"),
        }
    }

    #[test]
    fn signed_connections_stay() {
        need_root!();
        // `struct tcp_md5sig`: address, flags, length of the key, the key.
        let mut key = vec![0; 216];
        key[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        key[4..8].copy_from_slice(&[127, 0, 0, 1]);
        key[130..132].copy_from_slice(&3u16.to_ne_bytes());
        key[136..139].copy_from_slice(b"key");
        let (ours, _peer) = pair();
        assert_eq!(refusal(&ours), None);
        match sys::set(ours.as_fd(), libc::IPPROTO_TCP, libc::TCP_MD5SIG, &key) {
            Ok(()) => assert_eq!(refusal(&ours), Some(Refusal::Signed)),
            Err(e) => note_skip!("no TCP-MD5 here: {e}"),
        }
    }

    #[test]
    fn connections_with_a_filter_of_the_program_stay() {
        need_root!();
        need_program!("clang");
        // `ret 0xffff`: passes everything.
        let classic = [[0x06, 0xffff]];
        let (ours, _peer) = pair();
        sys::attach_filter(ours.as_fd(), &classic).unwrap();
        assert_eq!(refusal(&ours), Some(Refusal::SocketFilter), "a classic filter");
        sys::set_int(ours.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0).unwrap();
        assert_eq!(refusal(&ours), None);
        let mut programs = Programs::load();
        programs.on_socket(ours.as_fd());
        assert_eq!(refusal(&ours), Some(Refusal::SocketFilter), "an extended filter");
        sys::set_int(ours.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0).unwrap();
        assert_eq!(refusal(&ours), None);
        // This one cannot be removed, and no other can be attached.
        sys::set_int(ours.as_fd(), libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1).unwrap();
        assert_eq!(refusal(&ours), None);
        let (locked, _peer) = pair();
        sys::attach_filter(locked.as_fd(), &classic).unwrap();
        sys::set_int(locked.as_fd(), libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1).unwrap();
        assert_eq!(refusal(&locked), Some(Refusal::SocketFilter), "a locked filter");
    }

    #[test]
    fn connections_with_kernel_tls_stay() {
        need_root!();
        let (ours, _peer) = pair();
        match sys::set(ours.as_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, b"tls") {
            Ok(()) => assert_eq!(refusal(&ours), Some(Refusal::UpperProtocol)),
            Err(e) => note_skip!("no kernel TLS here: {e}"),
        }
    }
}
