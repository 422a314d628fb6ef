//! Workloads W and I: the World Cup's and IBM's site, by documented distributions.
//!
//! Files are chosen by Zipf's law with exponent 1 (CH reference 7); their sizes are log-normal. Requests of a
//! connection are bounded Pareto, since a connection has the requests of a client within 15 s (CH §4.2).
//!
//! The server's memory of 2 GB holds all of them.
//!
//! * W: Arlitt and Jin (IEEE Network, May 2000) count 1.35 billion requests and 5 TB, which is 3.7 KB each.
//! * I: the paper says nothing of sizes. Estimated: smaller answers than W's, and more requests of a
//!   connection, since nearly all of its connections fit a NIC of 600 MIPS.

use super::distributions::{Zipf, log_normal, pareto};
use super::{HEAD_BYTES, Request, Session, Workload};

const FILES: u32 = 4096;
const LARGEST_BYTES: f64 = 1_048_576.0;

/// Sizes and requests of a site.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Standard deviation of the sizes' logarithm.
    sigma: f64,
    requests_shape: f64,
    most_requests: f64,
    /// The mean of a response without its head, which sizes are scaled to.
    mean_bytes: f64,
}

/// A generator of a site's sessions.
#[derive(Clone, Debug)]
pub struct Site {
    rng: fastrand::Rng,
    sizes: Vec<u32>,
    popularity: Zipf,
    shape: Shape,
}

impl Site {
    /// Workload W.
    pub fn world_cup(seed: u64) -> Site {
        Site::new(seed, Shape { sigma: 2.0, requests_shape: 1.1, most_requests: 150.0, mean_bytes: 3690.0 })
    }

    /// Workload I.
    pub fn ibm(seed: u64) -> Site {
        Site::new(seed, Shape { sigma: 1.6, requests_shape: 0.9, most_requests: 80.0, mean_bytes: 2700.0 })
    }

    fn new(seed: u64, shape: Shape) -> Site {
        let popularity = Zipf::new(FILES, 1.0);
        // The files are the same for each seed.
        let mut rng = fastrand::Rng::with_seed(1998);
        let drawn: Vec<f64> = (0..FILES).map(|_| log_normal(&mut rng, 1.0, shape.sigma)).collect();
        let weights = (1..=FILES).map(|rank| 1.0 / f64::from(rank));
        let total: f64 = weights.clone().sum();
        let mean = drawn.iter().zip(weights).map(|(size, weight)| size * weight).sum::<f64>() / total;
        let scale = shape.mean_bytes / mean;
        let sizes = drawn.iter().map(|size| (size * scale).min(LARGEST_BYTES) as u32 + 1).collect();
        let rng = fastrand::Rng::with_seed(seed);
        Site { rng, sizes, popularity, shape }
    }
}

impl Workload for Site {
    fn session(&mut self) -> Option<Session> {
        let count = pareto(&mut self.rng, self.shape.requests_shape, self.shape.most_requests);
        let requests = (0..count).map(|_| {
            let file = self.popularity.draw(&mut self.rng);
            Request { file, bytes: HEAD_BYTES + self.sizes[file as usize], dynamic: false, cached: true }
        });
        Some(Session { requests: requests.collect(), kbps: None })
    }
}
