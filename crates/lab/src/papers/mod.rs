//! Measurements to compare with a paper's figures, or with the kernel.
//!
//! [`ALL`] lists them; [`crate::experiment`] says what each consists of.

pub mod bump;
pub mod ch2006;
pub mod exhibits;
pub mod la1994;
pub mod lc2006;
pub mod programs;
pub mod rsc2006;
pub mod tap;

use crate::experiment::{Experiment, Paper};

/// Kim and Rixner.
pub const CH: Paper = Paper {
    key: "CH",
    title: "Connection Handoff Policies for TCP Offload Network Interfaces",
    year: 2006,
    page: "ch2006.md",
};

/// Wolman, Voelker and Thekkath.
pub const LA: Paper =
    Paper { key: "LA", title: "Latency Analysis of TCP on an ATM Network", year: 1994, page: "la.md" };

/// Shalev, Makhervaks and others.
pub const LC: Paper =
    Paper { key: "LC", title: "Loosely Coupled TCP Acceleration Architecture", year: 2006, page: "lc2006.md" };

/// Menon and Zwaenepoel; RA stands for receive aggregation.
pub const RA: Paper = Paper { key: "RA", title: "Optimizing TCP Receive Performance", year: 2008, page: "ra2008.md" };

/// Makineni, Iyer and others.
pub const RSC: Paper = Paper {
    key: "RSC",
    title: "Receive Side Coalescing for Accelerating TCP/IP Processing",
    year: 2006,
    page: "rsc2006.md",
};

/// Every experiment, in the order in which they run.
pub const ALL: [Experiment; 20] = [
    lc2006::EXPERIMENT,
    rsc2006::EXPERIMENT,
    bump::LIMIT,
    bump::RECEIVER,
    bump::CONNECTIONS,
    bump::MESSAGES,
    bump::LATENCY,
    ch2006::testbed::EXPERIMENT,
    la1994::MEMORY,
    la1994::ROUND_TRIPS,
    la1994::LAYERS,
    la1994::PREDICTION,
    la1994::PASSES,
    la1994::SUMS,
    la1994::CORRUPTION,
    tap::EXPERIMENT,
    programs::EXPERIMENT,
    programs::local::EXPERIMENT,
    ch2006::host_first::EXPERIMENT,
    ch2006::load::EXPERIMENT,
];

/// The experiment with this id.
pub fn find(id: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Method, PLANS, plan};
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn each_plan_has_the_values_of_every_axis_of_every_experiment_and_no_other() {
        for (name, _) in PLANS {
            let plan = plan(name).unwrap();
            let ids: BTreeSet<&str> = ALL.iter().map(|experiment| experiment.id).collect();
            assert_eq!(plan.keys().map(String::as_str).collect::<BTreeSet<_>>(), ids, "{name}");
            assert_eq!(ids.len(), ALL.len());
            for experiment in &ALL {
                let extent = &plan[experiment.id];
                let known: BTreeSet<&str> = experiment.axes.iter().map(|axis| axis.name).collect();
                assert_eq!(extent.axes().collect::<BTreeSet<_>>(), known, "{name}: {}", experiment.id);
                assert!(extent.rounds > 0, "{name}: {}", experiment.id);
                assert!(known.iter().all(|axis| !extent.values::<toml::Value>(axis).unwrap().is_empty()), "{name}");
            }
        }
    }

    #[test]
    fn ids_are_unique_and_name_paper_and_place() {
        let ids: BTreeSet<&str> = exhibits::all().map(|exhibit| exhibit.id).collect();
        assert_eq!(ids.len(), exhibits::all().count());
        for exhibit in exhibits::all() {
            let place = exhibit.what.to_lowercase().replace(' ', "-");
            assert_eq!(exhibit.id, format!("{}-{place}", exhibit.paper.key.to_lowercase()));
            assert!(!exhibit.why.is_empty() && !exhibit.about.is_empty(), "{exhibit}");
        }
    }

    #[test]
    fn only_what_is_not_possible_has_no_experiment() {
        for exhibit in exhibits::all() {
            assert_eq!(exhibit.from.is_empty(), exhibit.method == Method::NotPossible, "{exhibit}");
            for id in exhibit.from {
                assert!(find(id).is_some(), "{exhibit} comes from {id}, which does not exist");
            }
        }
    }

    #[test]
    fn each_paper_has_a_page_that_names_it() {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/papers");
        for exhibit in exhibits::all() {
            let page = std::fs::read_to_string(pages.join(exhibit.paper.page)).unwrap();
            assert!(page.starts_with(&format!("# {}: ", exhibit.paper.key)), "{exhibit}");
            assert!(page.replace('\n', " ").contains(exhibit.paper.title), "{exhibit}");
        }
    }
}
