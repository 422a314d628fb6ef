//! Requests of a trace, grouped into connections: those of a client within 15 s (CH §4.2).
//!
//! Memory is bounded: if too many connections or requests are open, the one that was silent longest is
//! complete.

use super::{Damages, Item, Record};
use crate::workload::{HEAD_BYTES, Request, Session};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;

/// A client's next request is on another connection if it comes so much later, in seconds.
pub const WINDOW_S: u64 = 15;

/// How many connections and requests are open at most.
const MOST_CONNECTIONS: usize = 65_536;
const MOST_REQUESTS: usize = 1 << 20;

#[derive(Debug)]
struct Open {
    last: u64,
    requests: Vec<Request>,
}

/// Groups records.
#[derive(Debug)]
pub struct Sessions<I> {
    items: I,
    open: HashMap<u64, Open>,
    /// The open connections' clients by the time of their last request.
    silent: BTreeSet<(u64, u64)>,
    requests: usize,
    now: u64,
    complete: VecDeque<Session>,
    /// Damage so far.
    pub damages: Damages,
}

impl<I: Iterator<Item = io::Result<Item>>> Sessions<I> {
    /// Groups these records.
    pub fn new(items: I) -> Sessions<I> {
        let (open, silent, complete) = Default::default();
        Sessions { items, open, silent, requests: 0, now: 0, complete, damages: Damages::default() }
    }

    /// How many requests are held.
    pub fn held(&self) -> usize {
        self.requests
    }

    fn add(&mut self, record: Record) {
        // Where a trace's clock runs back, time stands still.
        self.now = self.now.max(record.seconds);
        while let Some(&(last, client)) = self.silent.first()
            && last + WINDOW_S < self.now
        {
            self.close(last, client);
        }
        let open = self.open.entry(record.client).or_insert(Open { last: self.now, requests: Vec::new() });
        self.silent.remove(&(open.last, record.client));
        open.last = self.now;
        let bytes = record.bytes.saturating_add(HEAD_BYTES);
        open.requests.push(Request { file: record.file, bytes, dynamic: false, cached: true });
        self.silent.insert((open.last, record.client));
        self.requests += 1;
        if self.open.len() > MOST_CONNECTIONS || self.requests > MOST_REQUESTS {
            self.close_first();
        }
    }

    fn close_first(&mut self) -> bool {
        let first = self.silent.first().copied();
        if let Some((last, client)) = first {
            self.close(last, client);
        }
        first.is_some()
    }

    fn close(&mut self, last: u64, client: u64) {
        self.silent.remove(&(last, client));
        if let Some(Open { requests, .. }) = self.open.remove(&client) {
            self.requests -= requests.len();
            self.complete.push_back(Session { requests, kbps: None });
        }
    }
}

impl<I: Iterator<Item = io::Result<Item>>> Iterator for Sessions<I> {
    type Item = Session;

    fn next(&mut self) -> Option<Session> {
        while self.complete.is_empty() {
            match self.items.next() {
                Some(Ok(Item::Record(record))) => self.add(record),
                Some(Ok(Item::Damage(damage))) => self.damages.add(damage),
                Some(Err(error)) if self.damages.failed.is_none() => self.damages.failed = Some(error.to_string()),
                // The end, or an error again: the open connections are complete.
                _ if self.close_first() => {}
                _ => return None,
            }
        }
        self.complete.pop_front()
    }
}
