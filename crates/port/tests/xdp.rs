//! AF_XDP ports against the kernel: a veth between two namespaces, the kernel at
//! one end, the port at the other.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use baton_port::xdp::CopyMode;
use baton_port::{FrameIo, FrameSink, OpenError, RxFrame, TxMeta, WaitSet, Waitable, XdpOptions, XdpPort, link};
use baton_testkit::{Netns, need_program, need_root, veth};
use common::{Host, IP, tcp_frame};

const GENERIC: XdpOptions = XdpOptions::new().generic(true);
const DRIVER: XdpOptions = XdpOptions::new();

/// A wire with the kernel at `far` (10.77.0.1) and an interface `near` for a port.
fn wire(mtu: u32) -> (Netns, Netns) {
    let (far, near) = (Netns::new("xdpfar"), Netns::new("xdpnear"));
    veth(&far, "far", &near, "near");
    far.run(&format!("ip link set far mtu {mtu}"));
    near.run(&format!("ip link set near mtu {mtu}"));
    far.run("ip addr add 10.77.0.1/24 dev far");
    far.enter(|| link::set_tx_checksum_offload("far", false).unwrap());
    // The toy host has an address of its own; the wire does not mind.
    far.run("ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev far");
    (far, near)
}

fn open(near: &Netns, options: XdpOptions) -> XdpPort {
    let mut port = near.enter(|| XdpPort::open("near", options).unwrap());
    port.add_address(IpAddr::V4(Ipv4Addr::from(IP))).unwrap();
    port
}

#[test]
fn the_kernel_pings_a_host_on_an_interface_and_still_has_its_own_frames() {
    need_root!();
    need_program!("clang");
    need_program!("ping");
    for options in [DRIVER, GENERIC] {
        let (far, near) = wire(1500);
        near.run("ip addr add 10.77.0.9/24 dev near");
        let mut port = open(&near, options);
        let mode = port.mode();
        assert_eq!((mode.driver, mode.zero_copy, mode.queues), (!options.generic, false, 1));
        let ping = std::thread::spawn(move || {
            let ours = far.run("ping -c 3 -i 0.05 -s 1400 -w 5 10.77.0.2");
            let kernels = far.run("ping -c 3 -i 0.05 -w 5 10.77.0.9");
            (ours, kernels)
        });
        let mut host = Host::default();
        assert!(host.run(&mut port, |_| ping.is_finished()));
        let (ours, kernels) = ping.join().unwrap();
        assert!(ours.contains("3 received") && kernels.contains("3 received"), "{options:?}");
        assert_eq!(host.echoes, 3);
        let counters = port.counters().unwrap();
        assert!(counters.program.redirected >= 3 && counters.program.passed >= 3, "{counters:?}");
        assert_eq!((counters.rx_full, counters.rx_dropped, counters.tx_invalid), (0, 0, 0));
    }
}

#[test]
fn the_kernel_sends_a_stream_to_a_host_on_an_interface() {
    need_root!();
    need_program!("clang");
    for options in [DRIVER, GENERIC] {
        let (far, near) = wire(1500);
        let mut port = open(&near, options);
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let sent = data.clone();
        let far = Arc::new(far);
        let there = far.clone();
        let sender = std::thread::spawn(move || {
            there.enter(|| {
                let mut stream = TcpStream::connect("10.77.0.2:80").unwrap();
                stream.write_all(&sent).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            });
        });
        let mut host = Host::default();
        if !host.run(&mut port, |_| sender.is_finished()) {
            let (got, skipped) = (host.tcp.bytes.len(), host.tcp.out_of_order);
            let here = format!("{got} bytes, {skipped} out of order, {:?}", port.counters().unwrap());
            panic!("{options:?}: no end; {here}; there: {}", far.run("ss -tinom") + &far.run("ip -s link show far"));
        }
        sender.join().unwrap();
        assert!(host.tcp.closed && host.tcp.bytes == data, "{options:?}: {} bytes", host.tcp.bytes.len());
        assert_eq!(host.tcp.wrong_checksums, 0);
        assert_eq!(host.tcp.longest_frame, 1514);
    }
}

#[test]
fn frames_longer_than_a_chunk_pass_both_ways() {
    need_root!();
    need_program!("clang");
    need_program!("ping");
    for options in [DRIVER, GENERIC] {
        let (far, near) = wire(9000);
        let mut port = open(&near, options);
        let ping = std::thread::spawn(move || far.run("ping -c 3 -i 0.05 -s 8972 -M do -w 5 10.77.0.2"));
        let mut host = Host::default();
        assert!(host.run(&mut port, |_| ping.is_finished()), "{options:?}");
        assert!(ping.join().unwrap().contains("3 received"), "{options:?}");
    }
}

/// Targets of neighbour solicitations, by their last byte.
#[derive(Default)]
struct Solicited(Vec<u8>);

impl FrameSink for Solicited {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        let asks = frames.iter().filter(|f| f.data[12..14] == [0x86, 0xdd] && f.data[20] == 58 && f.data[54] == 135);
        self.0.extend(asks.map(|f| f.data[77]));
    }
}

