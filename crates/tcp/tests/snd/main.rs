//! The sending side as its callers see it: tables from the RFCs, a model network,
//! and arbitrary sequences of calls.

mod calls;
mod net;
mod rig;
mod streams;
mod tables;
mod timeouts;
