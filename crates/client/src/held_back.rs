//! State of written bytes that are held back for more; see [`cork`](super::cork).

use std::time::Instant;

/// The state of one connection's held-back bytes.
#[derive(Debug, Default)]
pub(super) struct Cork {
    pub on: bool,
    pub bytes: usize,
    pub since: Option<Instant>,
    /// The `TCP_NODELAY` value that the engine was last told.
    pub nodelay: Option<bool>,
    /// The engine must be told that `TCP_NODELAY` is off before the next bytes are sent.
    pub delays: bool,
}

/// When the thread next looks for bytes that were held back too long.
#[derive(Debug, Default)]
pub(super) struct Corks {
    pub at: Option<Instant>,
    /// Bytes have been held back since the last look.
    pub news: bool,
}

impl Cork {
    /// Notes that no bytes are held back any more.
    pub fn let_go(&mut self) {
        (self.bytes, self.since) = (0, None);
    }
}
