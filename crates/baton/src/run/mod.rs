//! What `baton run` is made of: the program and whether the library can be loaded into it, a
//! service of its own, what both leave behind, and the account of what was moved.

pub mod account;
pub mod children;
pub mod program;
pub mod service;
