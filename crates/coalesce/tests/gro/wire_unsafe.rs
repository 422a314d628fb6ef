//! A packet socket on one interface: what is written to it leaves the interface as a
//! frame, what is read is a frame that has passed GRO.
//!
//! `unsafe` for two system calls that no crate of ours wraps: `socket` with the
//! family `AF_PACKET`, whose descriptor is owned at once, and `bind` to an address
//! that lives on the stack for as long as the call.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A packet socket (`packet(7)`) of one interface.
pub struct PacketSocket(File);

impl PacketSocket {
    /// On the interface of this name in the current namespace.
    pub fn open(name: &str) -> io::Result<PacketSocket> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: the call takes numbers only; its result is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, i32::from(protocol)) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else has.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let index = rustix::net::netdevice::name_to_index(&fd, name)?;
        // SAFETY: a plain structure, for which zeros are a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let len = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the address is of the length said and outlives the call.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        rustix::net::sockopt::set_socket_timeout(
            &fd,
            rustix::net::sockopt::Timeout::Recv,
            Some(Duration::from_secs(5)),
        )?;
        Ok(PacketSocket(File::from(fd)))
    }

    /// Sends a frame.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.0.write_all(frame)
    }

    /// The next frame, within five seconds.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut frame = vec![0; 70_000];
        let len = self.0.read(&mut frame)?;
        frame.truncate(len);
        Ok(frame)
    }
}
