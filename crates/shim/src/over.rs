//! A connection that ended before it could be brought home: what was not read.

use crate::table::locked;
use baton_client::Stream;
use std::collections::VecDeque;
use std::io::Read;
use std::sync::Mutex;

/// See the file's head.
#[derive(Default)]
pub struct Over {
    unread: Mutex<VecDeque<u8>>,
}

impl Over {
    /// What an ended stream still holds.
    pub fn of(mut stream: &Stream) -> Over {
        let (mut unread, mut some) = (VecDeque::new(), vec![0; 1 << 16]);
        while let Ok(count @ 1..) = stream.read(&mut some) {
            unread.extend(&some[..count]);
        }
        Over { unread: Mutex::new(unread) }
    }

    /// Reads, or only copies.
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

    /// Bytes that are there.
    pub fn len(&self) -> usize {
        locked(&self.unread).len()
    }
}
