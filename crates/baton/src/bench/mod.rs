//! Measurements that stand beside a paper's.

pub mod bare;
pub mod programs;
pub mod rsc;
pub mod tap;
pub mod tce;
