//! The two queues of a moving connection, transported in a memory file.

use baton_consumer::adoption::Brought;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::pread;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

/// Largest queue in bytes. The broker never announces more.
pub const QUEUE_MAX: u32 = 64 << 20;

/// Reads the bytes of two queues, stored one after the other, from a file.
///
/// # Errors
/// `InvalidData` if they are too long, `UnexpectedEof` if the file is shorter.
pub fn read_two(file: Option<OwnedFd>, first: u32, second: u32) -> io::Result<(Vec<u8>, Vec<u8>)> {
    if first.max(second) > QUEUE_MAX {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; first as usize + second as usize];
    let mut done = 0;
    while done < bytes.len() {
        let file = file.as_ref().ok_or(ErrorKind::UnexpectedEof)?;
        match pread(file, &mut bytes[done..], done as u64)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    let second = bytes.split_off(first as usize);
    Ok((bytes, second))
}

/// Reads a connection's two queues.
///
/// # Errors
/// Those of [`read_two`].
pub fn read_queues(file: Option<OwnedFd>, send: u32, unread: u32, shut: bool) -> io::Result<Brought> {
    let (send, unread) = read_two(file, send, unread)?;
    Ok(Brought { send, unread, shut })
}

/// Writes the bytes of two queues, one after the other, to a new file; `None` if both are empty.
///
/// # Errors
/// Those of `memfd_create(2)`.
pub fn write_queues(first: &[u8], second: &[u8]) -> io::Result<Option<OwnedFd>> {
    if first.is_empty() && second.is_empty() {
        return Ok(None);
    }
    let file = memfd_create("baton-queues", MemfdFlags::CLOEXEC)?;
    for mut bytes in [first, second] {
        while !bytes.is_empty() {
            let count = rustix::io::write(&file, bytes)?;
            bytes = &bytes[count..];
        }
    }
    Ok(Some(file))
}
