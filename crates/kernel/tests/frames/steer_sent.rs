//! Tests what an engine writes frame by frame. A TAP device represents the wire, so a test sees
//! every byte that leaves.

use crate::frames::{ELSEWHERE, Frames, SEGMENT, TCP, frame, ipv4, ipv6, next, scene, send, steered, tuple};
use baton_kernel::steer::{Kind, Options, SteerError, SteeredTuple, Steering};
use baton_port::vnet::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM};
use baton_port::{FrameIo, SteeredPort, Tap, Vnet};
use baton_testkit::{Netns, need_program, need_root, need_types, skip, types, vm};
use baton_wire::addr::Tuple;
use baton_wire::checksum;
use rustix::mount::{MountFlags, mount};
use std::collections::BTreeSet;
use std::{fs, iter};

/// Whether it is IPv6, and the VLAN tags (type and id), innermost last.
type Link = (bool, &'static [(u16, u16)]);

const LINKS: [Link; 6] = [
    (false, &[]),
    (true, &[]),
    (false, &[(0x8100, 5)]),
    (true, &[(0x8100, 5)]),
    (false, &[(0x88a8, 5), (0x8100, 7)]),
    (true, &[(0x88a8, 5), (0x8100, 7)]),
];
/// The number of the engine that writes.
const NUMBER: u32 = 1;
/// The offset of the checksum in a TCP header (RFC 9293 §3.1).
const CHECKSUM: usize = 16;
/// The payload of each segment of a frame that is to be cut, in bytes.
const MSS: u16 = 500;

/// An engine inside a program.
struct Sender {
    _netns: Netns,
    wire: Tap,
    steering: Steering,
    port: SteeredPort,
}

impl Sender {
    /// Creates the engine, with the connection of [`tuple`], seen from its other end, on each of
    /// [`LINKS`].
    fn new() -> Sender {
        let (netns, wire, _) = scene();
        let mut steering = netns.enter(|| Steering::attach("wire", Kind::Tc, Options::default())).unwrap();
        assert!(steering.lends_engines());
        let port = netns.enter(|| steering.open_engine(NUMBER)).unwrap();
        steering.set_engine_up(NUMBER, true).unwrap();
        for (ipv6, vlans) in [false, true].into_iter().flat_map(|ipv6| [[0, 0], [5, 0], [5, 7]].map(|it| (ipv6, it))) {
            steering.insert_for(SteeredTuple { tuple: back(ipv6), vlans }, NUMBER).unwrap();
        }
        Sender { _netns: netns, wire, steering, port }
    }

    /// Writes a frame as any program could. Returns whether the device accepted it.
    fn write(&self, vnet: Vnet, frame: &[u8]) -> bool {
        let (tap, _) = self.port.device().expect("a TAP device");
        rustix::io::write(tap, &[&vnet.to_bytes(), frame].concat()).is_ok()
    }
}

fn back(ipv6: bool) -> Tuple {
    let Tuple { local, remote, local_port, remote_port } = tuple(ipv6);
    Tuple { local: remote, remote: local, local_port: remote_port, remote_port: local_port }
}

/// A segment with `len` bytes of payload and the pseudo-header's sum as its checksum, and the
/// offset of its TCP header.
fn segment((ipv6, tags): Link, len: usize) -> (Vec<u8>, usize) {
    let mut tcp = SEGMENT.to_vec();
    tcp.extend((0..len).map(|at| (at % 251) as u8));
    let mut frame = if ipv6 {
        frame(ELSEWHERE, tags, 0x86dd, &self::ipv6(TCP, &tcp))
    } else {
        frame(ELSEWHERE, tags, 0x0800, &ipv4(TCP, 0, 0, &tcp))
    };
    let start = frame.len() - tcp.len();
    let pseudo = checksum::fold(pseudo(&frame, ipv6, start));
    frame[start + CHECKSUM..][..2].copy_from_slice(&pseudo.to_be_bytes());
    (frame, start)
}

/// The pseudo-header's sum for the segment that begins at `tcp`.
fn pseudo(frame: &[u8], ipv6: bool, tcp: usize) -> u32 {
    let addresses = if ipv6 { 32 } else { 8 };
    checksum::sum(&frame[tcp - addresses..tcp]) + u32::from(TCP) + (frame.len() - tcp) as u32
}

/// The request for a frame whose checksum is to be filled in at `offset`, summing from `start` on,
/// and which is to be cut if `cut` is true.
fn request(start: usize, offset: usize, ipv6: bool, cut: bool) -> Vnet {
    let whole =
        Vnet { flags: NEEDS_CSUM, checksum_start: start as u16, checksum_offset: offset as u16, ..Vnet::default() };
    let gso_type = if ipv6 { GSO_TCPV6 } else { GSO_TCPV4 };
    if cut { Vnet { gso_type, gso_size: MSS, header_len: (start + SEGMENT.len()) as u16, ..whole } } else { whole }
}

#[test]
fn what_the_engine_sends_leaves_as_it_was() {
    need_root!();
    need_program!("clang");
    let (_netns, mut wire, _, mut steering, mut port) = steered(Kind::Tc);
    for vlans in [[0, 0], [5, 0], [5, 7]] {
        // Seen from the other side, so that the same frames can be used.
        steering.insert(SteeredTuple { tuple: back(false), vlans }).unwrap();
    }
    let packet = ipv4(TCP, 0, 0, &SEGMENT);
    for tags in [&[][..], &[(0x8100, 5)], &[(0x88a8, 5), (0x8100, 7)]] {
        let frame = frame(ELSEWHERE, tags, 0x0800, &packet);
        send(&mut port, &frame);
        assert_eq!(next(&mut wire), frame, "{tags:?}");
    }
    let sent = steering.counters().unwrap();
    assert_eq!((sent.sent, sent.foreign), (3, 0));
    // Also nothing that cannot be matched, nothing in another VLAN, and no ICMP errors.
    let fragment = ipv4(TCP, 0x2000, 0, &SEGMENT);
    // ICMP: destination unreachable.
    let error = ipv4(1, 0, 0, &[&[3, 0, 0, 0, 0, 0, 5, 20], &packet[..]].concat());
    let foreign =
        [(&[][..], &fragment), (&[(0x8100, 6)], &packet), (&[(0x8100, 5), (0x8100, 6)], &packet), (&[], &error)];
    for (tags, packet) in foreign {
        send(&mut port, &frame(ELSEWHERE, tags, 0x0800, packet));
    }
    let sent = steering.counters().unwrap();
    assert_eq!((sent.sent, sent.foreign), (3, 4));
    let mut frames = Frames::default();
    wire.receive(10, &mut frames).unwrap();
    assert_eq!(frames.0, Vec::<Vec<u8>>::new());
}

/// If a sum is requested anywhere else, the frame is dropped: after the guard the kernel would
/// write it there, for example over the ports or the addresses.
fn only_tcps_own_sum_may_be_asked_for() {
    let mut sender = Sender::new();
    let mut foreign = 0;
    for (link, cut) in LINKS.into_iter().flat_map(|link| [(link, false), (link, true)]) {
        let (frame, tcp) = segment(link, 3 * usize::from(MSS));
        // Offsets relative to the TCP header.
        let mut places = BTreeSet::new();
        for start in 0..tcp + 30 {
            for offset in (0..tcp + 40 - start).chain([0xfff0 - start, 0x10000 - start, 0xffff]) {
                if (start, offset) != (tcp, CHECKSUM) && sender.write(request(start, offset, link.0, cut), &frame) {
                    foreign += 1;
                    places.insert((start + offset) as isize - tcp as isize);
                }
            }
            let counted = sender.steering.counters().unwrap();
            assert_eq!((counted.sent, counted.foreign), (0, foreign), "{link:?}, cut {cut}, from {start}");
        }
        // Some kernels refuse such requests themselves for frames that are to be cut.
        let addresses = if link.0 { -32 } else { -8 };
        assert!(cut || (addresses..40).all(|place| places.contains(&place)), "{link:?}: {places:?}");
    }
    let mut frames = Frames::default();
    sender.wire.receive(10, &mut frames).unwrap();
    assert_eq!(frames.0, Vec::<Vec<u8>>::new());
}

fn who_asks_for_tcps_own_sum_gets_it() {
    let mut sender = Sender::new();
    for link in LINKS {
        for len in [0, 1, 1200] {
            let (mut frame, tcp) = segment(link, len);
            assert!(sender.write(request(tcp, CHECKSUM, link.0, false), &frame), "{link:?}");
            let sum = checksum::finish(checksum::sum(&frame[tcp..]));
            frame[tcp + CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(next(&mut sender.wire), frame, "{link:?}, {len} bytes");
        }
        // A frame that is to be cut leaves as several.
        let (frame, tcp) = segment(link, 3 * usize::from(MSS) - 1);
        assert!(sender.write(request(tcp, CHECKSUM, link.0, true), &frame), "{link:?}");
        let cut: Vec<_> = iter::repeat_with(|| next(&mut sender.wire)).take(3).collect();
        for frame in &cut {
            let sum = pseudo(frame, link.0, tcp) + checksum::sum(&frame[tcp..]);
            assert_eq!(checksum::fold(sum), 0xffff, "{link:?}: {frame:x?}");
        }
        let payloads: Vec<_> = cut.iter().map(|frame| &frame[tcp + SEGMENT.len()..]).collect();
        assert_eq!(payloads.concat(), frame[tcp + SEGMENT.len()..], "{link:?}");
    }
    let counted = sender.steering.counters().unwrap();
    assert_eq!((counted.sent, counted.foreign), (4 * LINKS.len() as u64, 0));
}

/// The interface's own engine sends all the same.
fn programs_get_no_engine() {
    let (netns, mut wire, _) = scene();
    let mut steering = netns.enter(|| Steering::attach("wire", Kind::Tc, Options::default())).unwrap();
    assert!(!steering.lends_engines());
    let Err(refused) = netns.enter(|| steering.open_engine(NUMBER)) else { panic!("an engine") };
    assert!(matches!(&refused, SteerError::Unsuitable { .. }), "{refused}");
    assert!(refused.to_string().contains("CONFIG_DEBUG_INFO_BTF"), "{refused}");
    let mut port = netns.enter(|| steering.open_port()).unwrap();
    steering.set_engine(true).unwrap();
    steering.insert(back(false)).unwrap();
    let frame = segment((false, &[]), 0).0;
    send(&mut port, &frame);
    assert_eq!(next(&mut wire), frame);
}

#[test]
fn a_frame_whose_sum_would_be_written_over_its_ports_does_not_leave() {
    need_root!();
    need_program!("clang");
    need_types!();
    only_tcps_own_sum_may_be_asked_for();
}

#[test]
fn a_frame_that_asks_for_its_sum_leaves_with_it() {
    need_root!();
    need_program!("clang");
    need_types!();
    who_asks_for_tcps_own_sum_gets_it();
}

#[test]
fn another_kernel_keeps_sums_the_same_way() {
    if vm::is_guest() {
        vm::enter();
        only_tcps_own_sum_may_be_asked_for();
        who_asks_for_tcps_own_sum_gets_it();
        // A kernel that does not let itself be read.
        mount("securityfs", "/sys/kernel/security", "securityfs", MountFlags::empty(), None).unwrap();
        fs::write("/sys/kernel/security/lockdown", "confidentiality").unwrap();
        return programs_get_no_engine();
    }
    need_root!();
    need_program!("clang");
    match vm::Kernel::find(env!("CARGO_TARGET_TMPDIR")) {
        Ok(kernel) => {
            println!("{}", vm::run(&kernel, &["tun"], &["ip"], "steer_sent::another_kernel_keeps_sums_the_same_way"))
        }
        Err(why) => skip!("another kernel {why}"),
    }
}

#[test]
fn where_the_kernel_has_no_types_programs_get_no_engine() {
    need_root!();
    need_program!("clang");
    if !types::are_hidden("steer_sent::where_the_kernel_has_no_types_programs_get_no_engine") {
        return;
    }
    programs_get_no_engine();
}
