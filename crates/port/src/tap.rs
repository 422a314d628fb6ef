//! TAP: frames to and from the kernel that this runs on.
//!
//! With a virtio header (`vnet_hdr`) each frame carries what network cards call
//! offloads: the kernel leaves checksums out of what it hands over and hands TCP
//! over in super-frames of up to 64 KB, and takes the same in return. Without it
//! each frame is one segment with its checksums complete.
//!
//! One `read(2)` a frame received, one `write(2)` or `writev(2)` a frame sent; the alternatives
//! were measured and are not better (Linux 6.18, 2 virtual CPUs, 1514-byte frames; `cargo bench
//! -p baton-port` measures again):
//!
//! * reading: `read` 459 ns a frame, of which 222 for one that finds nothing;
//!   `readv` of two pieces 536; io_uring in batches of 64 544, with registered
//!   buffers 568;
//! * writing into a local socket: `write` 1124, `writev` of two pieces 1242, io_uring
//!   1213: a frame of one segment is better copied together, in one pass with its
//!   checksum, than gathered;
//! * a queue with `IFF_NAPI` makes each write dearer if the kernel polls it there and
//!   then, and bulk half as dear if a thread does ([`merging`]);
//! * reading super-frames straight to where the consumer wants them would save the
//!   copy, 0.7 of 3.2 µs a 64 KB frame, but a frame of another connection would then
//!   lie in that consumer's memory for a moment.
//!
//! Frames of a burst are read one behind the other into one arena, no larger than
//! a second-level cache: a super-frame is then still there when it is copied out.
//!
//! ```text
//!   arena   |vh|frame......|vh|frame...|vh|frame........|  free: at least one frame |
//!            64-byte steps  vh: virtio header, if any
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use arrayvec::ArrayVec;
use baton_engine::frame_io::{
    Arrival, BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
};

use crate::error::OpenError;
use crate::link;
use crate::merging::{self, MergingError, Sysfs};
use crate::sys::{io as sys_io, ioctl};
use crate::vnet::{DATA_VALID, GSO_ECN, GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, Vnet};
use crate::wait::{WaitSet, Waitable};

/// Length of the virtio header in front of a frame, in bytes (the legacy form,
/// without `num_buffers`: with the 14 bytes of Ethernet it aligns what follows).
const VNET_LEN: usize = Vnet::LEN;
/// Offset of the checksum in the TCP header.
const TCP_CHECKSUM: u16 = 16;
/// Offset of the flags in the TCP header, and CWR in it.
const TCP_FLAGS: usize = 13;
const TCP_CWR: u8 = 0x80;

/// Ethernet header and two VLAN tags, in bytes.
const LINK_HEADER_MAX: usize = 22;
/// Ethernet header, in bytes.
const ETHERNET_LEN: usize = 14;
/// Largest IP packet, in bytes.
const PACKET_MAX: usize = 65_535;
/// Bytes of a burst with virtio headers: with a 64 KB frame always free at the
/// end, up to seven super-frames.
const VNET_ARENA: usize = 512 << 10;
/// Distance of frames in the arena is a multiple of this, in bytes.
const STEP: usize = 64;

/// How a TAP device is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TapOptions {
    /// Frames carry a virtio header: checksums are left out and super-frames of
    /// up to 64 KB pass, both ways.
    pub vnet_hdr: bool,
    /// Frames that follow others of their connection go through a second queue, behind which
    /// the kernel merges them ([`merging`]), if that is possible.
    pub merge: bool,
}

impl Default for TapOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl TapOptions {
    /// The defaults: both.
    pub const fn new() -> Self {
        Self { vnet_hdr: true, merge: true }
    }

    /// Sets whether frames carry a virtio header.
    pub const fn vnet_hdr(self, vnet_hdr: bool) -> Self {
        Self { vnet_hdr, ..self }
    }

    /// Sets whether the kernel merges frames that follow each other.
    pub const fn merge(self, merge: bool) -> Self {
        Self { merge, ..self }
    }
}

