//! Frames with a virtio header: the contract of ports with offloads, for code that passes
//! frames on instead of ending connections.
//!
//! [`FrameIo`](crate::FrameIo) is an endpoint's contract: it says that a TCP checksum
//! is right and how long segments are. A relay between a wire and the kernel has to
//! pass on every frame with everything known about it. A TAP device and a packet
//! socket describe frames in the same header (virtio 1.2 §5.1.6, the legacy form), so between
//! these two it is passed on as it is.

use std::io::IoSlice;

use baton_engine::frame_io::PortError;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: a checksum is to be filled in from `checksum_start` on.
pub const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the checksum was verified.
pub const DATA_VALID: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_TCPV4`.
pub const GSO_TCPV4: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV6`.
pub const GSO_TCPV6: u8 = 4;
/// `VIRTIO_NET_HDR_GSO_ECN`: CWR is set in the first segment only.
pub const GSO_ECN: u8 = 0x80;

/// The virtio header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vnet {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// The kind of segments that the frame is to be cut into; 0 for a frame of one segment.
    pub gso_type: u8,
    /// Length of all headers in bytes, where the frame is to be cut; a hint.
    pub header_len: u16,
    /// Payload bytes of each segment, where the frame is to be cut.
    pub gso_size: u16,
    /// Where the checksum starts, in bytes from the start of the frame.
    pub checksum_start: u16,
    /// Where its field lies, in bytes from there.
    pub checksum_offset: u16,
}

impl Vnet {
    /// Length of the header in bytes.
    pub const LEN: usize = 10;

    /// Reads the header from bytes.
    pub const fn from_bytes(bytes: [u8; Vnet::LEN]) -> Vnet {
        let [flags, gso_type, b2, b3, b4, b5, b6, b7, b8, b9] = bytes;
        Vnet {
            flags,
            gso_type,
            header_len: u16::from_ne_bytes([b2, b3]),
            gso_size: u16::from_ne_bytes([b4, b5]),
            checksum_start: u16::from_ne_bytes([b6, b7]),
            checksum_offset: u16::from_ne_bytes([b8, b9]),
        }
    }

    /// Encodes the header (virtio 1.2, §5.1.6).
    pub const fn to_bytes(self) -> [u8; Vnet::LEN] {
        let [b2, b3] = self.header_len.to_ne_bytes();
        let [b4, b5] = self.gso_size.to_ne_bytes();
        let [b6, b7] = self.checksum_start.to_ne_bytes();
        let [b8, b9] = self.checksum_offset.to_ne_bytes();
        [self.flags, self.gso_type, b2, b3, b4, b5, b6, b7, b8, b9]
    }

    /// The transport checksum was verified, or need not be: the frame has not left
    /// this machine yet.
    pub const fn is_vouched(&self) -> bool {
        self.flags & (NEEDS_CSUM | DATA_VALID) != 0
    }

    /// The frame stands for several.
    pub const fn is_super(&self) -> bool {
        self.gso_type != 0
    }
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct VnetFrame<'a> {
    /// The frame from the Ethernet header on, VLAN tags in their place.
    pub data: &'a [u8],
    /// Its virtio header.
    pub vnet: Vnet,
}

/// Takes bursts of received frames.
pub trait VnetSink {
    /// Takes frames in order of arrival. They are the sink's only until it returns.
    fn burst(&mut self, frames: &[VnetFrame<'_>]);
}

/// A source and sink of frames with virtio headers, driven from one thread.
pub trait VnetIo {
    /// Hands up to `limit` waiting frames to `sink`, in bursts, and returns how many
    /// there were. Never waits.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    fn receive<S: VnetSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError>;

    /// Sends the pieces as one frame; false, and nothing is kept, while the port is full.
    fn send(&mut self, vnet: Vnet, pieces: &[IoSlice<'_>]) -> bool;

    /// Pushes what was sent to the device.
    ///
    /// # Errors
    /// [`PortError`] when the device is gone.
    fn flush(&mut self) -> Result<(), PortError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_what_its_bytes_say() {
        let header = Vnet {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV6,
            header_len: 86,
            gso_size: 1428,
            checksum_start: 54,
            checksum_offset: 16,
        };
        assert_eq!(Vnet::from_bytes(header.to_bytes()), header);
        assert!(header.is_vouched() && header.is_super());
        assert_eq!(Vnet::default().to_bytes(), [0; Vnet::LEN]);
        assert!(!Vnet::default().is_vouched() && !Vnet::default().is_super());
    }
}
