//! Measurements to compare with a paper's figures, or with the kernel.
//!
//! Letters stand for papers:
//!
//! * LC: Shalev, Makhervaks and others, *Loosely Coupled TCP Acceleration Architecture* (2006);
//! * RA: Menon and Zwaenepoel, *Optimizing TCP Receive Performance* (2008), receive aggregation;
//! * RSC: Makineni, Iyer and others, *Receive Side Coalescing for Accelerating TCP/IP Processing* (2006).

pub mod bump;
pub mod lc2006;
pub mod programs;
pub mod rsc2006;
pub mod tap;
