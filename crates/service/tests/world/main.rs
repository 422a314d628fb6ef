//! Connections between two kernels, with a service next to one of them. They form one binary,
//! because building their dependencies takes longer than building the tests.

#[path = "../common/mod.rs"]
mod common;

mod beside;
mod c_program;
mod congestion;
mod conntrack;
mod conntrack_ends;
mod corpus;
mod direct;
mod events;
mod followers;
mod gaps;
mod hostile;
mod killed_beside;
mod leftovers;
mod load;
mod observe;
mod options;
mod outlive;
mod own_engines;
mod pairs;
mod pairs_between;
mod pairs_bulk;
mod pairs_deaths;
mod pairs_idle;
mod pairs_restored;
mod pairs_translated;
mod pairs_urgent;
mod path_mtu;
mod policy;
mod predict;
mod programs;
mod raw;
mod ready;
mod resets;
mod rules;
mod service;
mod slow_layers;
mod strangers;
mod time_wait;
mod translated;
mod zones;

common::processes!();
