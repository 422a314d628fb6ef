//! The rules of Linux beside those of the papers.

use crate::{bulk, json, trace, write};
use serde_json::Value;

#[test]
fn linux_rules_stand_beside_those_of_the_papers() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "a.pcap", &bulk());
    let report = json(&trace(&["--json", &path]));
    let shown = |report: &Value| -> Vec<(String, u64)> {
        let line =
            |line: &Value| (line["rules"]["profile"].as_str().unwrap().into(), line["frames_out"].as_u64().unwrap());
        report["profiles"].as_array().unwrap().iter().map(line).collect()
    };
    // 8 segments of 1,000 bytes to a buffer and 20 frames to a window; 20 segments; all of a poll.
    let expected = [("rsc".to_owned(), 5), ("ra".to_owned(), 2), ("gro".to_owned(), 1)];
    assert_eq!(shown(&report), expected);
    let gro = json(&trace(&["--json", "--profile", "gro", &path]));
    assert_eq!(shown(&gro), expected);
    assert_eq!((gro["frames_out"].as_u64(), gro["flushes"]["input"].as_u64()), (Some(1), Some(1)));
    // A device without receive hash; a shorter poll.
    let small = json(&trace(&["--json", "--profile", "gro", "--cache", "8", "--window-packets", "10", &path]));
    assert_eq!((small["rules"]["cache"].as_u64(), small["frames_out"].as_u64()), (Some(8), Some(3)));
    for options in [["--cache", "9"], ["--buffer", "4096"], ["--limit", "3"]] {
        let output = trace(&[&["--profile", "gro"], &options[..], &[&*path]].concat());
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(options[0]) && message.contains("profile gro"), "{message}");
    }
    let sweep = trace(&["sweep", "--profile", "gro", &path]);
    assert_eq!(sweep.status.code(), Some(2));
}
