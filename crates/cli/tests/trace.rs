//! `baton trace` as a user runs it: its results compared with a slow, independent implementation,
//! its messages, and its exit codes.

// The independent implementation, and a generator of captures.
#[path = "../../analyse/tests/make/mod.rs"]
mod make;
#[path = "../../coalesce/tests/slow/mod.rs"]
mod slow;
#[path = "../../analyse/tests/slow_read/mod.rs"]
mod slow_read;

#[path = "trace/gro.rs"]
mod gro;
#[path = "trace/live.rs"]
mod live;

use serde_json::Value;
use slow::{Rules, Slow, Window};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn trace(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_baton")).arg("trace").args(args).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Rules, and the options that select them.
fn asked() -> Vec<(Rules, Vec<String>)> {
    let mut all = Vec::new();
    for rsc in [true, false] {
        let base = Rules {
            rsc,
            cache: 4,
            buffer: 8192,
            limit: (!rsc).then_some(20),
            window: Window::Frames(20),
            verify: false,
        };
        let mut add = |rules: Rules, options: &[&str]| {
            let profile = ["--profile", if rsc { "rsc" } else { "ra" }];
            all.push((rules, profile.iter().chain(options).map(|word| (*word).to_owned()).collect()));
        };
        add(base, &[]);
        add(Rules { cache: 1, ..base }, &["--cache", "1"]);
        add(Rules { cache: 64, window: Window::Frames(256), ..base }, &["--cache", "64", "--window-packets", "256"]);
        if rsc {
            add(Rules { buffer: 16_384, ..base }, &["--buffer", "16384"]);
            let small = Rules { buffer: 1448, window: Window::Frames(5), ..base };
            add(small, &["--buffer", "1448", "--window-packets", "5"]);
        }
        add(Rules { limit: Some(3), ..base }, &["--limit", "3"]);
        add(Rules { window: Window::Nanos(250_000), ..base }, &["--window-us", "250"]);
        add(Rules { verify: true, ..base }, &["--checksum", "verify"]);
    }
    // The default profile is rsc.
    let (rules, _) = all[0];
    all.push((rules, Vec::new()));
    all
}

#[test]
fn its_figures_are_those_of_the_rules() {
    for (at, path) in slow_read::captures().iter().enumerate() {
        let frames = slow_read::frames(path);
        // Each program start costs time, so this takes only a sample; the library's tests apply all
        // rules to all captures.
        for (rules, options) in asked().into_iter().skip(at % 4).step_by(4) {
            let mut slow = Slow::new(rules);
            frames.iter().for_each(|frame| slow.frame(frame));
            let report = slow.finish().0;
            let file = path.to_string_lossy();
            let mut words: Vec<&str> = options.iter().map(String::as_str).collect();
            words.extend(["--json", &*file]);
            let output = trace(&words);
            let what = format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{what}");
            let found = json(&output);
            let number = |key: &str| found[key].as_u64().unwrap_or_else(|| panic!("{key}: {what}"));
            assert_eq!(number("frames_in"), report.frames_in, "{what}");
            assert_eq!(number("frames_out"), report.frames_out, "{what}");
            assert_eq!(number("eliminated"), report.eliminated, "{what}");
            assert_eq!(number("runs"), report.runs, "{what}");
            let reasons = found["reasons"].as_object().unwrap();
            let reasons: Vec<_> =
                reasons.iter().map(|(name, count)| (name.as_str(), count.as_u64().unwrap())).collect();
            assert_eq!(reasons, report.reasons.into_iter().collect::<Vec<_>>(), "{what}");
        }
    }
}

/// A capture of 30 segments of one connection.
fn bulk() -> Vec<u8> {
    let frames: Vec<_> = (0..30).map(|n| make::ethernet(&[], 0x0800, &make::segment(9, 1 + n * 1000, 1000))).collect();
    make::pcap(1, &frames)
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn standard_input_and_several_files_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (write(dir.path(), "a.pcap", &bulk()), write(dir.path(), "b.pcap", &bulk()));
    let one = json(&trace(&["--json", &a]));
    assert_eq!((one["frames_in"].as_u64(), one["eliminated"].as_u64()), (Some(30), Some(25)));
    let two = json(&trace(&["--json", &a, &b]));
    assert_eq!((two["frames_in"].as_u64(), two["eliminated"].as_u64()), (Some(60), Some(50)));
    assert_eq!(two["flows"][0]["frames_in"].as_u64(), Some(60));
    assert_eq!(two["files"][1]["path"].as_str(), Some(&*b));

    let mut child = Command::new(env!("CARGO_BIN_EXE_baton"))
        .args(["trace", "--json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&bulk()).unwrap();
    let piped = json(&child.wait_with_output().unwrap());
    for key in ["frames_in", "frames_out", "eliminated", "runs", "reasons", "run_lengths", "added_delay_ns", "acks"] {
        assert_eq!(piped[key], one[key], "{key}");
    }
}

#[test]
fn what_was_readable_of_a_damaged_capture_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let whole = bulk();
    let cut = write(dir.path(), "cut.pcap", &whole[..whole.len() - 7]);
    let output = trace(&["--json", &cut]);
    assert_eq!(output.status.code(), Some(1));
    let last = whole.len() - 1070;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("damaged at byte {last}:")) && said.lines().count() == 1, "{said}");
    let report = json(&output);
    assert_eq!(report["frames_in"].as_u64(), Some(29));
    assert!(report["files"][0]["trouble"].as_str().unwrap().contains("damaged at byte"));
    assert!(said.ends_with("; the report covers what came before\n"), "{said}");
    // There is no report if nothing could be read.
    let other = write(dir.path(), "other.bin", &[7; 100]);
    let output = trace(&[&other]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.ends_with("other.bin: damaged at byte 0: neither pcap nor pcapng\n"), "{said}");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    // If one of several captures is damaged, the others still count.
    let good = write(dir.path(), "good.pcap", &whole);
    let output = trace(&["--json", &cut, &good]);
    assert_eq!((output.status.code(), json(&output)["frames_in"].as_u64()), (Some(1), Some(59)));
}

