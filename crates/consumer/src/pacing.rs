//! The times for which a program's threads poll, sleep and wait, all in one place.
//!
//! `docs/design/waiting.md` tells what each is for, in the order in which a thread meets them.

use std::time::Duration;

/// How long it pays to poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// How long to poll, in nanoseconds. For frames that take longer the driver sleeps.
    pub(super) look_ns: u64,
    /// Longest usual pause, in nanoseconds, for which polling is worthwhile.
    pub(super) short_ns: u64,
    /// Most payload bytes between two pauses that count as little work.
    pub(super) little: u64,
}

/// The times of a program's threads.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    /// How long a thread polls before it sleeps, for frames of a device.
    pub device: Look,
    /// The same for bytes of a program on this machine. As long as both sleep, a pause has two wake-ups, and it is
    /// short once one of them polls. Sleeping lets no more accumulate than an area of the ring holds, which takes less
    /// time to fill than a wake-up.
    pub program: Look,
    /// How long a thread that polls looks at memory without asking the kernel.
    pub kernel: Duration,
    /// After a poll of the devices, how long a call that finds nothing does not poll again.
    pub just_now: Duration,
    /// Without a poll of the devices, how long a call that only sends does not poll, and a call that reports a state
    /// takes what is known.
    pub fresh: Duration,
    /// How long a thread without work naps while many connections are busy. The kernel's timers add about 50 µs.
    pub nap: Duration,
    /// The longest time that a device goes without a poll while calls poll it now and then.
    pub tick: Duration,
    /// The longest time that the library's thread leaves a device to calls that sleep on it. It bounds the delay if a
    /// call that was woken for a frame is held up before it polls.
    pub doze: Duration,
}

/// The times that all programs use.
pub const PACING: Pacing = Pacing {
    device: Look { look_ns: 100_000, short_ns: 80_000, little: 4096 },
    program: Look { look_ns: 200_000, short_ns: 160_000, little: 1 << 20 },
    kernel: Duration::from_micros(10),
    just_now: Duration::from_micros(20),
    fresh: Duration::from_micros(100),
    nap: Duration::from_micros(80),
    tick: Duration::from_millis(2),
    doze: Duration::from_millis(100),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_fit_each_other() {
        let Pacing { device, program, kernel, just_now, fresh, nap, tick, doze } = PACING;
        let looks = Duration::from_nanos(device.look_ns);
        // A thread that polls asks each source several times.
        assert!(5 * kernel <= looks && 5 * just_now <= looks);
        // While a thread polls, nobody else has to.
        assert!(looks <= fresh && fresh < tick);
        // A pause that polling can shorten ends within a look.
        assert!(device.short_ns < device.look_ns && program.short_ns < program.look_ns);
        // A nap is not longer than a look that it replaces.
        assert!(nap <= looks);
        // A device waits at most a tick while somebody calls, and a doze if nobody does.
        assert!(tick < doze && doze <= Duration::from_millis(100));
    }
}
