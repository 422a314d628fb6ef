//! Captures: written beside a port, read back by this crate and by other programs.

mod common;

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use baton_port::capture::BUFFER_MAX;
use baton_port::{
    Capture, Captured, FrameIo, FrameSink, MemoryOptions, MemoryPort, OpenError, PayloadPart, PcapFile, RxFrame, TxMeta,
};
use baton_testkit::need_program;

/// A path of its own in the directory for temporary files, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("baton-capture-{}-{n}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl FrameSink for Frames {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.0.extend(frames.iter().map(|f| f.data.to_vec()));
    }
}

/// A clock that moves on by 1.000000001 s a reading.
fn clock() -> impl FnMut() -> u64 {
    let mut now = 1_700_000_000_000_000_000;
    move || {
        now += 1_000_000_001;
        now
    }
}

fn send(port: &mut impl FrameIo, frame: &[u8]) {
    port.slot(frame.len()).unwrap().copy_from_slice(frame);
    port.commit(frame.len(), TxMeta::default());
    port.flush().unwrap();
}

/// Sends and receives five frames, one of them a super-frame, through a captured port.
fn traffic(capture: Capture) -> Vec<Vec<u8>> {
    let (near, mut far) = MemoryPort::pair(MemoryOptions::new().gso(true));
    let mut near = Captured::new(near, "memory", Some(capture));
    let frame = |n: u8, len| common::tcp_frame([2, 0, 0, 0, 0, n], n.is_multiple_of(2), &vec![n; len]).0;
    let frames = vec![frame(1, 0), frame(2, 1), frame(3, 1400), frame(4, 60_000), frame(5, 3)];
    send(&mut near, &frames[0]);
    send(&mut far, &frames[1]);
    send(&mut far, &frames[2]);
    let mut got = Frames::default();
    assert_eq!(near.receive(100, &mut got).unwrap(), 2);
    assert_eq!(got.0, frames[1..3]);
    let (header, payload) = frames[3].split_at(74);
    assert!(near.gather(header, &[PayloadPart { ptr: payload.as_ptr(), len: payload.len() }], TxMeta::default()));
    near.flush().unwrap();
    send(&mut near, &frames[4]);
    let mut got = Frames::default();
    far.receive(100, &mut got).unwrap();
    assert_eq!(got.0, [&frames[0..1], &frames[3..5]].concat(), "the capture changed what was sent");
    let status = near.capture_status().unwrap();
    assert_eq!((status.captured, status.dropped, status.failure), (5, 0, None));
    frames
}

#[test]
fn a_capture_reads_back_as_it_was() {
    let file = Scratch::new("back.pcapng");
    let frames = traffic(Capture::create(file.path(), clock()).unwrap());
    let mut replay = PcapFile::open(file.path()).unwrap();
    let mut got = Frames::default();
    assert_eq!(replay.receive(2, &mut got).unwrap(), 2);
    assert_eq!(replay.receive(100, &mut got).unwrap(), 3);
    assert_eq!(replay.receive(100, &mut got).unwrap(), 0);
    assert!(got.0 == frames);
}

#[test]
fn other_programs_read_times_and_directions_of_a_capture() {
    need_program!("tshark");
    let file = Scratch::new("tshark.pcapng");
    traffic(Capture::create(file.path(), clock()).unwrap());
    let fields = ["frame.time_epoch", "frame.packet_flags_direction", "frame.len", "frame.interface_name"];
    let args = fields.iter().flat_map(|f| ["-e", f]);
    let out = Command::new("tshark").args(["-r", file.path(), "-T", "fields"]).args(args).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split('\t').collect()).collect();
    assert_eq!(lines.len(), 5, "{text}");
    // Frames of a burst share a time.
    let nanos = |i: usize| lines[i][0].split_once('.').unwrap();
    assert_eq!(nanos(0), ("1700000001", "000000001"));
    assert_eq!(nanos(1), ("1700000002", "000000002"));
    assert_eq!(nanos(2), nanos(1));
    assert_eq!(nanos(4), ("1700000004", "000000004"));
    // Wireshark 4 prints the flag in hexadecimal.
    let inbound: Vec<bool> = lines.iter().map(|l| l[1].ends_with('1')).collect();
    assert_eq!(inbound, [false, true, true, false, false], "{text}");
    assert_eq!(lines[3][2], "60074");
    assert_eq!(lines[0][3], "memory");
}

