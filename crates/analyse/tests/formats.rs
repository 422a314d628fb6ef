//! Every form of a capture gives the same frames; damage is named by its offset, and
//! what came before it counts.

mod make;

use baton_analyse::Damage;
use baton_analyse::read::{FRAME_MAX, Frame, Input, Reader, Sink};
use baton_analyse::study::{self, Progress, Study};
use flate2::Compression;
use flate2::write::GzEncoder;
use make::{MICROS, NANOS, Order, block, enhanced, interface, old_packet, pcap_header, pcap_record, section, simple};
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// A frame, kept.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Kept {
    data: Vec<u8>,
    wire_len: u32,
    time_ns: u64,
    link: u16,
}

/// A file that gives a few bytes at once.
struct Slow(Cursor<Vec<u8>>, usize);

impl Read for Slow {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(self.1);
        self.0.read(&mut buf[..len])
    }
}

fn read(source: impl Read + Send + 'static) -> (Vec<Kept>, Option<Damage>) {
    let mut reader = Reader::new(Input::read(source).unwrap());
    let mut kept = Vec::new();
    let mut keep = |frame: &Frame<'_>| {
        kept.push(Kept {
            data: frame.data.to_vec(),
            wire_len: frame.wire_len,
            time_ns: frame.time_ns,
            link: frame.link,
        });
    };
    let damage = loop {
        match reader.read(&mut keep) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(damage) => break Some(damage),
        }
    };
    assert_eq!(reader.read(&mut |_: &Frame<'_>| panic!("it goes on after its end")), Ok(false));
    (kept, damage)
}

/// The frames of a capture, and its damage, however it is read.
fn frames(capture: &[u8]) -> (Vec<Kept>, Option<Damage>) {
    let whole = read(Cursor::new(capture.to_vec()));
    assert_eq!(read(Slow(Cursor::new(capture.to_vec()), 7)), whole, "in small pieces");
    whole
}

fn whole(capture: &[u8]) -> Vec<Kept> {
    let (kept, damage) = frames(capture);
    assert_eq!(damage, None);
    kept
}

fn kept(data: &[u8], wire_len: u32, time_ns: u64, link: u16) -> Kept {
    Kept { data: data.to_vec(), wire_len, time_ns, link }
}

const S: u64 = 1_000_000_000;

#[test]
fn pcap_in_both_byte_orders_and_units() {
    for big in [false, true] {
        for (magic, unit) in [(MICROS, 1000), (NANOS, 1)] {
            let order = Order { big };
            // Above the link type stands the length of a check sequence, which says nothing by itself.
            let mut capture = pcap_header(order, magic, 0x4000_0001);
            capture.extend(pcap_record(order, 3, 500, 1514, &[1; 60]));
            capture.extend(pcap_record(order, 4, 7, 0, b""));
            capture.extend(pcap_record(order, u32::MAX, 8, 10, &[2; 20]));
            let want = [
                kept(&[1; 60], 1514, 3 * S + 500 * unit, 1),
                kept(b"", 0, 4 * S + 7 * unit, 1),
                // More captured than there was: what is there counts.
                kept(&[2; 20], 20, u64::from(u32::MAX) * S + 8 * unit, 1),
            ];
            assert_eq!(whole(&capture), want, "big {big}, magic {magic:x}");
        }
    }
}

#[test]
fn a_frame_check_sequence_of_known_length_is_taken_off() {
    let order = Order { big: false };
    // Two units of 16 bits.
    let mut capture = pcap_header(order, MICROS, 0x2400_0001);
    capture.extend(pcap_record(order, 1, 0, 64, &[[1; 60].as_slice(), &[0xfc; 4]].concat()));
    // Cut within it, cut before it, and shorter than it.
    capture.extend(pcap_record(order, 1, 0, 64, &[[2; 60].as_slice(), &[0xfc; 2]].concat()));
    capture.extend(pcap_record(order, 1, 0, 64, &[3; 40]));
    capture.extend(pcap_record(order, 1, 0, 3, &[4; 3]));
    let want = [kept(&[1; 60], 60, S, 1), kept(&[2; 60], 60, S, 1), kept(&[3; 40], 60, S, 1), kept(b"", 0, S, 1)];
    assert_eq!(whole(&capture), want);
}

#[test]
fn pcap_with_longer_record_headers() {
    let order = Order { big: false };
    let mut capture = pcap_header(order, 0xa1b2_cd34, 113);
    for byte in [5, 6] {
        capture.extend(order.words(&[1, 2, 3, 4, 77, 78]));
        capture.extend([byte; 3]);
    }
    assert_eq!(whole(&capture), [5, 6].map(|byte| kept(&[byte; 3], 4, S + 2000, 113)));
}

#[test]
fn pcapng_in_both_byte_orders_with_all_kinds_of_packets() {
    for big in [false, true] {
        let order = Order { big };
        let offset = 100_i64;
        let offset = if big { offset.to_be_bytes() } else { offset.to_le_bytes() };
        let capture = [
            section(order),
            interface(order, 1, 0, &[]),
            interface(order, 101, 64, &[(2, b"eth0"), (9, &[9]), (14, &offset), (0, b"")]),
            interface(order, 113, 0, &[(9, &[0x80 | 10])]),
            interface(order, 113, 0, &[(9, &[12])]),
            interface(order, 113, 0, &[(9, &[0])]),
            enhanced(order, 0, 5_000_001, 1500, &[1; 61]),
            block(order, 0x0bad_cafe, &[9; 33]),
            enhanced(order, 1, 7, 3, &[2; 3]),
            enhanced(order, 2, 1024 + 512, 3, &[3; 3]),
            enhanced(order, 3, 5_999, 3, &[3; 3]),
            enhanced(order, 4, 2, 3, &[3; 3]),
            simple(order, 5, &[4; 5]),
            old_packet(order, 1, 9, 8, &[5; 8]),
        ]
        .concat();
        let want = [
            kept(&[1; 61], 1500, 5 * S + 1000, 1),
            kept(&[2; 3], 3, 100 * S + 7, 101),
            kept(&[3; 3], 3, S + S / 2, 113),
            kept(&[3; 3], 3, 5, 113),
            kept(&[3; 3], 3, 2 * S, 113),
            kept(&[4; 5], 5, 0, 1),
            kept(&[5; 8], 8, 100 * S + 9, 101),
        ];
        assert_eq!(whole(&capture), want, "big {big}");
    }
}

#[test]
fn a_simple_packet_is_cut_by_the_snapshot_length() {
    let order = Order { big: true };
    let capture = [section(order), interface(order, 1, 6, &[]), simple(order, 100, &[4; 6])].concat();
    assert_eq!(whole(&capture), [kept(&[4; 6], 100, 0, 1)]);
}

#[test]
fn a_section_starts_anew() {
    let (little, big) = (Order { big: false }, Order { big: true });
    let capture = [
        section(little),
        interface(little, 1, 0, &[]),
        enhanced(little, 0, 1, 4, &[1; 4]),
        section(big),
        interface(big, 101, 0, &[]),
        enhanced(big, 0, 2, 4, &[2; 4]),
    ]
    .concat();
    assert_eq!(whole(&capture), [kept(&[1; 4], 4, 1000, 1), kept(&[2; 4], 4, 2000, 101)]);
    // The first section's interface is not the second's.
    let mut bad = [section(little), interface(little, 1, 0, &[]), section(big)].concat();
    let at = bad.len() as u64;
    bad.extend(enhanced(big, 0, 1, 4, &[1; 4]));
    assert_eq!(frames(&bad).1.map(|damage| damage.offset), Some(at));
}

#[test]
fn frames_of_the_largest_size_pass_and_no_larger() {
    let order = Order { big: false };
    let frame = vec![7; FRAME_MAX];
    let mut capture = make::pcap(1, &[frame.clone(), frame.clone(), vec![1; 60]]);
    let (kept, damage) = read(Cursor::new(capture.clone()));
    assert_eq!((kept.len(), damage), (3, None));
    let at = capture.len() as u64;
    capture.extend(pcap_record(order, 1, 1, 0, &vec![7; FRAME_MAX + 1]));
    let (kept, damage) = read(Cursor::new(capture));
    assert_eq!((kept.len(), damage.map(|damage| damage.offset)), (3, Some(at)));
    let ng = [section(order), interface(order, 1, 0, &[]), enhanced(order, 0, 1, 1, &frame)].concat();
    assert_eq!(read(Cursor::new(ng)).0.len(), 1);
}

#[test]
fn long_blocks_of_no_interest_are_stepped_over() {
    let order = Order { big: false };
    let start = [section(order), interface(order, 1, 0, &[]), enhanced(order, 0, 1, 4, &[1; 4])].concat();
    let long = block(order, 10, &vec![0x5a; 3 << 20]);
    let capture = [start.clone(), long.clone(), enhanced(order, 0, 2, 4, &[2; 4])].concat();
    let (all, damage) = read(Cursor::new(capture.clone()));
    assert_eq!((all.len(), damage), (2, None));
    // Cut within it, and with another length behind it: the damage is where it begins.
    for bad in [
        capture[..start.len() + long.len() - 2].to_vec(),
        capture[..start.len() + 1000].to_vec(),
        [start.clone(), long[..long.len() - 4].to_vec(), vec![1, 2, 3, 4]].concat(),
    ] {
        let (kept, damage) = read(Cursor::new(bad));
        assert_eq!((kept.len(), damage.map(|damage| damage.offset)), (1, Some(start.len() as u64)));
    }
}

/// Cuts a capture at every place: whatever is whole before the cut is read, and the
/// damage begins where the last whole record ends.
fn cut_everywhere(capture: &[u8], records: &[usize]) {
    for end in 0..capture.len() {
        let (kept, damage) = read(Cursor::new(capture[..end].to_vec()));
        let whole: Vec<usize> = records.iter().copied().filter(|at| *at <= end).collect();
        assert_eq!(kept.len(), whole.len().saturating_sub(1), "cut at {end}");
        match whole.last() {
            Some(last) if *last == end => assert_eq!(damage, None, "cut at {end}"),
            last => {
                let damage = damage.unwrap_or_else(|| panic!("no damage, cut at {end}"));
                assert_eq!(damage.offset, last.copied().unwrap_or(0) as u64, "cut at {end}");
            }
        }
    }
}

#[test]
fn a_cut_is_named_by_the_record_that_it_cuts() {
    let order = Order { big: false };
    let mut capture = pcap_header(order, MICROS, 1);
    let mut records = vec![capture.len()];
    for len in [60, 0, 17] {
        capture.extend(pcap_record(order, 1, 1, 99, &vec![1; len]));
        records.push(capture.len());
    }
    cut_everywhere(&capture, &records);
}

#[test]
fn a_cut_is_named_by_the_block_that_it_cuts() {
    let order = Order { big: true };
    let start = [section(order), interface(order, 1, 0, &[])].concat();
    let packet = enhanced(order, 0, 1, 9, &[1; 9]);
    let capture = [start.clone(), packet.clone(), packet.clone()].concat();
    let places = [0, section(order).len(), start.len(), start.len() + packet.len(), capture.len()];
    for end in 1..capture.len() {
        let (_, damage) = read(Cursor::new(capture[..end].to_vec()));
        let last = places.into_iter().filter(|at| *at <= end).max().unwrap();
        assert_eq!(damage.map(|damage| damage.offset), (last != end).then_some(last as u64), "cut at {end}");
    }
}

#[test]
fn lengths_that_lie_are_damage() {
    let order = Order { big: false };
    let start = [section(order), interface(order, 1, 0, &[]), enhanced(order, 0, 1, 4, &[1; 4])].concat();
    let mut huge = enhanced(order, 0, 1, 4, &[1; 4]);
    huge[20..24].copy_from_slice(&order.word(u32::MAX));
    let mut other_end = enhanced(order, 0, 1, 4, &[1; 4]);
    let end = other_end.len();
    other_end[end - 4..].copy_from_slice(&order.word(16));
    let bad = [
        huge,
        other_end,
        order.words(&[6, 0]),
        order.words(&[6, 8]),
        order.words(&[6, 33]),
        order.words(&[6, 0xffff_fff0]),
        order.words(&[77, 0xffff_fff0]),
        enhanced(order, 1, 1, 4, &[1; 4]),
        simple(order, 4, &[]),
        block(order, 1, &[1]),
        block(order, 0x0a0d_0d0a, &[1; 16]),
    ];
    for (case, bad) in bad.iter().enumerate() {
        let (kept, damage) = frames(&[start.clone(), bad.clone()].concat());
        assert_eq!(kept.len(), 1, "case {case}");
        assert_eq!(damage.map(|damage| damage.offset), Some(start.len() as u64), "case {case}");
    }
}

#[test]
fn what_is_no_capture_is_damage_at_its_first_byte() {
    for bytes in [&b""[..], b"abc", b"neither pcap nor pcapng, but words of some length"] {
        let (kept, damage) = frames(bytes);
        assert_eq!((kept.len(), damage.map(|damage| damage.offset)), (0, Some(0)), "{bytes:?}");
    }
}

/// The frames of a file, and its damage.
fn read_file(path: &Path) -> (u64, Option<Damage>) {
    let mut reader = Reader::new(Input::open(path, &Arc::default()).unwrap());
    let mut count = 0;
    let mut take = |_: &Frame<'_>| count += 1;
    let damage = loop {
        match reader.read(&mut take) {
            Ok(true) => {}
            Ok(false) => break None,
            Err(damage) => break Some(damage),
        }
    };
    (count, damage)
}

/// A capture of 30 MiB.
fn large() -> Vec<u8> {
    make::pcap(1, &vec![vec![0x55; 1499]; 20_000])
}

#[test]
fn a_file_longer_than_what_is_mapped_at_a_time_is_read_to_its_end() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("large.pcap");
    std::fs::write(&path, large()).unwrap();
    assert_eq!(read_file(&path), (20_000, None));
    std::fs::remove_file(&path).unwrap();
}

