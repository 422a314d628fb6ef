//! The cases of Linux's GRO self-tests, on our coalescer and on the kernel's: a table
//! of what each makes of them, and why they differ where they do.

#[path = "../traffic/build.rs"]
mod build;
mod cases;
mod wire_unsafe;

use baton_coalesce::{
    Cause, Checksums, Coalescer, Frame, Limits, Link, Output, Part, Parts, Profile, Reason, Run, Window,
};
use baton_testkit::{Netns, need_program, need_root, veth};
use build::Packet;
use cases::{Case, cases};
use wire_unsafe::PacketSocket;

/// How often a case is tried on the kernel, which merges only what it has in hand at
/// a time: less than it could when the machine is busy, never more.
const TRIES: usize = 100;

/// Lengths of payload that come out.
#[derive(Default)]
struct Lengths(Vec<usize>);

impl Output<usize> for Lengths {
    fn frame(&mut self, payload: usize, _: Reason) {
        self.0.push(payload);
    }
    fn run(&mut self, run: &Run, _: &[Part<usize>], _: Cause) {
        self.0.push(run.payload_len as usize);
    }
}

fn ours(profile: Profile, frames: &[Packet]) -> Vec<usize> {
    let limits = Limits { window: Window::Input, ..Limits::of(profile) };
    let (mut coalescer, mut parts, mut out) = (Coalescer::new(limits), Parts::new(&limits), Lengths::default());
    for packet in frames {
        let bytes = packet.build(1);
        let frame = Frame::whole(&bytes, Link::Ethernet);
        coalescer.handle_frame(&frame, Checksums::Verify, 0, packet.payload, &mut parts.to(&mut out));
    }
    coalescer.flush(0, &mut parts.to(&mut out));
    out.0
}

#[test]
fn our_coalescer_makes_of_the_cases_what_the_table_says() {
    for v6 in [false, true] {
        for case in cases(v6) {
            assert_eq!(ours(Profile::Ra, &case.frames), case.ra, "ra, v6 {v6}: {}", case.name);
            if let Some(rsc) = &case.rsc {
                assert_eq!(&ours(Profile::Rsc, &case.frames), rsc, "rsc, v6 {v6}: {}", case.name);
            }
            // A case that differs from the kernel has an explanation, and no other case has.
            let differs = !case.kernel.contains(&case.ra) || case.rsc.is_some_and(|rsc| !case.kernel.contains(&rsc));
            assert_eq!(differs, !case.why.is_empty(), "v6 {v6}: {}", case.name);
        }
    }
}

#[test]
fn the_kernel_makes_of_the_cases_what_the_table_says() {
    need_root!();
    need_program!("ethtool");
    let (a, b) = (Netns::new("grofrom"), Netns::new("groto"));
    veth(&a, "wire", &b, "wire");
    a.run("ip link set wire mtu 9000");
    b.run("ip link set wire mtu 9000");
    // Linux keeps GRO on veth for senders that do not segment late (veth_skb_is_eligible_for_gro).
    a.run("ethtool -K wire tso off");
    b.run("ethtool -K wire gro on");
    // Held for company for 20 ms.
    let settings = "echo 20000000 > /sys/class/net/wire/gro_flush_timeout";
    baton_testkit::run(b.command("sh").args(["-c", settings]));
    let mut from = a.enter(|| PacketSocket::open("wire")).unwrap();
    let mut to = b.enter(|| PacketSocket::open("wire")).unwrap();
    let mut port = 1500;
    for v6 in [false, true] {
        for case in cases(v6) {
            let mut seen = Vec::new();
            for _ in 0..TRIES {
                port += 1;
                seen = pass(&mut from, &mut to, &case, port);
                let most = case.kernel.iter().map(Vec::len).min().unwrap();
                assert!(seen.len() >= most, "more merged than expected: {seen:?}, v6 {v6}: {}", case.name);
                if case.kernel.contains(&seen) {
                    break;
                }
            }
            assert!(case.kernel.contains(&seen), "{seen:?} not {:?}, v6 {v6}: {}", case.kernel, case.name);
        }
    }
}

/// Sends a case's frames from a port of their own, and reads until all have come.
fn pass(from: &mut PacketSocket, to: &mut PacketSocket, case: &Case, port: u16) -> Vec<usize> {
    let frames: Vec<Vec<u8>> =
        case.frames.iter().map(|packet| Packet { src_port: port, ..packet.clone() }.build(1)).collect();
    frames.iter().for_each(|frame| from.send(frame).unwrap());
    let all: usize = case.frames.iter().map(|packet| packet.payload).sum();
    let empty = case.frames.iter().filter(|packet| packet.payload == 0).count();
    let mut seen = Vec::new();
    while seen.iter().sum::<usize>() < all || seen.iter().filter(|len| **len == 0).count() < empty {
        let frame = to.receive().unwrap_or_else(|e| panic!("{seen:?} of {all} and {empty}, {}: {e}", case.name));
        seen.extend(payload_of(&frame, port));
    }
    seen
}

/// Length of the payload, if the frame is TCP from this port.
fn payload_of(frame: &[u8], port: u16) -> Option<usize> {
    let ip = frame.get(14..)?;
    let (mut tcp, len, mut protocol) = match ip[0] >> 4 {
        4 => (usize::from(ip[0] & 15) * 4, usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip[9]),
        _ => (40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip[6]),
    };
    if [44, 60].contains(&protocol) {
        protocol = *ip.get(tcp)?;
        tcp += 8;
    }
    let header = ip.get(tcp..tcp + 20).filter(|_| protocol == 6)?;
    let is_ours = u16::from_be_bytes([header[0], header[1]]) == port;
    is_ours.then(|| len - tcp - usize::from(header[12] >> 4) * 4)
}
