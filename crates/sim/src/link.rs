//! One direction of a link: what happens to a frame on its way.
//!
//! ```text
//!   send --> queue (bytes, drops at the tail, marks CE above a depth)
//!        --> rate (one frame after the other)
//!        --> delay, jitter (in order or not), late by chance (reordering)
//!        --> lost (each alone, or in bursts) | doubled | damaged --> arrival
//! ```
//!
//! Damage is what the Internet checksum is sure to find: one bit, or a burst of
//! up to 15 (RFC 1071). Link headers and ARP, which only an Ethernet FCS would
//! protect, are spared: a NIC drops such frames, and loss does that already.

use crate::chance::{Ppm, up_to};
use crate::marked;
use baton_tcp::time::{Duration, Instant};
use baton_wire::packet;

/// How frames get lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loss {
    /// No frames get lost.
    #[default]
    None,
    /// Each with the same probability.
    Random(Ppm),
    /// In bursts (after Gilbert and Elliott): all that is sent while the link is bad.
    Bursts {
        /// The link turns bad, tried at each frame.
        begin: Ppm,
        /// It turns good again after this long, at most.
        longest: Duration,
    },
}

/// Configuration of one direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Bytes a second; 0 for no limit.
    pub rate: u64,
    /// Bytes that wait for the link, at most.
    pub queue_bytes: u64,
    /// ECN-capable packets are marked while more than this waits (RFC 3168 §5).
    pub mark_above_bytes: Option<u64>,
    /// Time on the way.
    pub delay: Duration,
    /// Up to this much more, different for each frame.
    pub jitter: Duration,
    /// Jitter keeps frames in order.
    pub in_order: bool,
    /// How frames get lost.
    pub loss: Loss,
    /// A frame is late by `late_by`, so that others overtake it.
    pub late: Ppm,
    /// How late.
    pub late_by: Duration,
    /// A frame arrives twice.
    pub doubled: Ppm,
    /// Bits of a frame change.
    pub damaged: Ppm,
    /// Payload changes, and the checksum field says that there is no checksum.
    pub unsummed: Ppm,
}

impl Default for LinkConfig {
    /// A link of 1 Gb/s and 100 µs that does no harm.
    fn default() -> LinkConfig {
        LinkConfig {
            rate: 125_000_000,
            queue_bytes: 1 << 20,
            mark_above_bytes: None,
            delay: Duration::from_micros(100),
            jitter: Duration::ZERO,
            in_order: true,
            loss: Loss::None,
            late: Ppm::NEVER,
            late_by: Duration::ZERO,
            doubled: Ppm::NEVER,
            damaged: Ppm::NEVER,
            unsummed: Ppm::NEVER,
        }
    }
}

impl LinkConfig {
    /// The same link without faults: rate, queue and delay stay.
    pub fn calm(self) -> LinkConfig {
        LinkConfig {
            rate: self.rate,
            queue_bytes: self.queue_bytes.max(64 * 1024),
            mark_above_bytes: self.mark_above_bytes,
            delay: self.delay,
            ..LinkConfig::default()
        }
    }
}

/// Counts of frames by fate on a link so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Frames given to it.
    pub sent: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Dropped at the tail of the queue.
    pub overflowed: u64,
    /// Overtaken by others, by chance.
    pub late: u64,
    /// Arrived twice.
    pub doubled: u64,
    /// Arrived with bits changed.
    pub damaged: u64,
    /// Arrived with payload changed and no checksum.
    pub unsummed: u64,
    /// Marked Congestion Experienced.
    pub marked: u64,
}

impl std::ops::Add for LinkCounters {
    type Output = LinkCounters;
    fn add(self, other: LinkCounters) -> LinkCounters {
        LinkCounters {
            sent: self.sent + other.sent,
            lost: self.lost + other.lost,
            overflowed: self.overflowed + other.overflowed,
            late: self.late + other.late,
            doubled: self.doubled + other.doubled,
            damaged: self.damaged + other.damaged,
            unsummed: self.unsummed + other.unsummed,
            marked: self.marked + other.marked,
        }
    }
}

