//! The cost of the parts beneath Streamer and TCE, on one thread, with one connection and with
//! a million.
//!
//! `cargo bench -p baton-engine --bench parts`.

use baton_engine::flow_table::FlowTable;
use baton_engine::region::{ConsumerRegion, EngineRegion, Events, Layout, Queue, Region};
use baton_engine::ring::ring;
use baton_engine::wheel::Wheel;
use baton_tcp::time::{Duration, Instant};
use baton_testkit::rounds::{Effort, Rounds};
use baton_wire::addr::{Addr, Tuple};
use std::hint::black_box;

const BURST: usize = 64;
const MILLION: u32 = 1_000_000;

fn main() {
    let effort = Effort::asked();
    rings(effort);
    flows(effort);
    timers(effort);
    regions(effort);
}

/// Scattered numbers, the same in every run.
fn scattered(count: usize, below: u32) -> Vec<u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (((state >> 32) * u64::from(below)) >> 32) as u32
    };
    (0..count).map(|_| next()).collect()
}

fn rings(effort: Effort) {
    let bursts = effort.pick(1000, 10);
    let mut set = Rounds::new("ring, a value in and out", bursts * BURST);
    let (mut producer, mut consumer) = ring::<u64>(256);
    set.add("8 bytes, push and pop, one at a time", move || {
        for value in 0..(bursts * BURST) as u64 {
            let _ = producer.push(black_box(value));
            black_box(consumer.pop());
        }
    });
    let (mut producer, mut consumer) = ring::<u64>(256);
    set.add("8 bytes, 64 pushed, 64 popped", move || {
        for _ in 0..bursts {
            for value in 0..BURST as u64 {
                let _ = producer.push(black_box(value));
            }
            while let Some(value) = consumer.pop() {
                black_box(value);
            }
        }
    });
    let (mut producer, mut consumer) = ring::<[u64; 4]>(256);
    set.add("32 bytes, 64 staged, taken as a batch", move || {
        for _ in 0..bursts {
            for value in 0..BURST as u64 {
                let value = black_box(value);
                let _ = producer.stage([value, !value, value + 1, 7]);
            }
            producer.publish();
            loop {
                let batch = consumer.batch();
                let count = batch.len();
                black_box(batch.iter().fold(0, |sum, value| sum ^ value[0] ^ value[3]));
                if count == 0 {
                    break;
                }
                consumer.advance(count);
            }
        }
    });
    set.run(effort.rounds(301));
    set.report();
}

fn tuple(number: u32, v6: bool) -> Tuple {
    let (local, remote) = if v6 {
        (Addr(0xfd00 << 112 | 1), Addr(0xfd00 << 112 | u128::from(number >> 14) << 64 | 2))
    } else {
        (Addr::v4([10, 77, 0, 2]), Addr(Addr::v4([10, 0, 0, 0]).0 + u128::from(number >> 14)))
    };
    Tuple { local, remote, local_port: 80, remote_port: 40_000 + (number & 0x3fff) as u16 }
}

fn flows(effort: Effort) {
    let bursts = effort.pick(1000, 10);
    let mut set = Rounds::new("flow table, a lookup", bursts * BURST);
    let conns = effort.pick(MILLION, 1000);
    let key = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
    for v6 in [false, true] {
        let table = FlowTable::new(1, key);
        let tuples: Vec<Tuple> = (0..BURST as u32).map(|number| tuple(number, v6)).collect();
        set.add(if v6 { "hash alone, IPv6" } else { "hash alone, IPv4" }, move || {
            for _ in 0..bursts {
                for tuple in black_box(&tuples) {
                    black_box(table.hash(tuple));
                }
            }
        });
    }
    for count in [1, conns] {
        let mut table = FlowTable::new(count, key);
        let tuples: Vec<Tuple> = (0..count).map(|number| tuple(number, false)).collect();
        for (number, tuple) in tuples.iter().enumerate() {
            table.insert(table.hash(tuple), number as u32).expect("room for all");
        }
        let wanted: Vec<Tuple> =
            scattered(bursts * BURST, count).into_iter().map(|number| tuples[number as usize]).collect();
        // The compare of tuples is left out: it costs the context's line, which
        // the packet needs anyhow.
        set.add(format!("hash, prefetch, lookup in bursts, {count} connections"), move || {
            for burst in wanted.chunks(BURST) {
                let mut hashes = [0; BURST];
                for (hash, tuple) in hashes.iter_mut().zip(burst) {
                    *hash = table.hash(tuple);
                    table.prefetch(*hash);
                }
                for hash in hashes {
                    black_box(table.lookup(hash, |_| true));
                }
            }
        });
    }
    set.run(effort.rounds(101));
    set.report();
}

