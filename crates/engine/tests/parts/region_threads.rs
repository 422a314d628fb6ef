//! The two sides of a region on two threads: nothing is lost, nobody sleeps on.

use baton_engine::region::{Completion, ConsumerRegion, EngineRegion, Events, Layout, Queue, Region};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const BYTES: u64 = if cfg!(miri) { 500 } else { 2_000_000 };
const BUFFER: u32 = 4096;

/// The byte at a stream position: a ramp of prime length.
fn ramp(position: u64) -> u8 {
    (position % 251) as u8
}

/// The engine's thread: sends back on queue pair 0 whatever is posted there.
fn echo(engine: &EngineRegion, consumer_thread: &thread::Thread, stop: &AtomicBool) {
    let mut sent = 0;
    let mut bytes = vec![0; BUFFER as usize];
    while !stop.load(Ordering::SeqCst) {
        let Some(qp) = engine.pop_doorbell() else {
            if engine.prepare_sleep() {
                thread::park();
                engine.awake();
            }
            continue;
        };
        let qp = engine.qp(qp);
        let (tail, limit) = (qp.snd_tail(), qp.rcv_limit());
        while sent < tail.min(limit) {
            // Every extent is a lap of BUFFER bytes.
            let (lap, at) = ((sent / u64::from(BUFFER)) as u32, (sent % u64::from(BUFFER)) as u32);
            assert!(lap < qp.sq_tail() && lap < qp.rq_tail(), "posted before the cursors moved");
            let want = (tail.min(limit) - sent).min(u64::from(BUFFER)) as u32;
            let source = qp.sq_extent(lap).expect("as posted").part(at, want);
            let target = qp.rq_extent(lap).expect("as posted").part(at, want);
            let bytes = &mut bytes[..target.len() as usize];
            engine.copy_out(source, bytes);
            engine.copy_in(target, bytes);
            sent += u64::from(target.len());
        }
        qp.set_snd_done(sent);
        qp.set_rcv_done(sent);
        qp.raise(Events::RECV | Events::SEND);
        if engine.must_wake_consumer() {
            consumer_thread.unpark();
        }
    }
}

/// The consumer's cursors of a stream over two ring buffers, posted lap by lap.
struct Stream {
    sent: u64,
    read: u64,
}

fn post_laps(consumer: &ConsumerRegion, queue: Queue, base: u64, done: u64, posted: &mut u32) {
    let qp = consumer.qp(0);
    let lap = consumer.extent(base, BUFFER).unwrap();
    let first = (done / u64::from(BUFFER)) as u32;
    while qp.post(queue, *posted, *posted - first, lap).is_ok() {
        *posted += 1;
    }
}

#[test]
fn a_stream_over_two_threads_that_sleep() {
    let layout = Layout { qps: 1, queue_depth: 2, requests: 1, data_bytes: 2 * u64::from(BUFFER) };
    let region = Region::heap(layout).unwrap();
    let (engine, consumer) = (EngineRegion::new(region.clone()), ConsumerRegion::new(region));
    let (stop, here) = (Arc::new(AtomicBool::new(false)), thread::current());
    let stopped = Arc::clone(&stop);
    let engine_thread = thread::spawn(move || echo(&engine, &here, &stopped));
    let (mut stream, mut sends, mut receives, mut step) = (Stream { sent: 0, read: 0 }, 0, 0, 0u64);
    let qp = consumer.qp(0);
    while stream.read < BYTES {
        post_laps(&consumer, Queue::Send, 0, qp.snd_done(), &mut sends);
        post_laps(&consumer, Queue::Receive, u64::from(BUFFER), stream.read, &mut receives);
        step += 1;
        let room = (qp.snd_done() + u64::from(BUFFER) - stream.sent).min(BYTES - stream.sent).min(step % 97 + 1);
        for position in stream.sent..stream.sent + room {
            let place = consumer.extent(position % u64::from(BUFFER), 1).unwrap();
            consumer.write(place, &[ramp(position)]);
        }
        stream.sent += room;
        qp.set_snd_tail(stream.sent);
        qp.set_rcv_limit(stream.read + u64::from(BUFFER));
        consumer.ring_doorbell(0);
        if consumer.must_wake_engine() {
            engine_thread.thread().unpark();
        }
        let Some(completion) = consumer.poll_completion() else {
            if consumer.prepare_sleep() {
                thread::park();
                consumer.awake();
            }
            continue;
        };
        assert!(matches!(completion, Completion::Ready { qp: 0, .. }));
        while stream.read < qp.rcv_done() {
            let mut byte = [0];
            let place = u64::from(BUFFER) + stream.read % u64::from(BUFFER);
            consumer.read(consumer.extent(place, 1).unwrap(), &mut byte);
            assert_eq!(byte[0], ramp(stream.read), "at {}", stream.read);
            stream.read += 1;
        }
    }
    stop.store(true, Ordering::SeqCst);
    engine_thread.thread().unpark();
    engine_thread.join().unwrap();
}
