//! Answers that leave together.
//!
//! A thread that was told of several connections at a time is about to write to several. Where
//! its engine runs in this program, each of these writes would be a turn of the engine; so
//! they wait for each other:
//!
//! ```text
//!   epoll_wait gives 3    begin(3)
//!   read, write           waits
//!   read, write           waits
//!   read, write           three writes: all are sent, in one turn
//! ```
//!
//! A batch ends with as many writes as connections were told of, or [`MOST`] of them; with
//! one that is large; and whenever the thread waits or looks again. One connection at a time
//! is no batch. Should none of these come, the library's thread sends what waits, a few
//! milliseconds late.

use std::cell::Cell;

/// Writes that wait for each other at most: who is answered first waits for the last.
const MOST: usize = 8;

/// A write of so many bytes waits for none.
const LARGE: usize = 16 << 10;

thread_local! {
    /// Writes until this thread's batch is whole; 0 if there is none.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    /// Connections that were told of, and not counted for a batch yet.
    static MORE: Cell<usize> = const { Cell::new(0) };
}

/// This thread was told of so many connections.
pub fn begin(connections: usize) {
    let now = connections.min(MOST);
    let _ = LEFT.try_with(|left| left.set(if connections > 1 { now } else { 0 }));
    let _ = MORE.try_with(|more| more.set(connections - now));
}

/// This thread waits, or is about to; true if writes may wait still.
pub(super) fn end() -> bool {
    let open = is_open();
    begin(0);
    open
}

/// It has written so many bytes.
pub(super) fn wrote(bytes: usize) {
    if bytes >= LARGE {
        return begin(0);
    }
    let _ = LEFT.try_with(|left| left.set(left.get().saturating_sub(1)));
}

/// The batch was sent: the next one begins, if more is to come.
pub(super) fn sent() {
    let _ = MORE.try_with(|more| {
        if more.get() > 0 {
            begin(more.get());
        }
    });
}

/// True while this thread's writes wait.
#[inline]
pub(super) fn is_open() -> bool {
    LEFT.try_with(Cell::get).unwrap_or(0) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes until one is sent.
    fn until_sent() -> usize {
        (1..100)
            .find(|_| {
                wrote(10);
                !is_open()
            })
            .unwrap()
    }

    #[test]
    fn as_many_writes_wait_as_connections_were_told_of() {
        begin(1);
        assert!(!is_open());
        assert_eq!(until_sent(), 1);
        begin(3);
        assert_eq!((is_open(), until_sent()), (true, 3));
        sent();
        assert_eq!(until_sent(), 1, "the batch was whole");
        // A large one is answered in several.
        begin(2 * MOST + 2);
        for expected in [MOST, MOST, 2, 1] {
            assert_eq!(until_sent(), expected);
            sent();
        }
    }

    #[test]
    fn a_large_write_and_a_wait_end_a_batch() {
        begin(MOST);
        wrote(LARGE);
        assert!(!is_open());
        begin(2 * MOST);
        end();
        sent();
        assert!(!is_open(), "nor does another begin");
    }
}
