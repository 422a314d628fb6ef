//! The sketch of heavy connections.

use baton_policy::heavy::Heavy;
use proptest::prelude::*;
use std::collections::HashMap;

#[test]
fn the_heaviest_comes_first_and_ages() {
    let mut heavy = Heavy::new(2);
    [7, 7, 7, 8, 9].into_iter().for_each(|connection| heavy.count(connection));
    assert_eq!(heavy.heaviest(), [7, 9], "9 took over the counter of 8");
    heavy.forget(7);
    assert_eq!(heavy.heaviest(), [9]);
    (0..2).for_each(|_| heavy.age());
    assert!(heavy.heaviest().is_empty());
}

#[test]
fn a_sketch_has_a_counter_at_least() {
    let mut heavy = Heavy::new(0);
    heavy.count(1);
    assert_eq!(heavy.heaviest(), [1]);
}

proptest! {
    /// Every connection with more than an `n`-th of the samples has one of `n` counters.
    #[test]
    fn no_heavy_connection_is_missed(counters in 1usize..16, samples in prop::collection::vec(0u64..40, 1..400)) {
        let mut heavy = Heavy::new(counters);
        let mut counted: HashMap<u64, usize> = HashMap::new();
        for connection in &samples {
            heavy.count(*connection);
            *counted.entry(*connection).or_default() += 1;
        }
        let found = heavy.heaviest();
        prop_assert!(found.len() <= counters);
        for (connection, count) in counted {
            prop_assert!(count * counters <= samples.len() || found.contains(&connection), "{connection}: {count}");
        }
    }
}
