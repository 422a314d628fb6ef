//! The parts of `baton run`: the program, and whether the library can be loaded into it; the service
//! that the runs of a network namespace share; directories; signals; processes that programs leave
//! behind; and the account of what moved.

pub mod account;
pub mod home;
pub mod passing;
pub mod place;
pub mod private;
pub mod program;
pub mod service;
pub mod unreached;
pub mod watch;
