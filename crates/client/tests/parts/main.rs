//! Tests of a service's program without a network: the test plays the broker.

mod corpus;
mod not_taken;
mod pairs;
mod played;
mod raw;
mod service;
mod standing;