/// Frames that a TAP device lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TapCounters {
    /// Frames that the kernel refused because the interface is down.
    pub tx_link_down: u64,
    /// Frames that the kernel refused because of their contents, or for lack of memory.
    pub tx_refused: u64,
    /// Reads too short to hold a frame.
    pub rx_short: u64,
}

/// A TAP device, attached.
pub struct Tap {
    fd: OwnedFd,
    /// The queue that frames which may wait are written to.
    merging: Result<OwnedFd, Box<MergingError>>,
    name: String,
    capabilities: Capabilities,
    /// Length of the virtio header: 0 or [`VNET_LEN`].
    vnet_len: usize,
    arena: Box<[u8]>,
    /// Most that one read can bring, virtio header included.
    frame_max: usize,
    /// The slot, behind room for a virtio header.
    tx: Box<[u8]>,
    pub(crate) counters: TapCounters,
    /// See [`Tap::by_the_arena`].
    by_the_arena: bool,
    /// The error that ended the device, until `flush` reports it.
    gone: Option<io::Error>,
}

/// The number of frames that may wait in a TAP device for its port. They hold a whole receive window
/// (`baton_tcp::Config::max_window`), and a segment of each of thousands of connections. With the kernel's 500
/// or 1000, a fifth of the segments of a thousand connections was lost, again and again. At worst, with
/// super-frames for an engine that has stopped, this takes 256 MB.
pub const WAITING: u32 = 4096;

impl Tap {
    /// Attaches to the TAP device `name`, or makes one that goes away with this
    /// port. `%d` in the name stands for the first free number.
    ///
    /// # Errors
    /// [`OpenError`] with the remedy: no TAP support, no privilege, another
    /// program attached, a device of another kind.
    pub fn open(name: &str, options: TapOptions) -> Result<Self, OpenError> {
        let fd = ioctl::open_device(c"/dev/net/tun").map_err(|e| explain_open(name, e))?;
        let vnet_flag = if options.vnet_hdr { libc::IFF_VNET_HDR } else { 0 };
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | vnet_flag;
        let mut sysfs = if options.merge { Sysfs::mount() } else { Err(MergingError::Off) };
        let several = sysfs.as_ref().ok().map(|sysfs| {
            ioctl::tun_set_iff(fd.as_fd(), name, flags | libc::IFF_MULTI_QUEUE).and_then(|name| alone(sysfs, name))
        });
        let name = match several {
            Some(Ok(name)) => name,
            Some(Err(e)) if e.raw_os_error() != Some(libc::EINVAL) => return Err(explain_attach(name, options, e)),
            refused => {
                if refused.is_some() {
                    sysfs = Err(MergingError::OneQueue);
                }
                ioctl::tun_set_iff(fd.as_fd(), name, flags).map_err(|e| explain_attach(name, options, e))?
            }
        };
        let failed = |(what, source)| OpenError::System { device: format!("tap:{name}"), what, source };
        // A user to whom an administrator gave a device may not change its queue.
        let _ = link::lengthen_tx_queue(&name, WAITING);
        let mtu = link::mtu(&name).map_err(|e| failed(("reading the MTU", e)))?.min(PACKET_MAX as u32) as u16;
        let mut tap = Self::set_up(fd, &name, mtu, options).map_err(failed)?;
        let flags = flags | libc::IFF_MULTI_QUEUE;
        tap.merging = sysfs.and_then(|sysfs| merging::attach(&sysfs, tap.fd.as_fd(), &name, flags)).map_err(Box::new);
        Ok(tap)
    }

    /// A port over a TAP device that another process attached to, given its descriptor, in
    /// whichever network namespace it lies. It carries virtio headers and packets of `mtu`
    /// bytes.
    ///
    /// # Errors
    /// [`OpenError`] if it is no such descriptor.
    pub fn attached(fd: OwnedFd, name: &str, mtu: u16) -> Result<Self, OpenError> {
        Self::set_up(fd, name, mtu, TapOptions { vnet_hdr: true, merge: false })
            .map_err(|(what, source)| OpenError::System { device: format!("tap:{name}"), what, source })
    }

