//! Connections in the engines of a service, and in those inside the programs that it serves.

use super::Source;
use anyhow::Context;
use baton_client::{Observed, Service, Sighting};
use baton_ipc::engine::monotonic;
use baton_ipc::message::Selector;
use baton_kernel::latency::Wanted;
use baton_lab::report::latency::{Earlier, Entry, Report};
use baton_latency::{Layer, SLOTS, Table};
use baton_wire::addr::Tuple;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The connections that engines have.
pub struct Engines {
    service: Service,
    which: Selector,
    memories: BTreeMap<u32, Memory>,
    /// Connections that have left, the first one first.
    left: VecDeque<Entry>,
    earlier: Earlier,
    left_out: u64,
    /// Messages without times, of memories that are no more.
    missed: u64,
    /// Programs of whose calls nothing is known.
    silent: BTreeSet<String>,
    /// Arrivals of memories that are no more, by engine.
    arrivals: BTreeMap<String, Arrivals>,
    /// The rates at which engines record, where they leave messages out: one in this many.
    rates: BTreeSet<u32>,
}

/// Messages that engines received, and those of them whose frames' arrivals are known.
#[derive(Clone, Copy, Default)]
struct Arrivals {
    all: u64,
    known: u64,
}

/// The memory of a program and an engine.
struct Memory {
    observed: Observed,
    program: String,
    slots: Vec<Seen>,
    /// Connections left out and messages missed before we came.
    before: [u64; 2],
    /// Messages received before we came.
    arrivals_before: Arrivals,
    /// When we came; 0 if nobody was there before us.
    since_ns: u64,
    /// Nothing more is stamped there.
    over: bool,
}

/// The last known tenant of a slot.
#[derive(Clone, Default)]
struct Seen {
    /// How often it had been given.
    given: u64,
    /// The connection that had it last is among those that have left.
    taken: bool,
    /// The times that it had before we came.
    before: Option<Table>,
}

impl Engines {
    /// Starts to observe one message in `every`.
    ///
    /// # Errors
    /// Those of [`Service::observe_some`].
    pub fn open(service: Service, wanted: &Wanted, every: u32) -> anyhow::Result<Engines> {
        let (which, pid) = match *wanted {
            Wanted::All => (Selector::All, None),
            Wanted::Port(port) => (Selector::Port(port), None),
            Wanted::Tuple(tuple) => (Selector::Tuple(tuple), None),
            Wanted::Pid(pid) => (Selector::All, Some(pid)),
        };
        service.observe_some(which, pid, every).context("the service does not show times")?;
        Ok(Engines {
            service,
            which,
            memories: BTreeMap::new(),
            left: VecDeque::new(),
            earlier: Earlier { place: "engine", table: Table::default(), count: 0 },
            left_out: 0,
            missed: 0,
            silent: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            rates: BTreeSet::new(),
        })
    }

    /// True if the service has this connection.
    pub fn knows(&self, tuple: &Tuple) -> bool {
        self.service.list().is_ok_and(|entries| entries.iter().any(|entry| entry.tuple == *tuple))
    }
}

impl Arrivals {
    fn of(table: &Table) -> Arrivals {
        Arrivals { all: table.layer(Layer::Stack).count, known: table.layer(Layer::ReceiveDevice).count }
    }

    fn add(&mut self, more: Arrivals) {
        self.all = self.all.saturating_add(more.all);
        self.known = self.known.saturating_add(more.known);
    }

    /// Returns the line about an engine, if more than a hundredth is not known. A few messages came before their
    /// arrivals were noted, or are just being recorded.
    fn note(self, engine: &str) -> Option<String> {
        let unknown = self.all.saturating_sub(self.known);
        (unknown > self.all / 100).then(|| {
            format!(
                "engine: {engine} does not know when the frames of {unknown} of {} messages arrived; their receive \
                 begins when the engine took them from its device",
                self.all
            )
        })
    }
}

impl Memory {
    fn new(observed: Observed) -> Memory {
        let slots = observed.memory.tenants().enumerate().map(|(at, (given, live))| {
            if observed.fresh {
                return Seen::default();
            }
            // Another observer was there before us.
            let before = observed.memory.connection(at).filter(|_| live).map(|connection| connection.table);
            Seen { given, taken: !live, before }
        });
        let slots = slots.collect();
        let before = if observed.fresh { [0; 2] } else { [observed.memory.left_out(), observed.memory.missed()] };
        let program = format!("{}[{}]", observed.name, observed.program.pid);
        let arrivals_before = if observed.fresh { Arrivals::default() } else { Arrivals::of(&observed.memory.all()) };
        let since_ns = if observed.fresh { 0 } else { monotonic() };
        Memory { observed, program, slots, before, arrivals_before, since_ns, over: false }
    }

    /// The messages received since we came.
    fn arrivals(&self) -> Arrivals {
        let Arrivals { all, known } = Arrivals::of(&self.observed.memory.all());
        let before = self.arrivals_before;
        Arrivals { all: all.saturating_sub(before.all), known: known.saturating_sub(before.known) }
    }

    /// Takes up the connections that have left since the last look. Returns how many came and left unseen.
    fn look(&mut self, which: &Selector, left: &mut VecDeque<Entry>) -> u64 {
        let mut unseen = 0u64;
        for (at, (given, live)) in self.observed.memory.tenants().enumerate() {
            let seen = &mut self.slots[at];
            if given != seen.given {
                let between = given.saturating_sub(seen.given.saturating_add(1));
                let lost = between.saturating_add(u64::from(seen.given > 0 && !seen.taken));
                // The program can write there what it wants.
                unseen = unseen.saturating_add(lost.min(u32::MAX.into()));
                *seen = Seen { given, ..Seen::default() };
            }
            if given > 0 && !seen.taken && (!live || self.over) {
                seen.taken = true;
                left.extend(self.entry(at, which).map(|entry| Entry { closed: true, ..entry }));
            }
        }
        unseen
    }

