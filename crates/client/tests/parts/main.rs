//! A program of a service, without a network: the broker is played.

mod corpus;
mod played;
mod raw;
mod service;
