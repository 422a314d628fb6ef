//! A download that moves to the engine and back while it runs, and whose engine is killed once.
//!
//! ```text
//!   nginx     under baton run     ─ write, write, write ...                        ─ end
//!   mover     asks the service:      kernel, engine, kernel ... rest, kill -9, kernel by itself, engine
//!   curl      ─ read, read, read ...                                               ─ end
//! ```
//!
//! nginx and `curl` do not know of the moves. nginx sends at a steady rate (`limit_rate`), as a live
//! source does, so that the moves are visible in the received bytes over time.

use crate::report::moves::{Killed, Live, Slice};
use crate::workload::site::Site;
use crate::world::World;
use crate::world::process;
use crate::world::service::Running;
use anyhow::{Context, bail, ensure};
use baton_apps::signal::Stop;
use baton_client::Service;
use baton_ipc::message::Selector;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time that the connection spends on each side.
const DWELL: Duration = Duration::from_millis(20);

/// Time that the connection stays in the engine before the engine is killed. A kernel that gets a
/// connection back asks the peer for lost data with a bare probe, and Linux answers only one of these
/// per 500 ms (`tcp_invalid_ratelimit`). If the engine died just after a move, the result would show
/// that limit.
const REST: Duration = Duration::from_millis(600);

/// Interval between two checks of its place, and between two attempts to move it.
const LOOK: Duration = Duration::from_micros(200);
const AGAIN: Duration = Duration::from_millis(5);

/// Time that one bar of the plot covers.
const SLICE: Duration = Duration::from_millis(10);

/// Time that the whole may take beyond its length, and the longest wait for any part.
const PATIENCE: Duration = Duration::from_secs(8);

/// The bytes that `curl` received.
struct Fetched {
    sha256: Sha256,
    /// Times and numbers of received bytes.
    arrivals: Vec<(Instant, usize)>,
}

/// The history of the connection.
struct Moved {
    moves: u64,
    pause_us: u64,
    /// Since when it was in the engine, or not.
    places: Vec<(Instant, bool)>,
    killed: Instant,
    /// Time from then until it was in the kernel, and until another engine had it.
    home: Duration,
    again: Duration,
}

/// Runs one download. `url` names the site's file, which takes about `length` to download.
///
/// # Errors
/// If the download or a move fails. Unequal digests are not an error.
pub fn run(
    world: &World,
    url: &str,
    site: &Site,
    service: &Running,
    length: Duration,
    stop: &Stop,
) -> anyhow::Result<Live> {
    let operator = service.connect()?;
    let over = AtomicBool::new(false);
    let mut fetched = Fetched { sha256: Sha256::new(), arrivals: Vec::new() };
    let moved = thread::scope(|scope| -> anyhow::Result<Moved> {
        let (operator, over) = (&operator, &over);
        let moving = scope.spawn(move || {
            let mut mover = Mover { service, operator, over, moves: 0, pause_us: 0, places: Vec::new() };
            mover.run(length)
        });
        let got = fetch(world, url, length, stop, &mut fetched);
        over.store(true, Ordering::Relaxed);
        // Kill the service then, so that no thread waits for its answer any longer.
        let ended = Instant::now();
        while !moving.is_finished() && ended.elapsed() < Duration::from_secs(2) {
            thread::sleep(Duration::from_millis(1));
        }
        if !moving.is_finished() {
            service.kill();
        }
        let moved = moving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The first failure is the most likely cause.
        let moved = moved.context("moving it")?;
        got.context("fetching it")?;
        Ok(moved)
    })?;
    Ok(live(site, fetched, &moved))
}

fn fetch(world: &World, url: &str, length: Duration, stop: &Stop, into: &mut Fetched) -> anyhow::Result<()> {
    let mut command = world.client.command("curl");
    command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--no-buffer", url]);
    process::stream(&mut command, stop, length + PATIENCE, &mut |data| {
        into.sha256.update(data);
        into.arrivals.push((Instant::now(), data.len()));
    })
}

/// Moves the connection, as an administrator would.
struct Mover<'a> {
    service: &'a Running,
    operator: &'a Service,
    /// Set once nothing is read or written any more.
    over: &'a AtomicBool,
    moves: u64,
    pause_us: u64,
    places: Vec<(Instant, bool)>,
}

