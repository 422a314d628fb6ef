//! A target for the reader of captures and what is made of them, which anybody may
//! have made.

#[path = "pieces.rs"]
pub mod pieces;

use baton_analyse::coalesce::{Checksums, Limits, Profile};
use baton_analyse::read::{Frame, Input, Reader};
use baton_analyse::study::{self, Progress};
use baton_analyse::sweep::Sweep;
use baton_analyse::{Analysis, Damage};
use pieces::Pieces;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[("trace_capture", capture)];

fn input(data: &[u8], step: usize) -> Option<Input> {
    Input::read(Pieces::of(data, step)).ok()
}

/// A frame: its bytes, its length on the wire, its time, its link type.
type Kept = (Vec<u8>, u32, u64, u16);

fn frames(data: &[u8], step: usize) -> (Vec<Kept>, Option<Damage>) {
    let mut kept = Vec::new();
    let Some(input) = input(data, step) else { return (kept, None) };
    let mut reader = Reader::new(input);
    let mut keep = |frame: &Frame<'_>| {
        assert!(frame.wire_len as usize >= frame.data.len(), "shorter on the wire than here");
        kept.push((frame.data.to_vec(), frame.wire_len, frame.time_ns, frame.link));
    };
    loop {
        match reader.read(&mut keep) {
            Ok(true) => {}
            Ok(false) => return (kept, None),
            Err(damage) => return (kept, Some(damage)),
        }
    }
}

/// Reads a capture, whole and in small pieces: it holds the same, and what is counted
/// of it adds up.
pub fn capture(data: &[u8]) {
    let (kept, damage) = frames(data, usize::MAX);
    if data.len() < 4096 {
        let step = 1 + data.len() % 61;
        assert_eq!(frames(data, step), (kept.clone(), damage), "in pieces of {step}");
    }
    for (profile, checksums) in [(Profile::Rsc, Checksums::Trust), (Profile::Ra, Checksums::Verify)] {
        let Some(input) = input(data, usize::MAX) else { return };
        let mut analysis = Analysis::new(Limits::of(profile), checksums);
        // Damage was compared above.
        let _ = study::read(input, &mut analysis, &Progress::default());
        let tally = analysis.tally();
        assert_eq!(tally.frames_in, kept.len() as u64);
        assert_eq!(tally.frames_in, tally.frames_out + tally.eliminated);
        assert_eq!(tally.frames_in, tally.segments + tally.reasons.values().sum::<u64>());
    }
    let Some(input) = input(data, usize::MAX) else { return };
    let mut sweep = Sweep::new(Limits::of(Profile::Rsc), Checksums::Trust);
    let _ = study::read(input, &mut sweep, &Progress::default());
    assert!(sweep.points().all(|point| point.gain.frames_in == point.gain.frames_out + point.gain.eliminated));
}
