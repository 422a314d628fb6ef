//! Tests of a service's program without a network: the test plays the broker.

mod corpus;
mod played;
mod raw;
mod service;