    /// The rest of opening, which only a broken kernel fails; errors name the step.
    fn set_up(fd: OwnedFd, name: &str, mtu: u16, options: TapOptions) -> Result<Self, (&'static str, io::Error)> {
        let mut offload = 0;
        if options.vnet_hdr {
            ioctl::tun_set_vnet_header_len(fd.as_fd(), VNET_LEN as i32)
                .map_err(|e| ("setting the length of the virtio header", e))?;
            offload = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        }
        // A persistent device keeps its last user's settings, so always set them.
        ioctl::tun_set_offload(fd.as_fd(), offload).map_err(|e| ("setting offloads", e))?;
        let vnet_len = if options.vnet_hdr { VNET_LEN } else { 0 };
        let packet_max = if options.vnet_hdr { PACKET_MAX } else { mtu.into() };
        let frame_max = vnet_len + LINK_HEADER_MAX + packet_max;
        let arena = if options.vnet_hdr { VNET_ARENA } else { BURST * frame_max.next_multiple_of(STEP) };
        let mut capabilities = Capabilities::new(mtu);
        capabilities.tx_checksum = options.vnet_hdr;
        capabilities.tx_gso_max = if options.vnet_hdr { (ETHERNET_LEN + PACKET_MAX) as u32 } else { 0 };
        capabilities.tx_gather = options.vnet_hdr;
        Ok(Self {
            fd,
            merging: Err(Box::new(MergingError::Off)),
            name: name.to_owned(),
            capabilities,
            vnet_len,
            arena: vec![0; arena].into_boxed_slice(),
            frame_max,
            tx: vec![0; frame_max].into_boxed_slice(),
            counters: TapCounters::default(),
            by_the_arena: false,
            gone: None,
        })
    }

    /// Has [`FrameIo::receive`] end once super-frames have filled the arena, though there may
    /// be more: for a program whose own calls drive its engine. Frames that wait in the device
    /// are in the kernel's memory only. Taken out before the program has read its earlier data,
    /// they would be written to the program's ring while it is not cached, and be out of the
    /// cache again when they are read.
    #[must_use]
    pub fn by_the_arena(self) -> Tap {
        Tap { by_the_arena: true, ..self }
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether frames that follow others are merged by the kernel, or why not.
    ///
    /// # Errors
    /// The reason against it.
    pub fn merging(&self) -> Result<(), &MergingError> {
        self.merging.as_ref().map(drop).map_err(Box::as_ref)
    }

    /// The queue that a frame is written to.
    #[inline]
    fn queue(&self, meta: TxMeta) -> BorrowedFd<'_> {
        match &self.merging {
            Ok(queue) if meta.follows => queue.as_fd(),
            _ => self.fd.as_fd(),
        }
    }

    /// Frames lost so far, by reason.
    pub fn counters(&self) -> TapCounters {
        self.counters
    }

    /// Takes a write's outcome and counts it; false while the device is full.
    pub(crate) fn sent(&mut self, result: io::Result<usize>) -> bool {
        let Err(error) = result else { return true };
        match error.raw_os_error() {
            Some(libc::EAGAIN) => return false,
            Some(libc::EIO) => self.counters.tx_link_down += 1,
            Some(libc::EBADFD | libc::EBADF | libc::ENODEV) => self.gone = Some(error),
            _ => self.counters.tx_refused += 1,
        }
        true
    }

    pub(crate) fn error(&self, what: &str, source: io::Error) -> PortError {
        PortError::new(format!("tap:{}: {what}", self.name), source)
    }
}

