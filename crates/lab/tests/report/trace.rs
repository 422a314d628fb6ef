//! The pages of `baton trace`, with what makes them hard to draw: long paths and addresses, large counts,
//! many bad files, and lines that end close together.

use crate::browser::look;
use baton_analyse::coalesce::{Checksums, Limits, Profile};
use baton_analyse::cost::Prices;
use baton_analyse::flows::Sort;
use baton_analyse::gain::Gain;
use baton_analyse::grid::Grid;
use baton_analyse::read::Frame;
use baton_analyse::report::{DelayBucket, FileLine, FlowLine, Listing, Report, Rules};
use baton_analyse::study::Study;
use baton_analyse::sweep::{Axis, Point, Sweep};
use baton_analyse::{Analysis, gro, link_type};
use baton_lab::papers::rsc2006;
use baton_lab::report::grid::{self, Unit};
use baton_lab::report::heat::{HeatMap, Marked};
use baton_lab::report::origin::Origin;
use baton_lab::report::{Machine, capture, html, sweep};

/// A segment of a connection over IPv4, in an Ethernet frame.
fn segment(seq: u32, payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0]);
    frame.extend((40 + payload as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 9, 0, 80]);
    frame.extend(seq.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(frame.len() + payload, 7);
    frame
}

/// A bulk transfer, and frames of link types that cannot be read.
fn traffic(study: &mut impl Study) {
    for number in 0..500 {
        let data = segment(1 + 1000 * number, 1000);
        let frame = |data, link| Frame {
            data,
            wire_len: data.len() as u32,
            time_ns: u64::from(number) * 7000 + u64::from(number / 40) * 3_000_000,
            link,
        };
        study.frame(&frame(&data, link_type::ETHERNET));
        if number < 8 {
            study.frame(&frame(&data, 300 + number as u16));
        }
    }
    study.end();
}

fn rules() -> Rules {
    Rules::of(&Limits::of(Profile::Rsc).into(), Checksums::Trust)
}

/// Captures in a deep directory, all but one of them damaged.
fn files(bad: usize) -> Vec<FileLine> {
    let path = |number| format!("/srv/{}/day-{number}.pcapng.zst", "a-directory-with-a-long-name".repeat(4));
    let trouble = |number| (number > 0).then(|| format!("cut in the record at byte {}", 1_000_000_007 * number));
    (0..=bad as u64)
        .map(|number| FileLine { path: path(number), trouble: trouble(number), ..FileLine::default() })
        .collect()
}

fn origin() -> Origin {
    Origin::now(format!("baton trace '{}' --html out/page.html", files(0)[0].path))
}

fn report(bad: usize) -> Report {
    let others = [Limits::of(Profile::Ra).into(), gro::Rules::default().into()];
    let mut analysis = Analysis::new(Limits::of(Profile::Rsc), Checksums::Trust).beside(&others);
    traffic(&mut analysis);
    let listing = Listing { top: 10, sort: Sort::Frames };
    let mut report = Report::new(analysis.tally(), rules(), Prices::default(), listing, files(bad));
    report.reasons.insert("not_tcp", 1_234_567_890);
    report.flows.push(FlowLine {
        source: "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535".to_owned(),
        destination: "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:fffe]:443".to_owned(),
        frames_in: 12_345_678,
        frames_out: 2_345_678,
        eliminated_share: 0.81,
        payload_bytes: 17_876_541_234,
    });
    report
}

/// Looks at a page at both widths, in light and in dark.
fn is_whole(page: &str, plots: &[&str]) {
    for (width, dark) in [(360, false), (360, true), (1200, false), (1200, true)] {
        let seen = look(page, width, dark);
        assert_eq!((seen.width, seen.dark), (width, dark));
        assert_eq!(seen.faults(), [""; 0], "{width} {dark}");
        assert_eq!(seen.plots.iter().map(|plot| &*plot.name).collect::<Vec<_>>(), plots);
    }
}

#[test]
fn the_page_of_captures_is_whole_on_phone_and_desk_in_light_and_dark() {
    baton_testkit::need_program!("chromium");
    is_whole(&capture::page(&report(400), &origin()), &["runs", "flushes", "reasons", "delay"]);
}

#[test]
fn the_page_of_a_sweep_is_whole_on_phone_and_desk_in_light_and_dark() {
    baton_testkit::need_program!("chromium");
    let limits = Limits::of(Profile::Rsc);
    let mut both = (Sweep::new(limits, Checksums::Trust), Grid::new(limits, Checksums::Trust));
    traffic(&mut both);
    let (sweep, cells) = both;
    let outcome = sweep::Outcome {
        verdict: "4 entries of 8 KiB, 32 KiB in all, are the best".to_owned(),
        rules: rules(),
        points: sweep.points().copied().collect(),
        grid: grid::Grid::new(Unit::Bytes, cells.cells().copied().collect()),
        unknown_links: sweep.unknown_links().clone(),
        reserved_bits: sweep.reserved_bits(),
        tunnelled: sweep.tunnelled().clone(),
        files: files(400),
    };
    let page = outcome.page(&origin());
    assert!(page.contains("400 of 401 captures") && page.contains("8 link types"));
    is_whole(&page, &["memory", "connections", "cache", "buffer", "window", "limit"]);
}

