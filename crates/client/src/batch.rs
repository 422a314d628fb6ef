//! Batches: answers that are sent together.
//!
//! A thread that was told of several ready connections is about to write to several of them. If its
//! engine runs in this program, each of those writes would cost one turn of the engine, so they
//! wait for each other:
//!
//! ```text
//!  epoll_wait gives 3    begin(3)
//!  read, write           waits
//!  read, write           waits
//!  read, write           third write: all are sent, in one turn
//! ```
//!
//! A batch ends when the thread has written to each ready connection, has made [`MOST`] writes or
//! one large write, or waits or polls again. A single connection makes no batch.
//! If none of these happens, the library's thread sends the waiting bytes a few milliseconds late.

use std::cell::Cell;

/// Most writes in a batch. The limit bounds how long the first answer waits for the last.
const MOST: usize = 8;

/// Size in bytes from which a write ends the batch at once.
const LARGE: usize = 16 << 10;

thread_local! {
    /// Writes that are missing from this thread's batch; 0 if no batch is open.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    /// Ready connections that belong to later batches.
    static MORE: Cell<usize> = const { Cell::new(0) };
}

/// Starts a batch: this thread was told of `connections` ready connections.
pub fn begin(connections: usize) {
    let now = connections.min(MOST);
    let _ = LEFT.try_with(|left| left.set(if connections > 1 { now } else { 0 }));
    let _ = MORE.try_with(|more| more.set(connections - now));
}

/// Ends the batch, because this thread waits or is about to. Returns true if a batch was open.
pub(super) fn end() -> bool {
    let open = is_open();
    begin(0);
    open
}

/// Counts a write of `bytes` bytes.
pub(super) fn wrote(bytes: usize) {
    if bytes >= LARGE {
        return begin(0);
    }
    let _ = LEFT.try_with(|left| left.set(left.get().saturating_sub(1)));
}

/// The batch was sent. Starts the next one if ready connections remain.
pub(super) fn sent() {
    let _ = MORE.try_with(|more| {
        if more.get() > 0 {
            begin(more.get());
        }
    });
}

/// True while this thread's writes are held back.
#[inline]
pub(super) fn is_open() -> bool {
    LEFT.try_with(Cell::get).unwrap_or(0) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the writes until a batch is sent.
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
        assert_eq!(until_sent(), 1, "the batch was complete, so the next write is sent at once");
        // More ready connections than `MOST` are answered in several batches.
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
        assert!(!is_open(), "no further batch begins");
    }
}
