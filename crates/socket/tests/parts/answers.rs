//! The time from the first call that sends since the last answer, to the call that gets the next bytes.

use crate::host::Pair;
use baton_consumer::consumer::Conn;
use baton_latency::{Layer, WatchMemory};
use baton_port::memory::{MemoryOptions, MemoryPort};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// The time that an answer takes, at least.
const SLOW: Duration = Duration::from_millis(20);

/// A connection that is watched at both ends.
struct Talk {
    pair: Pair<MemoryPort>,
    conns: (Conn, Conn),
    memories: [Arc<WatchMemory>; 2],
}

impl Talk {
    fn new() -> Talk {
        let mut pair = Pair::new(MemoryOptions::default());
        let memories = [WatchMemory::heap(), WatchMemory::heap()];
        pair.a.watch(memories[0].clone());
        pair.b.watch(memories[1].clone());
        let conns = pair.connect();
        pair.a.watch_connection(conns.0).unwrap();
        pair.b.watch_connection(conns.1).unwrap();
        Talk { pair, conns, memories }
    }

    fn there(&mut self) {
        assert_eq!(self.pair.a.write(self.conns.0, b"ping").unwrap(), 4);
        while self.pair.b.read(self.conns.1, &mut [0; 4]).is_err() {
            self.pair.step();
        }
    }

    fn back(&mut self) {
        assert_eq!(self.pair.b.write(self.conns.1, b"pong").unwrap(), 4);
        while self.pair.a.read(self.conns.0, &mut [0; 4]).is_err() {
            self.pair.step();
        }
    }

    /// The number of answers that each end got.
    fn answers(&self) -> [u64; 2] {
        self.memories.each_ref().map(|memory| memory.all().layer(Layer::Answer).count)
    }
}

#[test]
fn an_answer_counts_from_the_first_call_that_sends() {
    let mut talk = Talk::new();
    talk.there();
    sleep(SLOW);
    talk.there();
    assert_eq!(talk.answers(), [0, 0], "nobody was answered");
    assert!(talk.pair.a.read(talk.conns.0, &mut [0; 4]).is_err(), "there is nothing to read yet");
    talk.back();
    assert_eq!(talk.answers(), [1, 0], "two requests have one answer");
    let took = talk.memories[0].all().layer(Layer::Answer).longest;
    assert!(u128::from(took) >= SLOW.as_nanos(), "{took} ns");
    talk.back();
    assert_eq!(talk.answers(), [1, 0], "what comes unasked is no answer");
    talk.there();
    assert_eq!(talk.answers(), [1, 1], "the next request answers what was sent before");
}