#[test]
fn a_pipe_gets_its_reader_later_and_sees_frames_live() {
    let pipe = Scratch::new("pipe");
    assert!(Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
    let (near, _far) = MemoryPort::pair(MemoryOptions::default());
    let mut near = Captured::new(near, "memory", Some(Capture::create(pipe.path(), clock()).unwrap()));
    send(&mut near, &[7; 100]);
    let mut reader = fs::File::open(pipe.path()).unwrap();
    let mut seen = Vec::new();
    let mut chunk = [0; 4096];
    while !seen.windows(100).any(|w| w == [7; 100]) {
        let n = reader.read(&mut chunk).unwrap();
        assert_ne!(n, 0, "ended before the frame");
        seen.extend_from_slice(&chunk[..n]);
    }
    // The reader goes away: the port goes on.
    drop(reader);
    let end = Instant::now() + Duration::from_secs(5);
    while near.capture_status().unwrap().failure.is_none() {
        assert!(Instant::now() < end);
        send(&mut near, &[8; 1400]);
        let (next, far) = MemoryPort::pair(MemoryOptions::default());
        drop(far);
        *near.port_mut() = next;
    }
    let before = near.capture_status().unwrap().dropped;
    send(&mut near, &[9; 100]);
    assert_eq!(near.capture_status().unwrap().dropped, before + 1);
}

#[test]
fn a_reader_that_takes_nothing_costs_frames_and_no_time() {
    let pipe = Scratch::new("stuck");
    assert!(Command::new("mkfifo").arg(pipe.path()).status().unwrap().success());
    let options = MemoryOptions::new().gso(true).frames(4);
    let (near, mut far) = MemoryPort::pair(options);
    let mut near = Captured::new(near, "memory", Some(Capture::create(pipe.path(), clock()).unwrap()));
    let frame = vec![1; 60_000];
    let count = BUFFER_MAX / frame.len() + 20;
    for _ in 0..count {
        send(&mut near, &frame);
        far.receive(9, &mut Frames::default()).unwrap();
    }
    let status = near.capture_status().unwrap();
    assert_eq!(status.captured + status.dropped, count as u64);
    assert!(status.dropped >= 20, "{status:?}");

    // A reader comes at last: all that was kept, and how many were not, is there.
    let reading = std::thread::spawn({
        let path = pipe.path().to_owned();
        move || fs::read(path).unwrap()
    });
    let end = Instant::now() + Duration::from_secs(10);
    while near.capture_status().unwrap().captured == status.captured {
        assert!(Instant::now() < end);
        send(&mut near, &frame);
        far.receive(9, &mut Frames::default()).unwrap();
    }
    let last = near.capture_status().unwrap();
    drop(near);
    let bytes = reading.join().unwrap();
    let file = Scratch::new("unstuck.pcapng");
    fs::write(&file.0, &bytes).unwrap();
    let mut got = Frames::default();
    PcapFile::open(file.path()).unwrap().receive(usize::MAX, &mut got).unwrap();
    assert_eq!(got.0.len() as u64, last.captured);
    // epb_dropcount: code 4, length 8.
    let mut option = [0; 12];
    option[..2].copy_from_slice(&4u16.to_ne_bytes());
    option[2..4].copy_from_slice(&8u16.to_ne_bytes());
    option[4..].copy_from_slice(&last.dropped.to_ne_bytes());
    assert!(bytes.windows(12).any(|w| w == option));
}

#[test]
fn what_is_no_capture_is_refused_and_a_damaged_one_ends() {
    let error = |path: &str| PcapFile::open(path).err().expect("must not open");
    assert!(matches!(error("/nowhere/at/all.pcap"), OpenError::Missing { .. }));
    let file = Scratch::new("damaged.pcapng");
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 5000], &[0x0a, 0x0d, 0x0d, 0x0a]] {
        fs::write(&file.0, bytes).unwrap();
        assert!(matches!(error(file.path()), OpenError::Unsuitable { .. }));
    }
    let whole = Scratch::new("whole.pcapng");
    traffic(Capture::create(whole.path(), clock()).unwrap());
    let bytes = fs::read(&whole.0).unwrap();
    // Cut anywhere, or with any byte of the heads changed, it neither panics nor hangs.
    for cut in (0..bytes.len()).step_by(97).chain(0..400) {
        fs::write(&file.0, &bytes[..cut]).unwrap();
        if let Ok(mut port) = PcapFile::open(file.path()) {
            let _ = port.receive(usize::MAX, &mut Frames::default());
            assert_eq!(port.receive(usize::MAX, &mut Frames::default()).unwrap(), 0, "after the end");
        }
    }
    for at in 0..400 {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        fs::write(&file.0, &changed).unwrap();
        if let Ok(mut port) = PcapFile::open(file.path()) {
            let _ = port.receive(usize::MAX, &mut Frames::default());
        }
    }
}
