//! The figures that `baton trace` reports around its counts: memory, acknowledgments, flows, captures, and a line for
//! each frame.

// A generator of captures.
#[path = "../../analyse/tests/make/mod.rs"]
mod make;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn trace(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_baton")).arg("trace").args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(args: &[&str]) -> String {
    let output = trace(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&text(&[args, &["--json"]].concat())).unwrap()
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_string_lossy().into_owned()
}

fn frame(port: u16, seq: u32, payload: usize) -> Vec<u8> {
    make::ethernet(&[], 0x0800, &make::segment(port, seq, payload))
}

/// Segments of 1,000 bytes of six flows, which take turns 40 times.
fn six_flows() -> Vec<u8> {
    let turns = (0..40).flat_map(|turn| (0..6).map(move |flow| frame(1000 + flow, 1 + turn * 1000, 1000)));
    make::pcap(1, &turns.collect::<Vec<_>>())
}

#[test]
fn a_sweep_begins_with_the_memory_that_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.pcap", &six_flows());
    let (csv, page) = (dir.path().join("sweep.csv"), dir.path().join("sweep.html"));
    let words = ["sweep", "--window-packets", "240", &file];
    let outputs = ["--csv", &csv.to_string_lossy(), "--html", &page.to_string_lossy()];
    let said = text(&[&words[..], &outputs].concat());
    // Six flows need the 8 entries of the grid. The best has runs of 40 segments; 32 KiB has 32 and 8, and 16 KiB
    // has 16, 16 and 8, which is just more than 5 % less.
    let unwrapped = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let verdict = "8 entries of 32 KiB, 256 KiB in all, are within 5 % of the best: 95.0 % of the frames are joined, and \
                   97.5 % with 8 entries of 64 KiB, 512 KiB in all ";
    assert!(unwrapped.starts_with(verdict), "{said}");
    assert!(said.contains("*95.0 %"), "{said}");
    let found = json(&words);
    assert_eq!(found["verdict"].as_str().map(str::trim), Some(verdict.trim()));
    let grid = &found["grid"];
    let knee = &grid["knee"]["at"];
    assert_eq!(
        (knee["entries"].as_u64(), knee["size"].as_u64(), knee["memory_bytes"].as_u64()),
        (Some(8), Some(32_768), Some(262_144))
    );
    assert_eq!((grid["unit"].as_str(), grid["cells"].as_array().unwrap().len()), (Some("bytes"), 36));
    for cell in grid["cells"].as_array().unwrap().iter().filter(|cell| cell["entries"].as_u64() < Some(6)) {
        assert_eq!(cell["eliminated"].as_u64(), Some(0), "{cell}");
    }
    let csv = std::fs::read_to_string(csv).unwrap();
    assert!(csv.contains("\nmemory,262144,240,12,228,12,8,32768\n"), "{csv}");
    assert!(csv.lines().all(|line| line.matches(',').count() == 7), "{csv}");
    let page = std::fs::read_to_string(page).unwrap();
    let knee = "The outline is the knee: 8 entries of 32 KiB, 256 KiB in all.";
    assert!(page.contains(knee) && page.contains("data-plot=\"memory\" data-marks=\"36\""), "{page}");
    let segments = json(&["sweep", "--profile", "ra", "--window-packets", "240", &file]);
    assert_eq!(segments["grid"]["unit"].as_str(), Some("segments"));
    // Two runs of 20 eliminate 38 of 40 segments, and one of 40 eliminates 39.
    assert!(segments["verdict"].as_str().unwrap().starts_with("8 entries of 20 segments"), "{}", segments["verdict"]);
    // A capture that shows too little gets no advice.
    let few = write(dir.path(), "few.pcap", &make::pcap(1, &[frame(9, 1, 1000), frame(9, 1001, 1000)]));
    assert!(text(&["sweep", &few]).starts_with("cannot tell: there are 2 data segments"));
    // Segments that are all pushed are joined by no memory.
    let push = |n: u32| {
        let mut frame = frame(9, 1 + n * 1000, 1000);
        frame[14 + 20 + 13] |= 8;
        frame
    };
    let pushed = write(dir.path(), "pushed.pcap", &make::pcap(1, &(0..200).map(push).collect::<Vec<_>>()));
    assert!(text(&["sweep", &pushed]).starts_with("no memory helps: "));
}