/// One direction of a link at work.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    rng: fastrand::Rng,
    /// Bytes before the IP header, which damage spares.
    link_header: usize,
    /// When all that waits will have left.
    free_at: Instant,
    /// The last arrival planned, for links that keep order.
    last_arrival: Instant,
    bad_until: Instant,
    counters: LinkCounters,
}

impl Link {
    /// A link that draws its faults from `rng`; `link_header` bytes of each frame
    /// come before its IP header.
    pub fn new(config: LinkConfig, link_header: usize, rng: fastrand::Rng) -> Link {
        let counters = LinkCounters::default();
        let (free_at, last_arrival, bad_until) = (Instant(0), Instant(0), Instant(0));
        Link { config, rng, link_header, free_at, last_arrival, bad_until, counters }
    }

    /// Changes the link's configuration.
    pub fn reconfigure(&mut self, config: LinkConfig) {
        self.config = config;
        self.bad_until = Instant(0);
    }

    /// The link's configuration.
    pub fn config(&self) -> LinkConfig {
        self.config
    }

    /// Counts of its frames by fate so far.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Sends `frame` at `now`; `arrive` is told when and how it arrives, if it
    /// does, and once more if it arrives twice.
    pub fn send(&mut self, now: Instant, mut frame: Vec<u8>, arrive: &mut dyn FnMut(Instant, Vec<u8>)) {
        self.counters.sent += 1;
        let waiting = self.waiting_bytes(now);
        if waiting > 0 && waiting + frame.len() as u64 > self.config.queue_bytes {
            self.counters.overflowed += 1;
            return;
        }
        if self.config.mark_above_bytes.is_some_and(|depth| waiting > depth) && mark_ce(&mut frame, self.link_header) {
            self.counters.marked += 1;
        }
        let left = self.serialize(now, frame.len());
        if self.is_lost(now) {
            self.counters.lost += 1;
            return;
        }
        if self.config.doubled.draw(&mut self.rng) {
            self.counters.doubled += 1;
            let copy = self.damage(frame.clone());
            arrive(self.arrival(left), copy);
        }
        let frame = self.damage(frame);
        arrive(self.arrival(left), frame);
    }

    /// Bytes that were sent and have not left yet.
    fn waiting_bytes(&self, now: Instant) -> u64 {
        let wait = u128::from(self.free_at.since(now).0);
        (wait * u128::from(self.config.rate) / 1_000_000_000) as u64
    }

    /// When a frame of `len` bytes has left, after all before it.
    fn serialize(&mut self, now: Instant, len: usize) -> Instant {
        let takes = match self.config.rate {
            0 => Duration::ZERO,
            rate => Duration(len as u64 * 1_000_000_000 / rate),
        };
        self.free_at = Instant(self.free_at.0.max(now.0)) + takes;
        self.free_at
    }

    fn is_lost(&mut self, now: Instant) -> bool {
        match self.config.loss {
            Loss::None => false,
            Loss::Random(chance) => chance.draw(&mut self.rng),
            Loss::Bursts { begin, longest } => {
                if now >= self.bad_until && begin.draw(&mut self.rng) {
                    self.bad_until = now + up_to(&mut self.rng, longest);
                }
                now < self.bad_until
            }
        }
    }

    fn arrival(&mut self, left: Instant) -> Instant {
        let mut at = left + self.config.delay + up_to(&mut self.rng, self.config.jitter);
        if self.config.late.draw(&mut self.rng) {
            self.counters.late += 1;
            return at + self.config.late_by;
        }
        if self.config.in_order {
            at = at.max(self.last_arrival);
        }
        self.last_arrival = self.last_arrival.max(at);
        at
    }

