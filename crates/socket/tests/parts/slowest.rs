//! The slowest messages of watched connections, and connections of which one message in so many is recorded, each
//! with spans of its own.

use crate::host::Pair;
use baton_consumer::consumer::Conn;
use baton_latency::{Direction, Exemplar, KEPT, Layer, Recorded, Table, WatchMemory};
use baton_port::memory::{MemoryOptions, MemoryPort};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// The bytes of a message.
const SIZE: usize = 100;
/// How long a slow layer takes: many times what the others take together, also on a busy machine.
const SLOW: Duration = Duration::from_millis(20);

/// The layer that is slow, if one is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slow {
    Nothing,
    SendQueue,
    WakeUp,
}

/// Two hosts with a connection between them.
struct Way {
    pair: Pair<MemoryPort>,
    conns: (Conn, Conn),
    memories: [Arc<WatchMemory>; 2],
}

impl Way {
    fn new() -> Way {
        let mut pair = Pair::new(MemoryOptions::default());
        let memories = [WatchMemory::heap(), WatchMemory::heap()];
        pair.a.watch(memories[0].clone());
        pair.b.watch(memories[1].clone());
        let conns = pair.connect();
        Way { pair, conns, memories }
    }

    fn send(&mut self, slow: Slow) {
        let wait = |layer| {
            if slow == layer {
                sleep(SLOW)
            }
        };
        assert_eq!(self.pair.a.write(self.conns.0, &[7; SIZE]).unwrap(), SIZE);
        wait(Slow::SendQueue);
        self.pair.step();
        wait(Slow::WakeUp);
        let mut got = 0;
        while got < SIZE {
            match self.pair.b.read(self.conns.1, &mut [0; SIZE]) {
                Ok(more) => got += more,
                Err(_) => self.pair.step(),
            }
        }
        self.pair.step();
    }

    /// The slowest messages that were sent, and that came.
    fn slowest(&self) -> [Vec<Exemplar>; 2] {
        let of = |at: usize, way: Direction| self.memories[at].slot(0).unwrap().slowest(way).read(way);
        [of(0, Direction::Transmit), of(1, Direction::Receive)]
    }

    /// The times of the one connection, where it sends and where it receives.
    fn tables(&self) -> [Table; 2] {
        self.memories.each_ref().map(|memory| memory.slot(0).unwrap().table())
    }
}

/// The layer in which a message spent most time.
fn most(message: &Exemplar) -> Layer {
    message.layers().max_by_key(|(_, ns)| *ns).unwrap().0
}

#[test]
fn the_slowest_messages_are_kept_with_their_slow_layers() {
    let mut way = Way::new();
    way.pair.a.watch_connection(way.conns.0).unwrap();
    way.pair.b.watch_connection(way.conns.1).unwrap();
    let is_slow = [(5, Slow::SendQueue), (17, Slow::WakeUp), (23, Slow::WakeUp)];
    for n in 0..40 {
        let slow = is_slow.iter().find(|(at, _)| *at == n).map_or(Slow::Nothing, |(_, layer)| *layer);
        way.send(slow);
    }
    let slowest = way.slowest();
    for (kept, table) in slowest.iter().zip(way.tables()) {
        assert_eq!(kept.len(), KEPT);
        assert!(kept.is_sorted_by(|a, b| a.whole >= b.whole));
        let whole = table.layer(Layer::whole(kept[0].direction));
        assert_eq!((whole.count, whole.longest), (40, kept[0].whole));
        for message in kept {
            let parts: u64 = message.layers().map(|(_, ns)| ns).sum();
            assert_eq!(parts + message.between(), message.whole, "{message:?}");
        }
    }
    let slow = |at: usize| slowest[at].iter().take_while(|it| it.whole >= SLOW.as_nanos() as u64).collect::<Vec<_>>();
    let (sent, came) = (slow(0), slow(1));
    assert!(sent.iter().any(|it| most(it) == Layer::SendQueue), "{sent:?}");
    let woken: Vec<_> = came.iter().filter(|it| most(it) == Layer::WakeUp).collect();
    assert!(woken.len() >= 2, "{came:?}");
    // The numbers of their last bytes say which they were.
    let first = sent.iter().find(|it| most(it) == Layer::SendQueue).unwrap();
    let ends = [11, 17].map(|later| first.end.wrapping_add(later * SIZE as u32 + SIZE as u32));
    assert!(ends.iter().all(|end| woken.iter().any(|it| it.end == *end)), "{ends:?} of {came:?}");
    assert!(sent.iter().chain(&came).all(|it| it.begun > 0));
}

#[test]
fn a_slot_forgets_the_slowest_of_the_connection_before() {
    let mut way = Way::new();
    way.pair.a.watch_connection(way.conns.0).unwrap();
    (0..20).for_each(|_| way.send(Slow::Nothing));
    assert_eq!(way.slowest()[0].len(), KEPT);
    let memory = way.memories[0].clone();
    let ends = memory.slot(0).unwrap().ends();
    memory.take_back(0);
    assert_eq!(way.slowest()[0].len(), KEPT, "they stay until another has the slot");
    memory.give(0, 9, ends.0, ends.1, Recorded::Wholly);
    assert_eq!(way.slowest()[0], []);
}

#[test]
fn some_messages_of_each_stand_for_all_of_it() {
    const ONE_IN: u32 = 8;
    let mut way = Way::new();
    way.pair.a.watch_each(ONE_IN).unwrap();
    way.pair.b.watch_each(ONE_IN).unwrap();
    let counts = |way: &Way| {
        let tables = way.tables();
        [tables[0].layer(Layer::Transmit).count, tables[1].layer(Layer::Receive).count]
    };
    (0..4000).for_each(|_| way.send(Slow::Nothing));
    let sampled = counts(&way);
    for count in sampled {
        assert!(count.abs_diff(4000) < 4000 / 6 && count.is_multiple_of(ONE_IN.into()), "{count} for 4000");
    }
    assert_eq!(way.memories[1].all(), way.tables()[1]);
    assert_eq!(way.slowest().map(|kept| kept.len()), [KEPT; 2]);

    // Another observer wants every message, and goes again.
    let host_wants = |way: &mut Way, one_in| {
        way.pair.a.watch_each(one_in).unwrap();
        way.pair.b.watch_each(one_in).unwrap();
    };
    host_wants(&mut way, 1);
    (0..100).for_each(|_| way.send(Slow::Nothing));
    assert_eq!(counts(&way), sampled.map(|count| count + 100));
    host_wants(&mut way, ONE_IN);
    (0..4000).for_each(|_| way.send(Slow::Nothing));
    for (count, before) in counts(&way).into_iter().zip(sampled) {
        assert!((count - before - 100).abs_diff(4000) < 4000 / 6, "{count} after {before}");
    }
    assert_eq!(way.memories.each_ref().map(|memory| memory.missed()), [0; 2]);
}