#[test]
fn acks_are_counted_as_captured_as_made_and_as_templates() {
    let dir = tempfile::tempdir().unwrap();
    let mut frames: Vec<_> = (0..1000).map(|n| frame(9, 1 + n * 1000, 1000)).collect();
    let usual = json(&[&write(dir.path(), "a.pcap", &make::pcap(1, &frames))]);
    let acks = |report: &Value, key: &str| report["acks"][key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
    // Each window of 20 has runs of 8, 8 and 4: three templates, of 4, 4 and 2 ACKs.
    assert_eq!(["without", "with", "saved", "expanded"].map(|key| acks(&usual, key)), [500, 150, 350, 500]);
    assert_eq!(
        ["without_bytes", "with_bytes", "saved_bytes", "expanded_bytes"].map(|key| acks(&usual, key)),
        [33_000, 9_900, 23_100, 33_000]
    );
    assert_eq!((usual["acks"]["frame_bytes_from"].as_str(), acks(&usual, "captured")), (Some("usual"), 0));
    // Two ACKs of 54 bytes, and one that was padded to 60.
    let ack = frame(9, 1, 0);
    frames.extend([ack.clone(), ack.clone(), [ack, vec![0; 6]].concat()]);
    let file = write(dir.path(), "b.pcap", &make::pcap(1, &frames));
    let captured = json(&[&file]);
    assert_eq!(["captured", "captured_bytes", "without_bytes"].map(|key| acks(&captured, key)), [3, 168, 28_000]);
    assert_eq!(
        (captured["acks"]["frame_bytes"].as_f64(), captured["acks"]["frame_bytes_from"].as_str()),
        (Some(56.0), Some("captured"))
    );
    let said = text(&[&file]);
    for line in [
        "ACKs saved           350 of 500 (70.0 %), 19,600 bytes, by one ACK for a run",
        "  in the captures                                             3             168",
        "  of a driver that expands these as templates               500           28000",
        "  an ACK has 56.0 bytes: the mean of those in the captures",
    ] {
        assert!(said.lines().any(|found| found == line), "{line}: {said}");
    }
}

#[test]
fn flows_are_listed_as_many_and_in_the_order_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    // Port 1 has most frames, of which none can be joined, port 2 most bytes, port 3 most frames that are joined.
    let alone = (0..60).map(|n| frame(1, 1 + n * 500, 100));
    let large = (0..20).map(|n| frame(2, 1 + n * 20_000, 9000));
    let bulk = (0..40).map(|n| frame(3, 1 + n * 100, 100));
    let file = write(dir.path(), "a.pcap", &make::pcap(1, &alone.chain(large).chain(bulk).collect::<Vec<_>>()));
    let order = |words: &[&str]| {
        let report = json(&[&[&*file], words].concat());
        let ports = report["flows"].as_array().unwrap().iter().map(|flow| {
            let source = flow["source"].as_str().unwrap();
            source.rsplit(':').next().unwrap().parse().unwrap()
        });
        ports.collect::<Vec<u16>>()
    };
    assert_eq!(order(&[]), [1, 3, 2]);
    assert_eq!(order(&["--sort", "frames", "--top", "1"]), [1]);
    assert_eq!(order(&["--sort", "bytes"]), [2, 1, 3]);
    assert_eq!(order(&["--sort", "gain", "--top", "2"]), [3, 1]);
    assert_eq!(order(&["--top", "0"]), [0_u16; 0]);
    assert!(!text(&[&file, "--top", "0"]).contains("largest flows"));
    let said = text(&[&file, "--sort", "bytes"]);
    let first = said.lines().skip_while(|line| !line.starts_with("flows with most payload")).nth(1).unwrap();
    assert_eq!(first.split_whitespace().collect::<Vec<_>>().join(" "), "10.0.0.1:2 > 10.0.0.2:80 20 180000 0.0 %");
}

