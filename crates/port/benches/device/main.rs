//! The cost of the bare device: the same frames read and written, and nothing else. Any further
//! cost is the engine's own.
//!
//! Everything runs on one thread in namespaces made for it; the kernel's part of a
//! read or write happens inside the call, so this thread's CPU time is all there is.
//! Each figure is the median of rounds in which the rows take turns.
//!
//! `cargo bench -p baton-port --bench device`

mod io_uring_unsafe;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use baton_port::{
    FrameIo, FrameSink, MemoryOptions, MemoryPort, PayloadPart, RxFrame, Tap, TapOptions, TxMeta, WaitSet, Waitable,
    XdpOptions, XdpPort, link,
};
use baton_testkit::{Netns, veth};
use io_uring_unsafe::{Batch, Buffers};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 41;
/// Frames a round, fewer than a TAP device queues.
const FRAMES: usize = 448;
const SUPER_FRAMES: usize = 64;
const HEADER: usize = 54;
const SEGMENT: usize = 1460;

/// Touches nothing but counts.
#[derive(Default)]
struct Count {
    frames: usize,
    bytes: usize,
}

impl FrameSink for Count {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.frames += frames.len();
        self.bytes += frames.iter().map(|f| f.data.len()).sum::<usize>();
    }
}

/// Copies every frame to where a consumer would have it.
struct Copy(Vec<u8>);

impl FrameSink for Copy {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        for frame in frames {
            self.0[..frame.data.len()].copy_from_slice(frame.data);
            std::hint::black_box(&mut self.0);
        }
    }
}

/// CPU time of this thread, in nanoseconds.
fn cpu_ns() -> i64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// One row of the table: times of its rounds.
struct Row {
    name: &'static str,
    frame_bytes: usize,
    ns_a_frame: Vec<f64>,
}

/// The rows, in order of first measurement.
#[derive(Default)]
struct Table(Vec<Row>);

impl Table {
    /// Times `work` on `frames` frames of `frame_bytes` bytes.
    fn time<T>(&mut self, name: &'static str, frames: usize, frame_bytes: usize, work: impl FnOnce() -> T) -> T {
        let start = cpu_ns();
        let result = work();
        let ns = (cpu_ns() - start) as f64 / frames as f64;
        let row = match self.0.iter().position(|r| r.name == name) {
            Some(i) => &mut self.0[i],
            None => {
                self.0.push(Row { name, frame_bytes, ns_a_frame: Vec::new() });
                self.0.last_mut().expect("just pushed")
            }
        };
        row.ns_a_frame.push(ns);
        result
    }

    /// Rounds begun.
    fn rounds(&self) -> usize {
        self.0.first().map_or(0, |row| row.ns_a_frame.len())
    }

    fn print(mut self) {
        println!("{:52} {:>7} {:>9} {:>15} {:>8}", "", "bytes", "ns/frame", "(quartiles)", "CPU s/GB");
        for row in &mut self.0 {
            row.ns_a_frame.sort_by(f64::total_cmp);
            let at = |share: f64| row.ns_a_frame[((row.ns_a_frame.len() - 1) as f64 * share) as usize];
            let quartiles = format!("{:.0}–{:.0}", at(0.25), at(0.75));
            let per_gb = at(0.5) / row.frame_bytes as f64;
            println!("{:52} {:7} {:9.0} {quartiles:>15} {per_gb:8.3}", row.name, row.frame_bytes, at(0.5));
        }
    }
}

