//! Selects the cells that `make test` runs: enough that each pair of values of two factors occurs.

use crate::factors::{Cell, Situation};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A value of one factor, and a value of another: (factor, value) twice.
type Pair = ((usize, usize), (usize, usize));

fn pairs(cell: &Cell) -> impl Iterator<Item = Pair> {
    let values = cell.values();
    (0..values.len()).flat_map(move |a| (a + 1..values.len()).map(move |b| ((a, values[a]), (b, values[b]))))
}

/// Selects cells such that every pair in `all` occurs. The selection is greedy: the next cell is the one
/// with most new pairs; among equals, the one whose values occurred least; among those, the first. So the
/// same factors always give the same cells.
pub fn covering(all: &[Cell]) -> Vec<Cell> {
    let mut missing: BTreeSet<Pair> = all.iter().flat_map(pairs).collect();
    let mut chosen = Vec::new();
    // How often each value of each factor was chosen; no factor has more values than situations.
    let mut used = [[0; Situation::ALL.len()]; 5];
    while !missing.is_empty() {
        let news = |cell: &Cell| pairs(cell).filter(|pair| missing.contains(pair)).count();
        let uses = |cell: &Cell| (0..5).map(|at| used[at][cell.values()[at]]).sum::<usize>();
        // `max_by_key` returns the last of equal elements, so iterate in reverse to get the first.
        let best = all.iter().rev().max_by_key(|cell| (news(cell), Reverse(uses(cell))));
        let best = *best.expect("what is missing occurs in a cell");
        best.values().into_iter().enumerate().for_each(|(at, value)| used[at][value] += 1);
        let found: Vec<Pair> = pairs(&best).collect();
        missing.retain(|pair| !found.contains(pair));
        chosen.push(best);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factors::{Engine, Family, Life, Traffic};

    #[test]
    fn each_pair_of_values_occurs() {
        let chosen = covering(&Cell::all());
        let occurs: BTreeSet<Pair> = chosen.iter().flat_map(pairs).collect();
        let counts = [Situation::ALL.len(), Traffic::ALL.len(), Life::ALL.len(), Family::ALL.len(), Engine::ALL.len()];
        for a in 0..counts.len() {
            for b in a + 1..counts.len() {
                for (first, second) in (0..counts[a]).flat_map(|x| (0..counts[b]).map(move |y| (x, y))) {
                    let pair = ((a, first), (b, second));
                    let cannot_be = pair == ((2, Life::EngineKilled as usize), (4, Engine::DirectTc as usize));
                    assert_ne!(occurs.contains(&pair), cannot_be, "{pair:?}");
                }
            }
        }
        // The pairs of situations and lives alone need this many.
        let least = counts[0] * counts[2];
        assert!((least..least + least / 4).contains(&chosen.len()), "{} cells", chosen.len());
        assert_eq!(chosen, covering(&Cell::all()));
    }

    #[test]
    fn no_cell_is_chosen_that_cannot_be() {
        assert!(covering(&Cell::all()).iter().all(|cell| cell.excluded().is_none()));
        let all = Situation::ALL.len() * Traffic::ALL.len() * Life::ALL.len() * Family::ALL.len() * Engine::ALL.len();
        let cannot_be = Situation::ALL.len() * Traffic::ALL.len() * Family::ALL.len();
        assert_eq!(Cell::all().len(), all - cannot_be);
    }
}