#[test]
fn the_papers_plots_are_whole_where_lines_end_close_together() {
    baton_testkit::need_program!("chromium");
    let point = |axis, value, share: f64| Point {
        axis,
        value,
        gain: Gain {
            frames_in: 10_000,
            frames_out: 10_000 - (share * 1e4) as u64,
            eliminated: (share * 1e4) as u64,
            runs: 100,
        },
    };
    let mut cells = Vec::new();
    for senders in [4, 8, 16, 30, 60, 90] {
        for power in 9..17 {
            let mut points = vec![point(Axis::Connections, u32::MAX, 0.6 - senders as f64 / 1e4)];
            for axis in [Axis::Cache, Axis::Buffer, Axis::Window] {
                points.extend(axis.values().iter().map(|&value| point(axis, value, 0.61 - f64::from(power) / 1e4)));
            }
            cells.push(rsc2006::Cell { senders, message: 1 << power, points });
        }
    }
    let page = rsc2006::Outcome { machine: Machine::default(), cells }.page(&origin());
    is_whole(&page, &["rsc-4", "rsc-5", "rsc-6", "rsc-7", "rsc-8"]);
}

#[test]
fn a_heat_map_is_whole_on_phone_and_desk_in_light_and_dark() {
    baton_testkit::need_program!("chromium");
    let sizes: Vec<u32> = (0..12).map(|power| 1 << power).collect();
    let map = HeatMap {
        id: "memory".to_owned(),
        title: "Frames joined".to_owned(),
        columns_title: "KiB of a run".to_owned(),
        columns: sizes.iter().map(u32::to_string).collect(),
        rows_title: "runs held at a time".to_owned(),
        rows: sizes[..7].iter().map(u32::to_string).collect(),
        shares: (0..7).map(|row| (0..12).map(|column| f64::from(row * column) / 66.0).collect()).collect(),
        marked: Some(Marked { row: 3, column: 5, title: "the knee".to_owned() }),
    };
    let body = format!("<div class=\"plots\"><figure>{}</figure></div>", map.render().unwrap());
    is_whole(&html::page("Memory", "Shares.", &body), &["memory"]);
}

#[test]
fn many_bad_files_are_folded_and_the_first_are_named() {
    let page = capture::page(&report(400), &origin());
    assert!(page.contains("<summary>and 397 more</summary>"), "{page}");
    let many = capture::text(&report(400), false);
    let (_, note) = many.split_once("note: 400 of 401 captures were not read to their end").unwrap();
    assert_eq!(note.matches("/day-").count(), 3, "{many}");
    assert!(note.ends_with("\n  and 397 more\n"), "{many}");
}

#[test]
fn the_page_says_what_it_is_made_from_and_when() {
    let page = capture::page(&report(0), &origin());
    let path = &files(0)[0].path;
    assert!(page.contains(&format!("<li>{path}</li>")) && page.contains(&format!("baton trace '{path}'")), "{page}");
    assert!(page.contains(" GMT, by Baton "), "{page}");
}

#[test]
fn the_papers_page_says_what_made_it_and_when() {
    let page = rsc2006::Outcome { machine: Machine::default(), cells: Vec::new() };
    let page = page.page(&Origin::now("baton trace paper --html out/rsc.html".to_owned()));
    assert!(page.contains("<dt>Command</dt><dd><code>baton trace paper --html out/rsc.html</code>"), "{page}");
    assert!(page.contains(" GMT, by Baton ") && !page.contains("<dt>Captures</dt>"), "{page}");
}

#[test]
fn the_added_delay_is_drawn_bucket_by_bucket() {
    let mut report = report(0);
    let bucket = |(up_to, segments)| DelayBucket { up_to, segments };
    let buckets = [(0, 1200), (500, 1), (1000, 2), (20_000_000, 3), (5_000_000_000_000, 4)];
    report.added_delay_ns.histogram = buckets.map(bucket).into();
    let page = capture::page(&report, &origin());
    let plot = page.split("data-plot=\"delay\"").nth(1).unwrap().split("</svg>").next().unwrap();
    assert!(plot.contains("data-marks=\"5\""), "{plot}");
    for label in ["none", "to 500 ns", "to 1 µs", "to 20 ms", "to 5,000 s", "1,200"] {
        assert!(plot.contains(&format!(">{label}</text>")), "{label}: {plot}");
    }
}

#[test]
fn counts_on_the_page_are_whole() {
    let page = capture::page(&report(0), &origin());
    assert!(page.contains(">1,234,567,890</text>") && page.contains("17,876,541,234"), "{page}");
    for plot in page.split("data-plot=").skip(1) {
        let plot = plot.split("</svg>").next().unwrap();
        let values = plot.split("class=\"value\"").skip(1).map(|rest| rest.split(['>', '<']).nth(1).unwrap());
        assert!(values.clone().count() > 0);
        for value in values {
            assert!(value.chars().all(|c| c.is_ascii_digit() || c == ','), "{value}");
        }
    }
}