#[test]
fn what_the_caller_has_to_change_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let good = write(dir.path(), "good.pcap", &bulk());
    let xz = write(dir.path(), "good.pcap.xz", b"\xfd7zXZ\0\0\x04");
    let empty = dir.path().join("empty").to_string_lossy().into_owned();
    std::fs::create_dir(&empty).unwrap();
    for words in [
        &["/no/such/file"][..],
        &[&good, "/no/such/file"],
        &[&empty],
        &[],
        &[&good, "--cache", "0"],
        &[&good, "--cache", "65537"],
        &[&good, "--window-us", "9", "--window-packets", "9"],
        &[&good, "--profile", "lro"],
        &[&good, "--cost-frame", "nan"],
        &[&good, "--html", "/dev/null/x.html"],
        &[&good, "--html", "-"],
        &[&good, "--profile", "ra", "--buffer", "4096"],
        &["-", "-"],
        &[&good, &xz],
        &["-i", "nosuchdevice"],
        &["sweep"],
        &["sweep", "/no/such/file"],
        &["paper", "--senders", "0"],
    ] {
        let output = trace(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.starts_with("baton: ") && said.contains("; ") && said.lines().count() == 1, "{words:?}: {said}");
    }
}

/// The report on this capture.
fn report_of(bytes: &[u8], options: &[&str]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.pcap", bytes);
    json(&trace(&[options, &["--json", &file]].concat()))
}

/// A capture of segments of one connection, each with its stamp in microseconds and its length on the wire, if that is
/// not the frame's.
fn stamped(segments: &[(u64, Option<u32>)], payload: usize) -> Vec<u8> {
    let order = make::Order { big: false };
    let mut capture = make::pcap_header(order, make::MICROS, 1);
    for (n, (stamp, wire_len)) in segments.iter().enumerate() {
        let frame = make::ethernet(&[], 0x0800, &make::segment(9, 1 + n as u32 * payload as u32, payload));
        let wire_len = wire_len.unwrap_or(frame.len() as u32);
        let (seconds, fraction) = ((stamp / 1_000_000) as u32, (stamp % 1_000_000) as u32);
        capture.extend(make::pcap_record(order, seconds, fraction, wire_len, &frame));
    }
    capture
}

#[test]
fn every_second_segment_is_acknowledged_without_runs() {
    let segments: Vec<_> = (0..1000).map(|n| (n, None)).collect();
    // A window of 20 frames has runs of 8, 8 and 4; a frame larger than the buffer is in none.
    for (payload, with) in [(1000, 150), (8960, 500)] {
        let report = report_of(&stamped(&segments, payload), &[]);
        let acks = |key: &str| report["acks"][key].as_u64().unwrap();
        assert_eq!((acks("without"), acks("with"), acks("saved")), (500, with, 500 - with), "{payload}: {report}");
    }
}

