//! The maps of the steering programs. Layout and order are those of `bpf/programs/steer.c`.
//!
//! ```text
//!   TUPLES   local (16) remote (16) local port (2) remote port (2) VLANs (2, 2)
//!              -> engine (4) state (4)
//!   STEERED  0     -> 0 while TUPLES is empty, else 1 (4)
//!   ENGINES  number -> up (4; 2: with notes) interface's index (4) TAP device's index (4)
//!   SOCKETS  queue  -> AF_XDP socket
//!   COUNTS   reason -> frames, on each CPU
//!   NOTES    number -> array of notes of arrivals, once the engine's connections are observed
//! ```
//!
//! Addresses and ports are in network byte order, IPv4 addresses are mapped to IPv6, and numbers
//! have the machine's byte order. Engine 0 is the interface's own; the others belong to programs.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, XskMap};
use baton_wire::addr::{Addr, Tuple};

use super::error::{SteerError, os_error};
use super::notes::Notes;

/// The names of all maps, under which they are also pinned.
pub const NAMES: [&str; 6] = ["TUPLES", "STEERED", "ENGINES", "SOCKETS", "COUNTS", "NOTES"];

const KEY_LEN: usize = 40;
/// An engine is absent, there, or there and noted.
const DOWN: u32 = 0;
const UP: u32 = 1;
const NOTED: u32 = 2;
/// `BPF_NOEXIST` (linux/bpf.h): fails if the map has the key.
const ONLY_NEW: u64 = 1;
/// The number of the interface's own engine.
pub const ENGINE: u32 = 0;

/// The number of engines that the map has room for.
pub const ENGINES_MAX: u32 = 1024;

/// A connection as it appears on the interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SteeredTuple {
    /// The connection's addresses and ports.
    pub tuple: Tuple,
    /// The VLAN ids of its frames' tags, the outermost first; 0 for no tag. If a VLAN interface
    /// itself is steered, its connections have no tags.
    pub vlans: [u16; 2],
}

impl From<Tuple> for SteeredTuple {
    fn from(tuple: Tuple) -> Self {
        Self { tuple, vlans: [0; 2] }
    }
}

impl SteeredTuple {
    fn key(&self) -> [u8; KEY_LEN] {
        let mut key = [0; KEY_LEN];
        key[..16].copy_from_slice(&self.tuple.local.octets());
        key[16..32].copy_from_slice(&self.tuple.remote.octets());
        key[32..34].copy_from_slice(&self.tuple.local_port.to_be_bytes());
        key[34..36].copy_from_slice(&self.tuple.remote_port.to_be_bytes());
        key[36..38].copy_from_slice(&self.vlans[0].to_ne_bytes());
        key[38..].copy_from_slice(&self.vlans[1].to_ne_bytes());
        key
    }

    fn from_key(key: &[u8; KEY_LEN]) -> Self {
        let pair = |at: usize| [key[at], key[at + 1]];
        let address = |at: usize| Addr::v6(std::array::from_fn(|i| key[at + i]));
        Self {
            tuple: Tuple {
                local: address(0),
                remote: address(16),
                local_port: u16::from_be_bytes(pair(32)),
                remote_port: u16::from_be_bytes(pair(34)),
            },
            vlans: [u16::from_ne_bytes(pair(36)), u16::from_ne_bytes(pair(38))],
        }
    }
}

/// Where a connection's frames go.
#[derive(Clone, Copy)]
pub enum State {
    /// To the engine.
    Steer,
    /// Nowhere.
    Drop,
}

/// The numbers of frames by what happened to them. Each frame is counted once. While the map has no connection,
/// frames from the wire count as passed, whatever they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Left to the kernel, because the map has no such connection.
    pub passed: u64,
    /// To the engine.
    pub hit: u64,
    /// Dropped, because a connection in the map has no engine.
    pub no_engine: u64,
    /// Dropped, because the connection is held back.
    pub held_back: u64,
    /// Left to the kernel, because fragments have no ports.
    pub fragment: u64,
    /// Left to the kernel, because the frame is cut short, or not an IP packet in spite of its
    /// type.
    pub malformed: u64,
    /// Sent by the engine (kind tc only).
    pub sent: u64,
    /// Dropped, because the engine wrote a frame that is not of its own connections (kind tc only).
    pub foreign: u64,
}

