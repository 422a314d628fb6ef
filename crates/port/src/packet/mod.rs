//! A packet socket on an interface: receives and sends all its frames, with virtio headers.
//!
//! ```text
//!   receive   the kernel copies each frame into a ring that we read (no system call)
//!   send      short frames wait for `flush`, which sends 64 with one system call;
//!             a longer one goes at once, and is cut by the device or the kernel
//! ```
//!
//! A socket gets frames before they reach the interface's tc hook. So with
//! [`PacketOptions::take`] a BPF program there (`bpf/programs/bump.c`) drops all of them, and the
//! kernel's own stack gets none. Socket and program exist only as long as their descriptors.
//!
//! A frame that is longer than a slot (merged by the device, or a super-frame of this
//! machine) comes through the socket's queue instead. A VLAN tag, which the kernel takes
//! off, is put back in its place. Kernel: net/packet/af_packet.c (`tpacket_rcv`,
//! `packet_snd`).

mod ring_unsafe;
mod send;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use arrayvec::ArrayVec;
use aya::Ebpf;
use aya::programs::links::{FdLink, LinkOrder};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use baton_engine::frame_io::PortError;

use crate::error::{OpenError, chain};
use crate::sys::packet as sys_packet;
use crate::vnet::{NEEDS_CSUM, Vnet, VnetFrame, VnetIo, VnetSink};
use crate::wait::{WaitSet, Waitable};
use crate::{link, sys};
use ring_unsafe::PacketRing;
use send::Outbox;

/// Frames in a burst, at most.
pub const BURST: usize = 256;
/// Bytes of the ring.
const RING: u32 = 4 << 20;
/// Bytes of a block of the ring: the kernel makes one without a hole.
const BLOCK: u32 = 64 << 10;
/// Bytes in a slot before the frame, rounded up.
const OVERHEAD: u32 = 128;
/// Bytes that may wait in the socket, either way.
const BUFFER: i32 = 4 << 20;
/// The longest frame from the queue, in bytes.
const LONG: usize = 22 + 65_535;
const ETHERNET_LEN: usize = 14;
/// Two Ethernet addresses, in bytes: what a VLAN tag follows.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// How a packet port is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketOptions {
    /// Frames are kept from the kernel's stack; otherwise both the stack and the port get them.
    pub take: bool,
}

/// Counts of frames that did not pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounters {
    /// Lost because the ring was full.
    pub rx_ring_full: u64,
    /// Lost because they were longer than a slot and the queue had no room, or shorter
    /// than an Ethernet header.
    pub rx_unfit: u64,
    /// Lost because the interface is down.
    pub tx_link_down: u64,
    /// Refused for what is in them.
    pub tx_refused: u64,
}

/// Where a frame lies in a slot, and what is known of it.
struct Found {
    at: usize,
    len: usize,
    vnet: Vnet,
}

/// A packet socket on an interface.
pub struct PacketPort {
    // Dropped first: as long as the kernel's stack is kept from the frames, we take them.
    _taken: Option<(FdLink, Ebpf)>,
    ring: PacketRing,
    fd: OwnedFd,
    interface: String,
    index: u32,
    outbox: Outbox,
    /// A frame from the queue.
    long: Box<[u8]>,
    counters: PacketCounters,
    /// A wait has ended and nothing has been received since.
    woken: bool,
}