#[test]
fn a_length_that_the_ip_header_contradicts_does_not_count() {
    let mut segments: Vec<_> = (0..30).map(|n| (n, None)).collect();
    let before = report_of(&stamped(&segments, 1000), &[]);
    segments[7].1 = Some(4_000_000_000);
    let after = report_of(&stamped(&segments, 1000), &[]);
    for key in ["wire_bytes", "cpu", "eliminated"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    assert_eq!((before["lengths_bounded"].as_u64(), after["lengths_bounded"].as_u64()), (Some(0), Some(1)));
    // A frame that was cut has its own length, and padding is none of the packet's.
    let frame = make::ethernet(&[], 0x0800, &make::segment(9, 1, 1000));
    let mut cut = make::pcap_header(make::Order { big: false }, make::MICROS, 1);
    cut.extend(make::pcap_record(make::Order { big: false }, 1, 0, frame.len() as u32 + 4, &frame[..60]));
    let report = report_of(&cut, &[]);
    assert_eq!(
        (report["wire_bytes"].as_u64(), report["lengths_bounded"].as_u64()),
        (Some(frame.len() as u64 + 4), Some(0))
    );
}

#[test]
fn time_that_goes_back_ends_a_window_and_is_told() {
    let ten_seconds = 10_000_000;
    // A window of 100 us has two of these each, whatever the clock was set to in between.
    let stamps = [0, 50, 1000, 1050, 500, 550, 3000, 3050].map(|stamp| (ten_seconds + stamp, None));
    let report = report_of(&stamped(&stamps, 1000), &["--window-us", "100"]);
    assert_eq!((report["runs"].as_u64(), report["eliminated"].as_u64()), (Some(4), Some(4)), "{report}");
    assert_eq!(report["stamps_back"].as_u64(), Some(1));
    assert!(report["added_delay_ns"]["max"].as_u64().unwrap() <= 1_000_000, "{report}");
    assert!((report["seconds"].as_f64().unwrap() - 3050e-6).abs() < 1e-9, "{report}");
    // The time between two captures is in neither.
    let dir = tempfile::tempdir().unwrap();
    let early = write(dir.path(), "a.pcap", &stamped(&[(0, None), (1_000_000, None)], 1000));
    let late = write(dir.path(), "b.pcap", &stamped(&[(900_000_000_000, None), (900_002_000_000, None)], 1000));
    assert_eq!(json(&trace(&["--json", &early, &late]))["seconds"].as_f64(), Some(3.0));
}

#[test]
fn the_first_line_is_a_verdict() {
    let verdict = |capture: &[u8]| {
        let dir = tempfile::tempdir().unwrap();
        let file = write(dir.path(), "a.pcap", capture);
        let text = String::from_utf8(trace(&[&file]).stdout).unwrap();
        let first = text.lines().next().unwrap().to_owned();
        (first, report_of(capture, &[])["verdict"]["answer"].as_str().unwrap().to_owned())
    };
    let many: Vec<_> = (0..1000).map(|n| (n, None)).collect();
    let (said, answer) = verdict(&stamped(&many, 1000));
    assert!(said.starts_with("yes: 85.0 % of the frames would be joined") && answer == "yes", "{said}");
    let (said, answer) = verdict(&stamped(&many, 8960));
    assert!(said.starts_with("little: 0.0 % of the frames") && answer == "little", "{said}");
    let (said, answer) = verdict(&stamped(&many, 20_000));
    assert!(said.starts_with("cannot tell: 1000 of 1000 data segments are larger than a wire carries"), "{said}");
    assert_eq!(answer, "cannot-tell");
    assert!(verdict(&stamped(&many[..99], 1000)).0.starts_with("cannot tell: there are 99 data segments"));
}

#[test]
fn tunnels_are_looked_into_on_demand() {
    // Bulk of one connection in VXLAN, as a hypervisor's uplink carries it.
    let frames: Vec<_> = (0..200)
        .map(|n| {
            let inner = make::ethernet(&[], 0x0800, &make::segment(9, 1 + n * 1000, 1000));
            let udp = [&[0x30, 0x39, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 9, 0][..], &inner].concat();
            let total = (20 + udp.len() as u16).to_be_bytes();
            let outer = [0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
            make::ethernet(&[], 0x0800, &[&outer[..], &udp].concat())
        })
        .collect();
    let capture = make::pcap(1, &frames);
    let outside = report_of(&capture, &[]);
    assert_eq!((outside["eliminated"].as_u64(), outside["tunnels"]["vxlan"].as_u64()), (Some(0), Some(200)));
    let because = outside["verdict"]["because"].as_str().unwrap();
    assert!(outside["verdict"]["answer"] == "cannot-tell" && because.contains("--inner"), "{because}");
    let inside = report_of(&capture, &["--inner"]);
    assert_eq!((inside["eliminated"].as_u64(), inside["inner"]["vxlan"].as_u64()), (Some(170), Some(200)));
    assert_eq!(inside["flows"][0]["source"], "10.0.0.1:9");
    assert_eq!(inside["verdict"]["answer"], "yes");

    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.pcap", &capture);
    for (words, said) in [
        (&[&*file][..], "200; look inside with --inner"),
        (&["--inner", &file], "taken out of vxlan: 200"),
        (&["sweep", &file], "200; look inside with --inner"),
        (&["sweep", "--inner", &file], "taken out of vxlan: 200"),
    ] {
        let text = String::from_utf8_lossy(&trace(words).stdout).into_owned();
        // A terminal's lines end anywhere between words.
        let words_of_it = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words_of_it.contains(said), "{words:?}: {text}");
    }
}

#[test]
fn a_delay_of_hours_is_as_long_as_it_was() {
    let hours = 5 * 3600 * 1_000_000;
    let report = report_of(&stamped(&[(0, None), (hours, None)], 1000), &[]);
    assert_eq!(report["added_delay_ns"]["max"].as_u64(), Some(hours * 1000), "{report}");
}

#[test]
fn what_is_no_capture_is_named_and_gets_no_report() {
    let dir = tempfile::tempdir().unwrap();
    for (bytes, parts) in [
        (&b"BZh91AY&SY\x01\x02"[..], ["bzip2", "bzip2 -dc FILE | baton trace -"]),
        (b"10:15:00.1 IP 10.0.0.1.80 > 10.0.0.2.99: Flags [.]\n", ["text", "tcpdump -w"]),
        (b"snoop\0\0\0\0\0\0\x02", ["snoop", "editcap"]),
    ] {
        let file = write(dir.path(), "file", bytes);
        let output = trace(&[&file]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        // Through a pipe it is known when it is read.
        let piped = Command::new(env!("CARGO_BIN_EXE_baton"))
            .args(["trace", "-"])
            .stdin(std::fs::File::open(&file).unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&piped.stderr);
        assert_eq!((piped.status.code(), piped.stdout.len()), (Some(1), 0), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let mut old = bulk();
    old[4] = 3;
    let output = trace(&[&write(dir.path(), "file", &old)]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("pcap of version 3.4"), "{output:?}");
}

#[test]
fn link_types_that_cannot_be_read_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.pcap", &make::pcap(127, &[vec![0; 60], vec![0; 60]]));
    for words in [&[&*file][..], &["sweep", &file]] {
        let said = String::from_utf8_lossy(&trace(words).stdout).into_owned();
        assert!(said.contains("2 frames of link type 127 (IEEE802_11_RADIOTAP)"), "{words:?}: {said}");
    }
}

#[test]
fn reserved_bits_of_a_capture_are_remarked() {
    let dir = tempfile::tempdir().unwrap();
    let mut capture = bulk();
    capture[23] = 0x08;
    let file = write(dir.path(), "a.pcap", &capture);
    for words in [&[&*file][..], &["sweep", &file]] {
        let said = String::from_utf8_lossy(&trace(words).stdout).into_owned();
        assert!(said.contains("reserved link-type bits are set: 0x08000000, in 1 headers"), "{words:?}: {said}");
    }
    assert_eq!(report_of(&capture, &[])["eliminated"].as_u64(), Some(25));
}

#[test]
fn text_and_page_say_what_the_figures_say() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.pcap", &bulk());
    let page = dir.path().join("out/page.html");
    let output = trace(&["--html", &page.to_string_lossy(), &file]);
    let text = String::from_utf8_lossy(&output.stdout);
    for part in
        ["25 of 30 frames (83.3 %)", "10.0.0.1:9 > 10.0.0.2:80", "added delay", "ACKs saved", "1200 ns per frame"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    for part in ["data-plot=\"runs\"", "data-plot=\"flushes\"", "25 of 30 frames", "10.0.0.1:9"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("http://") && !page.contains("<script"), "the page needs something else");
}

#[test]
fn the_page_names_the_capture_and_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a capture.pcap", &bulk());
    let page = dir.path().join("page.html");
    for words in [&[][..], &["sweep"]] {
        trace(&[words, &["--html", &page.to_string_lossy(), &file]].concat());
        let page = std::fs::read_to_string(&page).unwrap();
        let command = [&["baton", "trace"], words, &["--html"]].concat().join(" ");
        assert!(page.contains(&format!("<li>{file}</li>")), "{page}");
        assert!(page.contains(&format!("<code>{command} ")) && page.contains(&format!(" '{file}'</code>")), "{page}");
    }
}

#[test]
fn the_first_of_many_bad_captures_are_named_and_the_others_counted() {
    let dir = tempfile::tempdir().unwrap();
    let whole = bulk();
    let files: Vec<String> =
        (0..50).map(|number| write(dir.path(), &format!("{number}.pcap"), &whole[..whole.len() - 7])).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    for words in [&[][..], &["sweep"]] {
        let output = trace(&[words, &files].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, note) = said.split_once("50 of 50 captures were not read to their end").unwrap();
        assert_eq!(note.lines().filter(|line| line.contains("damaged at byte")).count(), 3, "{said}");
        assert!(note.ends_with("\n  and 47 more\n"), "{said}");
    }
}

#[test]
fn the_delay_of_every_measured_segment_is_in_the_histogram() {
    let dir = tempfile::tempdir().unwrap();
    let report = json(&trace(&["--json", &write(dir.path(), "a.pcap", &bulk())]));
    let delay = &report["added_delay_ns"];
    let buckets = delay["histogram"].as_array().unwrap();
    let segments: u64 = buckets.iter().map(|bucket| bucket["segments"].as_u64().unwrap()).sum();
    assert_eq!(Some(segments), report["segments"].as_u64(), "{report}");
    assert!(buckets.last().unwrap()["up_to"].as_u64() >= delay["max"].as_u64(), "{report}");
}

#[test]
fn a_sweep_has_every_point_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "a.pcap", &bulk());
    let (csv, page) = (dir.path().join("sweep.csv"), dir.path().join("sweep.html"));
    let words = ["sweep", "--json", "--csv", &csv.to_string_lossy(), "--html", &page.to_string_lossy(), &file];
    let output = trace(&words);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found = json(&output);
    let points = found["points"].as_array().unwrap();
    let csv = std::fs::read_to_string(csv).unwrap();
    let cells = found["grid"]["cells"].as_array().unwrap();
    assert_eq!(csv.lines().count(), points.len() + cells.len() + 1);
    // Two segments of 1000 bytes fit into 2048 bytes, so 15 of 30 are eliminated.
    let point = points.iter().find(|point| point["axis"] == "buffer" && point["value"] == 2048).unwrap();
    assert_eq!(point["eliminated"].as_u64(), Some(15));
    assert!(csv.contains("buffer,2048,30,15,15,15,,\n"), "{csv}");
    let page = std::fs::read_to_string(page).unwrap();
    let table = trace(&["sweep", &file]);
    for axis in ["connections", "cache", "buffer", "window", "limit"] {
        assert!(page.contains(&format!("data-plot=\"{axis}\"")), "{axis}");
        assert!(String::from_utf8_lossy(&table.stdout).contains(&format!("\n{axis} (")), "{axis}");
    }
}

#[test]
fn the_papers_figures_are_rebuilt_from_real_transfers() {
    baton_testkit::need_root!();
    baton_testkit::need_program!("ethtool");
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    let page = dir.path().join("rsc.html");
    let output = trace(&[
        "paper",
        "--senders",
        "2,16",
        "--messages",
        "8192",
        "--json",
        "--keep",
        &kept.to_string_lossy(),
        "--html",
        &page.to_string_lossy(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found = json(&output);
    let cells = found["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2);
    for cell in cells {
        assert!(cell["points"].as_array().unwrap().iter().all(|point| point["frames_in"] == 10_000), "{cell}");
    }
    // The captures that were kept give the same results.
    let again = json(&trace(&["--json", &kept.join("senders-16-message-8192.pcap").to_string_lossy()]));
    assert_eq!(again["frames_in"].as_u64(), Some(10_000));
    assert_eq!(again["eliminated"], cells[1]["points"][0]["eliminated"]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<code>baton trace paper --senders "), "{page}");
    assert!([4, 5, 6, 7, 8].iter().all(|figure| page.contains(&format!("data-plot=\"rsc-{figure}\""))));
}
