//! Consumers, queue pairs and stacks, without a network.

mod adoption;
mod answers;
mod buffers;
mod corpus;
mod host;
mod memory;
mod qp;
mod slowest;
mod stack;
mod strangers;
mod watched;

/// Returns the byte at a stream position: a ramp of prime period.
fn ramp(position: u64) -> u8 {
    (position % 251) as u8
}

/// Returns `len` bytes of the ramp.
fn ramp_from(position: u64, len: usize) -> Vec<u8> {
    (position..).map(ramp).take(len).collect()
}
