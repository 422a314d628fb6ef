//! Workload W: requests of the World Cup trace's kind, by documented distributions.
//!
//! * Requests of a connection: bounded Pareto, shape 1.1, 1 to 40, rounded down. CH replays the
//!   requests of a client within 15 s on one connection (§4.2); in its run a client makes some 40.
//! * Files: 4,096, chosen by Zipf's law with exponent 1. Sizes are log-normal, median 1.5 KB, sigma
//!   1.8, at most 1 MB. Lives differ by sizes more than by requests, since the run is so short.

const FILES: usize = 4096;
const MEDIAN_BYTES: f64 = 1500.0;
const SIGMA: f64 = 1.8;
const LARGEST_BYTES: f64 = 1_048_576.0;
const PARETO_SHAPE: f64 = 1.1;
const MOST_REQUESTS: f64 = 40.0;

/// Bytes of a request and of a response's head. Estimated: what browsers and servers of 1998 sent.
pub const REQUEST_BYTES: u32 = 300;
const HEAD_BYTES: u32 = 250;

/// The requests that a connection will make.
#[derive(Clone, Debug)]
pub struct Session {
    /// The file of each request.
    pub files: Vec<u16>,
    /// Packets that the server will send for data, which only an oracle may read.
    pub packets: u32,
}

/// A generator of sessions, by a seed.
#[derive(Clone, Debug)]
pub struct Workload {
    rng: fastrand::Rng,
    sizes: Vec<u32>,
    /// Sum of the probabilities of the files up to each.
    popularity: Vec<f64>,
}

impl Workload {
    /// Workload W.
    pub fn world_cup(seed: u64) -> Workload {
        let mut rng = fastrand::Rng::with_seed(seed);
        let sizes = (0..FILES).map(|_| size(&mut rng)).collect();
        let mut sum = 0.0;
        let popularity = (1..=FILES).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        let popularity = popularity.collect();
        Workload { rng, sizes, popularity }
    }

    /// The next connection's requests.
    pub fn session(&mut self) -> Session {
        let low = MOST_REQUESTS.powf(-PARETO_SHAPE);
        let u = low + self.rng.f64() * (1.0 - low);
        let count = u.powf(-1.0 / PARETO_SHAPE) as usize;
        let files: Vec<u16> = (0..count.max(1)).map(|_| self.file()).collect();
        let packets = files.iter().map(|&file| self.response_bytes(file).div_ceil(1448)).sum();
        Session { files, packets }
    }

    fn file(&mut self) -> u16 {
        let total = self.popularity.last().copied().unwrap_or_default();
        let at = self.rng.f64() * total;
        self.popularity.partition_point(|&sum| sum < at).min(FILES - 1) as u16
    }

    /// Bytes of a response with head.
    pub fn response_bytes(&self, file: u16) -> u32 {
        HEAD_BYTES + self.sizes[usize::from(file)]
    }
}

/// A log-normal size (Box and Muller).
fn size(rng: &mut fastrand::Rng) -> u32 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let normal = radius * (core::f64::consts::TAU * rng.f64()).cos();
    (MEDIAN_BYTES * (SIGMA * normal).exp()).min(LARGEST_BYTES) as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CH figure 4.
    #[test]
    fn half_of_the_connections_send_less_than_a_tenth_and_the_longest_tenth_more_than_45_percent() {
        let mut workload = Workload::world_cup(1);
        let mut packets: Vec<u32> = (0..20_000).map(|_| workload.session().packets).collect();
        packets.sort_unstable();
        let sum = |part: &[u32]| part.iter().map(|&n| f64::from(n)).sum::<f64>();
        let all = sum(&packets);
        let (short, long) = (sum(&packets[..10_000]) / all, sum(&packets[18_000..]) / all);
        println!("half {short:.3}, longest tenth {long:.3}, mean {:.1}", all / 20_000.0);
        assert!(short < 0.10, "{short}");
        assert!(long > 0.45, "{long}");
    }
}
