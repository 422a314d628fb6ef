//! The threads that drive an engine, and how they sleep.

use crate::shared::{Shared, Stats, now};
use baton_engine::engine::Engine;
use baton_engine::frame_io::{FrameIo, PortError};
use baton_engine::streamer::{ConsumerId, Streamer};
use baton_engine::tce::Tce;
use baton_port::wait::{WaitSet, Waitable};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Frames taken from the port in one turn of the Streamer.
const RX_BUDGET: usize = 256;

/// Polls between two updates of the statistics if there is no pause.
const STATS_EVERY: u32 = 4096;

/// Starts one thread that drives both halves of the engine.
pub(crate) fn spawn_one<P>(shared: Arc<Shared>, engine: Engine, port: P) -> io::Result<Vec<JoinHandle<()>>>
where
    P: FrameIo + Waitable + Send + 'static,
{
    let thread = thread::Builder::new().name("baton".into()).spawn(move || {
        let mut engine = engine;
        let ended = drive_one(&shared, &mut engine, port);
        shared.end(ended.err().as_ref());
    })?;
    Ok(vec![thread])
}

fn drive_one<P: FrameIo + Waitable>(shared: &Shared, engine: &mut Engine, mut port: P) -> Result<(), PortError> {
    let started = Instant::now();
    let ticks = || started.elapsed().as_nanos() as u64;
    let mut polls = 0u32;
    while !shared.stop.load(Ordering::Acquire) {
        let activity = engine.poll(now(started), &mut port, ticks)?;
        let look = shared.take_completions(now(started));
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(STATS_EVERY) {
            note_stats(shared, engine);
        }
        if activity.is_idle() {
            note_stats(shared, engine);
            let deadline = engine.next_deadline().into_iter().chain(look).min();
            sleep(shared, engine.streamer(), &mut port, deadline.map(|at| at.since(now(started))))?;
        }
    }
    note_stats(shared, engine);
    Ok(())
}

/// Sleeps until a frame, a doorbell or the timeout.
fn sleep<P: Waitable>(
    shared: &Shared,
    streamer: &mut Streamer,
    port: &mut P,
    timeout: Option<baton_tcp::time::Duration>,
) -> Result<(), PortError> {
    let Some(region) = streamer.consumer_region(ConsumerId(0)) else { return Ok(()) };
    if !region.prepare_sleep() {
        return Ok(());
    }
    let slept = if port.prepare_wait() && !shared.stop.load(Ordering::Acquire) {
        let mut set = WaitSet::new();
        port.poll_fds(&mut set);
        set.add(&shared.doorbell);
        let timeout = timeout.map(|span| Duration::from_nanos(span.0));
        let slept = set.wait(timeout).map(|_| ());
        shared.doorbell.clear();
        slept
    } else {
        Ok(())
    };
    port.finish_wait();
    if let Some(region) = streamer.consumer_region(ConsumerId(0)) {
        region.awake();
    }
    slept.map_err(|source| PortError::new("waiting for the port", source))
}

fn note_stats(shared: &Shared, engine: &mut Engine) {
    let connections = engine.tce().connections();
    let (events, tce) = (engine.tce().events_high_water(), *engine.tce().counters());
    let streamer = engine.streamer();
    let stats = Stats {
        streamer: *streamer.counters(),
        tce,
        connections,
        queue_high_water: (events, streamer.orders_high_water()),
    };
    *shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = stats;
}

/// How the threads of the two halves wake each other. Before a thread sleeps it sets its flag and
/// checks its rings once more. A thread that has put something into a ring then sees the flag.
struct Pair {
    tce_asleep: AtomicBool,
    streamer_asleep: AtomicBool,
}

/// Starts a thread for each half of the engine.
pub(crate) fn spawn_two<P>(shared: Arc<Shared>, engine: Engine, port: P) -> io::Result<Vec<JoinHandle<()>>>
where
    P: FrameIo + Waitable + Send + 'static,
{
    let (streamer, tce) = engine.split();
    let pair = Arc::new(Pair { tce_asleep: AtomicBool::new(false), streamer_asleep: AtomicBool::new(false) });
    let started = Instant::now();
    let decide = {
        let (shared, pair) = (shared.clone(), pair.clone());
        thread::Builder::new().name("baton-tce".into()).spawn(move || drive_tce(&shared, &pair, tce, started))?
    };
    let tce_thread = decide.thread().clone();
    let stream = thread::Builder::new().name("baton-streamer".into()).spawn(move || {
        let ended = drive_streamer(&shared, &pair, &tce_thread, streamer, port, started);
        shared.stop.store(true, Ordering::Release);
        tce_thread.unpark();
        shared.end(ended.err().as_ref());
    })?;
    Ok(vec![stream, decide])
}

fn drive_tce(shared: &Shared, pair: &Pair, mut tce: Tce, started: Instant) {
    let mut ticks = || started.elapsed().as_nanos() as u64;
    while !shared.stop.load(Ordering::Acquire) {
        let work = tce.poll_timed(now(started), &mut ticks);
        if work > 0 {
            fence(Ordering::SeqCst);
            if pair.streamer_asleep.swap(false, Ordering::SeqCst) {
                shared.doorbell.ring();
            }
            continue;
        }
        {
            let mut stats = shared.stats.lock().unwrap_or_else(PoisonError::into_inner);
            (stats.tce, stats.connections) = (*tce.counters(), tce.connections());
            stats.queue_high_water.0 = tce.events_high_water();
        }
        pair.tce_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !tce.has_work() {
            match tce.next_deadline() {
                Some(at) => thread::park_timeout(Duration::from_nanos(at.since(now(started)).0)),
                None => thread::park(),
            }
        }
        pair.tce_asleep.store(false, Ordering::SeqCst);
    }
}

fn drive_streamer<P: FrameIo + Waitable>(
    shared: &Shared,
    pair: &Pair,
    tce: &Thread,
    mut streamer: Streamer,
    mut port: P,
    started: Instant,
) -> Result<(), PortError> {
    let mut look = None;
    while !shared.stop.load(Ordering::Acquire) {
        let time = now(started);
        let frames = streamer.poll_receive(time, &mut port, RX_BUDGET)?;
        let steps = streamer.poll_transmit(time, &mut port)?;
        fence(Ordering::SeqCst);
        if frames + steps > 0 {
            if pair.tce_asleep.swap(false, Ordering::SeqCst) {
                tce.unpark();
            }
            look = shared.take_completions(time);
            continue;
        }
        if look.is_some_and(|at| at <= time) {
            look = shared.take_completions(time);
        }
        {
            let mut stats = shared.stats.lock().unwrap_or_else(PoisonError::into_inner);
            stats.streamer = *streamer.counters();
            stats.queue_high_water.1 = streamer.orders_high_water();
        }
        pair.streamer_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !streamer.has_work() {
            let deadline = streamer.next_deadline().into_iter().chain(look).min();
            let timeout = deadline.map(|at| at.since(now(started)));
            sleep(shared, &mut streamer, &mut port, timeout)?;
        }
        pair.streamer_asleep.store(false, Ordering::SeqCst);
    }
    Ok(())
}
