//! Connections that went home for their engine's load and were given back: how often, and when. Their programs
//! ask for them again as for any other, and find them refused until their pause is over.

use super::connection::Connection;
use super::state::State;
use baton_policy::load;
use baton_wire::addr::Tuple;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Entries of a generation. There are two; the older one goes once the younger one is full.
const GENERATION: usize = 1 << 15;

/// When a connection went home, and how often it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    times: u32,
    since: Instant,
}

/// The connections that went home.
#[derive(Default)]
pub(super) struct SentHome {
    younger: HashMap<Tuple, Entry>,
    older: HashMap<Tuple, Entry>,
}

impl SentHome {
    /// The broker forgets a connection in the kernel. Keeps how often it went home for its engine's load; that
    /// counts although a later way to the engine failed.
    pub fn note(&mut self, connection: &Connection) {
        if connection.shed > 0 && matches!(connection.state, State::Kernel(_)) {
            self.keep(connection.tuple(), Entry { times: connection.shed, since: connection.since });
        }
    }

    fn keep(&mut self, tuple: Tuple, entry: Entry) {
        if self.younger.len() >= GENERATION {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(tuple, entry);
    }

    fn find(&self, tuple: &Tuple) -> Option<Entry> {
        self.younger.get(tuple).or_else(|| self.older.get(tuple)).copied()
    }

    /// When a connection went home, and how long it has to stay there yet; `None` if it did not go home for
    /// load.
    pub fn pause(&self, tuple: &Tuple, now: Instant) -> Option<(Instant, Duration)> {
        let Entry { times, since } = self.find(tuple)?;
        let pause = Duration::from_secs(load::pause_s(times));
        Some((since, pause.saturating_sub(now.saturating_duration_since(since))))
    }

    /// Forgets a connection that returns to the engine, and says how often it went home.
    pub fn take(&mut self, tuple: &Tuple) -> u32 {
        let times = self.find(tuple).map_or(0, |entry| entry.times);
        self.younger.remove(tuple);
        self.older.remove(tuple);
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn tuple(port: u32) -> Tuple {
        let end = |host: [u8; 4], port: u16| SocketAddr::from((host, port));
        Tuple::new(end([10, 0, 0, 1], 80), end([10, 1, 0, (port >> 16) as u8], port as u16))
    }

    #[test]
    fn a_pause_doubles_with_each_time_and_memory_is_bounded() {
        let (mut all, begun) = (SentHome::default(), Instant::now());
        assert_eq!((all.pause(&tuple(1), begun), all.take(&tuple(1))), (None, 0));
        all.keep(tuple(1), Entry { times: 3, since: begun });
        let later = begun + Duration::from_secs(1);
        assert_eq!(all.pause(&tuple(1), later), Some((begun, Duration::from_secs(3))));
        assert_eq!(all.pause(&tuple(1), begun + Duration::from_secs(9)), Some((begun, Duration::ZERO)));
        assert_eq!((all.take(&tuple(1)), all.pause(&tuple(1), later)), (3, None));
        for port in 0..5 * GENERATION as u32 {
            all.keep(tuple(port), Entry { times: 1, since: begun });
            assert!(all.pause(&tuple(port), begun).is_some());
        }
        assert!(all.younger.len() + all.older.len() <= 2 * GENERATION);
        assert_eq!(all.pause(&tuple(0), begun), None);
    }
}
