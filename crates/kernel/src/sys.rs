//! Raw system calls for socket options and queue lengths, and for opening pinned BPF objects.
//!
//! Invariants: the kernel gets pointers to live buffers with their true lengths, and reads or
//! writes no more than these. Each descriptor that it returns has one owner. Everything else about
//! sockets goes through `rustix`, and about BPF through `aya`.

pub(crate) mod bpf;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `asm-generic/socket.h`: the index of the device that a socket is bound to, or 0.
pub(crate) const SO_BINDTOIFINDEX: i32 = 62;

/// `asm-generic/socket.h`: an id of the socket's network namespace.
const SO_NETNS_COOKIE: i32 = 71;

/// The id of a socket's network namespace.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn network(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut value = [0; 8];
    get(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut value)?;
    Ok(u64::from_ne_bytes(value))
}

/// `linux/sockios.h`: opens the network namespace of a socket.
const SIOCGSKNS: libc::Ioctl = 0x894c as libc::Ioctl;
/// `linux/nsfs.h`: opens the user namespace that a namespace belongs to.
const NS_GET_USERNS: libc::Ioctl = 0xb701 as libc::Ioctl;

/// A socket's network namespace.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over it.
pub(crate) fn network_namespace(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_by(socket, SIOCGSKNS)
}

/// The user namespace that a namespace belongs to.
///
/// # Errors
/// `EPERM` if it is neither this process's nor below it.
pub(crate) fn owning_namespace(namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_by(namespace, NS_GET_USERNS)
}

/// A request whose result is a descriptor (closed on exec, as `open_related_ns()` makes it).
fn open_by(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<OwnedFd> {
    // SAFETY: neither of the two requests has an argument.
    let opened = unsafe { libc::ioctl(fd.as_raw_fd(), request) };
    check(opened)?;
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

fn check(n: i32) -> io::Result<()> {
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `getsockopt(2)` into `value`. Returns the number of bytes that the kernel wrote.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn get(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    #[cfg(test)]
    fault::strike()?;
    let mut len = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `value` is valid for writes of `len` bytes, and `len` for both, during
    // the call; the kernel writes at most `len` bytes.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut len) })?;
    Ok(len as usize)
}

/// `setsockopt(2)` from `value`.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    #[cfg(test)]
    fault::strike()?;
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `value` is valid for reads of `len` bytes during the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), len) })
}

/// `setsockopt(2)` without a value, which removes what was set.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn unset(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<()> {
    // SAFETY: the kernel is told that there are no bytes, and reads none.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::null(), 0) })
}

/// [`get`] of an `int`.
pub(crate) fn get_int(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = [0; 4];
    get(fd, level, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

/// [`set`] of an `int`.
pub(crate) fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set(fd, level, name, &value.to_ne_bytes())
}

/// Opens the object pinned at a path (`BPF_OBJ_GET` of bpf(2)).
///
/// # Errors
/// Errors from the system call.
pub(crate) fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    const BPF_OBJ_GET: i32 = 7;
    /// The first members of `union bpf_attr` for that command.
    #[repr(C)]
    struct Attributes {
        path: u64,
        fd: u32,
        flags: u32,
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attributes = Attributes { path: path.as_ptr() as u64, fd: 0, flags: 0 };
    // SAFETY: `attributes` is valid for reads of its size, and `path`, which it points to,
    // a string with its NUL, both during the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_GET, &raw const attributes, size_of::<Attributes>()) };
    check(if fd < 0 { -1 } else { 0 })?;
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A place where BPF programs are attached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AttachedTo<'a> {
    /// A control group, including its ancestors.
    Cgroup(BorrowedFd<'a>),
    /// The interface with this index.
    Interface(u32),
}

/// The ids of the programs that run there, in their order (`BPF_PROG_QUERY` of bpf(2)). `kind` is
/// an attach type of `linux/bpf.h`. Beyond 64 programs, the rest are left out.
///
/// # Errors
/// Errors from the system call; `EINVAL` if the kernel has no such kind.
pub(crate) fn programs_at(place: AttachedTo<'_>, kind: u32) -> io::Result<Vec<u32>> {
    const BPF_PROG_QUERY: i32 = 16;
    const BPF_F_QUERY_EFFECTIVE: u32 = 1;
    /// The part of `union bpf_attr` for that command, up to Linux 6.1.
    #[repr(C)]
    struct Attributes {
        target: u32,
        kind: u32,
        query_flags: u32,
        attach_flags: u32,
        ids: u64,
        count: u32,
        reserved: u32,
    }
    let mut ids = [0u32; 64];
    let (target, query_flags) = match place {
        AttachedTo::Cgroup(fd) => (fd.as_raw_fd() as u32, BPF_F_QUERY_EFFECTIVE),
        AttachedTo::Interface(index) => (index, 0),
    };
    let (room, ids_at) = (ids.len() as u32, ids.as_mut_ptr() as u64);
    let mut attributes =
        Attributes { target, kind, query_flags, attach_flags: 0, ids: ids_at, count: room, reserved: 0 };
    // SAFETY: `attributes` is valid for reads and writes of its size, and `ids`, which it points
    // to, for writes of as many numbers as it says, both during the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut attributes, size_of::<Attributes>()) };
    match check(if done < 0 { -1 } else { 0 }) {
        Err(error) if error.raw_os_error() != Some(libc::ENOSPC) => Err(error),
        _ => Ok(ids[..attributes.count.min(room) as usize].to_vec()),
    }
}

/// The length of one of a socket's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// `SIOCINQ`: received in order and not read, without a FIN.
    Unread,
    /// `SIOCOUTQ`: written and not acknowledged, including a FIN.
    Unacked,
    /// `SIOCOUTQNSD`: written and not sent, including a FIN.
    Unsent,
}

/// `SIOCOUTQNSD` of `linux/sockios.h`.
const SIOCOUTQNSD: libc::Ioctl = 0x894b as libc::Ioctl;

/// The length of a queue, in bytes.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn length(fd: BorrowedFd<'_>, which: Length) -> io::Result<u32> {
    #[cfg(test)]
    fault::strike()?;
    let request = match which {
        Length::Unread => libc::FIONREAD,
        Length::Unacked => libc::TIOCOUTQ,
        Length::Unsent => SIOCOUTQNSD,
    };
    let mut value: libc::c_int = 0;
    // SAFETY: these three requests write one `int` through the pointer, which is valid
    // during the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, &mut value) })?;
    Ok(value.max(0) as u32)
}