#[test]
fn one_capture_has_its_facts_and_several_a_line_each() {
    let dir = tempfile::tempdir().unwrap();
    let order = make::Order { big: false };
    let mut pcap = make::pcap_header(order, make::MICROS, 1);
    for n in 0..200_u32 {
        let frame = frame(9, 1 + n * 1000, 1000);
        pcap.extend(make::pcap_record(order, 1_700_000_000 + n / 100, n % 100 * 10, frame.len() as u32, &frame));
    }
    let file = write(dir.path(), "a.pcap", &pcap);
    let said = text(&[&file]);
    for (name, value) in [
        ("capture", &*file),
        ("format", "pcap 2.4, little endian"),
        ("link type", "ETHERNET (1)"),
        ("snap length", "262144 bytes"),
        ("start", "Tue, 14 Nov 2023 22:13:20 UTC"),
        ("duration", "1.00 s"),
        ("records", "200"),
        ("size", &format!("{} bytes", pcap.len())),
    ] {
        let shown = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&format!("{name} {value}")), "{name}: {said}");
    }
    let page = dir.path().join("page.html");
    trace(&["--html", &page.to_string_lossy(), &file]);
    let page = std::fs::read_to_string(&page).unwrap();
    for fact in
        ["<dt>Start</dt><dd>Tue, 14 Nov 2023 22:13:20 UTC</dd>", "<dt>End</dt><dd>Tue, 14 Nov 2023 22:13:21 UTC</dd>"]
    {
        assert!(page.contains(fact), "{fact}: {page}");
    }
    // A pcapng file states the interfaces of all its sections; a snapshot length of 0 is no bound.
    let order = make::Order { big: true };
    let enhanced = |at| make::enhanced(order, 0, at, 1054, &frame(9, 1, 1000));
    let pcapng = [
        make::section(order),
        make::interface(order, 1, 96, &[]),
        make::interface(order, 101, 128, &[]),
        enhanced(5_000_000),
        make::section(order),
        make::interface(order, 1, 0, &[]),
        enhanced(7_000_000),
    ]
    .concat();
    let other = write(dir.path(), "b.pcapng", &pcapng);
    let cut = write(dir.path(), "cut.pcap", &pcap[..pcap.len() - 7]);
    let output = trace(&["--json", &file, &other, &cut]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [one, two, three] = [0, 1, 2].map(|at| &report["files"][at]);
    assert_eq!(one["facts"]["link_types"], serde_json::json!([1]));
    assert_eq!(one["facts"]["snap_length"].as_u64(), Some(262_144));
    assert_eq!(one["bytes"].as_u64(), Some(pcap.len() as u64));
    assert_eq!(one["figures"]["start_ns"].as_u64(), Some(1_700_000_000_000_000_000));
    assert_eq!((one["figures"]["frames_in"].as_u64(), one["figures"]["eliminated"].as_u64()), (Some(200), Some(170)));
    assert_eq!(one["figures"]["answer"].as_str(), Some("yes"));
    assert_eq!((two["facts"]["format"].as_str(), two["facts"]["big_endian"].as_bool()), (Some("pcapng"), Some(true)));
    assert_eq!(two["facts"]["link_types"], serde_json::json!([1, 101]));
    assert_eq!((&two["facts"]["snap_length"], &two["facts"]["version"]), (&Value::Null, &serde_json::json!([1, 0])));
    assert_eq!(
        (two["figures"]["start_ns"].as_u64(), two["figures"]["seconds"].as_f64()),
        (Some(5_000_000_000), Some(2.0))
    );
    assert_eq!(two["figures"]["answer"].as_str(), Some("cannot-tell"));
    assert_eq!(three["figures"]["frames_in"].as_u64(), Some(199));
    let output = trace(&[&file, &other, &cut]);
    let said = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = said
        .lines()
        .skip_while(|line| !line.starts_with("captures"))
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let ends = |words: &[&str]| rows.iter().any(|row| row.ends_with(words));
    assert!(ends(&["200", "85.0", "%", "yes"]), "{said}");
    assert!(ends(&["2", "0.0", "%", "cannot", "tell"]), "{said}");
    assert!(ends(&["199", "84.9", "%", "yes"]), "{said}");
    assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains("damaged at byte"), "{said}");
}

#[test]
fn each_frame_has_a_line_with_its_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let order = make::Order { big: false };
    let mut capture = make::pcap_header(order, make::NANOS, 1);
    // A run, an ACK between two flows, a gap, and a frame that is no IP.
    let frames = [
        frame(9, 1, 1000),
        frame(8, 1, 1000),
        frame(9, 1001, 1000),
        frame(8, 7, 0),
        frame(8, 1001, 1000),
        frame(9, 9001, 1000),
        frame(9, 10_001, 1000),
        vec![0; 60],
    ];
    for (at, frame) in frames.iter().enumerate() {
        capture.extend(make::pcap_record(order, 12, at as u32 * 3, frame.len() as u32, frame));
    }
    let file = write(dir.path(), "a.pcap", &capture);
    let lines = dir.path().join("new/frames.csv");
    let report = json(&[&file, "--verdicts", &lines.to_string_lossy()]);
    let expected = "number,time,verdict,reason,run\n\
                    1,12.000000000,start,,1\n\
                    2,12.000000003,start,,2\n\
                    3,12.000000006,append,,1\n\
                    4,12.000000009,alone,no_payload,\n\
                    5,12.000000012,start,,3\n\
                    6,12.000000015,start,sequence,4\n\
                    7,12.000000018,append,,4\n\
                    8,12.000000021,alone,not_ip,\n";
    assert_eq!(std::fs::read_to_string(&lines).unwrap(), expected);
    assert_eq!((report["eliminated"].as_u64(), report["frames_in"].as_u64()), (Some(2), Some(8)));
    let same = json(&[&file]);
    assert_eq!(report, same, "the lines change the report");
}

