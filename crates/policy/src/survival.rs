//! How many packets a connection still has to come, estimated from connections that ended (CH §3.3).
//!
//! ```text
//!   a connection ended, or was seen last --> Survival of its class: counts by packets sent
//!   packets so far ------------------------> Survival: the mean of what is still to come
//! ```
//!
//! Each class (a rule and a service's port) has a life table over geometric bins of packets, four an
//! octave. The share that ends in a bin is taken of those that reached it, as by Kaplan and Meier
//! (1958), so that a connection that was lost from sight counts as far as it was seen. From these
//! shares follows the mean residual life at each bin's edge.
//!
//! Before anything was seen, and beyond the longest connection that was, each connection is expected to
//! send as many packets more as it has sent. That is the law of Pareto with exponent 2, and enters as
//! `PRIOR` connections. Old connections fade: after each [`MEMORY`] of them all counts are halved.
//!
//! Nothing here reads a clock, and equal observations give equal estimates.

use core::fmt;

/// Bins of a life table: four an octave, up to 2^32 packets.
const BINS: usize = 128;

/// How many connections the expectation before any was seen counts for.
const PRIOR: f64 = 1.0;

/// After this many connections the counts are halved.
pub const MEMORY: u32 = 4096;

/// The table of means is computed anew after this many connections, or after each of the first ones.
const STALE: u32 = 16;

/// Connections whose lifetimes are taken to be alike: those to one port under one rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Class {
    /// The place of the rule in the policy.
    pub rule: u16,
    /// The service's port.
    pub port: u16,
}

impl Class {
    /// The class of connections between these ports under a rule. The service's port is taken to be the
    /// lower one: the other is most likely ephemeral.
    pub fn new(rule: usize, ports: [u16; 2]) -> Class {
        Class { rule: rule.try_into().unwrap_or(u16::MAX), port: ports[0].min(ports[1]) }
    }
}

/// The packets that a connection is expected to send yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Packets still to come.
    pub packets: u64,
    /// How many connections of its class ended and count, the older ones in part.
    pub ended: u32,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expected { packets, ended } = self;
        write!(f, "it is expected to send {packets} packets more, from {ended} connections like it that ended")
    }
}

/// The life table of one class.
#[derive(Clone, Debug)]
pub struct Survival {
    ended: [u32; BINS],
    left: [u32; BINS],
    /// The mean of what is still to come at each bin's lower edge, in packets.
    means: [f64; BINS + 1],
    counted: u32,
    stale: u32,
}

impl Default for Survival {
    fn default() -> Survival {
        let mut new = Survival { ended: [0; BINS], left: [0; BINS], means: [0.0; BINS + 1], counted: 0, stale: 0 };
        new.renew();
        new
    }
}

impl Survival {
    /// Counts a connection that ended after this many packets.
    pub fn ended(&mut self, packets: u64) {
        self.ended[bin(packets)] += 1;
        self.count();
    }

    /// Counts a connection that was lost from sight after this many packets, and went on.
    pub fn left(&mut self, packets: u64) {
        self.left[bin(packets)] += 1;
        self.count();
    }

    /// The packets that a connection is expected to send yet, which has sent this many.
    pub fn expected(&self, packets: u64) -> Expected {
        let (at, packets) = (bin(packets), packets.clamp(1, u32::MAX.into()) as f64);
        let within = (packets - edge(at)) / (edge(at + 1) - edge(at));
        let mean = self.means[at] + (self.means[at + 1] - self.means[at]) * within;
        Expected { packets: mean.round() as u64, ended: self.ended.iter().sum() }
    }

    fn count(&mut self) {
        (self.counted, self.stale) = (self.counted + 1, self.stale + 1);
        if self.counted >= MEMORY {
            for count in self.ended.iter_mut().chain(&mut self.left) {
                *count /= 2;
            }
            self.counted = self.ended.iter().chain(&self.left).sum();
        }
        if self.stale >= STALE.min(self.counted) {
            self.renew();
        }
    }

    /// Computes the means from the last bin to the first. Of those that reach a bin, the ones that end
    /// there send half of its width, and the others all of it and what follows.
    fn renew(&mut self) {
        self.stale = 0;
        let mut reached = 0.0;
        self.means[BINS] = edge(BINS);
        for at in (0..BINS).rev() {
            let (from, to) = (edge(at), edge(at + 1));
            let ended = f64::from(self.ended[at]);
            // One that was lost from sight in a bin was at risk in half of it.
            let at_risk = reached + ended + f64::from(self.left[at]) / 2.0;
            let ends = (ended + PRIOR * (1.0 - (from / to).powi(2))) / (at_risk + PRIOR);
            self.means[at] = (1.0 - ends) * (to - from + self.means[at + 1]) + ends * (to - from) / 2.0;
            reached += ended + f64::from(self.left[at]);
        }
    }
}

/// The bin of a number of packets; 0 packets count as 1.
fn bin(packets: u64) -> usize {
    let packets = packets.clamp(1, u32::MAX.into());
    let octave = packets.ilog2();
    // The two bits below the highest.
    let quarter = (packets << 2 >> octave) & 3;
    octave as usize * 4 + quarter as usize
}

/// The lower edge of a bin, in packets.
fn edge(bin: usize) -> f64 {
    (1u64 << (bin / 4)) as f64 * (1.0 + (bin % 4) as f64 / 4.0)
}

/// The life tables of a machine's classes. The class that was not used for longest goes if there are
/// too many.
#[derive(Clone, Debug)]
pub struct Lifetimes {
    classes: Vec<(Class, u64, Survival)>,
    at_most: usize,
    uses: u64,
    unknown: Survival,
}

impl Lifetimes {
    /// Tables for `at_most` classes, of some 2 KB each.
    pub fn new(at_most: usize) -> Lifetimes {
        Lifetimes { classes: Vec::new(), at_most: at_most.max(1), uses: 0, unknown: Survival::default() }
    }

    /// Counts a connection that ended after this many packets.
    pub fn ended(&mut self, class: Class, packets: u64) {
        self.of(class).ended(packets);
    }

    /// Counts a connection that was lost from sight after this many packets, and went on.
    pub fn left(&mut self, class: Class, packets: u64) {
        self.of(class).left(packets);
    }

    /// The packets that a connection is expected to send yet, which has sent this many.
    pub fn expected(&self, class: Class, packets: u64) -> Expected {
        let known = self.classes.iter().find(|(known, ..)| *known == class);
        known.map_or(&self.unknown, |(.., survival)| survival).expected(packets)
    }

    /// How many classes have a table.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    fn of(&mut self, class: Class) -> &mut Survival {
        self.uses += 1;
        let known = self.classes.iter().position(|(known, ..)| *known == class);
        let at = known.unwrap_or_else(|| {
            if self.classes.len() == self.at_most {
                let oldest = (0..self.at_most).min_by_key(|&at| self.classes[at].1).unwrap_or(0);
                self.classes.swap_remove(oldest);
            }
            self.classes.push((class, 0, Survival::default()));
            self.classes.len() - 1
        });
        let (_, used, survival) = &mut self.classes[at];
        *used = self.uses;
        survival
    }
}
