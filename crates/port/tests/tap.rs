//! TAP ports against the kernel, each test in a namespace of its own.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use baton_port::merging::MergingError;
use baton_port::tap::WAITING;
use baton_port::{FrameIo, OpenError, PayloadPart, Tap, TapOptions, TxMeta, Waitable, link};
use baton_testkit::{Netns, need_program, need_root, wait_for};
use common::{Host, MAC, TcpFrames, tcp_checksum_is_right, tcp_frame};

const FORMS: [TapOptions; 2] = [TapOptions::new(), TapOptions::new().vnet_hdr(false)];

/// A TAP device, up, the kernel's side at 10.77.0.1.
fn open(netns: &Netns, options: TapOptions) -> Tap {
    let tap = netns.enter(|| {
        let tap = Tap::open("tap%d", options).unwrap();
        link::set_up(tap.name()).unwrap();
        tap
    });
    netns.run(&format!("ip addr add 10.77.0.1/24 dev {}", tap.name()));
    tap
}

/// A device that was closed just now: a child that another test forks has its descriptors
/// until it executes a program.
fn open_again(name: &str, options: TapOptions) -> Tap {
    let mut opened = Tap::open(name, options);
    wait_for("the device", || {
        if matches!(opened, Err(OpenError::Busy { .. })) {
            opened = Tap::open(name, options);
        }
        !matches!(opened, Err(OpenError::Busy { .. }))
    });
    opened.unwrap()
}

#[test]
fn the_kernel_pings_a_host_on_a_tap() {
    need_root!();
    need_program!("ping");
    for options in FORMS {
        let netns = Netns::new("tapping");
        let mut tap = open(&netns, options);
        let ping = std::thread::spawn(move || netns.run("ping -c 3 -i 0.05 -s 1400 -w 5 10.77.0.2"));
        let mut host = Host::default();
        assert!(host.run(&mut tap, |_| ping.is_finished()));
        assert!(ping.join().unwrap().contains("3 received"), "{options:?}");
        assert_eq!(host.echoes, 3);
    }
}