    fn damage(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        if self.config.unsummed.draw(&mut self.rng) {
            let link = if self.link_header == 0 { packet::Link::Ip } else { packet::Link::Ethernet };
            self.counters.unsummed += u64::from(marked::damage(&mut frame, link, &mut self.rng));
            return frame;
        }
        if !self.config.damaged.draw(&mut self.rng) || !is_ip(&frame, self.link_header) {
            return frame;
        }
        self.counters.damaged += 1;
        let first = self.link_header * 8;
        let width = self.rng.usize(1..=15).min(frame.len() * 8 - first);
        let start = self.rng.usize(first..=frame.len() * 8 - width);
        // The ends of a burst are wrong, what lies between may be.
        for bit in start..start + width {
            let end = bit == start || bit == start + width - 1;
            if end || self.rng.bool() {
                frame[bit / 8] ^= 0x80 >> (bit % 8);
            }
        }
        frame
    }
}

/// True if an IP packet, not ARP, follows the link header.
fn is_ip(frame: &[u8], link_header: usize) -> bool {
    let version = frame.get(link_header).map(|byte| byte >> 4);
    let arp = link_header >= 2 && frame.get(link_header - 2..link_header) == Some(&[0x08, 0x06]);
    !arp && matches!(version, Some(4 | 6))
}