impl PacketPort {
    /// Opens a socket on `interface`.
    ///
    /// # Errors
    /// [`OpenError`] with the remedy.
    pub fn open(interface: &str, options: PacketOptions) -> Result<PacketPort, OpenError> {
        let device = || format!("packet:{interface}");
        let at = |what| move |e| explain(interface, what, e);
        let index = link::index(interface).map_err(at("finding the interface"))?;
        if !link::is_ethernet(interface).map_err(at("asking for the interface's kind"))? {
            let (what, remedy) = ("has no Ethernet header".into(), "name an Ethernet interface".into());
            return Err(OpenError::Unsuitable { device: device(), what, remedy });
        }
        let mtu = link::mtu(interface).map_err(at("reading the MTU"))?;
        let fd = sys_packet::socket().map_err(at("making a socket"))?;
        let ring = set_up(&fd, mtu).map_err(at("making the ring"))?;
        let taken = if options.take { Some(take(interface)?) } else { None };
        sys_packet::hear_all(fd.as_fd(), index).map_err(at("hearing all frames"))?;
        sys_packet::bind(fd.as_fd(), index).map_err(at("binding to the interface"))?;
        Ok(PacketPort {
            _taken: taken,
            ring,
            fd,
            interface: interface.to_owned(),
            index,
            outbox: Outbox::new(mtu),
            long: vec![0; Vnet::LEN + TAG + LONG].into_boxed_slice(),
            counters: PacketCounters::default(),
            woken: false,
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface
    }

    /// Counts of frames by fate.
    pub fn counters(&mut self) -> PacketCounters {
        // A broken socket has nothing more to count.
        let drops = sys_packet::take_drops(self.fd.as_fd()).unwrap_or(0);
        self.counters.rx_ring_full += u64::from(drops);
        self.counters.tx_link_down = self.outbox.link_down;
        self.counters.tx_refused = self.outbox.refused;
        self.counters
    }

    fn error(&self, what: &str, source: io::Error) -> PortError {
        PortError::new(format!("packet:{}: {what}", self.interface), source)
    }

    /// Looks at up to `limit` slots: where their frames lie, and how many slots that are.
    /// Ends before a frame that comes through the queue.
    fn find(&mut self, limit: usize) -> (ArrayVec<Option<Found>, BURST>, bool) {
        let mut found = ArrayVec::new();
        while found.len() < limit.min(BURST) {
            let Some(status) = self.ring.ready(found.len()) else { break };
            if status & libc::TP_STATUS_COPY != 0 {
                return (found, true);
            }
            let one = place(self.ring.bytes_mut(found.len()), status);
            self.counters.rx_unfit += u64::from(one.is_none());
            found.push(one);
        }
        (found, false)
    }

    /// Takes a frame whose slot is the next from the queue.
    fn take_long<S: VnetSink>(&mut self, sink: &mut S) {
        let status = self.ring.ready(0).unwrap_or(0);
        let tag = tag_of(self.ring.bytes(0), status);
        self.ring.release(1);
        let shift = if tag.is_some() { TAG } else { 0 };
        let len = rustix::net::recv(&self.fd, &mut self.long[shift..], rustix::net::RecvFlags::DONTWAIT);
        let (len, told) = len.unwrap_or((0, 0));
        let frame = Vnet::LEN + ETHERNET_LEN;
        if len < frame || told > len {
            self.counters.rx_unfit += 1;
            return;
        }
        let mut header = [0; Vnet::LEN];
        header.copy_from_slice(&self.long[shift..shift + Vnet::LEN]);
        let mut vnet = Vnet::from_bytes(header);
        if let Some(tag) = tag {
            insert(&mut self.long[Vnet::LEN..], tag, &mut vnet);
        }
        sink.burst(&[VnetFrame { data: &self.long[Vnet::LEN..len + shift], vnet }]);
    }
}

/// Sets the socket up and makes its ring.
fn set_up(fd: &OwnedFd, mtu: u32) -> io::Result<PacketRing> {
    const TPACKET_V2: i32 = 1;
    let set = |level, option, value| sys_packet::set_number(fd.as_fd(), level, option, value);
    set(libc::SOL_PACKET, libc::PACKET_VERSION, TPACKET_V2)?;
    set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
    set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    for option in [libc::SO_SNDBUFFORCE, libc::SO_RCVBUFFORCE] {
        set(libc::SOL_SOCKET, option, BUFFER)?;
    }
    let slot = (mtu + ETHERNET_LEN as u32 + TAG as u32 + OVERHEAD).next_power_of_two().clamp(2048, BLOCK);
    let map = sys_packet::make_ring(fd, BLOCK, RING / BLOCK, slot, RING / slot)?;
    Ok(PacketRing::new(map, slot as usize))
}

/// Keeps the interface's frames from the kernel's stack.
fn take(interface: &str) -> Result<(FdLink, Ebpf), OpenError> {
    let unsuitable = |what: String, remedy: &str| OpenError::Unsuitable {
        device: format!("packet:{interface}"),
        what,
        remedy: remedy.into(),
    };
    let Some(object) = baton_bpf::bump() else {
        return Err(unsuitable("built without the BPF program".into(), "install clang and build again"));
    };
    let mut ebpf = Ebpf::load(object).map_err(|e| unsuitable(chain(&e), "run as root, or with CAP_BPF"))?;
    let program = ebpf.program_mut("take").expect("bump.c has a program of that name");
    let attached = attach(program.try_into().expect("it is a classifier"), interface);
    let remedy = "run as root, on Linux 6.6 or later with CONFIG_NET_XGRESS";
    attached.map(|link| (link, ebpf)).map_err(|e| unsuitable(chain(&e), remedy))
}

/// Attached before all other programs, so that nothing else changes the frames.
fn attach(program: &mut SchedClassifier, interface: &str) -> Result<FdLink, ProgramError> {
    program.load()?;
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    let id = program.attach_with_options(interface, TcAttachType::Ingress, order)?;
    Ok(program.take_link(id)?.try_into().expect("a TCX link has a descriptor"))
}

/// Puts the kernel's answers into words with a remedy.
fn explain(interface: &str, what: &'static str, source: io::Error) -> OpenError {
    let device = format!("packet:{interface}");
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted {
            device,
            remedy: "run as root, or with CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON".into(),
        },
        Some(libc::ENODEV | libc::ENXIO) => {
            OpenError::Missing { device, remedy: "name an interface that is there (see them: ip link)".into() }
        }
        None if source.kind() == io::ErrorKind::InvalidInput => {
            let remedy = format!("use 1 to {} letters, without /", sys::ioctl::NAME_MAX);
            OpenError::Unsuitable { device, what: "no name for an interface".into(), remedy }
        }
        _ => OpenError::System { device, what, source },
    }
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    // Offsets in `tpacket2_hdr`, of which the status is left out.
    usize::from(u16::from_ne_bytes([bytes[at - 4], bytes[at - 3]]))
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_ne_bytes([bytes[at - 4], bytes[at - 3], bytes[at - 2], bytes[at - 1]]) as usize
}

/// The VLAN tag that the kernel took off, as four bytes.
fn tag_of(slot: &[u8], status: u32) -> Option<[u8; TAG]> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { u16_at(slot, 26) as u16 } else { 0x8100 };
    let ([a, b], [c, d]) = (tpid.to_be_bytes(), (u16_at(slot, 24) as u16).to_be_bytes());
    Some([a, b, c, d])
}

