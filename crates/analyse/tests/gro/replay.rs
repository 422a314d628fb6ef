//! Captures and made traffic through the kernel's GRO, in polls of 64 frames, beside the model.
//!
//! ```text
//!   namespace "from"                         namespace "to"
//!   packet socket --64 frames--> veth --> queue --NAPI thread, weight 64, GRO--> packet socket
//! ```
//!
//! The sender has a real-time priority and the NAPI thread its CPU, so the thread sees a burst only once it is whole.

use crate::slow::Frame as Recorded;
use crate::wire_unsafe::PacketSocket;
use crate::{slow_read, traffic};
use baton_analyse::gro::{Gro, Lists, Rules, WEIGHT};
use baton_analyse::link;
use baton_analyse::read::{self, Live};
use baton_coalesce::{Checksums, Class, Frame, Link, classify};
use baton_testkit::bpf::Object;
use baton_testkit::{Netns, need_program, need_root, veth};
use baton_wire::checksum;
use std::process::{self, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Frames of a capture that are replayed.
const MOST: usize = 6_000;
/// Data segments from which a capture is compared.
const BULK: usize = 140;
/// The share of frames out by which model and kernel may differ (of 1).
const TOLERANCE: f64 = 0.02;
/// Bytes of an Ethernet header.
const HEADER: usize = 14;

/// The kernel's GRO between two namespaces.
struct Wire {
    lists: Lists,
    from: PacketSocket,
    to: Live,
    _namespaces: [Netns; 2],
    _alone: MutexGuard<'static, ()>,
}

impl Wire {
    fn new(lists: Lists) -> Wire {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (a, b) = (Netns::new("repfrom"), Netns::new("repto"));
        let name = format!("rp{}{}", process::id() % 1_000_000, lists.held());
        for namespace in [&a, &b] {
            namespace.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        }
        veth(&a, &name, &b, &name);
        a.run(&format!("ip link set {name} mtu 65000"));
        b.run(&format!("ip link set {name} mtu 65000"));
        // Linux keeps GRO on veth for senders that do not segment late (veth_skb_is_eligible_for_gro).
        a.run(&format!("ethtool -K {name} tso off"));
        b.run(&format!("ethtool -K {name} gro on"));
        if lists == Lists::Hashed {
            // veth gives no receive hash, but passes on one that the sender's side has computed.
            let program = Object::hashing();
            a.run(&format!("tc qdisc add dev {name} clsact"));
            let path = program.path().display();
            a.run(&format!("tc filter add dev {name} egress bpf da obj {path} sec classifier"));
        }
        let threaded = format!("echo 1 > /sys/class/net/{name}/threaded");
        baton_testkit::run(b.command("sh").args(["-c", &threaded]));
        let thread = napi_thread(&name);
        let cpu = allowed_cpu();
        baton_testkit::run(Command::new("taskset").args(["-pc", &cpu, &thread]));
        let this = rustix::thread::gettid().as_raw_nonzero().to_string();
        baton_testkit::run(Command::new("taskset").args(["-pc", &cpu, &this]));
        baton_testkit::run(Command::new("chrt").args(["--fifo", "--pid", "10", &this]));
        let from = a.enter(|| PacketSocket::open(&name)).unwrap();
        let to = b.enter(|| Live::open(&name)).unwrap();
        Wire { lists, from, to, _namespaces: [a, b], _alone: alone }
    }

    /// Sends frames in bursts, and says how many frames came out, and with how much payload.
    fn pass(&mut self, frames: &[Vec<u8>]) -> (u64, u64) {
        let mut out = Out::default();
        for burst in frames.chunks(WEIGHT.get() as usize) {
            out.marked = false;
            burst.iter().for_each(|frame| self.from.send(frame).unwrap());
            // It is in a poll of its own, behind a whole burst.
            self.from.send(&MARK).unwrap();
            let patience = Instant::now() + Duration::from_secs(10);
            while !out.marked {
                assert!(Instant::now() < patience, "a burst did not arrive");
                // The thread runs while this one waits.
                self.to.read(Duration::from_millis(100), &mut out).unwrap();
            }
        }
        // Behind the last burst the mark may come before what is held.
        while self.to.read(Duration::from_millis(50), &mut out).unwrap() > 0 {}
        assert_eq!(self.to.dropped(), 0);
        (out.frames, out.payload)
    }
}

/// A frame of a type for experiments (IEEE 802, 0x88b5), which GRO passes.
const MARK: [u8; 60] = {
    let mut frame = [0; 60];
    (frame[5], frame[11], frame[12], frame[13]) = (2, 1, 0x88, 0xb5);
    frame
};

/// Frames behind GRO.
#[derive(Default)]
struct Out {
    frames: u64,
    payload: u64,
    marked: bool,
}

impl read::Sink for Out {
    fn frame(&mut self, frame: &read::Frame<'_>) {
        if frame.data == MARK {
            self.marked = true;
            return;
        }
        self.frames += 1;
        self.payload += payload_of(&link::frame(frame));
    }
}

/// One wire at a time: both would want the same CPU.
static ALONE: Mutex<()> = Mutex::new(());

/// The first CPU that this process may use.
fn allowed_cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().split(['-', ',']).next().unwrap().to_owned()
}

