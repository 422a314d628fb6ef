//! Tests of a connection's decisions: tables of segments and answers, laws under
//! arbitrary input, and two connections joined by a wire.

mod adopt;
mod arbitrary;
mod arrive;
mod closing;
mod handshake;
mod host;
mod listen;
mod network;
mod options;
mod page;
mod pair;
mod predict;
mod probes;
mod receive;
mod recovery;
mod rig;
mod runs;
mod scripts;
mod states;
mod unsummed;
mod window;
