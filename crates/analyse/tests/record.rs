//! Records: merged, they are what one process makes of all captures; and what is no record is refused.

mod make;
#[path = "../../coalesce/tests/slow/mod.rs"]
mod slow;
#[path = "../../coalesce/tests/traffic/mod.rs"]
mod traffic;

use baton_analyse::coalesce::{Checksums, Limits, Profile};
use baton_analyse::cost::Prices;
use baton_analyse::flows::Sort;
use baton_analyse::read::Input;
use baton_analyse::record::{COUNT_MAX, Record, RecordError};
use baton_analyse::report::{FileLine, Listing, Rules};
use baton_analyse::study::{self, Progress, Study};
use baton_analyse::{Analysis, gro};
use fastrand::Rng;
use serde_json::{Value, json};
use std::io::Cursor;

/// The flows of a report.
const LISTING: Listing = Listing { top: 10, sort: Sort::Frames };

fn limits(profile: Profile) -> Limits {
    Limits::of(profile)
}

fn study_of(capture: &[u8], limits: Limits) -> (Analysis, Option<String>) {
    let mut analysis = Analysis::new(limits, Checksums::Trust).beside(&[gro::Rules::default().into()]);
    let input = Input::read(Cursor::new(capture.to_vec())).unwrap();
    let outcome = study::read(input, &mut analysis, &Progress::default());
    (analysis, outcome.err().map(|trouble| trouble.to_string()))
}

fn record(name: usize, capture: &[u8], limits: Limits) -> Record {
    let (analysis, trouble) = study_of(capture, limits);
    let file = FileLine { path: format!("{name:02}.pcap"), trouble, bytes: None, facts: None, figures: None };
    Record::new(Rules::of(&limits.into(), Checksums::Trust), vec![file], analysis.tally().clone())
}

/// One process's record of all captures.
fn of_all(captures: &[Vec<u8>], limits: Limits) -> Record {
    let mut all = Analysis::new(limits, Checksums::Trust).beside(&[gro::Rules::default().into()]);
    let mut files = Vec::new();
    for (name, capture) in captures.iter().enumerate() {
        let (analysis, trouble) = study_of(capture, limits);
        all.merge(analysis);
        files.push(FileLine { path: format!("{name:02}.pcap"), trouble, bytes: None, facts: None, figures: None });
    }
    Record::new(Rules::of(&limits.into(), Checksums::Trust), files, all.tally().clone())
}

/// A record as JSON, with its files in order.
fn value(mut record: Record) -> Value {
    record.files.sort_by(|a, b| a.path.cmp(&b.path));
    serde_json::from_str(&record.line()).unwrap()
}

/// A random capture: random traffic, and now and then an end in the middle of a record, TCP in a tunnel, a link type
/// that cannot be read, or many connections.
fn capture(seed: u64) -> Vec<u8> {
    let mut traffic = traffic::Traffic::new(seed);
    let mut frames = Vec::new();
    let many = traffic.dice.usize(..400);
    while frames.len() < many {
        traffic.burst(&mut frames);
    }
    let order = make::Order { big: seed.is_multiple_of(2) };
    let mut out = [make::section(order), make::interface(order, 1, 0, &[(9, &[9])])].concat();
    out.extend(make::interface(order, 147, 0, &[(9, &[9])]));
    for frame in &frames {
        if frame.link_type == 1 {
            out.extend(make::enhanced(order, 0, frame.time_ns, frame.wire_len as u32, &frame.bytes));
        }
    }
    for n in 0..traffic.dice.u16(..20) {
        out.extend(make::enhanced(order, 1, 7, 60, &[0; 60]));
        let segment = make::segment(1000 + n, 1, 100);
        out.extend(make::enhanced(order, 0, u64::from(n), 154, &make::ethernet(&[], 0x0800, &segment)));
        let mpls = [&[0, 0, 1, 64][..], &segment].concat();
        out.extend(make::enhanced(order, 0, u64::from(n), 158, &make::ethernet(&[], 0x8847, &mpls)));
    }
    if traffic.dice.u8(..5) == 0 {
        out.truncate(out.len() - traffic.dice.usize(1..40));
    }
    out
}