/// The open maps.
pub struct Maps {
    tuples: Tuples,
    steered: Array<MapData, u32>,
    /// The number of connections in `tuples`.
    count: usize,
    engines: Array<MapData, [u32; 3]>,
    sockets: XskMap<MapData>,
    counts: PerCpuArray<MapData, u64>,
    notes: Notes,
    /// The index of the interface.
    wire: u32,
}

impl Maps {
    /// Takes the maps out of a loaded object that steers the interface with that index.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn open(ebpf: &mut Ebpf, wire: u32) -> Result<Self, SteerError> {
        let mut take = |name: &str| ebpf.take_map(name).expect("steer.c has a map of that name");
        let [tuples, steered, engines, sockets, counts, notes]: [Map; 6] = NAMES.map(&mut take);
        let open = |e: MapError| SteerError::kernel("opening the maps", e);
        let engines: Array<MapData, [u32; 3]> = Array::try_from(engines).map_err(open)?;
        let mut maps = Self {
            tuples: HashMap::try_from(tuples).map_err(open)?,
            steered: Array::try_from(steered).map_err(open)?,
            count: 0,
            engines,
            sockets: XskMap::try_from(sockets).map_err(open)?,
            counts: PerCpuArray::try_from(counts).map_err(open)?,
            notes: Notes::open(notes),
            wire,
        };
        maps.count = maps.tuples()?.len();
        maps.set_steered(maps.count > 0)?;
        // A predecessor's engine has no observer any more.
        maps.change(ENGINE, |engine| engine[0] = engine[0].min(UP))?;
        Ok(maps)
    }

    /// Changes an engine's entry.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut [u32; 3])) -> Result<(), SteerError> {
        let result = self.engines.get(&number, 0).and_then(|mut engine| {
            engine[1] = self.wire;
            change(&mut engine);
            self.engines.set(number, engine, 0)
        });
        result.map_err(|e| SteerError::kernel("updating the engine's entry", e))
    }

    pub fn set_up(&mut self, number: u32, up: bool) -> Result<(), SteerError> {
        if !up {
            self.notes.forget(number);
        }
        let up = if up { self.up(number) } else { DOWN };
        self.change(number, |engine| engine[0] = up)
    }

    /// The first word of an engine's entry while the engine is there.
    fn up(&self, number: u32) -> u32 {
        if self.notes.has(number) { NOTED } else { UP }
    }

    /// Has arrivals of an engine's segments noted until [`Maps::end_notes`], or until the engine is down. Returns
    /// a descriptor of the array.
    pub fn begin_notes(&mut self, number: u32) -> Result<OwnedFd, SteerError> {
        let array = self.notes.begin(number)?;
        let begun = self.follow_notes(number);
        if begun.is_err() {
            self.notes.end(number);
        }
        begun.map(|()| array)
    }

    pub fn end_notes(&mut self, number: u32) -> Result<(), SteerError> {
        if self.notes.end(number) { self.follow_notes(number) } else { Ok(()) }
    }

    fn follow_notes(&mut self, number: u32) -> Result<(), SteerError> {
        let up = self.up(number);
        self.change(number, |engine| {
            if engine[0] != DOWN {
                engine[0] = up;
            }
        })
    }

    pub fn set_device(&mut self, number: u32, device: u32) -> Result<(), SteerError> {
        self.change(number, |engine| engine[2] = device)
    }

    /// The index of an engine's TAP device; 0 if there is none.
    pub fn device(&self, number: u32) -> Result<u32, SteerError> {
        let engine = self.engines.get(&number, 0);
        engine.map(|engine| engine[2]).map_err(|e| SteerError::kernel("asking for an engine's device", e))
    }

    pub fn set_socket(&mut self, queue: u32, socket: &impl AsRawFd) -> Result<(), SteerError> {
        let result = self.sockets.set(queue, socket.as_raw_fd(), 0);
        result.map_err(|e| SteerError::kernel("entering a socket", e))
    }

    pub fn insert(&mut self, tuple: &SteeredTuple, engine: u32, state: State) -> Result<(), SteerError> {
        if self.count == 0 {
            // The programs look from now on, before there is anything to find.
            self.set_steered(true)?;
        }
        let (key, value) = (tuple.key(), [engine, state as u32]);
        let entered = match self.tuples.insert(key, value, ONLY_NEW) {
            Ok(()) => {
                self.count += 1;
                Ok(())
            }
            Err(e) if os_error(&e) == Some(libc::EEXIST) => self.tuples.insert(key, value, 0),
            Err(e) => Err(e),
        };
        entered.map_err(|e| match os_error(&e) {
            Some(libc::E2BIG) => SteerError::Full,
            _ => SteerError::kernel("entering a connection", e),
        })
    }

    pub fn remove(&mut self, tuple: &SteeredTuple) -> Result<bool, SteerError> {
        let was_there = remove(&mut self.tuples, tuple)?;
        if was_there {
            self.count -= 1;
        }
        if self.count == 0 {
            self.set_steered(false)?;
        }
        Ok(was_there)
    }

    /// Tells the programs whether there is anything to look for.
    fn set_steered(&mut self, steered: bool) -> Result<(), SteerError> {
        let set = self.steered.set(0, u32::from(steered), 0);
        set.map_err(|e| SteerError::kernel("noting whether connections are steered", e))
    }

    pub fn tuples(&self) -> Result<Vec<SteeredTuple>, SteerError> {
        let keys = self.tuples.keys().map(|key| key.map(|k| SteeredTuple::from_key(&k)));
        keys.collect::<Result<_, _>>().map_err(|e| SteerError::kernel("listing connections", e))
    }

    /// Removes what a predecessor entered.
    pub fn clear(&mut self) -> Result<(), SteerError> {
        for tuple in self.tuples()? {
            self.remove(&tuple)?;
        }
        self.set_up(ENGINE, false)
    }

    pub fn counters(&self) -> Result<Counters, SteerError> {
        let mut sums = [0; 8];
        for (reason, sum) in (0..).zip(&mut sums) {
            let values = self.counts.get(&reason, 0).map_err(|e| SteerError::kernel("reading counters", e))?;
            *sum = values.iter().sum();
        }
        let [passed, hit, no_engine, held_back, fragment, malformed, sent, foreign] = sums;
        Ok(Counters { passed, hit, no_engine, held_back, fragment, malformed, sent, foreign })
    }
}

