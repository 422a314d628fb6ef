//! What `baton run` is made of: the program and whether the library can be loaded into it, a
//! service of its own, the directory of both, signals, what they leave behind, and the account of what was
//! moved.

pub mod account;
pub mod children;
pub mod home;
pub mod passing;
pub mod program;
pub mod service;