/// An Ethernet frame of TCP over IPv4 with `payload` bytes, its checksum left out.
fn frame(payload: usize) -> (Vec<u8>, TxMeta) {
    let mut f = vec![0u8; HEADER + payload];
    f[..14].copy_from_slice(&[2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 2, 8, 0]);
    f[14] = 0x45;
    let packet_len = (f.len() - 14) as u16;
    f[16..18].copy_from_slice(&packet_len.to_be_bytes());
    f[22..24].copy_from_slice(&[64, 6]);
    f[26..34].copy_from_slice(&[10, 77, 0, 2, 10, 77, 0, 3]);
    // A bridge may look at IP headers (br_netfilter), so this one has its checksum.
    let sum: u32 = f[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    f[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    f[46..48].copy_from_slice(&[0x50, 0x10]);
    let gso_size = if payload > SEGMENT { SEGMENT as u16 } else { 0 };
    (f, TxMeta { checksum_start: 34, gso_size, header_len: HEADER as u16, ..TxMeta::default() })
}

fn write(port: &mut impl FrameIo, frame: &[u8], meta: TxMeta, count: usize) {
    for _ in 0..count {
        loop {
            if let Some(slot) = port.slot(frame.len()) {
                slot.copy_from_slice(frame);
                break;
            }
            port.flush().expect("the device is there");
        }
        port.commit(frame.len(), meta);
    }
    port.flush().expect("the device is there");
}

fn gather(port: &mut impl FrameIo, frame: &[u8], meta: TxMeta, count: usize) {
    let (header, payload) = frame.split_at(HEADER);
    let parts = [PayloadPart { ptr: payload.as_ptr(), len: payload.len() }];
    for _ in 0..count {
        assert!(port.gather(header, &parts, meta), "room");
    }
}

fn read(port: &mut impl FrameIo, sink: &mut impl FrameSink, count: usize) {
    let got = port.receive(usize::MAX, sink).expect("the device is there");
    assert_eq!(got, count, "frames lost on the way");
}

/// Reads whatever else the kernel has sent (neighbour discovery).
fn drain(port: &mut impl FrameIo) {
    port.receive(usize::MAX, &mut Count::default()).expect("the device is there");
}

/// Two TAP devices on a bridge: what is written to the first is read from the second.
fn bridged(netns: &Netns, names: [&str; 2], vnet_hdr: bool) -> (Tap, Tap) {
    let bridge = format!("br{}", names[0]);
    netns.run(&format!("ip link add {bridge} type bridge mcast_snooping 0"));
    let open = |name| netns.enter(|| Tap::open(name, TapOptions::new().vnet_hdr(vnet_hdr).merge(false)).expect("TAP"));
    let (mut from, mut to) = (open(names[0]), open(names[1]));
    for name in names {
        netns.run(&format!("ip link set {name} master {bridge} addrgenmode none txqueuelen 1000"));
        netns.run(&format!("ip link set {name} up"));
    }
    netns.run(&format!("ip link set {bridge} addrgenmode none up"));
    // The bridge takes a moment to notice its ports.
    let (probe, _) = frame(0);
    let end = Instant::now() + Duration::from_secs(5);
    while to.receive(1, &mut Count::default()).expect("the device is there") == 0 {
        assert!(Instant::now() < end, "the bridge forwards nothing");
        write(&mut from, &probe, TxMeta::default(), 1);
        std::thread::sleep(Duration::from_millis(10));
    }
    (from, to)
}

fn tap_rows(table: &mut Table, plain: &mut (Tap, Tap), vnet: &mut (Tap, Tap), copy: &mut Copy) {
    let (small, meta) = frame(SEGMENT);
    let bytes = small.len();
    let complete = TxMeta::default();
    drain(&mut plain.1);
    drain(&mut vnet.1);
    table.time("tap, write to a bridged tap", FRAMES, bytes, || write(&mut plain.0, &small, complete, FRAMES));
    table.time("tap, read", FRAMES, bytes, || read(&mut plain.1, &mut Count::default(), FRAMES));
    table.time("tap, writev to a bridged tap", FRAMES, bytes, || gather(&mut plain.0, &small, complete, FRAMES));
    table.time("tap, read and copy", FRAMES, bytes, || read(&mut plain.1, copy, FRAMES));
    table.time("tap, read that finds nothing", FRAMES, bytes, || {
        for _ in 0..FRAMES {
            drain(&mut plain.1);
        }
    });
    table.time("tap+vnet, one segment, write", FRAMES, bytes, || write(&mut vnet.0, &small, meta, FRAMES));
    table.time("tap+vnet, one segment, read", FRAMES, bytes, || read(&mut vnet.1, &mut Count::default(), FRAMES));
    let (large, meta) = frame(44 * SEGMENT);
    let bytes = large.len();
    let send = |vnet: &mut (Tap, Tap)| gather(&mut vnet.0, &large, meta, SUPER_FRAMES);
    table.time("tap+vnet, super-frame, writev", SUPER_FRAMES, bytes, || send(vnet));
    drain(&mut vnet.1);
    // The first of the two finds other caches than the second, so they change places.
    let copy_first = table.rounds().is_multiple_of(2);
    for copies in [copy_first, !copy_first] {
        send(vnet);
        if copies {
            let name = "tap+vnet, super-frame, read and copy";
            table.time(name, SUPER_FRAMES, bytes, || read(&mut vnet.1, copy, SUPER_FRAMES));
        } else {
            let mut count = Count::default();
            table.time("tap+vnet, super-frame, read", SUPER_FRAMES, bytes, || {
                read(&mut vnet.1, &mut count, SUPER_FRAMES);
            });
        }
    }
}

fn io_uring_rows(
    table: &mut Table,
    plain: &mut (Tap, Tap),
    batches: &mut [(&'static str, Batch)],
    buffers: &mut Buffers,
) {
    let (small, _) = frame(SEGMENT);
    for (name, batch) in batches {
        drain(&mut plain.1);
        write(&mut plain.0, &small, TxMeta::default(), FRAMES);
        table.time(name, FRAMES, small.len(), || batch.read(buffers, FRAMES, small.len()));
    }
}

fn memory_rows(table: &mut Table, wire: &mut (MemoryPort, MemoryPort)) {
    const MANY: usize = 64 * 256;
    for (name, payload) in [("memory, header only, both ends", 0), ("memory, copied in, both ends", SEGMENT)] {
        let (frame, _) = frame(payload);
        table.time(name, MANY, frame.len(), || {
            for _ in 0..MANY / 64 {
                write(&mut wire.0, &frame, TxMeta::default(), 64);
                read(&mut wire.1, &mut Count::default(), 64);
            }
        });
    }
}

fn xdp_rows(table: &mut Table, port: &mut XdpPort, sender: &UdpSocket) {
    let (small, meta) = frame(SEGMENT);
    table.time("xdp on veth, send", FRAMES, small.len(), || write(port, &small, meta, FRAMES));
    let payload = vec![0u8; 1472];
    drain(port);
    table.time("xdp on veth, kernel's UDP send and receive", FRAMES, small.len(), || {
        let mut count = Count::default();
        let end = Instant::now() + Duration::from_secs(5);
        for i in 0..FRAMES {
            sender.send(&payload).expect("sending");
            if i % 64 == 63 {
                port.receive(usize::MAX, &mut count).expect("the device is there");
                port.flush().expect("the device is there");
            }
        }
        while count.frames < FRAMES && Instant::now() < end {
            port.receive(usize::MAX, &mut count).expect("the device is there");
        }
        assert_eq!(count.frames, FRAMES, "frames lost on the way");
        assert_eq!(count.bytes, FRAMES * 1514);
    });
    for _ in 0..FRAMES {
        sender.send(&payload).expect("sending");
    }
    let mut set = WaitSet::new();
    port.poll_fds(&mut set);
    table.time("xdp on veth, receive, without the kernel", FRAMES, small.len(), || {
        read(port, &mut Count::default(), FRAMES)
    });
}

fn main() {
    let mut table = Table::default();
    let mut wire = MemoryPort::pair(MemoryOptions::default());
    if let Err(why) = baton_testkit::skip::check_root() {
        println!("SKIPPED devices: {why}");
        for _ in 0..ROUNDS {
            memory_rows(&mut table, &mut wire);
        }
        return table.print();
    }
    let netns = Netns::new("device");
    let far = Netns::new("devicefar");
    let mut plain = bridged(&netns, ["p0", "p1"], false);
    let mut vnet = bridged(&netns, ["v0", "v1"], true);
    veth(&far, "far", &netns, "near");
    far.run("ip addr add 10.77.0.1/24 dev far");
    far.run("ip neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev far");
    let mut xdp = netns.enter(|| XdpPort::open("near", XdpOptions::default()).expect("AF_XDP"));
    xdp.add_address(Ipv4Addr::new(10, 77, 0, 2).into()).expect("room");
    let sender = far.enter(|| {
        link::set_tx_checksum_offload("far", false).expect("a veth has checksum offload");
        let socket = UdpSocket::bind("10.77.0.1:0").expect("binding");
        socket.connect("10.77.0.2:9").expect("connecting");
        socket
    });
    let mut copy = Copy(vec![0; 70_000]);
    let mut buffers = Buffers::new();
    let mut batches = [
        ("tap, io_uring, batches of 64 reads", Batch::new(&plain.1, &mut buffers, false)),
        ("tap, io_uring, registered buffers", Batch::new(&plain.1, &mut buffers, true)),
    ];
    for _ in 0..ROUNDS {
        memory_rows(&mut table, &mut wire);
        tap_rows(&mut table, &mut plain, &mut vnet, &mut copy);
        io_uring_rows(&mut table, &mut plain, &mut batches, &mut buffers);
        xdp_rows(&mut table, &mut xdp, &sender);
    }
    table.print();
}