#[test]
fn the_lines_of_frames_agree_with_the_counts_of_captures() {
    let dir = tempfile::tempdir().unwrap();
    let lines = dir.path().join("frames.csv");
    let lines = lines.to_string_lossy();
    for name in ["tcp-timestamp-snapped.pcap", "ipv6-four-http-streams.pcap", "tcp-ssh-dups.pcap"] {
        let file = format!("{}/../wire/tests/pcaps/{name}", env!("CARGO_MANIFEST_DIR"));
        for profile in ["rsc", "ra"] {
            let report = json(&[&file, "--profile", profile, "--verdicts", &lines]);
            let text = std::fs::read_to_string(&*lines).unwrap();
            let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
            let count = |word: &str| rows.iter().filter(|row| row[2] == word).count() as u64;
            assert_eq!(Some(rows.len() as u64), report["frames_in"].as_u64(), "{name}");
            assert_eq!(Some(count("append")), report["eliminated"].as_u64(), "{name}");
            assert_eq!(Some(count("start") + count("alone")), report["frames_out"].as_u64(), "{name}");
            for (reason, frames) in report["reasons"].as_object().unwrap() {
                let alone = rows.iter().filter(|row| row[2] == "alone" && row[3] == reason).count() as u64;
                assert_eq!(Some(alone), frames.as_u64(), "{name}: {reason}");
            }
            let mut lengths = std::collections::BTreeMap::<&str, u64>::new();
            rows.iter().filter(|row| !row[4].is_empty()).for_each(|row| *lengths.entry(row[4]).or_default() += 1);
            let runs = lengths.values().filter(|length| **length > 1).count() as u64;
            assert_eq!(Some(runs), report["runs"].as_u64(), "{name}");
        }
    }
}

#[test]
fn a_file_of_verdicts_that_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.pcap", &six_flows());
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for (words, part) in [
        (&[&*file, "--verdicts", "-"][..], "standard output"),
        (&[&*file, &*file, "--verdicts", "x"], "several are named"),
        (&[&*file, "--verdicts", &*file], "would overwrite"),
        (&[&*file, "--verdicts", &link.to_string_lossy()], "would overwrite"),
        (&[&*file, "--verdicts", "/dev/null/x"], "cannot write"),
        (&[&*file, "--verdicts", "/dev/full"], "No space left"),
    ] {
        let output = trace(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words:?}: {said}");
        assert!(said.contains(part) && said.contains("; ") && said.lines().count() == 1, "{words:?}: {said}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), six_flows(), "the capture was changed");
}

#[test]
fn no_line_but_a_path_is_longer_than_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("a-directory-with-a-name-of-sixty-characters-as-they-sometimes-are/and-another-one");
    std::fs::create_dir_all(&long).unwrap();
    // No address and port take more characters than these.
    let v6 = |n: u32| {
        let mut packet = make::segment_v6(60_000, 1 + n * 1000, 1000);
        packet[8..40].fill(0xfd);
        packet[42..44].copy_from_slice(&60_001_u16.to_be_bytes());
        make::ethernet(&[], 0x86dd, &packet)
    };
    let frames: Vec<_> = (0..200).flat_map(|n| [v6(n), frame(9, 1 + n * 1000, 1000)]).collect();
    let whole = make::pcap(1, &frames);
    let (good, cut) = (write(&long, "good.pcap", &whole), write(&long, "cut.pcap", &whole[..whole.len() - 7]));
    let unread = write(&long, "unread.pcap", &make::pcap(127, &[vec![0; 60]]));
    let dir_name = dir.path().to_string_lossy();
    for words in [
        &[&*good][..],
        &[&*good, &*cut, &*unread],
        &[&*cut, "--sort", "bytes"],
        &[&*good, "--window-us", "18446744073709551", "--limit", "4294967295", "--sort", "gain"],
        &["sweep", &*good],
        &["sweep", "--profile", "ra", &*good, &*unread],
    ] {
        let said = String::from_utf8(trace(words).stdout).unwrap();
        assert!(said.lines().count() > 20, "{words:?}: {said}");
        for line in said.lines().filter(|line| !line.contains(&*dir_name)) {
            assert!(line.chars().count() <= 80, "{words:?}: {line}");
        }
    }
}
