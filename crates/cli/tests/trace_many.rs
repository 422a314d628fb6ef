//! `baton trace` on many captures: lists, directories, and records that add up.

#[path = "../../analyse/tests/make/mod.rs"]
mod make;

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn trace(directory: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_baton"))
        .current_dir(directory)
        .arg("trace")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

/// A capture of a connection with this many segments.
fn capture(port: u16, segments: u32) -> Vec<u8> {
    let segment = |n| make::ethernet(&[], 0x0800, &make::segment(port, 1 + n * 1000, 1000));
    make::pcap(1, &(0..segments).map(segment).collect::<Vec<_>>())
}

/// A directory with three captures, of which one is compressed and one has an end too early, and others' files.
fn captures() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("day/night")).unwrap();
    fs::write(root.join("day/a"), capture(1, 30)).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&capture(2, 40)).unwrap();
    fs::write(root.join("day/night/b.bin"), packed.finish().unwrap()).unwrap();
    let cut = capture(3, 50);
    fs::write(root.join("day/night/c.pcap"), &cut[..cut.len() - 1]).unwrap();
    fs::write(root.join("day/note.pcap"), "not a capture").unwrap();
    fs::write(root.join("day/empty.pcap"), "").unwrap();
    symlink("..", root.join("day/night/up")).unwrap();
    symlink("nothing", root.join("day/broken")).unwrap();
    symlink("a", root.join("day/again")).unwrap();
    directory
}