fn timers(effort: Effort) {
    let arms = effort.pick(64_000, 100);
    let mut set = Rounds::new("timer wheel, a timer", arms);
    for count in [1, effort.pick(MILLION, 1000)] {
        let mut wheel = Wheel::new(count, Instant(0));
        (0..count).for_each(|id| wheel.arm(id, Instant(0) + Duration::from_millis(u64::from(id % 7919))));
        let (ids, spans) = (scattered(arms, count), scattered(arms, 1_000_000_000));
        set.add(format!("arm again at random, {count} armed"), move || {
            for (&id, &span) in ids.iter().zip(&spans) {
                wheel.arm(id, Instant(u64::from(span)));
            }
        });
    }
    let spans = scattered(arms, 1_000_000_000);
    let (mut wheel, mut now) = (Wheel::new(arms as u32, Instant(0)), 0);
    set.add("arm within 1 s, then let fire", move || {
        for (id, &span) in spans.iter().enumerate() {
            wheel.arm(id as u32, Instant(now + u64::from(span)));
        }
        let end = now + 1_001_000_000;
        while now < end {
            now += 1_000_000;
            while wheel.expire(Instant(now), &mut |id| {
                black_box(id);
            }) {}
        }
    });
    set.run(effort.rounds(51));
    set.report();
}

fn regions(effort: Effort) {
    let steps = effort.pick(64_000, 100);
    let mut set = Rounds::new("consumer's region, an operation of both sides", steps);
    let layout = Layout { qps: 16, queue_depth: 4, requests: 64, data_bytes: 1 << 20 };
    let pair = || {
        let region = Region::heap(layout).expect("a layout that can be");
        (EngineRegion::new(region.clone()), ConsumerRegion::new(region))
    };
    let (engine, consumer) = pair();
    set.add("doorbell rung and taken", move || {
        for step in 0..steps as u32 {
            consumer.ring_doorbell(step % 16);
            black_box(engine.pop_doorbell());
        }
    });
    let (engine, consumer) = pair();
    set.add("event raised and its completion taken", move || {
        for step in 0..steps as u32 {
            engine.qp(step % 16).raise(Events::RECV);
            black_box(consumer.poll_completion());
        }
    });
    let (_, consumer) = pair();
    set.add("asking whether the engine sleeps", move || {
        for _ in 0..steps {
            black_box(consumer.must_wake_engine());
        }
    });
    let (engine, consumer) = pair();
    let whole = consumer.extent(0, 1 << 20).expect("within the data area");
    consumer.qp(3).post(Queue::Receive, 0, 0, whole).expect("an empty queue");
    set.add("cursors read, extent read and checked", move || {
        for step in 0..steps as u32 {
            let qp = engine.qp(3);
            black_box(qp.rcv_limit());
            black_box(qp.rq_tail());
            black_box(qp.rq_extent(step));
        }
    });
    let (engine, consumer) = pair();
    let bytes = vec![7; 1448];
    let place = consumer.extent(4096, 1448).expect("within the data area");
    set.add("1448 bytes copied in and summed, hot", move || {
        for _ in 0..steps {
            black_box(engine.copy_in_sum(place, black_box(&bytes)));
        }
    });
    set.run(effort.rounds(101));
    set.report();
}