/// Puts a tag into a frame that begins after the first four bytes, so that it begins
/// with them.
fn insert(bytes: &mut [u8], tag: [u8; TAG], vnet: &mut Vnet) {
    bytes.copy_within(TAG..TAG + ADDRESSES, 0);
    bytes[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&tag);
    if vnet.flags & NEEDS_CSUM != 0 {
        vnet.checksum_start = vnet.checksum_start.saturating_add(TAG as u16);
    }
    if vnet.header_len != 0 {
        vnet.header_len = vnet.header_len.saturating_add(TAG as u16);
    }
}

/// Where the frame lies in a slot, its tag put back; `None` if it is not all there.
fn place(slot: &mut [u8], status: u32) -> Option<Found> {
    let (whole, len, at) = (u32_at(slot, 4), u32_at(slot, 8), u16_at(slot, 12).checked_sub(4)?);
    let fits = whole == len && len >= ETHERNET_LEN && slot.len() >= at + len;
    let header = slot.get(at.checked_sub(Vnet::LEN)?..at)?.first_chunk().filter(|_| fits)?;
    let mut vnet = Vnet::from_bytes(*header);
    let Some(tag) = tag_of(slot, status) else { return Some(Found { at, len, vnet }) };
    // The virtio header has been read: there is room in front.
    insert(&mut slot[at - TAG..], tag, &mut vnet);
    Some(Found { at: at - TAG, len: len + TAG, vnet })
}

