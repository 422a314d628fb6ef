//! The flows that matter most, in a table of fixed size.
//!
//! 512 sets of 8 flows. A flow that finds its set full takes the place of the one with the
//! fewest frames there; that is counted, and the counts of the other flow are forgotten. So a
//! flow's figures are exact as long as nothing was forgotten, and a lower bound otherwise. The
//! largest flows stay, because none of them is the smallest of eight.

use crate::receiver::Receiver;
use baton_coalesce::{Flow, Tags};
use baton_wire::eth::VlanTag;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

const SETS: usize = 512;
const WAYS: usize = 8;

/// The counts of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// Frames that came in.
    pub frames_in: u64,
    /// Frames and runs that came out.
    pub frames_out: u64,
    /// Bytes of payload in eligible segments.
    pub payload_bytes: u64,
}

impl FlowCounts {
    fn add(&mut self, other: FlowCounts) {
        self.frames_in += other.frames_in;
        self.frames_out += other.frames_out;
        self.payload_bytes = self.payload_bytes.saturating_add(other.payload_bytes);
    }
}

/// An order of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// By frames that came in.
    #[default]
    Frames,
    /// By bytes of payload.
    Bytes,
    /// By frames that were joined to another.
    Gain,
}

impl Sort {
    /// The figure of a flow that decides its place.
    const fn figure(self, counts: &FlowCounts) -> u64 {
        match self {
            Sort::Frames => counts.frames_in,
            Sort::Bytes => counts.payload_bytes,
            Sort::Gain => counts.frames_in - counts.frames_out,
        }
    }
}

/// A flow's place in the table.
#[derive(Clone, Copy, Debug)]
struct Place {
    flow: Flow,
    counts: FlowCounts,
    receiver: Receiver,
}

/// Counts of the flows seen last, in sets of a fixed number of entries.
///
/// Its serialized form lists the flows in their order, without what their receivers know, which ends with a capture.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Listed", try_from = "Listed")]
pub struct Flows {
    sets: Vec<[Option<Place>; WAYS]>,
    forgotten: u64,
}

impl Default for Flows {
    fn default() -> Self {
        Flows { sets: vec![[None; WAYS]; SETS], forgotten: 0 }
    }
}

impl Flows {
    /// Adds to a flow's counts. Returns its receiver, which is new if the flow is.
    pub fn add(&mut self, flow: &Flow, counts: FlowCounts) -> &mut Receiver {
        let set = &mut self.sets[set_of(flow)];
        let at = match set.iter().position(|place| place.as_ref().is_some_and(|known| known.flow == *flow)) {
            Some(at) => at,
            None => {
                let fewest = |at: &usize| set[*at].map_or(0, |known| known.counts.frames_in);
                let at = (0..WAYS).min_by_key(fewest).unwrap_or(0);
                self.forgotten += u64::from(set[at].take().is_some());
                at
            }
        };
        let new = Place { flow: *flow, counts: FlowCounts::default(), receiver: Receiver::default() };
        let place = set[at].get_or_insert(new);
        place.counts.add(counts);
        &mut place.receiver
    }

    /// Adds everything that another table counted.
    pub fn merge(&mut self, other: &Flows) {
        for Place { flow, counts, .. } in other.sets.iter().flatten().flatten() {
            self.add(flow, *counts);
        }
        self.forgotten += other.forgotten;
    }

    /// The `count` flows that come first in this order, the largest figure first.
    pub fn top(&self, count: usize, sort: Sort) -> Vec<(Flow, FlowCounts)> {
        let places = self.sets.iter().flatten().flatten();
        let mut flows: Vec<_> = places.map(|place| (place.flow, place.counts)).collect();
        flows.sort_unstable_by_key(|(flow, counts)| (std::cmp::Reverse(sort.figure(counts)), *flow));
        flows.truncate(count);
        flows
    }

    /// Frames that came in, of all flows in the table.
    pub fn frames_in(&self) -> u128 {
        self.sets.iter().flatten().flatten().map(|place| u128::from(place.counts.frames_in)).sum()
    }

    /// Number of flows in the table.
    pub fn known(&self) -> usize {
        self.sets.iter().flatten().flatten().count()
    }

    /// How often a flow was replaced by another.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// A table in its serialized form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    known: Vec<Line>,
    forgotten: u64,
}

/// A flow in its serialized form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    source: SocketAddr,
    destination: SocketAddr,
    /// TPID and TCI of each VLAN tag, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<(u16, u16)>,
    frames_in: u64,
    frames_out: u64,
    payload_bytes: u64,
}