/// Sets Congestion Experienced in an ECN-capable packet; false if the packet is not
/// ECN-capable.
fn mark_ce(frame: &mut [u8], link_header: usize) -> bool {
    if !is_ip(frame, link_header) {
        return false;
    }
    let Some(header) = frame[link_header..].first_chunk_mut::<12>() else { return false };
    if header[0] >> 4 == 4 {
        let old = u16::from_be_bytes([header[0], header[1]]);
        if old & 3 == 0 {
            return false;
        }
        header[1] |= 3;
        let sum = u16::from_be_bytes([header[10], header[11]]);
        let sum = baton_wire::checksum::update(sum, old, old | 3);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        true
    } else {
        if header[1] & 0x30 == 0 {
            return false;
        }
        header[1] |= 0x30;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: u16, len: usize) -> Vec<u8> {
        let mut frame = vec![0u8; len];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[15] = 2;
        frame[40..42].copy_from_slice(&id.to_be_bytes());
        frame
    }

    fn id(frame: &[u8]) -> u16 {
        u16::from_be_bytes([frame[40], frame[41]])
    }

    /// Sends `count` frames a microsecond apart and returns the arrivals, in order
    /// of time.
    fn run(config: LinkConfig, count: u16) -> (Vec<(Instant, Vec<u8>)>, LinkCounters) {
        let mut link = Link::new(config, 14, fastrand::Rng::with_seed(7));
        let mut got = Vec::new();
        for i in 0..count {
            link.send(Instant(u64::from(i) * 1000), frame(i, 1000), &mut |at, frame| got.push((at, frame)));
        }
        got.sort_by_key(|(at, _)| *at);
        (got, link.counters())
    }

    const IDLE: LinkConfig = LinkConfig {
        rate: 0,
        queue_bytes: 1 << 20,
        mark_above_bytes: None,
        delay: Duration::from_micros(50),
        jitter: Duration::ZERO,
        in_order: true,
        loss: Loss::None,
        late: Ppm::NEVER,
        late_by: Duration::ZERO,
        doubled: Ppm::NEVER,
        damaged: Ppm::NEVER,
        unsummed: Ppm::NEVER,
    };

    #[test]
    fn a_calm_link_only_delays() {
        let (got, counters) = run(IDLE, 100);
        for (i, (at, bytes)) in got.iter().enumerate() {
            assert_eq!((at.0, bytes), (i as u64 * 1000 + 50_000, &frame(i as u16, 1000)));
        }
        assert_eq!(counters, LinkCounters { sent: 100, ..LinkCounters::default() });
    }

    #[test]
    fn rate_spaces_frames_and_the_queue_overflows() {
        // 1000 bytes take 10 µs and come every 1 µs; 4 of them may wait.
        let (got, counters) = run(LinkConfig { rate: 100_000_000, queue_bytes: 4000, ..IDLE }, 40);
        for pair in got.windows(2) {
            assert_eq!(pair[1].0.since(pair[0].0), Duration::from_micros(10));
        }
        assert_eq!(counters.overflowed, 40 - got.len() as u64);
        assert!((7..=9).contains(&got.len()), "{}", got.len());
    }

    #[test]
    fn loss_comes_alone_or_in_bursts() {
        let lost_runs = |loss| {
            let (got, counters) = run(LinkConfig { loss, ..IDLE }, 20_000);
            assert_eq!(counters.lost + got.len() as u64, 20_000);
            let gaps = got.windows(2).filter(|pair| id(&pair[1].1) != id(&pair[0].1) + 1).count() as u64;
            (counters.lost, gaps)
        };
        let (lost, gaps) = lost_runs(Loss::Random(Ppm(100_000)));
        assert!((1_700..2_300).contains(&lost) && gaps * 10 > lost * 8, "{lost} lost in {gaps} gaps");
        let (lost, gaps) = lost_runs(Loss::Bursts { begin: Ppm(10_000), longest: Duration::from_micros(20) });
        assert!((1_200..2_400).contains(&lost) && gaps * 7 < lost, "{lost} lost in {gaps} gaps");
    }

    #[test]
    fn late_frames_are_overtaken_and_jitter_keeps_order_if_told() {
        let ids = |config| run(config, 1000).0.iter().map(|(_, frame)| id(frame)).collect::<Vec<_>>();
        let late = ids(LinkConfig { late: Ppm(50_000), late_by: Duration::from_micros(20), ..IDLE });
        assert!(!late.is_sorted() && late.len() == 1000);
        let jitter = LinkConfig { jitter: Duration::from_micros(20), ..IDLE };
        assert!(ids(jitter).is_sorted());
        assert!(!ids(LinkConfig { in_order: false, ..jitter }).is_sorted());
    }

    #[test]
    fn doubles_and_damage_are_counted() {
        let (got, counters) = run(LinkConfig { doubled: Ppm(100_000), damaged: Ppm(100_000), ..IDLE }, 5_000);
        assert_eq!(got.len() as u64, 5_000 + counters.doubled);
        assert!((400..600).contains(&counters.doubled), "{counters:?}");
        let whole = frame(0, 1000);
        let damaged =
            got.iter().filter(|(_, f)| f[14..40] != whole[14..40] || f[42..] != whole[42..] || id(f) >= 5_000);
        assert!(damaged.count() as u64 > counters.damaged * 9 / 10);
        assert!(got.iter().all(|(_, f)| f[..14] == whole[..14]), "link headers are spared");
    }

    #[test]
    fn damage_never_passes_the_checksum() {
        let config = LinkConfig { damaged: Ppm(1_000_000), ..IDLE };
        let mut link = Link::new(config, 0, fastrand::Rng::with_seed(3));
        for len in 20..2_000usize {
            let mut packet: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            packet[0] = 0x45;
            packet[2..4].fill(0);
            let before = baton_wire::checksum::rfc1071(&packet);
            link.send(Instant(0), packet, &mut |_, damaged| {
                assert_ne!(baton_wire::checksum::rfc1071(&damaged), before, "{len}");
            });
        }
    }

    #[test]
    fn a_deep_queue_marks_what_can_be_marked() {
        let config = LinkConfig { rate: 100_000_000, mark_above_bytes: Some(2000), ..IDLE };
        let mut link = Link::new(config, 14, fastrand::Rng::with_seed(3));
        let mut ecn = Vec::new();
        for i in 0..8 {
            let mut bytes = frame(i, 1000);
            bytes[15] = if i % 2 == 0 { 2 } else { 0 };
            let sum = !baton_wire::checksum::rfc1071(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            link.send(Instant(0), bytes, &mut |_, frame| {
                let sum = baton_wire::checksum::rfc1071(&frame[14..34]);
                ecn.push((frame[15], sum));
            });
        }
        let marks: Vec<u8> = ecn.iter().map(|(tos, _)| *tos).collect();
        assert_eq!(marks, [2, 0, 2, 0, 3, 0, 3, 0]);
        assert!(ecn.iter().all(|(_, sum)| *sum == 0xffff), "the header checksum follows the mark");
        assert_eq!(link.counters().marked, 2);
    }
}
