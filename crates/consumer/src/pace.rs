//! Decides whether a driver with nothing to do sleeps or keeps polling.
//!
//! A sleep costs more than a packet: the peer's CPU has to wake this one, and this one has to start
//! running. If requests and answers alternate one at a time, the next frame arrives before that is
//! done. So a driver that found little work, and found it soon, polls for a while before it sleeps.
//! If there is much to do at once, sleeping lets work accumulate at little cost. On a single CPU
//! nobody polls, because the peer would wait for the CPU.
//!
//! On a virtual machine, a CPU that slept answers 20 to 30 µs late. A round trip with two sleeps
//! took 54 to 69 µs there, and 22 to 24 µs with one, without using more CPU time per request. So a
//! pause counts as short if polling would make it short.

use super::pacing::{Look, PACING};

/// Most frames between two pauses that count as little work.
const LITTLE: usize = 2;

/// Pauses without a look after one that found nothing, at first. Each that finds nothing doubles them, up to
/// [`MOST_SKIPPED`]: where other programs use all CPUs the peer cannot run meanwhile, and each look costs them time.
const SKIPPED: u32 = 16;
const MOST_SKIPPED: u32 = 1024;

/// Statistics of the pauses so far.
#[derive(Debug)]
pub struct Pace {
    /// Average length of recent pauses, in nanoseconds.
    usual_ns: u64,
    frames: usize,
    /// Payload bytes moved until the last pause.
    bytes: u64,
    /// True if there is another CPU for the peer.
    may_look: bool,
    /// How long it would pay to poll in the last pause, in nanoseconds.
    look_ns: u64,
    /// It was polled in the last pause.
    looked: bool,
    /// Pauses to come without a look, and how many the next look that finds nothing leads to.
    skip: u32,
    skips: u32,
}

impl Pace {
    /// Starts without statistics. `cpus` is the number of CPUs that this process may use.
    pub fn new(cpus: usize) -> Pace {
        Pace {
            usual_ns: u64::MAX,
            frames: 0,
            bytes: 0,
            may_look: cpus > 1,
            look_ns: PACING.device.look_ns,
            looked: false,
            skip: 0,
            skips: SKIPPED,
        }
    }

    /// Counts received frames.
    pub fn on_frames(&mut self, frames: usize) {
        self.frames += frames;
    }

    /// Starts a pause; `bytes` is the total of payload bytes moved so far. Returns how long to poll
    /// before sleeping, in nanoseconds; 0 means not at all. If it pays to poll, `may` is asked with that time
    /// whether there is a place for one more that polls.
    pub fn on_pause(&mut self, bytes: u64, look: Look, may: impl FnOnce(u64) -> bool) -> u64 {
        self.look_ns = look.look_ns;
        let little = self.frames <= LITTLE && bytes - self.bytes <= look.little;
        (self.frames, self.bytes) = (0, bytes);
        let looks = self.may_look && little && self.usual_ns <= look.short_ns;
        self.looked = looks && self.skip == 0 && may(look.look_ns);
        self.skip -= u32::from(looks && self.skip > 0);
        if self.looked { look.look_ns } else { 0 }
    }

    /// Ends a pause of `ns` nanoseconds. A single long pause takes effect at once, short ones only
    /// after many.
    pub fn on_resume(&mut self, ns: u64) {
        if self.looked && ns > self.look_ns {
            (self.skip, self.skips) = (self.skips, (2 * self.skips).min(MOST_SKIPPED));
        } else if self.looked {
            self.skips = SKIPPED.max(self.skips / 2);
        }
        let most = 10 * self.look_ns;
        let ns = ns.min(most);
        self.usual_ns = if ns > self.look_ns { ns } else { (self.usual_ns.min(most) * 7 + ns) / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `count` pauses of `ns` nanoseconds, each after one small frame. Returns how long to
    /// poll in the last one.
    fn after(pace: &mut Pace, count: usize, ns: u64) -> u64 {
        let mut look = 0;
        for _ in 0..count {
            pace.on_frames(1);
            let bytes = pace.bytes + 128;
            look = pace.on_pause(bytes, PACING.device, |_| true);
            pace.on_resume(ns);
        }
        look
    }

    #[test]
    fn it_looks_only_while_little_comes_soon() {
        let mut pace = Pace::new(2);
        assert_eq!(after(&mut pace, 3, 10_000), 0, "a few short pauses have no effect");
        assert_eq!(after(&mut pace, 40, 10_000), PACING.device.look_ns);
        assert_eq!(after(&mut pace, 2, 500_000), 0, "a long pause has an effect at once");
        after(&mut pace, 60, 10_000);
        pace.on_frames(3);
        assert_eq!(pace.on_pause(pace.bytes, PACING.device, |_| true), 0, "many frames");
        pace.on_frames(1);
        assert_eq!(pace.on_pause(pace.bytes + 64_000, PACING.device, |_| true), 0, "much payload");
        assert_eq!(pace.on_pause(pace.bytes, PACING.device, |_| false), 0, "no place");
        assert_eq!(pace.on_pause(pace.bytes, PACING.device, |ns| ns > 0), PACING.device.look_ns);
        assert_eq!(after(&mut Pace::new(1), 40, 10_000), 0, "one CPU");
    }

    #[test]
    fn much_payload_is_waited_for_awake_only_if_it_comes_from_a_program() {
        let much = |look: Look| {
            let (mut pace, mut looks) = (Pace::new(2), 0);
            for _ in 0..40 {
                pace.on_frames(1);
                looks = pace.on_pause(pace.bytes + 256_000, look, |_| true);
                pace.on_resume(10_000);
            }
            looks
        };
        assert_eq!((much(PACING.device), much(PACING.program)), (0, PACING.program.look_ns));
    }

    #[test]
    fn looks_that_find_nothing_become_rare_and_common_again() {
        // Without a look a pause lasts 50 µs; the peer cannot run during a look.
        let (mut pace, mut looks) = (Pace::new(2), 0);
        for _ in 0..20_000 {
            pace.on_frames(1);
            let look = pace.on_pause(pace.bytes + 128, PACING.device, |_| true);
            looks += u32::from(look > 0);
            pace.on_resume(look + 50_000);
        }
        assert!((10..40).contains(&looks), "{looks}");
        // Now it can.
        let mut looks = 0;
        for _ in 0..20_000 {
            pace.on_frames(1);
            looks += u32::from(pace.on_pause(pace.bytes + 128, PACING.device, |_| true) > 0);
            pace.on_resume(10_000);
        }
        assert!(looks > 18_000, "{looks}");
    }
}