impl From<Flows> for Listed {
    fn from(flows: Flows) -> Listed {
        let mut places: Vec<_> = flows.sets.iter().flatten().flatten().collect();
        places.sort_unstable_by_key(|place| place.flow);
        let line = |place: &Place| Line {
            source: SocketAddr::new(place.flow.src(), place.flow.src_port()),
            destination: SocketAddr::new(place.flow.dst(), place.flow.dst_port()),
            tags: place.flow.tags().iter().map(|tag| (tag.tpid, tag.tci)).collect(),
            frames_in: place.counts.frames_in,
            frames_out: place.counts.frames_out,
            payload_bytes: place.counts.payload_bytes,
        };
        Listed { known: places.into_iter().map(line).collect(), forgotten: flows.forgotten }
    }
}

impl TryFrom<Listed> for Flows {
    type Error = String;

    fn try_from(listed: Listed) -> Result<Flows, String> {
        if listed.known.len() > SETS * WAYS {
            return Err(format!("{} flows are more than the table holds", listed.known.len()));
        }
        let mut flows = Flows { forgotten: listed.forgotten, ..Flows::default() };
        for line in listed.known {
            let Line { frames_in, frames_out, payload_bytes, .. } = line;
            // A hostile list may name a flow in every line: the sum must not overflow.
            if frames_out > frames_in || frames_in > u64::MAX / (SETS * WAYS) as u64 {
                return Err(format!("flow {} has {frames_in} frames in and {frames_out} out", line.source));
            }
            flows.add(&line.flow()?, FlowCounts { frames_in, frames_out, payload_bytes });
        }
        Ok(flows)
    }
}

impl Line {
    fn flow(&self) -> Result<Flow, String> {
        let mut tags = Tags::NONE;
        for &(tpid, tci) in &self.tags {
            tags = tags.with(VlanTag { tpid, tci }).ok_or("a flow has more than four VLAN tags")?;
        }
        let ports = u32::from(self.source.port()) << 16 | u32::from(self.destination.port());
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Ok(Flow::v4(source.octets(), destination.octets(), ports, tags))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Ok(Flow::v6(source.octets(), destination.octets(), ports, tags))
            }
            _ => Err(format!("a flow goes from {} to {}, of two IP versions", self.source, self.destination)),
        }
    }
}

fn set_of(flow: &Flow) -> usize {
    hash(flow) as usize % SETS
}

/// A number in which a flow's bits are mixed.
pub(crate) fn hash(flow: &Flow) -> u32 {
    let mut hasher = Mixer(0);
    flow.hash(&mut hasher);
    let mixed = hasher.finish();
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// A quick mix of a few words. Flows that were chosen to collide replace each other within one
/// set, and cost no more than others.
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64 ^ (word >> 64) as u64);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_coalesce::Tags;

    fn flow(n: u32) -> Flow {
        Flow::v4(n.to_be_bytes(), [10, 0, 0, 1], 80 << 16 | 4000, Tags::NONE)
    }

    #[test]
    fn the_largest_stay_whatever_comes() {
        let mut flows = Flows::default();
        let one = FlowCounts { frames_in: 1, frames_out: 1, payload_bytes: 10 };
        for round in 0..100_000 {
            flows.add(&flow(round % 5), FlowCounts { frames_in: 4, frames_out: 1, payload_bytes: 40 });
            flows.add(&flow(round + 1000), one);
        }
        assert!(flows.known() <= SETS * WAYS);
        assert!(flows.forgotten() > 90_000);
        let top = flows.top(5, Sort::Frames);
        assert!(top.iter().all(|(_, counts)| counts.frames_in == 80_000 && counts.payload_bytes == 800_000), "{top:?}");
    }

    #[test]
    fn tables_add_up() {
        let (mut a, mut b) = (Flows::default(), Flows::default());
        let one = FlowCounts { frames_in: 2, frames_out: 1, payload_bytes: 5 };
        for n in 0..50 {
            a.add(&flow(n), one);
            b.add(&flow(n + 25), one);
        }
        a.merge(&b);
        assert_eq!((a.known(), a.forgotten()), (75, 0));
        assert_eq!(a.top(1, Sort::Frames)[0].1.frames_in, 4);
        assert_eq!(a.top(100, Sort::Frames).iter().map(|(_, counts)| counts.frames_in).sum::<u64>(), 200);
    }
}
