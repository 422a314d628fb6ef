//! AF_XDP: frames straight from an interface's receive queues, past the kernel's
//! stack, and back to the interface.
//!
//! ```text
//!   interface --XDP program--> socket of the queue --receive ring--> port
//!                    |                                  fill ring <--
//!                    +--> kernel (everything that is not the endpoint's)
//!   interface <--------------- socket <--transmit ring-- port
//!                                     --completion ring->
//! ```
//!
//! Modes, best first; [`XdpPort::mode`] returns the one obtained: the program in the driver and
//! packet memory shared with the hardware (zero-copy); the program in the driver and one copy;
//! the program in the kernel's generic hook and one copy, which every interface can do. Frames
//! longer than a chunk pass in pieces (Linux 6.6).
//!
//! Checksums are neither verified nor filled in. A veth hands over frames of a
//! sender on this machine *without* a checksum unless the sender's end is told
//! not to rely on offloads: `ethtool -K PEER tx off`, or
//! [`crate::link::set_tx_checksum_offload`].
//!
//! All queues of the interface are received from in turn. Everything is sent on
//! the first, so that frames of a connection stay in order.
//!
//! Why rings of our own: the crate `xdp` (pure Rust, well kept) leaves every call on the packet
//! path unsafe to its caller and moves packets through a type of its own; the contract here
//! borrows frames where they lie. The part that we could use is about as long as `ring_unsafe`.
//! `xsk-rs` needs libxdp and libbpf in C.

mod features;
mod port;
mod program;
mod ring_unsafe;
mod socket;
mod umem_unsafe;

pub use features::{DriverFeatures, driver_features};
pub use port::{CopyMode, XdpCounters, XdpMode, XdpOptions, XdpPort};
pub use program::{Program, ProgramCounters, ProgramSetupError};
