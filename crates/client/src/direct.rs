//! Engines inside the program, driven by the program's calls and by this library's thread.
//!
//! ```text
//!  call that writes        --> sends what it wrote before it returns
//!  call that finds nothing --> polls the device and takes in what came
//!  call that sleeps        --> sleeps on the device too: no thread is woken for it
//!  this library's thread   --> timers, orders of the broker, and the device if no call
//!                              has polled it for a tick and none sleeps on it
//! ```
//!
//! One thread drives the [engines](super::engines) at a time. A sleeping thread holds no lock.
//!
//! *Responsibility for the device* passes between threads without a system call while the program
//! is busy: once per tick, the thread checks whether calls have polled the device. If a call
//! sleeps on the device and nothing happens, the thread sleeps longer (it dozes), until that call
//! ends or the engine has a timer that is due before the thread would wake.

use super::batch;
use super::local_engine::LocalEngine;
use super::shared::{Guard, Inner, Shared};
use baton_consumer::held::Counted;
use baton_consumer::pacing::PACING;
use baton_engine::streamer::PostedReceive;
use baton_ipc::engine::monotonic;
use baton_port::wait::WaitSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often, one tick each, the thread yields the lock to calls before it insists on it.
const LEAVES: u32 = 8;

/// The library thread's share of that responsibility.
#[derive(Default)]
pub(super) struct Ticker {
    looks: u64,
    /// Devices that the thread is sleeping on.
    devices: Vec<RawFd>,
    /// The last sleep ended by timeout or for a device only, so a call can do the work as well.
    leaves: bool,
    /// How often the thread has yielded the lock since it last held it.
    left: u32,
    /// The broker may have sent orders.
    pub orders: bool,
}

/// Held by a call while it sleeps on the devices of a service.
pub struct Attending(Arc<Shared>);

impl Attending {
    pub(super) fn new(shared: &Arc<Shared>) -> Attending {
        if batch::end() {
            // In a forked child this fails, and there is nothing to send.
            let _ = shared.with(|_| ());
        }
        shared.attendance.sleepers.fetch_add(1, Ordering::SeqCst);
        if shared.attendance.rings.load(Ordering::Relaxed) {
            let _ = shared.with(Inner::prepare_pairs);
        }
        Attending(shared.clone())
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.attendance.sleepers.fetch_sub(1, Ordering::SeqCst);
        if self.0.attendance.dozing.swap(false, Ordering::SeqCst) {
            self.0.look_again();
        }
    }
}

impl Shared {
    /// Returns a number that changes whenever the list of devices changes.
    pub fn device_changes(&self) -> u64 {
        self.attendance.changes.load(Ordering::Acquire)
    }

    /// Polls the devices and takes in what came, on behalf of a call.
    pub fn look(&self) {
        batch::end();
        // In a forked child there is nothing to poll.
        if self.check().is_ok() {
            self.look_in_batch();
        }
        self.note_look_at_pairs();
    }

    /// Polls the devices and takes in what came, without an end of the thread's batch.
    pub(super) fn look_in_batch(&self) {
        let _whole = Counted::whole();
        let lost = self.poll_devices();
        self.note_look();
        let _ = self.with(|inner| inner.hear_driven(self, lost));
    }

    /// Like [`Shared::look`], unless the devices were polled within the last `FRESH` nanoseconds.
    pub fn glance(&self) {
        if self.engines.is_empty() || self.engines.is_stale(monotonic()) {
            return self.look();
        }
        batch::end();
        if self.check().is_ok() {
            self.drive();
        }
        self.note_look_at_pairs();
    }

