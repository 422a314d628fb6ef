//! Sets of ranges against a bitmap, around the circle's seam.

use baton_engine::ranges::{Outcome, Ranges};
use baton_wire::seq::Seq;
use proptest::prelude::*;

const SPAN: u32 = 200;
const MAX: usize = 6;

/// The bitmap's runs of received bytes from `from` on, as offsets.
fn runs(bits: &[bool], from: u32) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    let mut at = from;
    while at < SPAN {
        let start = at;
        while at < SPAN && bits[at as usize] {
            at += 1;
        }
        if at > start {
            runs.push((start, at));
        }
        at += 1;
    }
    runs
}

proptest! {
    #[test]
    fn behaves_like_a_bitmap(
        base in prop_oneof![any::<u32>(), (0u32..SPAN).prop_map(|back| 0u32.wrapping_sub(back))],
        ops in prop::collection::vec((0u32..SPAN, 0u32..30, any::<bool>()), 1..80),
    ) {
        let seq = |offset: u32| Seq(base) + offset;
        let mut set = Box::new(Ranges::<MAX>::new());
        let mut bits = vec![false; SPAN as usize];
        let mut rcv_nxt = 0;
        for (start, len, fill) in ops {
            if fill {
                // In-order data of `len` bytes, then whatever it reaches.
                let mut next = (rcv_nxt + len).min(SPAN);
                bits[rcv_nxt as usize..next as usize].fill(true);
                let advanced = set.advance(seq(next));
                while next < SPAN && bits[next as usize] {
                    next += 1;
                }
                prop_assert_eq!(advanced, seq(next));
                rcv_nxt = next;
            } else {
                // Ahead of rcv_nxt, as the owner keeps it.
                let start = start.max(rcv_nxt + 1);
                let end = (start + len).min(SPAN);
                let mut told = Vec::new();
                let outcome = set.insert(seq(start), seq(end), |from, to| told.push((from, to)));
                let mut after = bits.clone();
                if start < end {
                    after[start as usize..end as usize].fill(true);
                }
                let expected = runs(&after, rcv_nxt);
                if expected.len() > MAX {
                    prop_assert_eq!(outcome, Outcome::Full);
                    prop_assert!(told.is_empty());
                } else {
                    let gaps: Vec<_> = (start..end).filter(|&at| !bits[at as usize]).map(seq).collect();
                    let heard: Vec<_> =
                        told.iter().flat_map(|&(from, to)| (0..to.since(from) as u32).map(move |at| from + at)).collect();
                    prop_assert_eq!(&heard, &gaps);
                    match outcome {
                        Outcome::Added { new_bytes, start: from, end: to } => {
                            prop_assert_eq!(new_bytes as usize, gaps.len());
                            prop_assert!(new_bytes > 0);
                            prop_assert!(expected.iter().any(|&(a, b)| (seq(a), seq(b)) == (from, to) && a <= start && end <= b));
                        }
                        Outcome::Duplicate { .. } => prop_assert!(gaps.is_empty()),
                        Outcome::Full => prop_assert!(false, "room for {} ranges", expected.len()),
                    }
                    bits = after;
                }
            }
            let expected: Vec<_> = runs(&bits, rcv_nxt).into_iter().map(|(a, b)| (seq(a), seq(b))).collect();
            prop_assert_eq!(set.as_slice(), &expected[..]);
        }
    }

    /// Whatever positions it is given, even ones that no window allows.
    #[test]
    fn never_panics(ops in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>()), 0..200)) {
        let mut set = Ranges::<4>::new();
        for (a, b, advance) in ops {
            if advance {
                set.advance(Seq(a));
            } else {
                set.insert(Seq(a), Seq(b), |_, _| ());
            }
            prop_assert!(set.as_slice().len() <= 4);
        }
    }
}

#[test]
fn what_one_may_add_leaves_room_for_another() {
    let mut set = Ranges::<4>::new();
    let mut add = |limit, at: u32| set.insert_within(limit, Seq(at), Seq(at + 10), |_, _| ()) != Outcome::Full;
    assert!(add(2, 100) && add(2, 200));
    assert!(!add(2, 300), "a range too many");
    assert!(add(2, 210), "one that touches another makes none");
    assert!(add(4, 300) && add(4, 400) && !add(4, 500));
}