impl FrameIo for Tap {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut total = 0;
        loop {
            let mut free = &mut self.arena[..];
            let mut frames = ArrayVec::<RxFrame<'_>, BURST>::new();
            let mut dry = None;
            while !frames.is_full() && total + frames.len() < limit && free.len() >= self.frame_max {
                let len = match rustix::io::read(&self.fd, &mut free[..self.frame_max]).map_err(io::Error::from) {
                    Ok(len) => len,
                    Err(e) => {
                        dry = Some(e);
                        break;
                    }
                };
                if len < self.vnet_len + ETHERNET_LEN {
                    self.counters.rx_short += 1;
                    continue;
                }
                let step = len.next_multiple_of(STEP).min(free.len());
                let (taken, rest) = std::mem::take(&mut free).split_at_mut(step);
                free = rest;
                let (header, data) = taken[..len].split_at(self.vnet_len);
                frames.push(RxFrame { data, meta: parse_vnet(header) });
            }
            total += frames.len();
            if !frames.is_empty() {
                sink.burst(&frames);
            }
            let goes_on = frames.is_full() || !self.by_the_arena;
            drop(frames);
            match dry {
                None if total < limit && goes_on => {}
                None => return Ok(total),
                Some(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return Ok(total);
                }
                Some(e) => return Err(self.error("reading", e)),
            }
        }
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        Some(&mut self.tx[self.vnet_len..][..len])
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        let frame_end = self.vnet_len + len;
        if self.vnet_len != 0 {
            let header = build_vnet(&self.tx[VNET_LEN..frame_end], meta);
            self.tx[..VNET_LEN].copy_from_slice(&header);
        }
        let result = rustix::io::write(self.queue(meta), &self.tx[..frame_end]).map_err(io::Error::from);
        if !self.sent(result) {
            self.counters.tx_refused += 1;
        }
    }

    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        let vnet = build_vnet(header, meta);
        let result = sys_io::write_gather(self.queue(meta), [&vnet[..self.vnet_len], header], payload);
        self.sent(result)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        match self.gone.take() {
            None => Ok(()),
            Some(e) => Err(self.error("writing", e)),
        }
    }
}

