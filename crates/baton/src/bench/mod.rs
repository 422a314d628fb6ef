//! Measurements that stand beside a paper's.

pub mod tce;
