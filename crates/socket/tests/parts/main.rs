//! Consumers, queue pairs, stacks and a service's program, without a network.

mod adoption;
mod buffers;
mod corpus;
mod host;
mod memory;
mod played;
mod qp;
mod raw;
mod service;
mod stack;
mod strangers;
