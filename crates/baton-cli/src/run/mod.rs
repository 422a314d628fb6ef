//! What `baton run` is made of: the program and whether the library can be loaded into it, the service
//! that the runs of a network namespace share, directories, signals, what programs leave behind, and the
//! account of what was moved.

pub mod account;
pub mod home;
pub mod passing;
pub mod place;
pub mod program;
pub mod service;
pub mod unreached;
pub mod watch;
