//! Points of time of watched connections, over an in-memory wire.

use crate::host::Pair;
use baton_consumer::consumer::Conn;
use baton_consumer::memory::{SharedWatch, WatchReader};
use baton_latency::{Direction, Layer, Table, WatchMemory};
use baton_port::memory::MemoryOptions;
use std::os::fd::AsFd;
use std::time::Duration;

/// Sends `count` messages of `size` bytes from `a` to `b`. `before`: what happens before `b` polls, and before
/// it reads.
fn send(pair: &mut Pair, conns: (Conn, Conn), count: usize, size: usize, before_read: impl Fn()) {
    let (mut buf, message) = (vec![0; size], vec![7; size]);
    for _ in 0..count {
        assert_eq!(pair.a.write(conns.0, &message).unwrap(), size);
        let mut got = 0;
        while got < size {
            pair.step();
            before_read();
            while let Ok(more @ 1..) = pair.b.read(conns.1, &mut buf) {
                got += more;
            }
        }
        // The acknowledgment.
        pair.step();
    }
}

fn between(table: &Table, direction: Direction) -> f64 {
    table.rows(direction).iter().find(|row| row.name == "between").expect("a row").share
}

#[test]
fn the_layers_and_what_lies_between_come_to_the_whole() {
    for size in [64, 1000, 20_000] {
        let mut pair = Pair::new(MemoryOptions::default());
        let conns = pair.connect();
        let (sender, receiver) = (WatchMemory::heap(), WatchMemory::heap());
        pair.a.watch(sender.clone());
        pair.b.watch(receiver.clone());
        pair.a.watch_connection(conns.0).unwrap();
        pair.b.watch_all().unwrap();
        send(&mut pair, conns, 500, size, || {});
        assert_eq!((sender.missed(), receiver.missed()), (0, 0), "{size} bytes");

        let table = sender.all();
        let whole = table.layer(Layer::Transmit);
        assert_eq!(whole.count, 500, "{size} bytes");
        for layer in [Layer::Write, Layer::SendQueue, Layer::Segment, Layer::SegmentCopy, Layer::SendDevice] {
            assert_eq!(table.layer(layer).count, 500, "{} of {size} bytes", layer.name());
        }
        let share = between(&table, Direction::Transmit);
        assert!((0.0..0.5).contains(&share), "{share} of sending {size} bytes is in no layer");
        assert!(table.layer(Layer::SegmentCopy).sum < table.layer(Layer::Segment).sum);
        assert!(whole.count > 0 && table.rows(Direction::Receive).is_empty());

        let table = receiver.all();
        let runs = table.layer(Layer::Receive).count;
        assert!((500..=500 * 20).contains(&runs), "{runs} of {size} bytes");
        let parts = [Layer::Parse, Layer::Lookup, Layer::Place, Layer::Tell, Layer::WakeUp, Layer::Read, Layer::Stack];
        for layer in parts {
            assert_eq!(table.layer(layer).count, runs, "{} of {size} bytes", layer.name());
        }
        assert!(table.layer(Layer::DecideBeside).count >= runs);
        let share = between(&table, Direction::Receive);
        assert!((0.0..0.5).contains(&share), "{share} of receiving {size} bytes is in no layer");
    }
}