/// Merges records in any order and grouping.
fn merge_somehow(mut records: Vec<Record>, dice: &mut Rng) -> Record {
    dice.shuffle(&mut records);
    while records.len() > 1 {
        let other = records.swap_remove(dice.usize(..records.len()));
        let at = dice.usize(..records.len());
        // As it is between processes: in its serialized form.
        records[at].merge(Record::read(other.line().as_bytes()).unwrap()).unwrap();
    }
    records.remove(0)
}

#[test]
fn merged_in_any_order_they_are_the_record_of_one_process() {
    let mut kinds = [0; 3];
    for seed in 0..60 {
        let mut dice = Rng::with_seed(seed);
        let captures: Vec<_> = (0..dice.u64(1..12)).map(|n| capture(seed * 100 + n)).collect();
        let limits = limits(if dice.bool() { Profile::Rsc } else { Profile::Ra });
        let whole = of_all(&captures, limits);
        kinds[0] += whole.tally.tunnelled.tunnels.values().sum::<u64>();
        kinds[1] += whole.tally.unknown_links.iter().map(|(_, frames)| frames).sum::<u64>();
        kinds[2] += whole.files.iter().filter(|file| file.trouble.is_some()).count() as u64;
        assert_eq!(whole.tally.flows.forgotten(), 0, "equality is promised while no flow lost its place");
        let parts = captures.iter().enumerate().map(|(name, capture)| record(name, capture, limits)).collect();
        let merged = merge_somehow(parts, &mut dice);
        let mut report = merged.report(Prices::default(), LISTING);
        report.files.sort_by(|a, b| a.path.cmp(&b.path));
        assert_eq!(report, whole.report(Prices::default(), LISTING), "seed {seed}");
        assert_eq!(value(merged), value(whole), "seed {seed}");
    }
    assert!(kinds.iter().all(|count| *count > 0), "no capture has a tunnel, an unknown link or damage: {kinds:?}");
}

#[test]
fn everything_but_the_flows_is_equal_when_flows_lose_their_places() {
    let of_many = |from: u32| {
        let frames: Vec<_> = (from..from + 5000)
            .map(|n| {
                let mut segment = make::segment(80, 1, 10);
                segment[12..16].copy_from_slice(&n.to_be_bytes());
                segment
            })
            .collect();
        make::pcap(101, &frames)
    };
    let captures: Vec<_> = (0..4).map(|n| of_many(n * 3000)).collect();
    let limits = limits(Profile::Rsc);
    let whole = of_all(&captures, limits);
    assert!(whole.tally.flows.forgotten() > 5000);
    let parts = captures.iter().enumerate().map(|(name, capture)| record(name, capture, limits)).collect();
    let merged = merge_somehow(parts, &mut Rng::with_seed(7));
    assert!(merged.tally.flows.known() <= 4096 && merged.tally.flows.forgotten() > 5000);
    let without_flows = |record: Record| {
        let mut value = value(record);
        value["tally"].as_object_mut().unwrap().remove("flows").unwrap();
        value
    };
    assert_eq!(without_flows(merged), without_flows(whole));
}

#[test]
fn records_under_other_rules_are_not_merged() {
    let bytes = capture(1);
    let mut ours = record(0, &bytes, limits(Profile::Rsc));
    let before = ours.line();
    let error = ours.merge(record(1, &bytes, limits(Profile::Ra))).unwrap_err();
    assert!(matches!(&error, RecordError::OtherRules { theirs, .. } if theirs.contains("\"ra\"")), "{error}");
    assert_eq!(ours.line(), before);
}

fn refusal(change: impl FnOnce(&mut Value)) -> RecordError {
    let mut record = value(record(0, &make::pcap(101, &[make::segment(1, 1, 9)]), limits(Profile::Rsc)));
    change(&mut record);
    Record::read(record.to_string().as_bytes()).expect_err("it is no record")
}