/// Cuts a file to 100,000 bytes at its first frame.
struct Cutter<'a> {
    path: &'a Path,
    frames: u64,
}

impl Sink for Cutter<'_> {
    fn frame(&mut self, _: &Frame<'_>) {
        if self.frames == 0 {
            std::fs::File::options().write(true).open(self.path).unwrap().set_len(100_000).unwrap();
        }
        self.frames += 1;
    }
}

impl Study for Cutter<'_> {
    fn end(&mut self) {}
    fn merge(&mut self, _: Self) {}
}

#[test]
fn a_file_that_is_cut_while_it_is_read_is_called_that() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cut-while-read.pcap");
    let mut packed = GzEncoder::new(Vec::new(), Compression::none());
    packed.write_all(&large()).unwrap();
    let order = Order { big: false };
    let blocks = vec![enhanced(order, 0, 1, 1499, &[0x55; 1499]); 20_000];
    let pcapng = [section(order), interface(order, 1, 0, &[]), blocks.concat()].concat();
    for file in [large(), pcapng, packed.finish().unwrap()] {
        std::fs::write(&path, &file).unwrap();
        let mut cutter = Cutter { path: &path, frames: 0 };
        let input = Input::open(&path, &Arc::default()).unwrap();
        let trouble = study::read(input, &mut cutter, &Progress::default()).unwrap_err().to_string();
        let said = format!("it was cut while it was read: it had {} bytes and now has 100000", file.len());
        assert_eq!(trouble, said);
        // A buffer may have held frames that the file has lost; a page that the file has lost a part of has none.
        let whole = 100_000 / 1499;
        let most = if file.starts_with(&[0x1f, 0x8b]) { 20_000 } else { whole };
        assert!((60..=most).contains(&cutter.frames), "{} frames", cutter.frames);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_end_of_zeros_is_damage_and_not_frames() {
    let mut capture = make::pcap(1, &[vec![7; 60]]);
    let at = capture.len() as u64;
    capture.extend([0; 4096]);
    let (kept, damage) = frames(&capture);
    assert_eq!((kept.len(), damage.map(|damage| damage.offset)), (1, Some(at)));
}

/// zstd without compression: blocks as they are (RFC 8878 §3.1.1.2).
fn zstd(bytes: &[u8]) -> Vec<u8> {
    // No single segment, no checksum, no content size; a window of 1 MiB.
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x50];
    let chunks: Vec<&[u8]> = bytes.chunks(100_000).collect();
    for (at, chunk) in chunks.iter().enumerate() {
        let last = u32::from(at + 1 == chunks.len());
        out.extend(&((chunk.len() as u32) << 3 | last).to_le_bytes()[..3]);
        out.extend(*chunk);
    }
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_captures_are_recognized_by_their_first_bytes() {
    let capture = make::pcap(1, &(0..500).map(|byte| vec![byte as u8; 1400]).collect::<Vec<_>>());
    let want = read(Cursor::new(capture.clone()));
    assert_eq!(want.0.len(), 500);
    let (front, back) = capture.split_at(300_000);
    let skippable = [vec![0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0], vec![1, 2, 3]].concat();
    for (name, bytes) in [
        ("gzip", gzip(&capture)),
        ("gzip of two members", [gzip(front), gzip(back)].concat()),
        ("zstd", zstd(&capture)),
        ("zstd of two frames and what is skipped", [skippable.clone(), zstd(front), skippable, zstd(back)].concat()),
    ] {
        assert_eq!(read(Cursor::new(bytes.clone())), want, "{name}");
        assert_eq!(read(Slow(Cursor::new(bytes), 11)), want, "{name} in small pieces");
    }
}

#[test]
fn a_compressed_capture_that_is_cut_counts_up_to_the_cut() {
    let capture = make::pcap(1, &(0..500_u32).map(|n| n.to_le_bytes().repeat(300)).collect::<Vec<_>>());
    for bytes in [gzip(&capture), zstd(&capture)] {
        let (kept, damage) = read(Cursor::new(bytes[..bytes.len() / 2].to_vec()));
        let damage = damage.expect("a cut");
        assert!(!kept.is_empty() && kept.len() < 500, "{}", kept.len());
        assert_eq!(damage.offset, 24 + kept.len() as u64 * 1216);
    }
}

#[test]
fn a_zstd_window_that_is_too_large_is_refused() {
    let mut bytes = zstd(&make::pcap(1, &[vec![1; 60]]));
    // A window of 2^41 bytes.
    bytes[5] = 31 << 3;
    let (kept, damage) = read(Cursor::new(bytes));
    assert!(kept.is_empty());
    assert!(damage.expect("refused").what.contains("zstd -dc"));
}