#[test]
fn solicitations_for_an_address_of_the_endpoint_are_its_own_and_others_are_not() {
    need_root!();
    need_program!("clang");
    let (far, near) = wire(1500);
    far.run("ip addr add fd77::1/64 dev far nodad");
    let mut port = open(&near, DRIVER);
    port.add_address("fd77::2".parse().unwrap()).unwrap();
    far.enter(|| {
        let socket = UdpSocket::bind("[fd77::1]:0").unwrap();
        // The other first: once ours has come, it has been passed.
        socket.send_to(&[0], "[fd77::9]:9").unwrap();
        socket.send_to(&[0], "[fd77::2]:9").unwrap();
    });
    let mut solicited = Solicited::default();
    let mut set = WaitSet::new();
    port.poll_fds(&mut set);
    while solicited.0.is_empty() {
        assert!(!port.prepare_wait() || set.wait(Some(Duration::from_secs(5))).unwrap() > 0, "nobody asked");
        port.finish_wait();
        port.receive(1000, &mut solicited).unwrap();
    }
    assert!(solicited.0.iter().all(|&target| target == 2), "{solicited:?}", solicited = solicited.0);
}

/// Remembers the marks (first four bytes of UDP payload) of what arrives.
#[derive(Default)]
struct Marks(Vec<u32>);

impl FrameSink for Marks {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        let udp = frames.iter().filter(|f| f.data[12..14] == [8, 0] && f.data[23] == 17);
        self.0.extend(udp.map(|f| u32::from_be_bytes(f.data[42..46].try_into().unwrap())));
    }
}

#[test]
fn every_queue_is_received_from() {
    need_root!();
    need_program!("clang");
    let (far, near) = (Netns::new("xdpfar"), Netns::new("xdpnear"));
    far.run("ip link add far numtxqueues 2 numrxqueues 2 type veth peer name near numtxqueues 2 numrxqueues 2");
    far.run(&format!("ip link set near netns {}", near.name()));
    near.run("ip link set near up");
    far.run("ip link set far up");
    far.run("ip addr add 10.77.0.1/24 dev far");
    far.run("ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev far");
    let mut port = open(&near, DRIVER);
    assert_eq!(port.mode().queues, 2);
    far.enter(|| {
        for i in 0..64u32 {
            // A flow each, so that they spread over the queues.
            let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
            socket.send_to(&i.to_be_bytes(), "10.77.0.2:9").unwrap();
        }
    });
    let mut marks = Marks::default();
    let mut set = WaitSet::new();
    port.poll_fds(&mut set);
    while marks.0.len() < 64 {
        assert!(
            !port.prepare_wait() || set.wait(Some(Duration::from_secs(5))).unwrap() > 0,
            "{} frames",
            marks.0.len()
        );
        port.finish_wait();
        port.receive(1000, &mut marks).unwrap();
    }
    marks.0.sort_unstable();
    assert!(marks.0.iter().copied().eq(0..64));
    // One queue only: what arrives on the other is the kernel's.
    drop(port);
    let one = open(&near, DRIVER.queues(Some(1)));
    assert_eq!(one.mode().queues, 1);
    let many = near.enter(|| XdpPort::open("near", DRIVER.queues(Some(3)))).err().unwrap();
    assert!(many.to_string().contains("has 2 receive queues"), "{many}");
}

#[test]
fn a_burst_larger_than_the_memory_is_sent_as_room_comes_back() {
    need_root!();
    need_program!("clang");
    const FRAMES: usize = 5000;
    let (far, near) = wire(1500);
    let mut port = open(&near, DRIVER);
    let (frame, _) = tcp_frame([2, 0, 0, 0, 0, 9], false, &[5; 500]);
    let mut sent = 0;
    while sent < FRAMES {
        match port.slot(frame.len()) {
            Some(slot) => {
                slot.copy_from_slice(&frame);
                port.commit(frame.len(), TxMeta::default());
                sent += 1;
            }
            None => port.flush().unwrap(),
        }
    }
    port.flush().unwrap();
    let stats = far.run("cat /sys/class/net/far/statistics/rx_packets");
    assert!(stats.trim().parse::<usize>().unwrap() >= FRAMES, "{stats}");
    assert_eq!(port.counters().unwrap().tx_invalid, 0);
}

#[test]
fn what_cannot_be_opened_is_named_with_a_remedy() {
    need_root!();
    need_program!("clang");
    let (_far, near) = wire(1500);
    let error = |name: &str, options| near.enter(|| XdpPort::open(name, options)).err().expect("must not open");
    let missing = error("nowhere", DRIVER);
    assert!(matches!(&missing, OpenError::Missing { device, .. } if device == "xdp:nowhere"), "{missing}");
    assert!(matches!(error("", DRIVER), OpenError::Unsuitable { .. }));
    let zero_copy = error("near", DRIVER.copy(CopyMode::ZeroCopy));
    assert!(zero_copy.to_string().contains("xdp:INTERFACE,copy"), "{zero_copy}");
    let held = open(&near, DRIVER);
    let busy = error("near", DRIVER);
    assert!(matches!(&busy, OpenError::Busy { .. }), "{busy}");
    // Closed, it leaves nothing behind.
    drop(held);
    drop(open(&near, GENERIC));
    drop(open(&near, DRIVER));
}

#[test]
fn an_interface_that_goes_away_is_an_error() {
    need_root!();
    need_program!("clang");
    let (_far, near) = wire(1500);
    let mut port = open(&near, DRIVER);
    near.run("ip link del near");
    // The kernel notes the error on the socket but ends no wait for it.
    let mut set = WaitSet::new();
    port.poll_fds(&mut set);
    set.wait(Some(Duration::from_millis(20))).unwrap();
    port.finish_wait();
    let error = port.receive(1, &mut Marks::default()).unwrap_err();
    assert!(error.to_string().starts_with("xdp:near"), "{error}");
}