type Tuples = HashMap<MapData, [u8; KEY_LEN], [u32; 2]>;

fn remove(tuples: &mut Tuples, tuple: &SteeredTuple) -> Result<bool, SteerError> {
    match tuples.remove(&tuple.key()) {
        Ok(()) => Ok(true),
        Err(MapError::KeyNotFound) => Ok(false),
        Err(e) if os_error(&e) == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(SteerError::kernel("removing a connection", e)),
    }
}

/// The map that a killed process left, without its programs.
pub struct Left(Tuples);

impl Left {
    /// Opens a pinned map.
    pub fn open(pin: &Path) -> Result<Left, SteerError> {
        let open = |e: MapError| SteerError::kernel("opening a pinned map", e);
        let map = MapData::from_pin(pin).map_err(open)?;
        Tuples::try_from(Map::HashMap(map)).map(Left).map_err(open)
    }

    /// Each connection, with the number of its engine.
    pub fn tuples(&self) -> Result<Vec<(SteeredTuple, u32)>, SteerError> {
        let entry = |entry: Result<([u8; KEY_LEN], [u32; 2]), MapError>| {
            entry.map(|(key, [engine, _])| (SteeredTuple::from_key(&key), engine))
        };
        self.0.iter().map(entry).collect::<Result<_, _>>().map_err(|e| SteerError::kernel("listing connections", e))
    }

    /// Lets the connection's frames go to the kernel from now on.
    pub fn remove(&mut self, tuple: &SteeredTuple) -> Result<bool, SteerError> {
        remove(&mut self.0, tuple)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_laid_out_as_the_program_reads_it() {
        let tuple = Tuple::new("10.1.2.3:258".parse().unwrap(), "[fd00::9]:772".parse().unwrap());
        let steered = SteeredTuple { tuple, vlans: [5, 7] };
        let key = steered.key();
        assert_eq!(key[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!(key[16..36], [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4]);
        assert_eq!(key[36..], [5u16.to_ne_bytes(), 7u16.to_ne_bytes()].concat());
        assert_eq!(SteeredTuple::from_key(&key), steered);
    }
}