impl VnetIo for PacketPort {
    fn receive<S: VnetSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut total = 0;
        while total < limit {
            let (found, long) = self.find(limit - total);
            let frames: ArrayVec<VnetFrame<'_>, BURST> = found
                .iter()
                .enumerate()
                .filter_map(|(ahead, one)| one.as_ref().map(|one| (ahead, one)))
                .map(|(ahead, one)| VnetFrame { data: &self.ring.bytes(ahead)[one.at..][..one.len], vnet: one.vnet })
                .collect();
            if !frames.is_empty() {
                sink.burst(&frames);
            }
            drop(frames);
            self.ring.release(found.len());
            total += found.len();
            if long {
                self.take_long(sink);
                total += 1;
            } else if found.is_empty() {
                break;
            }
        }
        if total == 0 && std::mem::take(&mut self.woken) {
            // The interface is down, not gone: it may come back.
            sys::xsk::take_error(self.fd.as_fd()).ok();
            match link::index(&self.interface) {
                Ok(index) if index == self.index => {}
                _ => return Err(self.error("receiving", io::Error::from_raw_os_error(libc::ENODEV))),
            }
        }
        Ok(total)
    }

    fn send(&mut self, vnet: Vnet, pieces: &[IoSlice<'_>]) -> bool {
        self.outbox.send(&self.fd, vnet, pieces)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.outbox.flush(&self.fd);
        match self.outbox.gone.take() {
            None => Ok(()),
            Some(e) => Err(self.error("sending", e)),
        }
    }
}

impl Waitable for PacketPort {
    fn poll_fds(&self, set: &mut WaitSet) {
        set.add(&self.fd.as_raw_fd());
    }

    fn prepare_wait(&mut self) -> bool {
        self.ring.ready(0).is_none()
    }

    fn finish_wait(&mut self) {
        self.woken = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot without its status: lengths as given, the frame at offset 100.
    fn slot(whole: u32, len: u32, tag: u16) -> Vec<u8> {
        let mut slot = vec![0; 2044];
        slot[0..4].copy_from_slice(&whole.to_ne_bytes());
        slot[4..8].copy_from_slice(&len.to_ne_bytes());
        slot[8..10].copy_from_slice(&100u16.to_ne_bytes());
        slot[20..22].copy_from_slice(&tag.to_ne_bytes());
        slot[22..24].copy_from_slice(&0x88a8u16.to_ne_bytes());
        let vnet = Vnet { flags: NEEDS_CSUM, checksum_start: 34, checksum_offset: 16, ..Vnet::default() };
        slot[86..96].copy_from_slice(&vnet.to_bytes());
        (0..60).for_each(|n| slot[96 + n] = n as u8);
        slot
    }

    #[test]
    fn a_frame_is_found_in_its_slot() {
        let found = place(&mut slot(60, 60, 0), libc::TP_STATUS_USER).unwrap();
        assert_eq!((found.at, found.len, found.vnet.checksum_start), (96, 60, 34));
    }

    #[test]
    fn a_tag_is_put_back_in_its_place() {
        let valid = libc::TP_STATUS_VLAN_VALID;
        for (status, tpid) in [(valid, [0x81, 0]), (valid | libc::TP_STATUS_VLAN_TPID_VALID, [0x88, 0xa8])] {
            let mut slot = slot(60, 60, 5);
            let found = place(&mut slot, status).unwrap();
            let frame = &slot[found.at..][..found.len];
            assert_eq!((found.len, found.vnet.checksum_start), (64, 38));
            assert_eq!(frame[..12], (0..12).collect::<Vec<u8>>());
            assert_eq!(frame[12..16], [tpid[0], tpid[1], 0, 5]);
            assert_eq!(frame[16..], (12..60).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn what_is_not_all_there_is_no_frame() {
        for (whole, len) in [(9000, 1948), (13, 13), (1949, 1949), (u32::MAX, u32::MAX)] {
            assert!(place(&mut slot(whole, len, 0), libc::TP_STATUS_USER).is_none(), "{whole} {len}");
        }
        let mut early = slot(60, 60, 0);
        early[8..10].copy_from_slice(&5u16.to_ne_bytes());
        assert!(place(&mut early, libc::TP_STATUS_USER).is_none());
    }
}
