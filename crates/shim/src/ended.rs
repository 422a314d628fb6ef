//! A connection that ended while it was in an engine: the bytes that the program has not read.

use crate::locks::locked;
use baton_client::Stream;
use std::collections::VecDeque;
use std::io::Read;
use std::sync::Mutex;

/// The unread bytes of an ended connection.
#[derive(Default)]
pub struct Ended {
    unread: Mutex<VecDeque<u8>>,
}

impl Ended {
    /// Takes the unread bytes out of an ended stream.
    pub fn of(mut stream: &Stream) -> Ended {
        let (mut unread, mut some) = (VecDeque::new(), vec![0; 1 << 16]);
        while let Ok(count @ 1..) = stream.read(&mut some) {
            unread.extend(&some[..count]);
        }
        Ended { unread: Mutex::new(unread) }
    }

    /// Moves unread bytes into `buf`, or only copies them if `peek` is set. Returns how many.
    pub fn read(&self, buf: &mut [u8], peek: bool) -> usize {
        let mut unread = locked(&self.unread);
        let count = unread.len().min(buf.len());
        let (front, back) = unread.as_slices();
        let first = front.len().min(count);
        buf[..first].copy_from_slice(&front[..first]);
        buf[first..count].copy_from_slice(&back[..count - first]);
        if !peek {
            unread.drain(..count);
        }
        count
    }

    /// The number of unread bytes.
    pub fn len(&self) -> usize {
        locked(&self.unread).len()
    }
}
