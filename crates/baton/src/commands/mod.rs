//! One file a command: arguments, then a call into the library, then printing.

pub mod bare;
pub mod bench;
pub mod demo;
pub mod doctor;
pub mod get;
pub mod load;
pub mod serve;
pub mod stack;