fn paths(report: &Value) -> Vec<&str> {
    report["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect()
}

#[test]
fn a_directory_stands_for_the_captures_below_it() {
    let directory = captures();
    let output = trace(directory.path(), &["--json", "day"], b"");
    assert_eq!(output.status.code(), Some(1), "one capture is damaged");
    let report = json(&output);
    let found = paths(&report);
    // The capture that a link names again counts once, under either name.
    assert!(matches!(found[..], ["day/a" | "day/again", "day/night/b.bin", "day/night/c.pcap"]), "{found:?}");
    assert_eq!(report["frames_in"], 30 + 40 + 49);
    assert!(stderr(&output).contains("day: left out as no captures: 2, such as day/"));
    fs::create_dir(directory.path().join("none")).unwrap();
    let output = trace(directory.path(), &["none"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there is no capture in none; captures are"), "{}", stderr(&output));
}

#[test]
fn a_list_names_captures_and_a_missing_one_costs_nothing_else() {
    let directory = captures();
    let list = b"day/a\n\nmissing.pcap\nday/night/b.bin\n";
    let output = trace(directory.path(), &["--json", "--files-from", "-"], list);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot open missing.pcap: No such file"), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["frames_in"], 70);
    assert_eq!(paths(&report), ["day/a", "missing.pcap", "day/night/b.bin"]);

    fs::rename(directory.path().join("day/a"), directory.path().join("day/a\nb")).unwrap();
    fs::write(directory.path().join("list"), b"day/a\nb\0day/night/b.bin\0").unwrap();
    let output = trace(directory.path(), &["--json", "-0", "--files-from", "list"], b"");
    assert_eq!((output.status.code(), &json(&output)["frames_in"]), (Some(0), &Value::from(70)));
    for (args, input, message) in [
        (&["--files-from", "list"][..], &b""[..], "list has zero bytes in its lines; give -0"),
        (&["--files-from", "-"], b"\n", "- lists no capture; write the path"),
        (&["--files-from", "-", "-"], b"", "standard input is both a capture and the list"),
        (&["--files-from", "nowhere"], b"", "cannot read nowhere: No such file"),
    ] {
        let output = trace(directory.path(), args, input);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn records_merge_into_the_report_of_all_captures() {
    let directory = captures();
    let root = directory.path();
    let whole = trace(root, &["--json", "--ndjson", "out/day.ndjson", "day"], b"");
    let text = fs::read_to_string(root.join("out/day.ndjson")).unwrap();
    assert_eq!(text.lines().count(), 3);
    let merged = trace(root, &["merge", "--json", "out/day.ndjson"], b"");
    assert_eq!((merged.status.code(), json(&merged)), (Some(1), json(&whole)));
    assert!(stderr(&merged).contains("day/night/c.pcap: damaged at byte"), "{}", stderr(&merged));

    // In pieces, through pipes, as text and as a page.
    let a = trace(root, &["--ndjson", "-", "day/a"], b"");
    let b = trace(root, &["--ndjson", "-", "day/night/b.bin"], b"");
    let both = trace(root, &["merge", "-", "--html", "page.html"], &[&b.stdout[..], b"\n", &a.stdout].concat());
    assert_eq!(both.status.code(), Some(0), "{}", stderr(&both));
    let plain = trace(root, &["day/a", "day/night/b.bin", "--html", "plain.html"], b"");
    assert_eq!(String::from_utf8_lossy(&both.stdout), String::from_utf8_lossy(&plain.stdout));
    // The pages differ in how they were made.
    let page = |name| {
        let text = fs::read_to_string(root.join(name)).unwrap();
        let (before, origin) = text.split_once("<dl class=\"origin\">").unwrap();
        format!("{before}{}", origin.split_once("</dl>").unwrap().1)
    };
    assert!(page("page.html") == page("plain.html"));
}

#[test]
fn a_line_that_is_no_record_is_named_and_costs_nothing_else() {
    let directory = captures();
    let root = directory.path();
    let good = String::from_utf8(trace(root, &["--ndjson", "-", "day/a"], b"").stdout).unwrap();
    let other = String::from_utf8(trace(root, &["--ndjson", "-", "--cache", "8", "day/a"], b"").stdout).unwrap();
    let newer = good.replace("\"version\":1", "\"version\":7");
    let foreign = good.replace("baton-trace-record", "weather");
    let text = [&good, &good[..good.find("\"tally\"").unwrap()], "\n", &newer, &foreign, &other].concat();
    fs::write(root.join("mixed"), text).unwrap();
    let output = trace(root, &["merge", "--json", "mixed"], b"");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["frames_in"], 30);
    for message in [
        "mixed:2: it is no record of baton trace: EOF while parsing",
        "mixed:3: it has version 7 of its schema, made by baton ",
        "mixed:4: its schema is \"weather\", not \"baton-trace-record\"",
        "mixed:5: it was made under other rules (",
        "4 lines are no records of these captures; the report covers the others",
    ] {
        assert!(stderr(&output).contains(message), "{message}: {}", stderr(&output));
    }
    let output = trace(root, &["merge", "-"], &b"{}\n".repeat(30));
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(stderr(&output).contains("-:20: ") && !stderr(&output).contains("-:21: "), "{}", stderr(&output));
    assert!(stderr(&output).contains("and 10 more lines") && stderr(&output).contains("none of 30 lines is a record"));
    for (args, message) in [
        (["merge", "-"], "the files have no records; make them with"),
        (["merge", "nowhere"], "cannot read nowhere: No such file"),
    ] {
        let output = trace(root, &args, b"");
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
}

#[test]
fn records_are_not_written_over_a_capture() {
    let directory = captures();
    let before = fs::read(directory.path().join("day/a")).unwrap();
    let output = trace(directory.path(), &["--ndjson", "day/a", "day/night"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("day/a is a capture; name another file with --ndjson"), "{}", stderr(&output));
    assert_eq!(fs::read(directory.path().join("day/a")).unwrap(), before);
    let output = trace(directory.path(), &["--ndjson", "-", "--json", "day/a"], b"");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let full = trace(directory.path(), &["--ndjson", "/dev/full", "day/a"], b"");
    assert_eq!(full.status.code(), Some(2));
    assert!(stderr(&full).contains("cannot write /dev/full: No space left"), "{}", stderr(&full));
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [OsStr::new("day")]);
}
