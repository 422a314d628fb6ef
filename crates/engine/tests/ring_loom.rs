//! Every interleaving of a short life of the ring, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p baton-engine --lib --test ring_loom under_loom`.
#![cfg(loom)]

use baton_engine::ring::ring;
use loom::thread;

#[test]
fn under_loom_pushed_values_are_popped_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::<u32>(2);
        let sender = thread::spawn(move || {
            for value in 0..3 {
                while producer.push(value).is_err() {
                    thread::yield_now();
                }
            }
        });
        for expected in 0..3 {
            let value = loop {
                match consumer.pop() {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(value, expected);
        }
        sender.join().unwrap();
        assert_eq!(consumer.pop(), None);
    });
}

#[test]
fn under_loom_staged_values_are_seen_whole_in_batches() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring::<u32>(2);
        let sender = thread::spawn(move || {
            for value in 0..3 {
                while producer.stage(value).is_err() {
                    producer.publish();
                    thread::yield_now();
                }
            }
            producer.publish();
        });
        let mut expected = 0;
        while expected < 3 {
            let batch = consumer.batch();
            if batch.is_empty() {
                thread::yield_now();
                continue;
            }
            for value in batch {
                assert_eq!(*value, expected);
                expected += 1;
            }
            let count = batch.len();
            consumer.advance(count);
        }
        sender.join().unwrap();
    });
}