    /// Notes that a call has polled the devices, so the thread need not do so for a while.
    pub(super) fn note_look(&self) {
        self.attendance.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a call has taken in what other programs told. Otherwise the thread would sleep on the bell, and
    /// each of their messages would ring it.
    pub(super) fn note_look_at_pairs(&self) {
        if self.attendance.rings.load(Ordering::Relaxed) {
            self.note_look();
        }
    }

    /// Polls the devices, unless another thread has begun to since this call began. Returns true if an engine was lost.
    pub(super) fn poll_devices(&self) -> bool {
        if self.engines.is_empty() {
            return false;
        }
        self.engines.lock_to_poll().is_some_and(|mut list| self.drive_all(&mut list, monotonic(), true, None))
    }

    /// As [`Engines::drive_all`], and wakes the thread if an engine has a timer that is due before.
    ///
    /// [`Engines::drive_all`]: super::engines::Engines::drive_all
    pub(super) fn drive_all(
        &self,
        list: &mut Vec<LocalEngine>,
        clock: u64,
        receive: bool,
        posted: Option<(u32, &mut PostedReceive<'_>)>,
    ) -> bool {
        let lost = self.engines.drive_all(list, clock, receive, posted);
        self.hurry(clock, || list.iter_mut().filter_map(|local| local.runner.timeout()).min());
        lost
    }

    /// Has the engines send what was written, and takes in the results, unless a batch is open or another thread
    /// drives them. That one does it then. To be called without the library's lock.
    pub(super) fn drive(&self) {
        let engines = &self.engines;
        if engines.is_empty() {
            return;
        }
        if batch::is_open() {
            engines.begin_batch();
            if engines.is_rung() {
                self.hurry(monotonic(), || Some(PACING.tick));
            }
            return;
        }
        if engines.end_batch() {
            batch::sent();
        }
        let left = engines.while_rung(|mut list| {
            let clock = monotonic();
            let receive = engines.is_stale(clock);
            let lost = self.drive_all(&mut list, clock, receive, None);
            drop(list);
            if receive {
                self.note_look();
            }
            let mut inner = self.lock();
            inner.hear_driven(self, lost);
            inner.wake_engines();
        });
        if left {
            self.look_again();
        }
    }

    /// Wakes the thread if it would sleep too long. Calls `timeout` only if that is possible.
    fn hurry(&self, clock: u64, timeout: impl FnOnce() -> Option<Duration>) {
        const NEARLY: u64 = PACING.tick.as_nanos() as u64;
        let until = self.attendance.until.load(Ordering::Relaxed);
        // Being late by less than a tick is acceptable.
        if until > clock + NEARLY
            && let Some(timeout) = timeout()
            && until > clock + NEARLY + timeout.as_nanos() as u64
        {
            self.look_again();
        }
    }
}

impl Ticker {
    /// Takes the lock. Returns `None` if a call holds it and can do the work: the thread has slept
    /// instead. Blocking on a busy lock would make every call that releases it wake the thread.
    pub fn lock<'a>(&mut self, shared: &'a Shared) -> Option<Guard<'a>> {
        if !self.leaves || self.left == LEAVES {
            self.left = 0;
            return Some(shared.lock());
        }
        let lock = shared.try_lock().filter(|_| shared.engines.try_lock().is_some());
        if lock.is_some() {
            self.left = 0;
            return lock;
        }
        self.left += 1;
        let mut set = WaitSet::new();
        set.add(&shared.wake);
        // Anything but a timeout means that the thread was called or a signal arrived.
        self.leaves = matches!(set.wait(Some(PACING.tick)), Ok(0));
        None
    }

    /// Prepares the thread's sleep: adds the engines' descriptors to `set` and returns the timeout.
    pub fn prepare(
        &mut self,
        inner: &mut Inner,
        shared: &Shared,
        set: &mut WaitSet,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        self.devices.clear();
        let mut engines = shared.engines.lock();
        let due = engines.iter_mut().filter_map(|local| local.runner.timeout());
        let mut timeout = timeout.into_iter().chain(due).min();
        engines.iter().for_each(|local| set.add(local.runner.control()));
        drop(engines);
        let devices = inner.devices();
        if !devices.is_empty() {
            let looks = shared.attendance.looks.load(Ordering::Relaxed);
            if std::mem::replace(&mut self.looks, looks) != looks {
                // Calls have polled the devices since the last time.
                timeout = Some(timeout.map_or(PACING.tick, |timeout| timeout.min(PACING.tick)));
            } else if shared.may_doze() {
                timeout = Some(timeout.map_or(PACING.doze, |timeout| timeout.min(PACING.doze)));
            } else {
                shared.attendance.thread_sleeps.store(true, Ordering::SeqCst);
                inner.prepare_pairs();
                self.devices = devices;
                self.devices.iter().for_each(|device| set.add(device));
            }
        }
        let until = timeout.map_or(u64::MAX, |timeout| monotonic() + timeout.as_nanos() as u64);
        shared.attendance.until.store(until, Ordering::Relaxed);
        timeout
    }

