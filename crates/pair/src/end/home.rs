//! The bytes that a program keeps when its connection's pair goes home.

use super::End;
use crate::peer::Fault;

impl End {
    /// The bytes written from a position on, when the pair goes home: the kernel gets them. None was written
    /// over, since a pair that has stopped gets at most the write that was under way.
    pub fn written_since(&self, position: u64) -> Vec<u8> {
        let count = self.written.saturating_sub(position).min(self.area());
        let mut bytes = vec![0; count as usize];
        let offset = ((self.written - count).wrapping_sub(self.origin) & (self.area() - 1)) as u32;
        let first = bytes.len().min((self.area() - u64::from(offset)) as usize);
        self.shared.ours.copy_out(self.slot, offset, &mut bytes[..first]);
        self.shared.ours.copy_out(self.slot, 0, &mut bytes[first..]);
        bytes
    }

    /// Bytes of the peer that this end has not read, when the connection has ended.
    ///
    /// # Errors
    /// [`Fault`] of the peer.
    pub fn unread(&mut self) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; self.readable()?];
        let count = self.peek(&mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}
