//! The maps of the programs. Layout and order are those of `bpf/programs/latency.c`.

use super::error::LatencyError;
use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError, Queue};
use baton_latency::{Direction, Exemplar, KEPT_WORDS, LAYERS, Table, WORDS};
use baton_wire::addr::{Addr, Tuple};

/// `struct spans`.
type Spans = [[u64; WORDS]; LAYERS];
/// `struct connection`, as words.
type Connection = [u64; 11];

/// The states of a slot.
const FREE: u32 = 0;
const CLOSED: u32 = 2;

/// Times that the slowest messages are read until two readings are equal. Those of a way that changes that often
/// are read the next time.
const READINGS: usize = 4;

/// The messages of a way that were not followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unfollowed {
    /// Calls, or segments with data, while another message of the way was followed.
    pub skipped: u64,
    /// Messages that were followed, and not seen to their end.
    pub lost: u64,
}

/// A connection with what it had.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Its addresses and ports.
    pub tuple: Tuple,
    /// The process that called first, as the first process namespace numbers it.
    pub pid: u32,
    /// The kernel's own name of the socket (`SO_COOKIE`).
    pub cookie: u64,
    /// It has closed.
    pub closed: bool,
    /// Messages out that were not followed.
    pub transmit: Unfollowed,
    /// Messages in that were not followed.
    pub receive: Unfollowed,
    /// The times of its messages by layer.
    pub table: Table,
    /// The slowest of its messages out, then of those in, the slowest of each first.
    pub slowest: Vec<Exemplar>,
    pub(super) slot: u32,
}

/// The open maps.
pub(super) struct Maps {
    spans: Array<MapData, Spans>,
    /// `struct slowest`, for those sent and those received.
    slowest: Array<MapData, [u64; KEPT_WORDS]>,
    connections: Array<MapData, Connection>,
    free: Queue<MapData, u32>,
    left_out: Array<MapData, u64>,
    slots: u32,
}

impl Maps {
    /// Takes the maps out of a loaded object, and frees all slots.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn open(programs: &mut Ebpf, slots: u32) -> Result<Maps, LatencyError> {
        let mut take = |name: &str| programs.take_map(name).expect("latency.c has a map of that name");
        let [spans, slowest, connections, free, left_out]: [Map; 5] =
            ["SPANS", "SLOWEST", "CONNECTIONS", "FREE", "LEFT_OUT"].map(&mut take);
        let mut maps = Maps {
            spans: Array::try_from(spans).map_err(of)?,
            slowest: Array::try_from(slowest).map_err(of)?,
            connections: Array::try_from(connections).map_err(of)?,
            free: Queue::try_from(free).map_err(of)?,
            left_out: Array::try_from(left_out).map_err(of)?,
            slots,
        };
        for slot in 0..slots {
            maps.free.push(slot, 0).map_err(of)?;
        }
        Ok(maps)
    }

    /// The connections of all slots that are in use.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn watched(&self) -> Result<Vec<Watched>, LatencyError> {
        let mut all: Vec<Watched> = Vec::new();
        for slot in 0..self.slots {
            let connection = self.connections.get(&slot, 0).map_err(of)?;
            if let Some(watched) = watched(slot, &connection) {
                let table = Table::of_words(&self.spans.get(&slot, 0).map_err(of)?);
                all.push(Watched { table, slowest: self.slowest(slot)?, ..watched });
            }
        }
        Ok(all)
    }

    fn slowest(&self, slot: u32) -> Result<Vec<Exemplar>, LatencyError> {
        let mut all = Vec::new();
        for (way, direction) in Direction::ALL.into_iter().enumerate() {
            // One may be written at this moment. Two readings that are equal are whole.
            let read = || self.slowest.get(&(slot * 2 + way as u32), 0).map_err(of);
            let mut before = read()?;
            for _ in 0..READINGS {
                let words = read()?;
                if words == before
                    && let Some(exemplars) = Exemplar::of_words(direction, &words)
                {
                    all.extend(exemplars);
                    break;
                }
                before = words;
            }
        }
        Ok(all)
    }

    /// Empties a slot and lets another connection take it.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn free(&mut self, slot: u32) -> Result<(), LatencyError> {
        self.spans.set(slot, [[0; WORDS]; LAYERS], 0).map_err(of)?;
        for way in 0..2 {
            self.slowest.set(slot * 2 + way, [0; KEPT_WORDS], 0).map_err(of)?;
        }
        self.connections.set(slot, [0; 11], 0).map_err(of)?;
        self.free.push(slot, 0).map_err(of)
    }

    /// The number of connections for which there was no slot.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn left_out(&self) -> Result<u64, LatencyError> {
        self.left_out.get(&0, 0).map_err(of)
    }
}

fn of(error: MapError) -> LatencyError {
    LatencyError::of("reading what the programs measured", &error)
}

/// The connection of a slot, without its times; `None` if the slot is free.
fn watched(slot: u32, words: &Connection) -> Option<Watched> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let number = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let port = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let address = |at: usize| Addr::v6(std::array::from_fn(|byte| bytes[at + byte]));
    let state = number(44);
    (state != FREE).then(|| Watched {
        tuple: Tuple { local: address(48), remote: address(64), local_port: port(80), remote_port: port(82) },
        pid: number(40),
        cookie: words[0],
        closed: state == CLOSED,
        transmit: Unfollowed { skipped: words[1], lost: words[3] },
        receive: Unfollowed { skipped: words[2], lost: words[4] },
        table: Table::default(),
        slowest: Vec::new(),
        slot,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_read_as_the_programs_write_it() {
        let mut bytes = [0; 88];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        for (at, value) in [7u64, 1, 2, 3, 4].into_iter().enumerate() {
            put(at * 8, &value.to_ne_bytes());
        }
        put(40, &99u32.to_ne_bytes());
        put(44, &CLOSED.to_ne_bytes());
        put(58, &[0xff, 0xff, 10, 1, 2, 3]);
        put(64, &[0xfd]);
        put(80, &80u16.to_ne_bytes());
        put(82, &40_000u16.to_ne_bytes());
        let words = std::array::from_fn(|at| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte])));
        let read = watched(5, &words).unwrap();
        assert_eq!(read.tuple, Tuple::new("10.1.2.3:80".parse().unwrap(), "[fd00::]:40000".parse().unwrap()));
        assert_eq!((read.cookie, read.pid, read.closed, read.slot), (7, 99, true, 5));
        assert_eq!(read.transmit, Unfollowed { skipped: 1, lost: 3 });
        assert_eq!(read.receive, Unfollowed { skipped: 2, lost: 4 });
        assert!(watched(5, &[0; 11]).is_none());
    }
}
