//! Frame sources and sinks behind one contract, [`FrameIo`].
//!
//! ```text
//!   port            carries                               the port does for the Streamer
//!   memory          frames between two engines            vouches, carries super-frames (by option)
//!   tap, vnet_hdr   frames to and from this kernel        checksums, cuts and joins super-frames
//!   tap             the same, one segment a frame         joins what follows each other
//!   xdp             frames of an interface, AF_XDP        nothing
//!   steered         an engine's frames of an interface    as tap, vnet_hdr, or as xdp
//!   capture         whatever the port inside it carries   as that port; writes pcapng beside it
//!   faulty          the same, with frames lost and moved  as that port; a test aid
//!   pcap file       a recorded capture, receive only      nothing
//! ```
//!
//! Code that passes frames on, instead of ending connections, has a contract of its own,
//! [`vnet`]: a TAP device ([`vnet_tap`]) and a packet socket on an interface ([`packet`]).
//!
//! A port knows nothing of TCP beyond where its checksum lies. It is driven
//! from one thread, never waits, and allocates nothing per frame. Its driver
//! sleeps outside of it; [`wait`] says on what.
//!
//! `unsafe` stands in `sys` (system calls), `slab_unsafe` (the slots that two ends of the
//! in-memory wire share), `ring_unsafe`, `umem_unsafe` and `memory_unsafe`.
#![deny(unsafe_code)]

#[macro_use]
mod forward;

pub mod any;
pub mod capture;
pub mod doctor;
pub mod error;
pub mod faulty;
pub mod link;
pub mod memory;
pub mod merging;
pub mod notes;
pub mod packet;
pub mod pcap_file;
pub mod pcapng;
mod slab_unsafe;
pub mod steered;
mod sys;
pub mod tap;
pub mod vnet;
pub mod vnet_tap;
pub mod wait;
pub mod xdp;

pub use any::{AnyPort, PortSpec};
pub use baton_engine::frame_io::{
    Arrival, BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
};
pub use capture::{Capture, Captured};
pub use error::OpenError;
pub use faulty::{Faults, Faulty};
pub use memory::{MemoryOptions, MemoryPort};
pub use packet::{PacketOptions, PacketPort};
pub use pcap_file::PcapFile;
pub use steered::SteeredPort;
pub use tap::{Tap, TapOptions};
pub use vnet::{Vnet, VnetFrame, VnetIo, VnetSink};
pub use vnet_tap::VnetTap;
pub use wait::{WaitSet, Waitable};
pub use xdp::{XdpOptions, XdpPort};
