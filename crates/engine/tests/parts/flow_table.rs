//! The flow table against a HashMap, and what its hash looks like.

use baton_engine::flow_table::{FlowTable, Full};
use baton_wire::addr::{Addr, Tuple};
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Op {
    Insert(usize),
    Remove(usize),
    Lookup(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let which = 0usize..64;
    prop_oneof![
        3 => which.clone().prop_map(Op::Insert),
        2 => which.clone().prop_map(Op::Remove),
        2 => which.prop_map(Op::Lookup),
    ]
}

/// Hashes that collide in bucket and tag much more often than chance would.
fn hashes() -> impl Strategy<Value = Vec<u64>> {
    let hash = (0u64..6, 0u64..4).prop_map(|(home, tag)| home << 61 | tag);
    prop::collection::vec(prop_oneof![hash, any::<u64>()], 64)
}

proptest! {
    #[test]
    fn behaves_like_a_hash_map(max in 1u32..64, hashes in hashes(), ops in prop::collection::vec(op(), 0..400)) {
        let mut table = FlowTable::new(max, [1, 2]);
        let mut model: HashMap<usize, u32> = HashMap::new();
        for (step, op) in ops.into_iter().enumerate() {
            match op {
                Op::Insert(which) if model.contains_key(&which) => {}
                Op::Insert(which) => {
                    // Index and identity are told apart by the closure alone.
                    let index = (step as u32) << 8 | which as u32;
                    let expected = if model.len() == max as usize { Err(Full) } else { Ok(()) };
                    prop_assert_eq!(table.insert(hashes[which], index), expected);
                    if expected.is_ok() {
                        model.insert(which, index);
                    }
                }
                Op::Remove(which) => {
                    let index = model.remove(&which);
                    prop_assert_eq!(table.remove(hashes[which], index.unwrap_or(u32::MAX - 1)), index.is_some());
                }
                Op::Lookup(which) => {
                    let found = table.lookup(hashes[which], |index| index as usize & 0xff == which);
                    prop_assert_eq!(found, model.get(&which).copied());
                }
            }
            prop_assert_eq!(table.len() as usize, model.len());
        }
        for (which, &hash) in hashes.iter().enumerate() {
            let found = table.lookup(hash, |index| index as usize & 0xff == which);
            prop_assert_eq!(found, model.get(&which).copied());
        }
    }
}

fn tuple(number: u32) -> Tuple {
    Tuple {
        local: Addr::v4([10, 0, 0, 1]),
        remote: Addr::v4([10, 1, (number >> 20) as u8, (number >> 16) as u8 & 15]),
        local_port: 80,
        remote_port: number as u16,
    }
}

#[test]
fn neighbouring_tuples_spread_evenly() {
    const TUPLES: u32 = 1 << 18;
    const BINS: usize = 1024;
    let table = FlowTable::new(1, [3, 4]);
    let (mut high, mut low) = (vec![0u32; BINS], vec![0u32; BINS]);
    for number in 0..TUPLES {
        let hash = table.hash(&tuple(number));
        high[(hash >> 54) as usize] += 1;
        low[hash as usize % BINS] += 1;
    }
    // 256 a bin expected, standard deviation 16: chi-squared over 1023 degrees of freedom stays
    // below 1230 with probability 0.99999. A distribution more even than chance is fine here.
    for bins in [high, low] {
        let chi: f64 = bins.iter().map(|&count| (f64::from(count) - 256.0).powi(2) / 256.0).sum();
        assert!(chi < 1230.0, "chi-squared {chi}");
    }
}

#[test]
fn the_hash_depends_on_every_bit_and_on_the_key() {
    let (one, other) = (FlowTable::new(1, [5, 6]), FlowTable::new(1, [5, 7]));
    let base = tuple(99);
    assert_ne!(one.hash(&base), other.hash(&base));
    let swapped = Tuple { local: base.remote, remote: base.local, local_port: 99, remote_port: 80 };
    assert_ne!(one.hash(&base), one.hash(&swapped));
    let mut seen = vec![one.hash(&base)];
    for bit in 0..128 {
        seen.push(one.hash(&Tuple { local: Addr(base.local.0 ^ 1 << bit), ..base }));
        seen.push(one.hash(&Tuple { remote: Addr(base.remote.0 ^ 1 << bit), ..base }));
    }
    for bit in 0..16 {
        seen.push(one.hash(&Tuple { local_port: base.local_port ^ 1 << bit, ..base }));
        seen.push(one.hash(&Tuple { remote_port: base.remote_port ^ 1 << bit, ..base }));
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

#[test]
fn a_full_table_finds_all_and_empties_again() {
    const CONNS: u32 = 50_000;
    let mut table = FlowTable::new(CONNS, [8, 9]);
    for number in 0..CONNS {
        table.insert(table.hash(&tuple(number)), number).unwrap();
    }
    assert_eq!(table.insert(1, CONNS), Err(Full));
    let mut compared = 0;
    for number in 0..CONNS {
        let found = table.lookup(table.hash(&tuple(number)), |index| {
            compared += 1;
            tuple(index) == tuple(number)
        });
        assert_eq!(found, Some(number));
    }
    assert!(compared < CONNS + CONNS / 100, "tags keep most needless compares away: {compared}");
    for number in 0..CONNS {
        assert!(table.remove(table.hash(&tuple(number)), number));
    }
    assert!(table.is_empty());
    assert_eq!(table.lookup(table.hash(&tuple(1)), |_| true), None);
}
