//! How fast captures are analysed: packets a second of one core, from the page cache.
//!
//! Two captures of TCP are made, of frames of 1514 bytes and of their first 66: bulk of 16
//! connections in bursts of 8. A third is the second with UDP in place of TCP, as QUIC is. A
//! round reads each once. Beside the analysis stand the reading alone, and a plain look at
//! the headers, so that each one's share is seen.
//!
//! `cargo bench -p baton-analyse --bench capture`

use baton_analyse::coalesce::{Checksums, Class, Limits, Profile, classify};
use baton_analyse::read::{Frame, Input, Reader};
use baton_analyse::rules::Given;
use baton_analyse::study::{self, Progress};
use baton_analyse::sweep::Sweep;
use baton_analyse::{Analysis, gro, link};
use baton_testkit::rounds::{Effort, Rounds};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

#[path = "../tests/make/mod.rs"]
mod make;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Writes a capture of `frames` frames of one protocol, `kept` bytes of each.
fn capture(path: &Path, frames: u32, kept: usize, protocol: u8) -> io::Result<()> {
    let order = make::Order { big: false };
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    file.write_all(&make::pcap_header(order, make::MICROS, 1))?;
    let mut next = [1_u32; 16];
    for n in 0..frames {
        let flow = (n / 8 % 16) as usize;
        let mut frame = make::ethernet(&[], 0x0800, &make::segment(1000 + flow as u16, next[flow], 1460));
        frame[14 + 9] = protocol;
        next[flow] = next[flow].wrapping_add(1460);
        file.write_all(&make::pcap_record(order, n / 80_000, n % 80_000 * 12, 1514, &frame[..kept]))?;
    }
    file.flush()
}

fn open(path: &Path) -> Input {
    Input::open(path, &Progress::default().bytes).expect("the capture was just made")
}

/// Hands every frame to `look` and says how many there were.
fn every(path: &Path, mut look: impl FnMut(&Frame<'_>)) -> u64 {
    let mut count = 0;
    let mut reader = Reader::new(open(path));
    let mut sink = |frame: &Frame<'_>| {
        count += 1;
        look(frame);
    };
    while reader.read(&mut sink).expect("the capture is whole") {}
    count
}

fn analysis(path: &Path, rules: Given, beside: &[Given]) -> u64 {
    let mut analysis = Analysis::new(rules, Checksums::Trust).beside(beside);
    study::read(open(path), &mut analysis, &Progress::default()).expect("the capture is whole");
    analysis.tally().eliminated
}

fn main() -> io::Result<()> {
    let effort = Effort::asked();
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let captures = [("1514", 1514, TCP, 500_000), ("66", 66, TCP, 4_000_000), ("66 (UDP)", 66, UDP, 4_000_000)];
    for (name, kept, protocol, frames) in captures {
        let frames = effort.pick(frames, 5_000);
        let path = dir.join("bench.pcap");
        capture(&path, frames, kept, protocol)?;
        let (data, joined) = if protocol == TCP { (frames, frames / 2) } else { (0, 0) };
        let mut set = Rounds::new(&format!("capture of {name} bytes a frame"), frames as usize);
        set.add("read", || assert_eq!(every(&path, |_| ()), u64::from(frames)));
        set.add("read, headers parsed", || {
            let mut found = 0_u32;
            every(&path, |frame| {
                found += u32::from(matches!(classify(&link::frame(frame), Checksums::Trust), Class::Data(_)));
            });
            assert_eq!(found, data);
        });
        let [rsc, ra, gro] =
            [Limits::of(Profile::Rsc).into(), Limits::of(Profile::Ra).into(), gro::Rules::default().into()];
        set.add("trace rsc", || assert!(analysis(&path, rsc, &[]) >= u64::from(joined)));
        set.add("trace ra", || assert!(analysis(&path, ra, &[]) >= u64::from(joined)));
        set.add("trace gro", || assert!(analysis(&path, gro, &[]) >= u64::from(joined)));
        set.add("trace rsc, ra, gro", || assert!(analysis(&path, rsc, &[ra, gro]) >= u64::from(joined)));
        set.add("sweep rsc", || {
            let mut sweep = Sweep::new(Limits::of(Profile::Rsc), Checksums::Trust);
            study::read(open(&path), &mut sweep, &Progress::default()).expect("the capture is whole");
        });
        set.run(effort.rounds(9));
        set.report();
        drop(set);
        std::fs::remove_file(&path)?;
    }
    Ok(())
}
