//! The interface between the Streamer and a port: bursts of frames in, frames out.
//!
//! A port says what it can do ([`Capabilities`]) and the Streamer uses it: it
//! leaves checksums to a port that fills them in, hands super-frames to a port
//! that cuts them, and passes payload by reference to a port that gathers.
//!
//! ```text
//!   receive:   port --burst of RxFrame--> FrameSink        (by reference)
//!   transmit:  Streamer --slot()+commit()--> port          (copied, summed on the way)
//!              Streamer --gather()---------> port          (by reference)
//!              Streamer --flush()----------> port          (one doorbell a burst)
//! ```

pub use crate::arrival::Arrival;
use std::fmt;

/// Abilities of a port that the Streamer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Largest IP packet that leaves unsegmented, in bytes (without link header).
    pub mtu: u16,
    /// Frames start with an Ethernet header; else they are bare IP packets.
    pub ethernet: bool,
    /// The port fills in the TCP checksum of frames whose meta asks for it.
    pub tx_checksum: bool,
    /// The port cuts super-frames: the largest frame that it takes, in bytes;
    /// 0 if it cuts none.
    pub tx_gso_max: u32,
    /// `gather` is cheaper than `slot` (the port copies the payload itself).
    pub tx_gather: bool,
}

impl Capabilities {
    /// A port of Ethernet frames that does nothing for the Streamer. Set the fields of what it does.
    pub const fn new(mtu: u16) -> Capabilities {
        Capabilities { mtu, ethernet: true, tx_checksum: false, tx_gso_max: 0, tx_gather: false }
    }
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// The frame from its first header on.
    pub data: &'a [u8],
    /// The port's knowledge of the frame.
    pub meta: RxMeta,
}

// Bursts of frames are copied.
const _: () = assert!(size_of::<RxFrame<'_>>() == 24);

/// Facts about a received frame that the port vouches for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxMeta {
    /// The TCP checksum was verified, or the frame never left this machine and
    /// needs none (`VIRTIO_NET_HDR_F_DATA_VALID`, `_NEEDS_CSUM`).
    pub checksum_verified: bool,
    /// Payload bytes of each segment (but the last) that the frame is made of;
    /// 0 for a frame that is one segment.
    pub gso_size: u16,
    /// When the frame arrived, if the port knows it.
    pub arrived: Arrival,
}

/// Work that the port is to do on a frame that it sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxMeta {
    /// Offset of the TCP header from the start of the frame, if the port is to
    /// fill in the TCP checksum (its field holds the pseudo-header's sum); 0 if
    /// the checksum is complete.
    pub checksum_start: u16,
    /// Payload bytes a segment if the port is to cut the frame; 0 if not.
    pub gso_size: u16,
    /// Length of all headers, link header included, in bytes.
    pub header_len: u16,
    /// IPv6, for a port that has to tell.
    pub ipv6: bool,
    /// Earlier bytes of the same connection are still on their way: the port may hold this
    /// frame briefly for more of them, as long as it keeps their order.
    pub follows: bool,
}

/// Takes bursts of received frames.
pub trait FrameSink {
    /// Takes frames in order of arrival. They are the sink's only until it returns.
    fn burst(&mut self, frames: &[RxFrame<'_>]);
}

/// The most frames in a burst.
pub const BURST: usize = 64;

/// A source and sink of frames, driven from one thread.
pub trait FrameIo {
    /// The port's abilities. They do not change while the port is open.
    fn capabilities(&self) -> Capabilities;

    /// Hands up to `limit` waiting frames to `sink`, in bursts of up to
    /// [`BURST`], and returns how many there were. Never waits.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError>;

    /// A slot for one frame of `len` bytes, or `None` while the port is full. Its bytes are
    /// arbitrary. A slot that is not committed is dropped.
    fn slot(&mut self, len: usize) -> Option<&mut [u8]>;

    /// Sends the first `len` bytes of the slot given last.
    fn commit(&mut self, len: usize, meta: TxMeta);

    /// Sends one frame out of a header and payload parts without keeping them;
    /// false while the port is full. Only for ports with `tx_gather`.
    ///
    /// The parts are raw (pointer, length) pairs because they may lie in memory
    /// that a consumer shares and writes; see `region`.
    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool;

    /// Pushes what was committed to the device.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    fn flush(&mut self) -> Result<(), PortError>;
}

/// A piece of payload in consumer memory, valid for reads for as long as the
/// call that it is passed to.
#[derive(Clone, Copy, Debug)]
pub struct PayloadPart {
    /// First byte.
    pub ptr: *const u8,
    /// Length in bytes.
    pub len: usize,
}

/// The device behind a port failed for good.
#[derive(Debug)]
#[non_exhaustive]
pub struct PortError {
    /// The port's name and what it was doing.
    pub what: String,
    /// The operating system's answer.
    pub source: std::io::Error,
}

impl PortError {
    /// An error of this port and action, such as `"tap:tap0: sending"`.
    pub fn new(what: impl Into<String>, source: std::io::Error) -> PortError {
        PortError { what: what.into(), source }
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for PortError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