/// Moves the calling thread into a new network namespace, which ends with the thread and the
/// sockets that it opened.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn enter_private_network() -> io::Result<()> {
    // SAFETY: `CLONE_NEWNET` changes what sockets the calling thread opens from now on; it
    // shares no memory and no descriptor table anew.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Makes a socket receive nothing (`SO_ATTACH_FILTER` with a program that drops everything), or
/// everything again.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn set_deaf(fd: BorrowedFd<'_>, deaf: bool) -> io::Result<()> {
    if !deaf {
        return set_int(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
    }
    attach_filter(fd, &DROP_ALL)
}

/// Attaches a filter of classic BPF without jumps, given as code and constant of each instruction.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, instructions: &[[u32; 2]]) -> io::Result<()> {
    let instruction = |&[code, k]: &[u32; 2]| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter: Vec<_> = instructions.iter().map(instruction).collect();
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads one `sock_fprog`, and through it as many instructions as it
    // says there are, all of which outlive the call; it copies them.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })
}

/// Classic BPF, as code and constant. Two loads with constants that no program's own filter has
/// identify it; then `ret 0`.
const DROP_ALL: [[u32; 2]; 3] = [[0x00, 0x6261_746f], [0x01, 0x6e00_0000], [0x06, 0]];

/// Which filter a socket has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filter {
    /// None.
    None,
    /// That of [`set_deaf`].
    Deaf,
    /// The program's own.
    Other,
}

/// Returns which filter a socket has.
///
/// # Errors
/// Errors from the system call.
pub(crate) fn filter(fd: BorrowedFd<'_>) -> io::Result<Filter> {
    // The length is in instructions. A length of 0 asks how many there are. The buffer has room for
    // our filter, so reading one with the same count never exceeds it.
    let count = match get(fd, libc::SOL_SOCKET, libc::SO_GET_FILTER, &mut []) {
        Ok(count) => count,
        // An extended BPF filter, which is not ours.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => return Ok(Filter::Other),
        Err(error) => return Err(error),
    };
    if count != DROP_ALL.len() {
        return Ok(if count == 0 { Filter::None } else { Filter::Other });
    }
    let mut code = [0; 8 * DROP_ALL.len()];
    get(fd, libc::SOL_SOCKET, libc::SO_GET_FILTER, &mut code)?;
    let ours = code.chunks_exact(8).zip(DROP_ALL).all(|(instruction, [code, k])| {
        instruction[..2] == (code as u16).to_ne_bytes() && instruction[4..] == k.to_ne_bytes()
    });
    Ok(if ours { Filter::Deaf } else { Filter::Other })
}

/// System calls that fail when a test wants them to.
#[cfg(test)]
pub(crate) mod fault {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static CALLS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Makes one call of this thread fail, after `calls` others.
    pub fn after(calls: u32) {
        CALLS_LEFT.set(Some(calls));
    }

    /// Cancels the fault. Returns true if it had not occurred yet.
    pub fn disarm() -> bool {
        CALLS_LEFT.take().is_some()
    }

    pub fn strike() -> io::Result<()> {
        match CALLS_LEFT.get() {
            None => Ok(()),
            Some(0) => {
                CALLS_LEFT.set(None);
                Err(io::Error::other("an injected fault"))
            }
            Some(left) => {
                CALLS_LEFT.set(Some(left - 1));
                Ok(())
            }
        }
    }
}
