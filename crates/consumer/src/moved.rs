//! What arrives with a connection that moves here, and what is left behind by one that leaves.

/// An expected connection. The number is the token of the engine's `Adopt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Adoption(pub u64);

/// Bytes that a moved connection left here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftBehind {
    /// Written bytes that the new location does not have: to be written there.
    pub unsent: Vec<u8>,
    /// Received bytes that were not read: to be read before those of the new location.
    pub unread: Vec<u8>,
    /// True if the program has shut down sending, whether or not the engine knows.
    pub shut: bool,
}

/// Bytes that a connection left here before its new location is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remains {
    /// Stream position of the first byte of `left.unsent`, in bytes.
    pub from: u64,
    /// All bytes that the peer has not acknowledged and all that were not read.
    pub left: LeftBehind,
}

impl Remains {
    /// Returns these bytes without the part of the send queue that the new location has, up to
    /// `tail_pos`.
    pub fn beyond(mut self, tail_pos: u64) -> LeftBehind {
        let known = tail_pos.saturating_sub(self.from).min(self.left.unsent.len() as u64);
        self.left.unsent.drain(..known as usize);
        self.left
    }
}

/// The queues of an arriving connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Brought {
    /// The send queue: bytes starting at `snd_una`, sent or not.
    pub send: Vec<u8>,
    /// The receive queue: unread bytes before `rcv_nxt`.
    pub unread: Vec<u8>,
    /// True if this side has shut down sending: a FIN follows the send queue, sent or not.
    pub shut: bool,
}
