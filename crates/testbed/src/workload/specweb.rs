//! Workloads S and D: clients of SPECweb99.
//!
//! * Files: a directory by Zipf's law with exponent 1; of its files of four classes, 35 % of the requests
//!   go to 0.1 KB times 1 to 9, 50 % to 1 KB, 14 % to 10 KB and 1 % to 100 KB. The fifth of
//!   nine files is asked for most; the mean is some 15 KB.
//! * The server's memory holds the most popular directories; the others' files are read for each request.
//! * In D, 30 % of the requests are dynamic (CH §4.2); they have the sizes of the others.
//! * Requests of a connection: 30 % of the requests are sent on connections of their own, the others 5 to
//!   15 on one, as SPECweb99's mixture of HTTP/1.0 and persistent connections.
//! * A client holds its rate between 320 and 400 kb/s (CH §4.2): each draws its bound evenly in between.

use super::distributions::Zipf;
use super::{HEAD_BYTES, Request, Session, Workload};

/// Accesses to the nine files of a class, in percent, from the smallest on.
const WITHIN: [u32; 9] = [4, 6, 9, 18, 35, 12, 7, 5, 4];
/// The most popular directories, of 5 MB each, fill three quarters of the server's 2 GB (CH table 2).
const CACHED: u32 = 300;
const DYNAMIC: f64 = 0.3;
const SHORT: f64 = 0.81;
const KBPS: core::ops::RangeInclusive<u32> = 320..=400;

/// A generator of SPECweb99's sessions.
#[derive(Clone, Debug)]
pub struct SpecWeb {
    rng: fastrand::Rng,
    directories: Zipf,
    dynamic: bool,
}

impl SpecWeb {
    /// S, or D if some responses are dynamic.
    /// SPECweb99 has 25 directories and two for each three clients.
    pub fn new(seed: u64, clients: u32, dynamic: bool) -> SpecWeb {
        let directories = Zipf::new(25 + clients * 2 / 3, 1.0);
        SpecWeb { rng: fastrand::Rng::with_seed(seed), directories, dynamic }
    }

    fn request(&mut self) -> Request {
        let (class, unit) = match self.rng.f64() {
            at if at < 0.35 => (0, 102.4),
            at if at < 0.85 => (1, 1024.0),
            at if at < 0.99 => (2, 10_240.0),
            _ => (3, 102_400.0),
        };
        let mut at = self.rng.u32(0..100);
        let mut nth = 0;
        while at >= WITHIN[nth as usize] {
            at -= WITHIN[nth as usize];
            nth += 1;
        }
        let directory = self.directories.draw(&mut self.rng);
        let file = directory * 36 + class * 9 + nth;
        let bytes = HEAD_BYTES + (unit * f64::from(nth + 1)) as u32;
        let dynamic = self.dynamic && self.rng.f64() < DYNAMIC;
        Request { file, bytes, dynamic, cached: directory < CACHED }
    }
}

impl Workload for SpecWeb {
    fn session(&mut self) -> Option<Session> {
        // 81 % of the connections have 30 % of the requests then.
        let count = if self.rng.f64() < SHORT { 1 } else { self.rng.u32(5..=15) };
        let requests = (0..count).map(|_| self.request()).collect();
        Some(Session { requests, kbps: Some(self.rng.u32(KBPS)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(dynamic: bool) -> Vec<Request> {
        let mut specweb = SpecWeb::new(1, 100, dynamic);
        (0..20_000).filter_map(|_| specweb.session()).flat_map(|session| session.requests).collect()
    }

    #[test]
    fn the_mean_file_has_some_15_kb_and_30_percent_of_d_are_dynamic() {
        let all = requests(true);
        let mean = all.iter().map(|r| f64::from(r.bytes)).sum::<f64>() / all.len() as f64;
        assert!((13_000.0..16_500.0).contains(&mean), "{mean}");
        let dynamic = all.iter().filter(|r| r.dynamic).count() as f64 / all.len() as f64;
        assert!((0.28..0.32).contains(&dynamic), "{dynamic}");
        assert!(requests(false).iter().all(|r| !r.dynamic));
    }

    #[test]
    fn thirty_percent_of_the_requests_have_a_connection_of_their_own() {
        let mut specweb = SpecWeb::new(1, 100, false);
        let sessions: Vec<Session> = (0..20_000).filter_map(|_| specweb.session()).collect();
        let alone = sessions.iter().filter(|s| s.requests.len() == 1).count() as f64;
        let all = sessions.iter().map(|s| s.requests.len()).sum::<usize>() as f64;
        assert!((0.27..0.33).contains(&(alone / all)), "{}", alone / all);
    }
}
