//! Notes of when segments arrived, which the programs write for engines whose connections are observed
//! (`bpf/programs/note.h`). Each engine has an array of its own from when it is first observed.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::maps::{Map, MapData};
use baton_port::notes;

use super::error::SteerError;
use crate::sys::bpf;

/// The arrays of notes, by engine.
pub struct Notes {
    arrays: MapData,
    engines: BTreeMap<u32, Noted>,
}

struct Noted {
    array: OwnedFd,
    now: bool,
}

impl Notes {
    /// Takes over the map of arrays. Those of engines that have gone stay in it, 64 KB each, until others take
    /// their places: removing one would have the caller wait for all processors (`maybe_wait_bpf_programs`), and
    /// so does entering one.
    pub fn open(map: Map) -> Notes {
        let Map::ArrayOfMaps(arrays) = map else { panic!("NOTES of note.h is a map of arrays") };
        Notes { arrays, engines: BTreeMap::new() }
    }

    /// Begins to note arrivals of an engine's segments. Returns a descriptor of its array. Its holder can
    /// spoil these notes, and sees no others.
    pub fn begin(&mut self, engine: u32) -> Result<OwnedFd, SteerError> {
        let failed = |e| SteerError::kernel("making memory for notes of arrivals", e);
        if !self.engines.contains_key(&engine) {
            let array = bpf::mappable_array(notes::EACH).map_err(failed)?;
            bpf::set_element(self.arrays.fd().as_fd(), engine, array.as_raw_fd() as u32).map_err(failed)?;
            self.engines.insert(engine, Noted { array, now: false });
        }
        let noted = self.engines.get_mut(&engine).expect("it was there, or was put there");
        let array = noted.array.try_clone().map_err(failed)?;
        noted.now = true;
        Ok(array)
    }

    /// Notes nothing of an engine any more. Returns false if nothing was noted.
    pub fn end(&mut self, engine: u32) -> bool {
        self.engines.get_mut(&engine).is_some_and(|noted| std::mem::take(&mut noted.now))
    }

    /// The engine has gone, and the next with its number must not see its notes.
    pub fn forget(&mut self, engine: u32) {
        self.engines.remove(&engine);
    }

    /// Returns true if arrivals of an engine's segments are to be noted.
    pub fn has(&self, engine: u32) -> bool {
        self.engines.get(&engine).is_some_and(|noted| noted.now)
    }
}