impl Waitable for Tap {
    fn poll_fds(&self, set: &mut WaitSet) {
        set.add(&self.fd);
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// The facts about a frame in the virtio header before it (virtio 1.2 §5.1.6; empty if the device
/// has none).
fn parse_vnet(header: &[u8]) -> RxMeta {
    let &[flags, gso_type, _, _, gso_0, gso_1, ..] = header else { return RxMeta::default() };
    let tcp = matches!(gso_type & !GSO_ECN, GSO_TCPV4 | GSO_TCPV6);
    RxMeta {
        checksum_verified: flags & (NEEDS_CSUM | DATA_VALID) != 0,
        gso_size: if tcp { u16::from_ne_bytes([gso_0, gso_1]) } else { 0 },
        arrived: Arrival::default(),
    }
}

/// The virtio header for a frame that starts with `frame` (its headers at least).
fn build_vnet(frame: &[u8], meta: TxMeta) -> [u8; VNET_LEN] {
    let mut header = [0; VNET_LEN];
    if meta.checksum_start != 0 {
        header[0] = NEEDS_CSUM;
        header[6..8].copy_from_slice(&meta.checksum_start.to_ne_bytes());
        header[8..10].copy_from_slice(&TCP_CHECKSUM.to_ne_bytes());
    }
    if meta.gso_size != 0 {
        let cwr = frame.get(usize::from(meta.checksum_start) + TCP_FLAGS).is_some_and(|flags| flags & TCP_CWR != 0);
        header[1] = if meta.ipv6 { GSO_TCPV6 } else { GSO_TCPV4 } | if cwr { GSO_ECN } else { 0 };
        header[2..4].copy_from_slice(&meta.header_len.to_ne_bytes());
        header[4..6].copy_from_slice(&meta.gso_size.to_ne_bytes());
    }
    header
}

/// `name`, if no other program is attached to that device: one with several queues would accept
/// a second.
fn alone(sysfs: &Sysfs, name: String) -> io::Result<String> {
    match sysfs.queues(&name)? {
        0 | 1 => Ok(name),
        _ => Err(io::Error::from_raw_os_error(libc::EBUSY)),
    }
}

/// Why `/dev/net/tun` could not be opened.
fn explain_open(name: &str, source: io::Error) -> OpenError {
    let device = format!("tap:{name}");
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => OpenError::Missing {
            device,
            remedy: "load the kernel's TUN/TAP driver: modprobe tun (in a container, pass /dev/net/tun in)".into(),
        },
        Some(libc::EACCES | libc::EPERM) => OpenError::NotPermitted {
            device,
            remedy: "make /dev/net/tun readable and writable for you: chmod 0666 /dev/net/tun".into(),
        },
        _ => OpenError::System { device, what: "opening /dev/net/tun", source },
    }
}

/// Why the device could not be attached to.
fn explain_attach(name: &str, options: TapOptions, source: io::Error) -> OpenError {
    let device = format!("tap:{name}");
    let vnet = if options.vnet_hdr { " vnet_hdr" } else { "" };
    if source.kind() == io::ErrorKind::InvalidInput && source.raw_os_error().is_none() {
        let what = "no name for an interface".into();
        let remedy = format!("use 1 to {} letters, without /", ioctl::NAME_MAX);
        return OpenError::Unsuitable { device, what, remedy };
    }
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted {
            device,
            remedy: format!(
                "run with CAP_NET_ADMIN, or have root make the device for you: \
                 ip tuntap add dev {name} mode tap user $USER{vnet}"
            ),
        },
        Some(libc::EBUSY) => OpenError::Busy {
            device,
            remedy: format!(
                "end the program that holds it, or choose another name (who: fuser -v /dev/net/tun; ip -d link show {name})"
            ),
        },
        Some(libc::EINVAL | libc::EEXIST) => OpenError::Unsuitable {
            device,
            what: "an interface of that name is there and is no TAP device with one queue".into(),
            remedy: format!("choose another name, or remove it: ip link del {name}"),
        },
        _ => OpenError::System { device, what: "attaching to the device", source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtio_header_says_what_the_receiver_may_leave_out() {
        let meta = |flags, gso_type, size: u16| {
            let [a, b] = size.to_ne_bytes();
            parse_vnet(&[flags, gso_type, 66, 0, a, b, 34, 0, 16, 0])
        };
        let verified = |gso_size| RxMeta { checksum_verified: true, gso_size, arrived: Arrival::default() };
        assert_eq!(meta(0, 0, 0), RxMeta::default());
        assert_eq!(meta(NEEDS_CSUM, 0, 0), verified(0));
        assert_eq!(meta(DATA_VALID, 0, 0), verified(0));
        assert_eq!(meta(NEEDS_CSUM, GSO_TCPV4, 1448), verified(1448));
        assert_eq!(meta(NEEDS_CSUM, GSO_TCPV6 | GSO_ECN, 1428), verified(1428));
        // Super-frames of UDP (3, 5) are not ours.
        assert_eq!(meta(NEEDS_CSUM, 5, 1448), verified(0));
        assert_eq!(parse_vnet(&[]), RxMeta::default());
    }

    #[test]
    fn a_virtio_header_asks_for_what_the_meta_asks_for() {
        let mut frame = [0; 66];
        assert_eq!(build_vnet(&frame, TxMeta::default()), [0; VNET_LEN]);
        let checksum = TxMeta { checksum_start: 34, ..TxMeta::default() };
        assert_eq!(build_vnet(&frame, checksum), [1, 0, 0, 0, 0, 0, 34, 0, 16, 0]);
        let gso = TxMeta { gso_size: 1448, header_len: 66, ..checksum };
        let [a, b] = 1448u16.to_ne_bytes();
        assert_eq!(build_vnet(&frame, gso), [1, GSO_TCPV4, 66, 0, a, b, 34, 0, 16, 0]);
        assert_eq!(build_vnet(&frame, TxMeta { ipv6: true, ..gso })[1], GSO_TCPV6);
        frame[34 + TCP_FLAGS] = TCP_CWR;
        assert_eq!(build_vnet(&frame, gso)[1], GSO_TCPV4 | GSO_ECN);
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_a_remedy() {
        for name in ["", "seventeen-letters", "a/b", "nul\0"] {
            let Err(error) = Tap::open(name, TapOptions::default()) else { panic!("{name:?} was opened") };
            let text = error.to_string();
            // Without /dev/net/tun the remedy differs.
            assert!(text.contains("letters") || text.contains("/dev/net/tun"), "{text}");
        }
    }
}
