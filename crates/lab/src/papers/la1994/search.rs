//! The search for a connection's control block (LA §3): list, list with a cache, chains, flow table.

use super::cost;
use crate::experiment::{Extent, Lab, Row};
use baton_engine::flow_table::FlowTable;
use baton_wire::addr::Tuple;
use std::hint::black_box;
use std::net::SocketAddr;

/// Chains of the hash table.
const CHAINS: usize = 4096;
/// Lookups in a row of one connection: a train of packets, which a cache of one entry serves.
const TRAIN: usize = 4;
/// Tuples that are looked up in turn.
const WANTED: usize = 1024;
const END: u32 = u32::MAX;

/// Time of one lookup.
#[derive(Debug)]
pub struct Time {
    structure: &'static str,
    connections: u32,
    hit: f64,
    miss: f64,
}

/// Control blocks, each with the next one of its list.
struct Blocks {
    tuples: Vec<Tuple>,
    next: Vec<u32>,
}

impl Blocks {
    fn search(&self, head: u32, tuple: &Tuple) -> Option<u32> {
        let mut at = head;
        while at != END {
            if self.tuples[at as usize] == *tuple {
                return Some(at);
            }
            at = self.next[at as usize];
        }
        None
    }

    /// Lists of all blocks: the newest first, as 4.4BSD inserts them.
    fn lists(&mut self, heads: &mut [u32], order: &[u32], list: impl Fn(&Tuple) -> usize) {
        for &index in order {
            let head = &mut heads[list(&self.tuples[index as usize])];
            self.next[index as usize] = *head;
            *head = index;
        }
    }
}

/// A different connection for each number.
fn tuple(number: u32) -> Tuple {
    let [a, b, c, d] = number.to_be_bytes();
    let remote = SocketAddr::new([172, a, b, c].into(), 1024 + u16::from(d));
    Tuple::new(SocketAddr::new([10, 77, 0, 2].into(), 80), remote)
}

/// Measures all structures with every number of connections.
///
/// # Errors
/// If the measurement is asked to end, or the extent has no numbers.
pub fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Vec<Time>> {
    let mut times = Vec::new();
    for connections in extent.values::<u32>("connections")? {
        let mut rng = fastrand::Rng::with_seed(u64::from(connections));
        let tuples: Vec<Tuple> = (0..connections).map(tuple).collect();
        let mut order: Vec<u32> = (0..connections).collect();
        rng.shuffle(&mut order);
        let hits: Vec<Tuple> = (0..WANTED).map(|_| tuples[rng.usize(..tuples.len())]).collect();
        let misses: Vec<Tuple> = (0..WANTED as u32).map(|number| tuple(0x8000_0000 | number)).collect();
        let mut measure = |structure, find: &mut dyn FnMut(&Tuple) -> Option<u32>| {
            let mut time = |wanted: &[Tuple], found: bool| {
                let (mut turn, what) = (0, format!("{connections} connections · {structure}"));
                cost(lab, extent, &what, || {
                    let got = find(black_box(&wanted[turn / TRAIN % WANTED]));
                    assert_eq!(got.is_some(), found, "{structure}");
                    turn += 1;
                })
            };
            let (hit, miss) = (time(&hits, true)?, time(&misses, false)?);
            times.push(Time { structure, connections, hit, miss });
            anyhow::Ok(())
        };
        let mut blocks = Blocks { tuples: tuples.clone(), next: vec![END; tuples.len()] };
        let mut head = [END];
        blocks.lists(&mut head, &order, |_| 0);
        measure("list", &mut |tuple| blocks.search(head[0], tuple))?;
        let mut last = END;
        measure("list with a cache of one", &mut |tuple| {
            if last != END && blocks.tuples[last as usize] == *tuple {
                return Some(last);
            }
            let found = blocks.search(head[0], tuple);
            last = found.unwrap_or(last);
            found
        })?;
        let mut flows = FlowTable::new(connections, [1, 2]);
        for (index, tuple) in (0..).zip(&tuples) {
            let hash = flows.hash(tuple);
            flows.insert(hash, index).map_err(|_| anyhow::anyhow!("the flow table is full"))?;
        }
        let mut heads = vec![END; CHAINS];
        let chain = |tuple: &Tuple| flows.hash(tuple) as usize % CHAINS;
        blocks.next.fill(END);
        blocks.lists(&mut heads, &order, chain);
        measure("hash chains", &mut |tuple| blocks.search(heads[chain(tuple)], tuple))?;
        measure("flow table", &mut |tuple| flows.lookup(flows.hash(tuple), |index| tuples[index as usize] == *tuple))?;
    }
    Ok(times)
}

/// Every structure, and the cost of an entry of the list.
pub fn rows(times: &[Time]) -> Vec<Row> {
    let mut rows = Vec::new();
    for Time { structure, connections, hit, miss } in times {
        // The paper searched whole lists of 20 and of 1,000 entries: 26 and 1,280 us.
        let paper = match (*structure, connections) {
            ("list", 20) => Some(26_000.0),
            ("list", 1000) => Some(1_280_000.0),
            _ => None,
        };
        let at = ("connections", f64::from(*connections));
        rows.push(Row::point(&format!("{structure}, hit"), at, "ns", None, Some(*hit)));
        rows.push(Row::point(&format!("{structure}, miss"), at, "ns", paper, Some(*miss)));
    }
    let whole = times.iter().find(|time| time.structure == "list" && time.connections == 1000);
    rows.push(Row::new("an entry of the list", "ns", Some(1300.0), whole.map(|time| time.miss / 1000.0)));
    rows
}