    /// The connection that has a slot, if it is wanted and a message of it was seen.
    fn entry(&self, at: usize, which: &Selector) -> Option<Entry> {
        let seen = &self.slots[at];
        let found = self.observed.memory.connection(at).filter(|found| found.given == seen.given)?;
        if !which.matches(&Tuple::new(found.local, found.remote)) {
            return None;
        }
        let table = seen.before.as_ref().map_or_else(|| found.table.clone(), |before| found.table.since(before));
        let is_empty = Layer::ALL.iter().all(|layer| table.layer(*layer).count == 0);
        (!is_empty).then(|| Entry {
            connection: format!("{},{}", found.local, found.remote),
            program: self.program.clone(),
            pid: self.observed.program.pid,
            place: "engine",
            closed: false,
            skipped: [0; 2],
            lost: [0; 2],
            one_in: found.one_in,
            table,
            slowest: found.slowest.into_iter().filter(|slow| slow.begun >= self.since_ns).collect(),
        })
    }

    /// Connections that found no slot, and messages that found no room, since we came.
    fn lacks(&self) -> [u64; 2] {
        let now = [self.observed.memory.left_out(), self.observed.memory.missed()];
        [0, 1].map(|at| now[at].saturating_sub(self.before[at]))
    }
}

impl Source for Engines {
    fn look(&mut self) {
        for sighting in self.service.sightings() {
            match sighting {
                Sighting::Begun(observed) => {
                    let memory = Memory::new(observed);
                    if !memory.observed.calls {
                        self.silent.insert(memory.program.clone());
                    }
                    self.memories.insert(memory.observed.region, memory);
                }
                Sighting::Ended(region) => {
                    self.memories.get_mut(&region).into_iter().for_each(|memory| memory.over = true);
                }
                Sighting::AllEnded => self.memories.values_mut().for_each(|memory| memory.over = true),
            }
        }
        let Engines { memories, which, left, left_out, missed, arrivals, .. } = self;
        memories.retain(|_, memory| {
            let unseen = memory.look(which, left);
            *left_out = left_out.saturating_add(unseen);
            if memory.over {
                let [without_slot, without_room] = memory.lacks();
                *left_out = left_out.saturating_add(without_slot);
                *missed = missed.saturating_add(without_room);
                arrivals.entry(memory.observed.engine.clone()).or_default().add(memory.arrivals());
            }
            !memory.over
        });
        while self.left.len() > SLOTS {
            let Some(oldest) = self.left.pop_front() else { break };
            self.earlier.table.add(&oldest.table);
            self.earlier.count += 1;
        }
    }

    fn read(&mut self) -> anyhow::Result<Report> {
        self.look();
        let mut entries: Vec<Entry> = self.left.iter().cloned().collect();
        let (mut left_out, mut missed) = (self.left_out, self.missed);
        let mut arrivals = self.arrivals.clone();
        for memory in self.memories.values() {
            let here = (0..SLOTS).filter(|at| !memory.slots[*at].taken);
            entries.extend(here.filter_map(|at| memory.entry(at, &self.which)));
            let [without_slot, without_room] = memory.lacks();
            left_out = left_out.saturating_add(without_slot);
            missed = missed.saturating_add(without_room);
            arrivals.entry(memory.observed.engine.clone()).or_default().add(memory.arrivals());
        }
        let mut notes = Vec::new();
        if missed > 0 {
            notes.push(format!("engine: {missed} messages have no times, since their points found no room"));
        }
        self.rates.extend(entries.iter().map(|entry| entry.one_in).filter(|one_in| *one_in > 1));
        for one_in in &self.rates {
            notes.push(format!(
                "engine: one message in {one_in} is recorded and stands for as many, so counts are estimates; --every 1 \
                 records each"
            ));
        }
        for program in &self.silent {
            notes.push(format!("engine: {program} does not stamp its calls; what it reads has no whole"));
        }
        notes.extend(arrivals.iter().filter_map(|(engine, arrivals)| arrivals.note(engine)));
        let earlier = vec![self.earlier.clone()];
        Ok(Report { entries: joined(entries), earlier, left_out, notes, ..Report::default() })
    }
}

/// A connection that left an engine and came back is one entry.
fn joined(entries: Vec<Entry>) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    let mut places: BTreeMap<(String, u32), usize> = BTreeMap::new();
    for entry in entries {
        match places.get(&(entry.connection.clone(), entry.pid)) {
            Some(at) => {
                all[*at].table.add(&entry.table);
                all[*at].slowest.extend(entry.slowest);
                (all[*at].closed, all[*at].one_in) = (entry.closed, entry.one_in.max(all[*at].one_in));
            }
            None => {
                places.insert((entry.connection.clone(), entry.pid), all.len());
                all.push(entry);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_does_not_know_arrivals_is_named() {
        let note = |all, known| Arrivals { all, known }.note("eth0/3");
        assert_eq!(note(0, 0), None);
        assert_eq!(note(1000, 1000), None);
        assert_eq!(note(1000, 990), None);
        assert_eq!(note(1000, 1001), None);
        for (all, known, text) in [(1000, 0, "1000 of 1000 messages"), (1000, 600, "400 of 1000"), (1, 0, "1 of 1 ")] {
            let said = note(all, known).unwrap();
            assert!(said.contains("eth0/3") && said.contains(text), "{said}");
        }
    }
}