#[test]
fn what_is_no_record_of_this_version_is_refused() {
    let error = refusal(|record| record["schema"] = json!("other"));
    assert_eq!(error.to_string(), "its schema is \"other\", not \"baton-trace-record\"");
    // A newer one may have members that are not known here.
    let error = refusal(|record| {
        record["version"] = json!(2);
        record["tool"] = json!("baton 9.1.0");
        record["tally"]["more"] = json!(1);
    });
    assert!(error.to_string().starts_with("it has version 2 of its schema, made by baton 9.1.0; this is version 1"));
    for change in [
        |record: &mut Value| record["tally"]["more"] = json!(1),
        |record: &mut Value| record["tally"]["reasons"]["why"] = json!(0),
        |record: &mut Value| record["tally"]["frames_in"] = json!(-1),
        |record: &mut Value| record["tally"]["lengths"] = json!([[65, 1]]),
        |record: &mut Value| record["tally"]["delays"]["histogram"] = json!([[5_000_001, 1]]),
        |record: &mut Value| record["tally"]["flows"]["known"][0]["destination"] = json!("[::1]:80"),
        |record: &mut Value| record["tally"]["flows"]["known"][0]["frames_out"] = json!(2),
        |record: &mut Value| drop(record.as_object_mut().unwrap().remove("version")),
    ] {
        assert!(matches!(refusal(change), RecordError::Malformed(_)));
    }
    let line = record(0, &make::pcap(101, &[]), limits(Profile::Rsc)).line();
    for cut in 0..line.len() {
        assert!(matches!(Record::read(&line.as_bytes()[..cut]), Err(RecordError::Malformed(_))), "{cut}");
    }
}

#[test]
fn counts_that_cannot_be_true_together_are_refused() {
    for (member, number) in [
        ("frames_in", u64::MAX),
        ("frames_in", 2),
        ("frames_out", 0),
        ("eliminated", u64::MAX),
        ("runs", 2),
        ("segments", 5),
        ("stamps_back", 2),
        ("joined_before", u64::MAX),
        ("wire_bytes", COUNT_MAX + 1),
    ] {
        let error = refusal(|record| record["tally"][member] = json!(number));
        assert!(matches!(error, RecordError::Contradiction(_)), "{member}: {error}");
    }
    let error = refusal(|record| record["tally"]["beside"][0]["eliminated"] = json!(u64::MAX));
    assert!(matches!(error, RecordError::Contradiction(_)), "beside: {error}");
    for (part, counts) in [
        ("unknown_links", json!({"147": u64::MAX, "148": u64::MAX})),
        ("tunnelled", json!({"tunnels": {"gre": u64::MAX}, "inner": {"vxlan": 1}})),
        ("reserved_bits", json!({"headers": u64::MAX, "bits": 1})),
        ("acks", json!([{"without": u64::MAX, "with": 0, "expanded": 0}, {"without": 0, "with": 0, "expanded": 0}])),
        ("ack_bytes", json!(COUNT_MAX)),
        ("lengths", json!([[1, u64::MAX], [2, u64::MAX]])),
        ("causes", json!({})),
        ("delays", json!({"histogram": [[1, u64::MAX], [2, u64::MAX]], "zero": 1, "longest": 2, "unmeasured": 0})),
    ] {
        let error = refusal(|record| record["tally"][part] = counts);
        assert!(matches!(error, RecordError::Contradiction(_)), "{part}: {error}");
    }
}

#[test]
fn a_sum_beyond_what_captures_have_is_refused() {
    let mut large = value(record(0, &make::pcap(101, &[make::segment(1, 1, 9)]), limits(Profile::Rsc)));
    large["tally"]["wire_bytes"] = json!(COUNT_MAX);
    let mut large = Record::read(large.to_string().as_bytes()).unwrap();
    let before = large.line();
    assert!(matches!(large.merge(Record::read(before.as_bytes()).unwrap()), Err(RecordError::TooMuch)));
    assert_eq!(large.line(), before);
}