/// The kernel thread that polls a device.
fn napi_thread(name: &str) -> String {
    let wanted = format!("napi/{name}-");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut pids = pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()));
    let found = pids
        .find(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(&wanted)));
    found.unwrap_or_else(|| panic!("the kernel started no thread {wanted}"))
}

/// Bytes of TCP payload, 0 for other frames.
fn payload_of(frame: &Frame<'_>) -> u64 {
    match classify(frame, Checksums::Trust) {
        Class::Data(segment) => segment.payload_len.into(),
        Class::Bypass { .. } => 0,
    }
}

fn whole(bytes: &[u8]) -> Frame<'_> {
    Frame::whole(bytes, Link::Ethernet)
}

/// How many frames the model lets out.
fn predicted(frames: &[Vec<u8>], lists: Lists) -> u64 {
    let mut gro = Gro::new(Rules { lists, ..Rules::default() });
    for bytes in frames {
        let frame = whole(bytes);
        gro.handle(&frame, &classify(&frame, Checksums::Verify), 0, &mut ());
    }
    gro.flush(0, &mut ());
    gro.counts().frames_out()
}

/// A captured frame as it would be on a wire again: whole, in Ethernet, with right checksums. `None` for one whose
/// headers cannot be made whole.
fn restored(recorded: &Recorded) -> Option<Vec<u8>> {
    let mut frame = match recorded.link_type {
        1 => recorded.bytes.clone(),
        101 => {
            let kind: [u8; 2] = if recorded.bytes.first()? >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
            [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &kind, &recorded.bytes].concat()
        }
        _ => return None,
    };
    let missing = recorded.wire_len - recorded.bytes.len();
    frame.resize(frame.len() + missing, 0);
    if frame.len() < HEADER || frame.len() > 65_000 {
        return None;
    }
    let kind = [frame[12], frame[13]];
    let ip = &mut frame[HEADER..];
    let (v6, header, len) = match kind {
        [8, 0] if ip.len() >= 20 && ip[0] == 0x45 => (false, 20, usize::from(u16::from_be_bytes([ip[2], ip[3]]))),
        [0x86, 0xdd] if ip.len() >= 40 && ip[6] == 6 => {
            (true, 40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])))
        }
        _ => return Some(frame),
    };
    if len > ip.len() || len < header + 20 || (!v6 && (ip[9] != 6 || ip[6] & 0x3f != 0 || ip[7] != 0)) {
        return Some(frame);
    }
    if !v6 {
        ip[10..12].fill(0);
        let sum = !checksum::rfc1071(&ip[..20]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    ip[header + 16..header + 18].fill(0);
    let addresses = if v6 { 8..40 } else { 12..20 };
    let mut pseudo = ip[addresses].to_vec();
    pseudo.extend([0, 6]);
    pseudo.extend(((len - header) as u16).to_be_bytes());
    pseudo.extend(&ip[header..len]);
    let sum = !checksum::rfc1071(&pseudo);
    ip[header + 16..header + 18].copy_from_slice(&sum.to_be_bytes());
    Some(frame)
}

/// Compares, and says the row of a table.
fn compare(wire: &mut Wire, name: &str, frames: &[Vec<u8>]) -> Result<String, String> {
    let sent: u64 = frames.iter().map(|bytes| payload_of(&whole(bytes))).sum();
    let (kernel, payload) = wire.pass(frames);
    let model = predicted(frames, wire.lists);
    let row = format!("{name:<44} {:>6} {kernel:>6} {model:>6}", frames.len());
    println!("{row}");
    let differs = (model as f64 - kernel as f64).abs() / kernel as f64;
    if differs > TOLERANCE { Err(format!("{row}: {payload} of {sent} bytes of payload")) } else { Ok(row) }
}

#[test]
fn the_kernel_lets_as_many_frames_out_as_the_model() {
    need_root!();
    need_program!("ethtool");
    let mut wire = Wire::new(Lists::One);
    println!("{:<44} {:>6} {:>6} {:>6}", "", "in", "kernel", "model");
    let mut rows = Vec::new();
    for (name, packets) in traffic::kinds() {
        let frames: Vec<_> = packets.iter().map(|packet| packet.build(1)).collect();
        rows.push(compare(&mut wire, name, &frames));
    }
    for path in slow_read::captures() {
        let frames: Vec<_> = slow_read::frames(&path).iter().take(MOST).filter_map(restored).collect();
        let data = frames.iter().filter(|bytes| payload_of(&whole(bytes)) > 0);
        if data.count() >= BULK {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            rows.push(compare(&mut wire, &name, &frames));
        }
    }
    let wrong: Vec<_> = rows.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "in, kernel, model:\n{}", wrong.join("\n"));
}

#[test]
fn a_receive_hash_lets_the_kernel_hold_more_connections() {
    need_root!();
    need_program!("ethtool");
    need_program!("clang");
    let mut wire = Wire::new(Lists::Hashed);
    let frames: Vec<_> = traffic::bulk(16, 150).iter().map(|packet| packet.build(1)).collect();
    compare(&mut wire, "16 connections in turns, with a hash", &frames).unwrap();
}
