//! Measurements that stand beside a paper's figures, or beside the kernel.

pub mod bump;
pub mod lc2006;
pub mod programs;
pub mod rsc2006;
pub mod tap;