    /// Evaluates what ended the sleep.
    pub fn finish(&mut self, shared: &Shared, set: &WaitSet, ready: io::Result<usize>, controls: &[RawFd]) {
        let devices = self.devices.iter().filter(|device| set.is_ready(**device)).count();
        self.leaves = matches!(ready, Ok(ready) if ready == devices);
        shared.attendance.until.store(0, Ordering::Relaxed);
        shared.attendance.dozing.store(false, Ordering::SeqCst);
        shared.attendance.thread_sleeps.store(false, Ordering::SeqCst);
        self.orders = controls.iter().any(|control| set.is_ready(*control));
    }
}

impl Shared {
    /// True if a call sleeps on the devices. The next call that stops sleeping then wakes the
    /// thread.
    fn may_doze(&self) -> bool {
        self.attendance.dozing.store(true, Ordering::SeqCst);
        let there = self.attendance.sleepers.load(Ordering::SeqCst) > 0;
        if !there {
            self.attendance.dozing.store(false, Ordering::SeqCst);
        }
        there
    }
}

impl Inner {
    /// The broker gives this program an engine. Its configuration is the first message on
    /// `control`.
    pub fn on_engine(&mut self, shared: &Shared, control: Option<OwnedFd>, number: u64) {
        // If the engine cannot start, its channel is closed, and the broker sees that.
        if let Some(local) = control.and_then(|control| LocalEngine::start(control, number)) {
            self.engines.add(local);
            shared.attendance.change();
        }
    }

    /// Hears and carries out what the broker has ordered the engines in this process by now.
    pub fn hear_orders(&mut self) {
        self.engines.lock().iter_mut().for_each(|local| local.runner.hear());
    }

    /// Descriptors of the devices of the engines in this process, and its bell.
    pub fn devices(&self) -> Vec<RawFd> {
        self.engines.lock().iter().filter_map(LocalEngine::device).chain(self.pairs.bell()).collect()
    }

    /// Descriptors of the channels that carry the broker's orders.
    pub fn controls(&self) -> Vec<RawFd> {
        self.engines.lock().iter().map(|local| local.runner.control().as_raw_fd()).collect()
    }

    /// Carries out new orders of the broker, and continues with those that take longer.
    pub fn tend_engines(&mut self, shared: &Shared, orders: bool) {
        for local in self.engines.lock().iter_mut() {
            if orders {
                local.runner.hear();
            }
            local.runner.tend();
        }
        self.lose(shared, |local| local.runner.is_orphan() && local.runner.is_empty());
    }

    /// Drops the engines that `is_lost` selects.
    fn lose(&mut self, shared: &Shared, is_lost: impl FnMut(&mut LocalEngine) -> bool) {
        if self.engines.lose(is_lost) {
            self.note_lost(shared);
        }
    }

    /// Drops the engine that drives this region.
    pub fn lose_engine_of(&mut self, shared: &Shared, region: u32) {
        self.lose(shared, |local| local.drives(region));
    }

    /// Engines of this program were lost.
    fn note_lost(&mut self, shared: &Shared) {
        shared.attendance.change();
        self.reap_engines();
    }

    /// Takes in the results after engines of this program were driven. Some may have been `lost`.
    pub fn hear_driven(&mut self, shared: &Shared, lost: bool) {
        if lost {
            self.note_lost(shared);
        }
        // Pairs need no clock.
        if !self.regions.is_empty() {
            self.clock = monotonic();
        }
        self.take_completions(shared);
    }
}
