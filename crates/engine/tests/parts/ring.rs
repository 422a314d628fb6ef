//! The ring against a VecDeque, and across threads.

use baton_engine::ring::ring;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Op {
    Push,
    Stage,
    Publish,
    Pop,
    Batch(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Push),
        3 => Just(Op::Stage),
        1 => Just(Op::Publish),
        4 => Just(Op::Pop),
        1 => (0usize..6).prop_map(Op::Batch),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_bounded_queue(capacity in 1usize..9, ops in prop::collection::vec(op(), 0..300)) {
        let (mut producer, mut consumer) = ring::<u32>(capacity);
        prop_assert_eq!(producer.capacity(), capacity.next_power_of_two());
        let (mut staged, mut waiting) = (VecDeque::new(), VecDeque::new());
        let mut high_water = 0;
        for (value, op) in ops.into_iter().enumerate() {
            let value = value as u32;
            let room = staged.len() + waiting.len() < producer.capacity();
            match op {
                Op::Push | Op::Stage => {
                    let push = matches!(op, Op::Push);
                    let result = if push { producer.push(value) } else { producer.stage(value) };
                    prop_assert_eq!(result, if room { Ok(()) } else { Err(value) });
                    if room {
                        staged.push_back(value);
                    }
                    if room && push {
                        waiting.append(&mut staged);
                    }
                }
                Op::Publish => {
                    producer.publish();
                    waiting.append(&mut staged);
                }
                Op::Pop => prop_assert_eq!(consumer.pop(), waiting.pop_front()),
                Op::Batch(take) => {
                    let batch = consumer.batch().to_vec();
                    prop_assert!(batch.len() <= waiting.len());
                    prop_assert_eq!(batch.is_empty(), waiting.is_empty());
                    prop_assert!(batch.iter().eq(waiting.iter().take(batch.len())));
                    let take = take.min(batch.len());
                    consumer.advance(take);
                    waiting.drain(..take);
                }
            }
            prop_assert_eq!(consumer.len(), waiting.len());
            high_water = high_water.max(waiting.len());
            prop_assert_eq!(consumer.high_water(), high_water);
            prop_assert_eq!(producer.free(), producer.capacity() - staged.len() - waiting.len());
        }
    }
}

#[test]
#[should_panic(expected = "never seen")]
fn what_was_not_seen_cannot_be_taken() {
    let (mut producer, mut consumer) = ring::<u8>(4);
    producer.push(1).unwrap();
    consumer.advance(1);
}

#[test]
fn values_cross_threads_once_and_in_order() {
    const COUNT: u64 = if cfg!(miri) { 300 } else { 300_000 };
    let (mut producer, mut consumer) = ring::<u64>(64);
    let sender = std::thread::spawn(move || {
        for value in 0..COUNT {
            while producer.stage(value).is_err() {
                producer.publish();
                std::thread::yield_now();
            }
            if value % 7 == 0 {
                producer.publish();
            }
        }
        producer.publish();
    });
    let mut expected = 0;
    while expected < COUNT {
        let batch = consumer.batch();
        if batch.is_empty() {
            std::thread::yield_now();
            continue;
        }
        for value in batch {
            assert_eq!(*value, expected);
            expected += 1;
        }
        let count = batch.len();
        consumer.advance(count);
    }
    assert_eq!(consumer.pop(), None);
    sender.join().unwrap();
}
