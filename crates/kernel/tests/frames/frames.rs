//! Frames of one connection, made byte by byte, and a TAP device that represents the wire.

use baton_kernel::steer::{Kind, Options, Steering};
use baton_port::{FrameIo, FrameSink, RxFrame, SteeredPort, Tap, TapOptions, TxMeta, WaitSet, Waitable, link};
use baton_testkit::Netns;
use baton_wire::addr::Tuple;
use std::time::Duration;

pub const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub const ELSEWHERE: [u8; 6] = [2, 0, 0, 0, 0, 8];
pub const TCP: u8 = 6;

/// A TCP header of 20 bytes, from the peer's port 80 to our port 1000.
pub const SEGMENT: [u8; 20] = [0, 80, 3, 232, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0];

/// An Ethernet frame from the peer with `tags` (type and id).
pub fn frame(to: [u8; 6], tags: &[(u16, u16)], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [to, PEER].concat();
    for (kind, id) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(id.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

pub fn ipv4(protocol: u8, fragment: u16, options: usize, payload: &[u8]) -> Vec<u8> {
    let header = 20 + options;
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend([10, 66, 0, 2, 10, 66, 0, 1]);
    packet.extend(vec![1; options]);
    packet.extend(payload);
    packet
}

pub fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    for last in [2, 1] {
        packet.extend([0xfd, 0x66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend(payload);
    packet
}

/// The frames that arrive.
#[derive(Default)]
pub struct Frames(pub Vec<Vec<u8>>);

impl FrameSink for Frames {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.0.extend(frames.iter().map(|f| f.data.to_vec()));
    }
}

/// The next frame.
pub fn next<P: FrameIo + Waitable>(port: &mut P) -> Vec<u8> {
    let mut frames = Frames::default();
    let mut set = WaitSet::new();
    port.poll_fds(&mut set);
    for _ in 0..100 {
        if port.prepare_wait() {
            set.wait(Some(Duration::from_millis(50))).unwrap();
            port.finish_wait();
        }
        if port.receive(1, &mut frames).unwrap() == 1 {
            return frames.0.remove(0);
        }
    }
    panic!("no frame");
}

pub fn send<P: FrameIo>(port: &mut P, frame: &[u8]) {
    port.slot(frame.len()).expect("room").copy_from_slice(frame);
    port.commit(frame.len(), TxMeta::default());
    port.flush().unwrap();
}

/// A namespace with an interface `wire`, whose other end is the TAP device.
pub fn scene() -> (Netns, Tap, [u8; 6]) {
    let netns = Netns::new("steer");
    let (tap, address) = netns.enter(|| {
        let tap = Tap::open("wire", TapOptions::new().vnet_hdr(false).merge(false)).unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/wire/disable_ipv6", "1").unwrap();
        link::set_up("wire").unwrap();
        (tap, link::address("wire").unwrap())
    });
    (netns, tap, address)
}

/// The same with steering, and the port of an engine that is up.
pub fn steered(kind: Kind) -> (Netns, Tap, [u8; 6], Steering, SteeredPort) {
    let (netns, wire, us) = scene();
    let mut steering = netns.enter(|| Steering::attach("wire", kind, Options::default())).unwrap();
    let port = netns.enter(|| steering.open_port()).unwrap();
    steering.set_engine(true).unwrap();
    (netns, wire, us, steering, port)
}

pub fn tuple(ipv6: bool) -> Tuple {
    let ends = if ipv6 { ["[fd66::1]:1000", "[fd66::2]:80"] } else { ["10.66.0.1:1000", "10.66.0.2:80"] };
    let [local, remote] = ends.map(|end| end.parse().unwrap());
    Tuple::new(local, remote)
}