impl Mover<'_> {
    /// Moves it for a part of `length`, so that the connection is still open afterwards.
    fn run(&mut self, length: Duration) -> anyhow::Result<Moved> {
        self.until("no connection moved", AGAIN, &mut |mover| mover.is_at("engine"))?;
        let begun = Instant::now();
        self.places.push((begun, true));
        self.move_until(begun + length / 4)?;
        self.until("the connection does not move to the engine", AGAIN, &mut |mover| {
            mover.to(true)?;
            mover.is_at("engine")
        })?;
        thread::sleep(REST);
        self.service.kill_engine()?;
        let killed = Instant::now();
        self.until("the connection does not return to the kernel from a killed engine", LOOK, &mut |mover| {
            mover.is_at("kernel")
        })?;
        let home = killed.elapsed();
        self.places.push((killed, false));
        self.until("the connection does not move to a new engine", AGAIN, &mut |mover| {
            mover.to(true)?;
            mover.is_at("engine")
        })?;
        let again = killed.elapsed();
        self.move_until(killed + length / 4)?;
        let Mover { moves, pause_us, .. } = *self;
        Ok(Moved { moves, pause_us, places: std::mem::take(&mut self.places), killed, home, again })
    }

    /// Returns true if the service has the connection at this place.
    fn is_at(&self, place: &str) -> anyhow::Result<bool> {
        Ok(self.operator.list()?.iter().any(|entry| entry.place == place))
    }

    fn move_until(&mut self, end: Instant) -> anyhow::Result<()> {
        for to in [false, true].into_iter().cycle() {
            thread::sleep(DWELL);
            if Instant::now() >= end {
                return Ok(());
            }
            self.to(to)?;
        }
        Ok(())
    }

    /// Asks for a move to the engine or to the kernel, unless the connection is there already.
    fn to(&mut self, engine: bool) -> anyhow::Result<()> {
        let tally =
            if engine { self.operator.handoff(Selector::All) } else { self.operator.bring_home(Selector::All) }?;
        if tally.count > tally.failed {
            self.moves += tally.count - tally.failed;
            self.pause_us = self.pause_us.max(tally.pause_us);
            self.places.push((Instant::now(), engine));
        }
        Ok(())
    }

    fn until(
        &mut self,
        what: &str,
        pause: Duration,
        done: &mut dyn FnMut(&mut Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !done(self)? {
            ensure!(begun.elapsed() < PATIENCE, "{what}");
            if self.over.load(Ordering::Relaxed) {
                bail!("the download ended too early");
            }
            thread::sleep(pause);
        }
        Ok(())
    }
}

/// Builds the report.
fn live(site: &Site, fetched: Fetched, moved: &Moved) -> Live {
    let arrivals = &fetched.arrivals;
    let (first, last) = (arrivals.first().map_or(moved.killed, |a| a.0), arrivals.last().map_or(moved.killed, |a| a.0));
    let micros = |time: Duration| time.as_micros() as u64;
    let (from, to) = (moved.killed, moved.killed + moved.again);
    // A gap is due to the killed engine if it began between its death and the start of the next one.
    let gap = |killed: bool| {
        let gaps = arrivals.windows(2).map(|pair| (pair[0].0, pair[1].0));
        let mine = gaps.filter(|(a, b)| (*b > from && *a < to) == killed);
        micros(mine.map(|(a, b)| b - a).max().unwrap_or_default())
    };
    let got: [u8; 32] = fetched.sha256.finalize().into();
    Live {
        seconds: (last - first).as_secs_f64(),
        bytes: arrivals.iter().map(|(_, len)| *len as u64).sum(),
        sent: Site::BYTES as u64,
        equal: site.sha256 == got,
        sha256: got.iter().map(|byte| format!("{byte:02x}")).collect(),
        moves: moved.moves,
        pause_us: moved.pause_us,
        gap_us: gap(false),
        killed: Killed {
            at_seconds: moved.killed.saturating_duration_since(first).as_secs_f64(),
            home_us: micros(moved.home),
            again_us: micros(moved.again),
            gap_us: gap(true),
        },
        slice_seconds: SLICE.as_secs_f64(),
        slices: slices(arrivals, &moved.places),
    }
}

fn slices(arrivals: &[(Instant, usize)], places: &[(Instant, bool)]) -> Vec<Slice> {
    let Some((first, _)) = arrivals.first() else { return Vec::new() };
    let mut slices: Vec<Slice> = Vec::new();
    for (at, len) in arrivals {
        let index = ((*at - *first).as_nanos() / SLICE.as_nanos()) as usize;
        while slices.len() <= index {
            let middle = *first + SLICE * slices.len() as u32 + SLICE / 2;
            let engine = places.iter().rfind(|(since, _)| *since <= middle).is_some_and(|(_, engine)| *engine);
            slices.push(Slice { bytes: 0, engine });
        }
        slices[index].bytes += *len as u64;
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_fall_into_the_slice_that_they_came_in() {
        let first = Instant::now();
        let at = |ms| first + Duration::from_millis(ms);
        let slices = slices(&[(at(0), 1), (at(9), 2), (at(31), 4)], &[(first, true), (at(12), false), (at(26), true)]);
        let seen: Vec<_> = slices.iter().map(|slice| (slice.bytes, slice.engine)).collect();
        assert_eq!(seen, [(3, true), (0, false), (0, false), (4, true)]);
    }
}