/// Lets the kernel send 1 MB over TCP into a toy host and returns what that saw.
fn receive_from_kernel(options: TapOptions) -> common::TcpSeen {
    let netns = Netns::new("taprx");
    let mut tap = open(&netns, options);
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let sent = data.clone();
    let sender = std::thread::spawn(move || {
        netns.enter(|| {
            let mut stream = TcpStream::connect("10.77.0.2:80").unwrap();
            stream.write_all(&sent).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
    });
    let mut host = Host::default();
    assert!(host.run(&mut tap, |_| sender.is_finished()));
    sender.join().unwrap();
    assert!(host.tcp.closed && host.tcp.bytes == data, "{options:?}: {} bytes", host.tcp.bytes.len());
    assert_eq!((host.tcp.wrong_checksums, host.tcp.out_of_order), (0, 0));
    host.tcp
}

#[test]
fn with_virtio_header_the_kernel_sends_super_frames_and_no_checksums() {
    need_root!();
    let seen = receive_from_kernel(FORMS[0]);
    assert!(seen.longest_frame > 30_000, "longest frame: {} bytes", seen.longest_frame);
    assert!(seen.metas.iter().all(|m| m.checksum_verified));
    assert!(seen.metas.iter().any(|m| m.gso_size == 1460));
    assert!(seen.metas.iter().all(|m| [0, 1460].contains(&m.gso_size)));
}

#[test]
fn without_virtio_header_the_kernel_sends_segments_with_checksums() {
    need_root!();
    let seen = receive_from_kernel(FORMS[1]);
    assert_eq!(seen.longest_frame, 1514);
    assert!(seen.metas.iter().all(|m| !m.checksum_verified && m.gso_size == 0));
}

/// Two TAP devices on one bridge. Where the second is without offloads, the kernel
/// has to cut and to sum what comes from the first.
fn bridged(netns: &Netns, to: TapOptions) -> (Tap, Tap) {
    let (from, to) = netns.enter(|| (Tap::open("from", FORMS[0]).unwrap(), Tap::open("to", to).unwrap()));
    netns.run("ip link add bridge type bridge mcast_snooping 0");
    for name in ["from", "to", "bridge"] {
        if name != "bridge" {
            netns.run(&format!("ip link set {name} master bridge"));
        }
        netns.run(&format!("ip link set {name} up"));
    }
    (from, to)
}

/// Waits for TCP frames until `count` have come or 5 s are over.
fn collect(tap: &mut Tap, count: usize) -> TcpFrames {
    let mut frames = TcpFrames::default();
    let mut set = baton_port::WaitSet::new();
    tap.poll_fds(&mut set);
    let end = Instant::now() + Duration::from_secs(5);
    while frames.0.len() < count && Instant::now() < end {
        set.wait(Some(Duration::from_millis(20))).unwrap();
        tap.receive(1000, &mut frames).unwrap();
    }
    frames
}

#[test]
fn the_kernel_cuts_and_sums_what_is_sent_with_virtio_header() {
    need_root!();
    let netns = Netns::new("taptx");
    let (mut from, mut to) = bridged(&netns, FORMS[1]);
    let data: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
    let part = |bytes: &[u8]| PayloadPart { ptr: bytes.as_ptr(), len: bytes.len() };
    for ipv6 in [false, true] {
        let (frame, meta) = tcp_frame([2, 0, 0, 0, 0, 3], ipv6, &data);
        let (header, payload) = frame.split_at(meta.header_len.into());
        let meta = TxMeta { gso_size: 1400, ..meta };
        let (one, two) = payload.split_at(12_345);
        assert!(from.gather(header, &[part(one), part(two)], meta));
        let got = collect(&mut to, 29).0;
        assert_eq!(got.len(), 29, "segments of 1400 bytes in 40000");
        assert!(got.iter().all(|(f, _)| f[6..12] == MAC && f.len() <= header.len() + 1400 && tcp_checksum_is_right(f)));
        let joined: Vec<u8> = got.iter().flat_map(|(f, _)| &f[header.len()..]).copied().collect();
        assert!(joined == data, "IPv6: {ipv6}");

        // One segment from a slot, its checksum left out.
        let (frame, meta) = tcp_frame([2, 0, 0, 0, 0, 3], ipv6, &data[..501]);
        from.slot(frame.len()).unwrap().copy_from_slice(&frame);
        from.commit(frame.len(), meta);
        let got = collect(&mut to, 1).0;
        assert!(got.len() == 1 && tcp_checksum_is_right(&got[0].0) && got[0].0[header.len()..] == data[..501]);
    }
    from.flush().unwrap();
    assert_eq!(from.counters(), Default::default());
}

#[test]
fn what_one_look_leaves_in_the_device_comes_with_the_next() {
    need_root!();
    const FRAMES: usize = 20;
    let netns = Netns::new("taparena");
    let (mut from, mut to) = bridged(&netns, FORMS[0].merge(false));
    let (frame, meta) = tcp_frame([2, 0, 0, 0, 0, 3], false, &[7; 60_000]);
    let (header, payload) = frame.split_at(meta.header_len.into());
    let meta = TxMeta { gso_size: 1400, ..meta };
    for by_the_arena in [false, true] {
        if by_the_arena {
            to = to.by_the_arena();
        }
        for _ in 0..FRAMES {
            assert!(from.gather(header, &[PayloadPart { ptr: payload.as_ptr(), len: payload.len() }], meta));
        }
        let mut frames = TcpFrames::default();
        let mut looks = 0;
        while frames.0.len() < FRAMES {
            let before = frames.0.len();
            to.receive(1000, &mut frames).unwrap();
            assert!(frames.0.len() > before, "{} frames after {looks} looks", frames.0.len());
            looks += 1;
        }
        // Eight such frames leave less than one of 64 KB free of 512.
        assert_eq!(looks, if by_the_arena { FRAMES.div_ceil(8) } else { 1 });
        assert!(frames.0.iter().all(|(got, meta)| got.len() == frame.len() && meta.gso_size == 1400));
    }
}

/// IPv4 packets that the kernel has received, and the segments that were in them.
fn received(netns: &Netns) -> [u64; 2] {
    let count = |file: &str, protocol: &str, name: &str| {
        let text = netns.run(&format!("cat /proc/net/{file}"));
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split_whitespace().position(|word| word == name).unwrap();
        values.split_whitespace().nth(at).unwrap().parse::<u64>().unwrap()
    };
    [count("snmp", "Ip:", "InReceives"), count("netstat", "IpExt:", "InNoECTPkts")]
}

#[test]
fn the_kernel_merges_what_follows_and_takes_the_rest_as_it_comes() {
    need_root!();
    const FRAMES: u32 = 2000;
    let netns = Netns::new("tapmerge");
    let mut tap = open(&netns, FORMS[0]);
    tap.merging().unwrap();
    let (frame, meta) = tcp_frame([0xff; 6], false, &[7; 1000]);
    for follows in [false, true] {
        let before = received(&netns);
        for index in 0..FRAMES {
            let slot = tap.slot(frame.len()).unwrap();
            slot.copy_from_slice(&frame);
            slot[38..42].copy_from_slice(&(index * 1000).to_be_bytes());
            tap.commit(frame.len(), TxMeta { follows, ..meta });
        }
        tap.flush().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        let packets = loop {
            let now = received(&netns);
            let segments = now[1] - before[1];
            if segments >= FRAMES.into() || Instant::now() > end {
                assert_eq!(segments, FRAMES.into(), "segments, follows: {follows}");
                break now[0] - before[0];
            }
        };
        // How many are merged is up to the scheduler.
        assert_eq!(packets < FRAMES.into(), follows, "{packets} packets, follows: {follows}");
    }
    assert_eq!(tap.counters(), Default::default());
}

#[test]
fn a_device_in_use_or_of_another_kind_is_named_with_a_remedy() {
    need_root!();
    let netns = Netns::new("tapopen");
    netns.run("ip link add dummy type bridge");
    netns.enter(|| {
        let _held = Tap::open("held", TapOptions::default()).unwrap();
        let busy = Tap::open("held", TapOptions::default()).err().unwrap();
        assert!(matches!(&busy, OpenError::Busy { device, .. } if device == "tap:held"), "{busy}");
        let other = Tap::open("dummy", TapOptions::default()).err().unwrap();
        assert!(
            matches!(&other, OpenError::Unsuitable { .. }) && other.to_string().contains("ip link del dummy"),
            "{other}"
        );
    });
}

#[test]
fn a_persistent_device_may_change_its_form_with_each_user() {
    need_root!();
    let netns = Netns::new("tapkeep");
    netns.run("ip tuntap add dev kept mode tap vnet_hdr");
    netns.run("ip tuntap add dev queues mode tap vnet_hdr multi_queue");
    netns.enter(|| {
        for (name, queues) in [("kept", 1), ("queues", 2)] {
            for options in [FORMS[0], FORMS[1], FORMS[0]] {
                let tap = open_again(name, options);
                assert_eq!(tap.capabilities().tx_checksum, options.vnet_hdr);
                match tap.merging() {
                    Ok(()) => assert_eq!(queues, 2),
                    Err(why) => assert!(queues == 1 && matches!(why, MergingError::OneQueue), "{name}: {why}"),
                }
            }
        }
    });
}

#[test]
fn a_short_queue_is_made_longer_and_an_administrators_stays() {
    need_root!();
    let netns = Netns::new("tapqueue");
    netns.run("ip tuntap add dev queue mode tap vnet_hdr");
    for (frames, after) in [(500, WAITING), (10_000, 10_000)] {
        netns.run(&format!("ip link set queue txqueuelen {frames}"));
        netns.enter(|| {
            let _tap = open_again("queue", FORMS[0]);
            assert_eq!(link::tx_queue_len("queue").unwrap(), after);
        });
    }
}

#[test]
fn a_device_that_goes_away_is_an_error_and_one_that_is_down_is_not() {
    need_root!();
    let netns = Netns::new("tapgone");
    let mut tap = open(&netns, FORMS[1]);
    netns.run(&format!("ip link set {} down", tap.name()));
    tap.slot(60).unwrap().fill(0);
    tap.commit(60, TxMeta::default());
    tap.flush().unwrap();
    assert_eq!(tap.counters().tx_link_down, 1);
    netns.run(&format!("ip link del {}", tap.name()));
    tap.commit(60, TxMeta::default());
    assert!(tap.flush().is_err());
    assert!(tap.receive(1, &mut TcpFrames::default()).is_err());
}
