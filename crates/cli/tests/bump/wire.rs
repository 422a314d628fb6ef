//! Behaviour of a bump on the wire, and traffic that passes without coalescing.

use crate::faults::Faults;
use crate::world::{Bump, HOST, HOST6, World};
use baton_port::{PacketOptions, PacketPort, Vnet, VnetFrame, VnetIo, VnetSink};
use baton_testkit::{Netns, Running, need_program, need_root, output, wait_for};
use rustix::process::Signal;
use std::io::IoSlice;
use std::process::Stdio;

/// How far each ACK of a bulk transfer to the host advances, in segments: the shares of ACKs that
/// advance by up to one, up to two, and more.
fn advances(world: &World, name: &str) -> [f64; 3] {
    let capture = world.home.path().join(name);
    let mut tcpdump = world.sender.command("tcpdump");
    tcpdump.args(["-i", "wire", "-Z", "root", "-s", "80", "-B", "65536", "--immediate-mode", "-U", "-w"]).arg(&capture);
    tcpdump.arg("tcp src port 5201").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut tcpdump = Running::start(&mut tcpdump);
    let mut said = std::io::BufReader::new(tcpdump.child().stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0, "tcpdump ended");
    }
    let mut server = world.host.command("iperf3");
    let _server = Running::start(server.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("iperf3", || world.host.run("ss -ltn").contains(":5201 "));
    world.sender.run(&format!("iperf3 -c {HOST} -n 30M"));
    // tcpdump writes frames a little after it receives them.
    wait_for("the capture", || std::fs::metadata(&capture).is_ok_and(|file| file.len() > 8 << 10));
    tcpdump.signal(Signal::INT);
    tcpdump.child().wait().unwrap();
    // One line per ACK: source and destination port, and acknowledgment relative to the first.
    let mut tshark = std::process::Command::new("tshark");
    tshark.arg("-r").arg(&capture).args(["-T", "fields", "-e", "tcp.dstport", "-e", "tcp.ack", "-e", "tcp.len"]);
    let lines = String::from_utf8(output(&mut tshark).stdout).unwrap();
    let mut last = std::collections::BTreeMap::new();
    let mut counts = [0u32; 3];
    for line in lines.lines() {
        let fields: Vec<u64> = line.split('\t').filter_map(|field| field.parse().ok()).collect();
        let [port, ack, 0] = fields[..] else { continue };
        let before = last.insert(port, ack).unwrap_or(ack);
        // The control connection's messages are short.
        match ack.saturating_sub(before).div_ceil(1448) {
            0 => {}
            n => counts[(n as usize - 1).min(2)] += 1,
        }
    }
    let all: u32 = counts.iter().sum();
    assert!(all > 50, "{counts:?}");
    counts.map(|count| f64::from(count) / f64::from(all))
}

#[test]
fn on_the_wire_acks_are_those_of_a_kernel_without_a_bump() {
    need_root!();
    for program in ["tcpdump", "tshark", "iperf3"] {
        need_program!(program);
    }
    let world = World::new(Faults::NONE);
    let kernel = advances(&world, "kernel.pcap");
    let bump = Bump::start(&world.host, "");
    let ours = advances(&world, "bump.pcap");
    let report = bump.end();
    assert!(report["acks_made"].as_u64().unwrap() > 100, "nothing was expanded: {report}");
    let bump = Bump::start(&world.host, "--ack-offload off");
    let stretched = advances(&world, "stretch.pcap");
    bump.end();
    println!(
        "shares of ACKs by one, two and more segments: kernel {kernel:.3?}, bump {ours:.3?}, not expanded {stretched:.3?}"
    );
    // A kernel acknowledges every second segment, and more at once if its program reads slowly. How
    // often that happens depends on the machine. Behind a bump it is rare.
    assert!(ours[2] < 0.05, "{ours:?} beside {kernel:?}");
    assert!(stretched[2] > ours[2], "{stretched:?} beside {ours:?}");
}

#[test]
fn what_is_no_tcp_passes() {
    need_root!();
    need_program!("ping");
    need_program!("iperf3");
    let world = World::new(Faults::NONE);
    let bump = Bump::start(&world.host, "");
    for address in [HOST, HOST6] {
        world.sender.run(&format!("ping -c 3 -i 0.2 -W 5 {address}"));
        // A packet larger than a frame is sent in fragments.
        world.sender.run(&format!("ping -c 2 -i 0.2 -W 5 -s 4000 {address}"));
    }
    for (words, address) in
        [("-n 8M", HOST), ("-n 8M -R", HOST6), ("-u -b 50M -n 4M", HOST), ("-u -b 50M -n 4M -R", HOST)]
    {
        let mut server = world.host.command("iperf3");
        let _server = Running::start(server.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null()));
        wait_for("iperf3", || world.host.run("ss -ltn").contains(":5201 "));
        let said = world.sender.run(&format!("iperf3 -c {address} -J {words}"));
        let outcome: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(outcome["error"].is_null(), "{outcome}");
    }
    let report = bump.end();
    let reasons = report["reasons"].as_object().unwrap();
    for reason in ["not_ip", "not_tcp"] {
        assert!(reasons.contains_key(reason), "{report}");
    }
    assert!(report["eliminated"].as_u64().unwrap() > 0 && report["acks_made"].as_u64().unwrap() > 0, "{report}");
}

/// Counts received frames equal to this one.
struct Wanted<'a>(&'a [u8], usize);

impl VnetSink for Wanted<'_> {
    fn burst(&mut self, frames: &[VnetFrame<'_>]) {
        self.1 += frames.iter().filter(|frame| frame.data == self.0).count();
    }
}

#[test]
fn frames_with_vlan_tags_pass_with_them_both_ways() {
    need_root!();
    let world = World::new(Faults::NONE);
    let bump = Bump::start(&world.host, "");
    let open = |netns: &Netns, device| netns.enter(|| PacketPort::open(device, PacketOptions::default()).unwrap());
    let mut ends = [open(&world.sender, "wire"), open(&world.host, "bump0")];
    // Broadcast frames with one and with two tags, and an EtherType for experiments.
    for tags in [&[0x81, 0, 0x60, 5][..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5]] {
        let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], tags, &[0x88, 0xb5], &[0x5a; 60]].concat();
        for (from, to) in [(0, 1), (1, 0)] {
            let mut wanted = Wanted(&frame, 0);
            assert!(ends[from].send(Vnet::default(), &[IoSlice::new(&frame)]));
            ends[from].flush().unwrap();
            wait_for("the frame", || {
                ends[to].receive(256, &mut wanted).unwrap();
                wanted.1 > 0
            });
        }
    }
    bump.end();
}

#[test]
fn mistakes_are_told_with_their_remedy() {
    need_root!();
    let world = World::new(Faults::NONE);
    world.host.run("ip tuntap add dev there0 mode tap");
    for (words, said) in [
        ("--wire nowhere --host bump0", "ip link"),
        ("--wire wire --host there0", "choose another name"),
        ("--wire lo --host bump0 --keep", "Ethernet"),
        ("--wire wire --host bump0 --limit 0", "--limit"),
    ] {
        let mut command = world.host.command(env!("CARGO_BIN_EXE_baton"));
        let out = output(command.arg("bump").args(words.split_whitespace()));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words}: {stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{words}: {stderr}");
    }
}
