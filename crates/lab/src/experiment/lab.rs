//! Where experiments run.

use super::series::Series;
use crate::world::{Impossible, World};
use anyhow::{Context, bail};
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use std::fmt::Display;

/// Where experiments run: two namespaces, a signal that ends them, and somebody who is told.
pub struct Lab<'a> {
    /// `None` if namespaces are not wanted.
    world: Option<Result<World, Impossible>>,
    stop: &'a Stop,
    tell: &'a dyn Fn(&str),
}

impl<'a> Lab<'a> {
    /// A lab with two new namespaces, if this machine lets us make them.
    pub fn new(stop: &'a Stop, tell: &'a dyn Fn(&str)) -> Lab<'a> {
        Lab { world: Some(World::new()), stop, tell }
    }

    /// A lab without namespaces.
    pub fn in_memory(stop: &'a Stop, tell: &'a dyn Fn(&str)) -> Lab<'a> {
        Lab { world: None, stop, tell }
    }

    /// The namespaces.
    ///
    /// # Errors
    /// A usage error if there are none.
    pub fn world(&self) -> anyhow::Result<&World> {
        match &self.world {
            Some(Ok(world)) => Ok(world),
            Some(Err(why)) => Err(usage(why.to_string(), "run as root")),
            None => Err(usage("this experiment needs network namespaces", "run it without --in-memory")),
        }
    }

    /// The namespaces, or `None` if they are not wanted. Tells the reason if they cannot be made.
    pub fn world_or_memory(&self) -> Option<&World> {
        match self.world.as_ref()? {
            Ok(world) => Some(world),
            Err(why) => {
                self.tell(&format!("baton: {why}; measuring over a wire in memory instead"));
                None
            }
        }
    }

    /// The signal that ends a measurement.
    pub fn stop(&self) -> &Stop {
        self.stop
    }

    /// Tells what happens.
    pub fn tell(&self, what: &str) {
        (self.tell)(what);
    }

    /// Tells which step is next.
    ///
    /// # Errors
    /// If the measurement is asked to end.
    pub fn step(&self, what: &str) -> anyhow::Result<()> {
        if self.stop.requested() {
            bail!("interrupted");
        }
        self.tell(what);
        Ok(())
    }

    /// Runs every point once a round. Within a group the first point is another one each round, so that
    /// changes on the machine affect all points of a group. Returns the points in the order given.
    ///
    /// # Errors
    /// If a run fails, or the measurement is asked to end.
    pub fn alternate<P: Display, R>(
        &self,
        rounds: usize,
        groups: Vec<Vec<P>>,
        mut run: impl FnMut(&P) -> anyhow::Result<R>,
    ) -> anyhow::Result<Vec<Series<P, R>>> {
        let series = |group: Vec<P>| group.into_iter().map(|point| Series { point, runs: Vec::new() }).collect();
        let mut groups: Vec<Vec<Series<P, R>>> = groups.into_iter().map(series).collect();
        for round in 0..rounds {
            for group in &mut groups {
                let turn = round.min(1) % group.len().max(1);
                group.rotate_left(turn);
                for Series { point, runs } in group {
                    self.step(&format!("round {} of {rounds} · {point}", round + 1))?;
                    runs.push(run(point).with_context(|| point.to_string())?);
                }
            }
        }
        for group in &mut groups {
            let turned = rounds.saturating_sub(1) % group.len().max(1);
            group.rotate_right(turned);
        }
        Ok(groups.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn each_point_of_a_group_is_first_in_turn() {
        let (stop, told) = (Stop::default(), RefCell::new(Vec::new()));
        let tell = |what: &str| told.borrow_mut().push(what.to_owned());
        let lab = Lab::in_memory(&stop, &tell);
        let mut order = String::new();
        let groups = vec![vec!['a', 'b', 'c'], vec![], vec!['z']];
        let series = lab.alternate(3, groups, |point| {
            order.push(*point);
            Ok(order.len())
        });
        let series: Vec<_> = series.unwrap().into_iter().map(|series| (series.point, series.runs)).collect();
        assert_eq!(order, "abczbcazcabz");
        assert_eq!(series, [('a', vec![1, 7, 10]), ('b', vec![2, 5, 11]), ('c', vec![3, 6, 9]), ('z', vec![4, 8, 12])]);
        assert_eq!(told.borrow()[1], "round 1 of 3 · b");
    }

    #[test]
    fn a_signal_ends_the_rounds() {
        let stop = Stop::default();
        let lab = Lab::in_memory(&stop, &|_| ());
        let mut runs = 0;
        let ended = lab.alternate(9, vec![vec!["a"]], |_| {
            runs += 1;
            stop.request();
            Ok(())
        });
        assert_eq!((ended.unwrap_err().to_string().as_str(), runs), ("interrupted", 1));
    }
}
