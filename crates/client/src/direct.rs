//! Engines inside the program: driven by its own calls, and by this library's thread.
//!
//! ```text
//!   call that writes        --> what it wrote is sent before it returns
//!   call that finds nothing --> the device is looked at; what came is taken in
//!   call that sleeps        --> on the device, among others: no thread is woken for it
//!   this library's thread   --> timers, orders of the broker, and the device while no call
//!                               has looked at it for a TICK and none sleeps on it
//! ```
//!
//! Engines are behind the lock that streams are behind: one thread drives, others wait for
//! it as long as a burst takes. A thread that sleeps holds nothing.
//!
//! *Who looks after the device* changes hands without a system call while the program is
//! busy: the thread looks once a [`TICK`] whether calls do. While a call sleeps on the device
//! and nothing happens, the thread sleeps longer (it dozes), until the call is over, or the
//! engine has something to do before the thread would wake.

use super::batch;
use super::shared::{Guard, Inner, Shared};
use baton_consumer::fork::Unshared;
use baton_consumer::memory::SharedLedger;
use baton_ipc::channel::{Channel, Parcel};
use baton_ipc::engine::{Begin, Runner, monotonic};
use baton_ipc::order::{Order, Report};
use baton_port::wait::WaitSet;
use baton_port::{SteeredPort, Tap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How long a device may go without being looked at while calls look at it now and then.
const TICK: Duration = Duration::from_millis(2);

/// The longest doze: whoever was woken for a frame may be held up before it looks.
const DOZE: Duration = Duration::from_millis(100);

/// A call that only sends looks at what came, too, if nobody did for so long, in nanoseconds.
const FRESH: u64 = 100_000;

/// A call that finds nothing does not look at what came if somebody has just done so, in
/// nanoseconds.
const JUST_NOW: u64 = 20_000;

/// Numbers given so far, in this process: no two lists of devices have the same.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Times, a [`TICK`] each, that the thread leaves the lock to calls before it insists.
const LEAVES: u32 = 8;

/// Times that what consumers took in makes engines do more, in one call.
const ROUNDS: u32 = 8;

/// An engine here, and its device.
pub(super) struct Own {
    // First: it ends before the descriptors are closed.
    _unshared: [Unshared; 2],
    runner: Runner,
}

/// Who looks after devices: see the file's head.
#[derive(Default)]
pub(super) struct Care {
    /// Calls that sleep on the devices.
    sleepers: AtomicU32,
    /// Looks of calls at the devices.
    looks: AtomicU64,
    /// The thread leaves devices to whoever sleeps on them.
    dozing: AtomicBool,
    /// Until when the thread sleeps, in nanoseconds of `CLOCK_MONOTONIC`.
    until: AtomicU64,
    /// Another number whenever the list of devices has changed.
    changes: AtomicU64,
}

/// The thread's own part of it.
#[derive(Default)]
pub(super) struct Watch {
    looks: u64,
    /// Devices that the thread sleeps on.
    devices: Vec<RawFd>,
    /// It was woken by a device at the most, so what there is to do a call does as well.
    leaves: bool,
    /// Times that it left the lock to calls since it last had it.
    left: u32,
    /// Orders may have come.
    pub orders: bool,
}

/// A call that sleeps on the devices of a service, as long as this lives.
pub struct Attending(Arc<Shared>);

impl Attending {
    pub(super) fn new(shared: &Arc<Shared>) -> Attending {
        if batch::end() {
            // There is none in a child.
            let _ = shared.with(|_| ());
        }
        shared.care.sleepers.fetch_add(1, Ordering::SeqCst);
        Attending(shared.clone())
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.care.sleepers.fetch_sub(1, Ordering::SeqCst);
        if self.0.care.dozing.swap(false, Ordering::SeqCst) {
            self.0.look_again();
        }
    }
}

impl Care {
    fn change(&self) {
        self.changes.store(CHANGES.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Shared {
    /// Another number whenever the list of devices has changed.
    pub fn device_changes(&self) -> u64 {
        self.care.changes.load(Ordering::Acquire)
    }

    /// A call takes in what came.
    pub fn look(&self) {
        batch::end();
        // There is none in a child.
        let _ = self.with(|inner| {
            inner.hear_engines(self);
        });
    }

    /// A call takes in what came, unless another has done so lately.
    pub fn glance(&self) {
        batch::end();
        let _ = self.with(|inner| {
            if inner.own.is_empty() || monotonic().saturating_sub(inner.looked_at) > FRESH {
                inner.hear_engines(self);
            }
        });
    }

    /// A call has looked at the devices, so the thread need not for a while.
    pub(super) fn note_look(&self) {
        self.care.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread is woken if it would sleep too long; `timeout` is asked only if it might.
    fn hurry(&self, clock: u64, timeout: impl FnOnce() -> Option<Duration>) {
        const NEARLY: u64 = TICK.as_nanos() as u64;
        let until = self.care.until.load(Ordering::Relaxed);
        // Nearly so is good enough.
        if until > clock + NEARLY
            && let Some(timeout) = timeout()
            && until > clock + NEARLY + timeout.as_nanos() as u64
        {
            self.look_again();
        }
    }
}

impl Watch {
    /// The lock; none if a call has it and may do what there is to do: the thread has slept
    /// instead. Who waits for a lock that is never free for long makes each call that frees it
    /// wake him.
    pub fn lock<'a>(&mut self, shared: &'a Shared) -> Option<Guard<'a>> {
        if !self.leaves || self.left == LEAVES {
            self.left = 0;
            return Some(shared.lock());
        }
        let lock = shared.try_lock();
        if lock.is_some() {
            self.left = 0;
            return lock;
        }
        self.left += 1;
        let mut set = WaitSet::new();
        set.add(&shared.wake);
        // Somebody wants the thread, or a signal came.
        self.leaves = matches!(set.wait(Some(TICK)), Ok(0));
        None
    }

    /// Where the thread sleeps: adds what belongs to engines here, and gives the time.
    pub fn prepare(
        &mut self,
        inner: &mut Inner,
        shared: &Shared,
        set: &mut WaitSet,
        timeout: Option<Duration>,
    ) -> Option<Duration> {
        self.devices.clear();
        let own = inner.own.iter_mut().filter_map(|own| own.runner.timeout());
        let mut timeout = timeout.into_iter().chain(own).min();
        if !inner.own.is_empty() {
            inner.own.iter().for_each(|own| set.add(own.runner.control()));
            let looks = shared.care.looks.load(Ordering::Relaxed);
            if std::mem::replace(&mut self.looks, looks) != looks {
                // Calls look.
                timeout = Some(timeout.map_or(TICK, |timeout| timeout.min(TICK)));
            } else if shared.may_doze() {
                timeout = Some(timeout.map_or(DOZE, |timeout| timeout.min(DOZE)));
            } else {
                self.devices = inner.devices();
                self.devices.iter().for_each(|device| set.add(device));
            }
        }
        let until = timeout.map_or(u64::MAX, |timeout| monotonic() + timeout.as_nanos() as u64);
        shared.care.until.store(until, Ordering::Relaxed);
        timeout
    }

    /// After the sleep.
    pub fn finish(&mut self, shared: &Shared, set: &WaitSet, ready: io::Result<usize>, controls: &[RawFd]) {
        let devices = self.devices.iter().filter(|device| set.is_ready(**device)).count();
        self.leaves = matches!(ready, Ok(ready) if ready == devices);
        shared.care.until.store(0, Ordering::Relaxed);
        shared.care.dozing.store(false, Ordering::SeqCst);
        self.orders = controls.iter().any(|control| set.is_ready(*control));
    }
}

impl Shared {
    /// True if somebody sleeps on the devices; whoever is the last to wake there says so.
    fn may_doze(&self) -> bool {
        self.care.dozing.store(true, Ordering::SeqCst);
        let there = self.care.sleepers.load(Ordering::SeqCst) > 0;
        if !there {
            self.care.dozing.store(false, Ordering::SeqCst);
        }
        there
    }
}

impl Inner {
    /// The broker gives this program an engine: what it is to be waits in its channel.
    pub fn on_engine(&mut self, shared: &Shared, control: Option<OwnedFd>) {
        // What cannot be is seen by the broker when the channel is closed.
        if let Some(own) = control.and_then(Own::start) {
            self.own.push(own);
            shared.care.change();
        }
    }

    /// Descriptors of the devices.
    pub fn devices(&self) -> Vec<RawFd> {
        self.own.iter().filter_map(Own::device).collect()
    }

    /// Descriptors of the channels that the broker's orders come by.
    pub fn controls(&self) -> Vec<RawFd> {
        self.own.iter().map(|own| own.runner.control().as_raw_fd()).collect()
    }

    /// Carries out what the broker has said, and goes on with what takes longer.
    pub fn tend_engines(&mut self, shared: &Shared, orders: bool) {
        for own in &mut self.own {
            if orders {
                own.runner.hear();
            }
            own.runner.tend();
        }
        self.lose(shared, |own| own.runner.is_orphan() && own.runner.is_empty());
    }

    /// Engines that are no more.
    fn lose(&mut self, shared: &Shared, is_lost: impl FnMut(&mut Own) -> bool) {
        let before = self.own.len();
        self.own.extract_if(.., is_lost).for_each(drop);
        if self.own.len() != before {
            shared.care.change();
            self.bury_engines();
        }
    }

    /// The engine of this memory has been taken away.
    pub fn lose_engine_of(&mut self, shared: &Shared, region: u32) {
        self.lose(shared, |own| own.drives(region));
    }

    /// Takes in what came over the devices.
    pub fn receive(&mut self, shared: &Shared) {
        if self.own.is_empty() {
            return;
        }
        let clock = self.clock;
        self.lose(shared, |own| own.runner.drive(clock, true).is_err());
        self.driven = true;
        self.looked_at = clock;
    }

    /// For a call that found nothing: true if it is worth another try.
    pub fn has_news(&mut self, shared: &Shared) -> bool {
        let looks = !self.own.is_empty() && monotonic().saturating_sub(self.looked_at) > JUST_NOW;
        if looks {
            self.hear_engines(shared);
        }
        looks
    }

    /// Sends what was written, and does what follows from that; unless it waits for more.
    pub fn send(&mut self, shared: &Shared) {
        if self.own.is_empty() {
            return;
        }
        if batch::is_open() {
            if !std::mem::replace(&mut self.waits, true) {
                shared.hurry(self.clock, || Some(TICK));
            }
            return;
        }
        if std::mem::take(&mut self.waits) {
            batch::sent();
        }
        for _ in 0..ROUNDS {
            if !self.own.iter_mut().any(|own| own.runner.has_doorbells()) {
                break;
            }
            self.clock = monotonic();
            let clock = self.clock;
            let receive = clock.saturating_sub(self.looked_at) > FRESH;
            self.lose(shared, |own| own.runner.drive(clock, receive).is_err());
            self.driven = true;
            if receive {
                self.looked_at = clock;
            }
            self.take_completions(shared);
        }
        if std::mem::take(&mut self.driven) {
            let Inner { own, clock, .. } = self;
            shared.hurry(*clock, || own.iter_mut().filter_map(|own| own.runner.timeout()).min());
        }
    }
}

impl Own {
    /// As the first message there says.
    fn start(control: OwnedFd) -> Option<Own> {
        let control = Channel::new(control);
        let Parcel { bytes, fds } = control.receive().ok()??;
        let Order::Start { device, mtu, mac, connections, base, congestion, coalesce, acks, .. } =
            Order::from_bytes(&bytes)?
        else {
            return None;
        };
        let mut fds = fds.into_iter().map(super::descriptors::lifted);
        let (ledger, tap) = (SharedLedger::open(fds.next()?).ok()?, Tap::attached(fds.next()?, &device, mtu).ok()?);
        let unshared = [Unshared::new(&control), Unshared::new(&tap)];
        let begin = Begin { mtu, mac, connections, base, congestion, coalesce, acks };
        let mut runner = Runner::new(control, &begin, &ledger, SteeredPort::lent(tap.by_the_arena(), mtu));
        runner.say(Report::Started {}, Vec::new());
        Some(Own { runner, _unshared: unshared })
    }

    /// It is the engine of this memory.
    pub fn drives(&self, region: u32) -> bool {
        self.runner.has_consumer(region)
    }

    fn device(&self) -> Option<RawFd> {
        self.runner.port().device().map(|(tap, _)| tap.as_fd().as_raw_fd())
    }
}
