//! The connections that load an engine most, by the space-saving sketch (Metwally, Agrawal and
//! El Abbadi, ICDT 2005).
//!
//! The sketch keeps a fixed number of counters, whatever the number of connections. A sample of a
//! connection that has no counter takes over the smallest one and continues its count. So each of
//! `n` counters is too large by at most the number of samples divided by `n`, and every connection
//! with more samples than that has a counter.
//!
//! Samples age: [`Heavy::age`] halves all counts, so that a connection that was busy long ago does
//! not count as heavy now.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counter {
    connection: u64,
    samples: u32,
}

/// A space-saving sketch of connections.
#[derive(Clone, Debug)]
pub struct Heavy {
    counters: Vec<Counter>,
    most: usize,
}

impl Heavy {
    /// A sketch of `counters` counters, at least one. Each sample examines all of them once.
    pub fn new(counters: usize) -> Heavy {
        let most = counters.max(1);
        Heavy { counters: Vec::with_capacity(most), most }
    }

    /// Counts a sample of a connection.
    pub fn count(&mut self, connection: u64) {
        if let Some(counter) = self.counters.iter_mut().find(|counter| counter.connection == connection) {
            counter.samples = counter.samples.saturating_add(1);
        } else if self.counters.len() < self.most {
            self.counters.push(Counter { connection, samples: 1 });
        } else if let Some(smallest) = self.counters.iter_mut().min_by_key(|counter| counter.samples) {
            *smallest = Counter { connection, samples: smallest.samples.saturating_add(1) };
        }
    }

    /// Forgets a connection that has ended or has left.
    pub fn forget(&mut self, connection: u64) {
        self.counters.retain(|counter| counter.connection != connection);
    }

    /// Halves all counts, and gives up the counters that reach zero.
    pub fn age(&mut self) {
        self.counters.retain_mut(|counter| {
            counter.samples /= 2;
            counter.samples > 0
        });
    }

    /// The connections that have a counter, the heaviest first.
    pub fn heaviest(&self) -> Vec<u64> {
        let mut sorted = self.counters.clone();
        sorted.sort_by_key(|counter| core::cmp::Reverse(counter.samples));
        sorted.into_iter().map(|counter| counter.connection).collect()
    }
}
