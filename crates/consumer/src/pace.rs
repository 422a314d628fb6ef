//! To sleep, or to look again?
//!
//! A sleep costs more than a packet: the peer's CPU has to wake this one, and this
//! one has to get going. Where requests and answers go to and fro one at a time, the
//! next frame is here before that is done; so a driver that found little, and found
//! it soon, looks for a while before it sleeps. Where there is much to do at once,
//! sleeping lets it gather, and costs little of it. With one CPU only nobody looks:
//! the peer would wait for it.
//!
//! On a virtual machine a CPU that slept answers 20 to 30 µs late. A round trip with
//! two sleeps in it took 54 to 69 µs there, with one of them 22 to 24 µs, at no more CPU
//! time a request; so a pause that looking would make short counts as short.

/// Time that is spent looking, in nanoseconds; frames that take longer are slept for.
const LOOK_NS: u64 = 100_000;

/// The usual pause, in nanoseconds, up to which looking is worth it.
const SHORT_NS: u64 = 80_000;

/// Frames and payload bytes between two pauses up to which it was little.
const LITTLE: (usize, u64) = (2, 4096);

/// What is known of the pauses so far.
#[derive(Debug)]
pub struct Pace {
    /// Length of the pauses lately, in nanoseconds.
    usual_ns: u64,
    frames: usize,
    /// Payload bytes moved until the last pause.
    bytes: u64,
    /// Another CPU is there for the peer.
    may_look: bool,
}

impl Pace {
    /// Nothing is known; `cpus` is how many this process may run on.
    pub fn new(cpus: usize) -> Pace {
        Pace { usual_ns: u64::MAX, frames: 0, bytes: 0, may_look: cpus > 1 }
    }

    /// Frames were received.
    pub fn on_frames(&mut self, frames: usize) {
        self.frames += frames;
    }

    /// A pause begins, with `bytes` of payload moved in all so far. Returns how
    /// long to look before sleeping, in nanoseconds; 0 for not at all.
    pub fn on_pause(&mut self, bytes: u64) -> u64 {
        let little = self.frames <= LITTLE.0 && bytes - self.bytes <= LITTLE.1;
        (self.frames, self.bytes) = (0, bytes);
        if self.may_look && little && self.usual_ns <= SHORT_NS { LOOK_NS } else { 0 }
    }

    /// The pause ended after `ns`. One long pause is believed at once, short ones
    /// once there are many.
    pub fn on_resume(&mut self, ns: u64) {
        let ns = ns.min(10 * LOOK_NS);
        self.usual_ns = if ns > LOOK_NS { ns } else { (self.usual_ns.min(10 * LOOK_NS) * 7 + ns) / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pace after `count` pauses of `ns`, each after one small frame.
    fn after(pace: &mut Pace, count: usize, ns: u64) -> u64 {
        let mut look = 0;
        for _ in 0..count {
            pace.on_frames(1);
            let bytes = pace.bytes + 128;
            look = pace.on_pause(bytes);
            pace.on_resume(ns);
        }
        look
    }

    #[test]
    fn it_looks_only_while_little_comes_soon() {
        let mut pace = Pace::new(2);
        assert_eq!(after(&mut pace, 3, 10_000), 0, "short pauses are not believed at once");
        assert_eq!(after(&mut pace, 40, 10_000), LOOK_NS);
        assert_eq!(after(&mut pace, 2, 500_000), 0, "a long one is");
        after(&mut pace, 60, 10_000);
        pace.on_frames(3);
        assert_eq!(pace.on_pause(pace.bytes), 0, "many frames");
        pace.on_frames(1);
        assert_eq!(pace.on_pause(pace.bytes + 64_000), 0, "much payload");
        assert_eq!(pace.on_pause(pace.bytes), LOOK_NS);
        assert_eq!(after(&mut Pace::new(1), 40, 10_000), 0, "one CPU");
    }
}
