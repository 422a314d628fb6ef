//! The report's two forms for people: the table, and the page in a browser.
//!
//! The page is opened in a browser ([`browser`]). The probe is shown to notice what it looks for on pages
//! that were broken on purpose.

mod browser;
mod trace;

use baton_apps::measure::Cpu;
use baton_lab::papers::lc2006::{Direction, Outcome, Point, Way as TceWay};
use baton_lab::report::both_ends::BothEnds;
use baton_lab::report::moves::{Killed, Live, Moves, Slice, Way};
use baton_lab::report::{Cell, Check, LoadInfo, Machine, Report, Run, Side, Wire, html, table};
use browser::look;

/// A chapter about connections that move, with a way that is missing.
fn moves() -> Moves {
    let live = Live {
        seconds: 2.0,
        bytes: 400_000_000,
        sent: 400_000_000,
        sha256: "0123456789abcdef".repeat(4),
        equal: true,
        moves: 99,
        pause_us: 1234,
        gap_us: 2345,
        killed: Killed { at_seconds: 1.0, home_us: 3456, again_us: 45_678, gap_us: 5678 },
        slice_seconds: 0.01,
        slices: (0..200).map(|i| Slice { bytes: (i % 7) * 300_000, engine: i % 4 < 2 }).collect(),
    };
    let way = |id: &str, side, seconds: f64, live, missing: Option<&str>| Way {
        wire: Wire {
            id: id.to_owned(),
            side,
            name: format!("made-up & {id}"),
            about: "A way.".to_owned(),
            baseline: (side == Side::Baton).then(|| "none".to_owned()),
            command: "baton service --interface with-a-long-name --steer tc".to_owned(),
        },
        runs: if missing.is_some() {
            Vec::new()
        } else {
            let cpu = Cpu { busy: seconds, ..Cpu::default() };
            vec![Run { seconds: 0.5, bytes: 1_000_000_000, cpu, ..Run::default() }; 3]
        },
        requests: if missing.is_some() {
            Vec::new()
        } else {
            let cpu = Cpu { busy: seconds * seconds, ..Cpu::default() };
            vec![Run { seconds: 0.5, requests: 20_000, cpu, ..Run::default() }; 3]
        },
        live,
        missing: missing.map(str::to_owned),
    };
    Moves {
        ways: vec![
            way("none", Side::Kernel, 0.5, None, None),
            way("tc", Side::Baton, 0.6, Some(live), None),
            way(
                "xdp",
                Side::Baton,
                0.0,
                None,
                Some("no <driver> of that kind, and a long sentence on what to do about it"),
            ),
        ],
    }
}

/// A chapter about programs of one machine, with a way that one load does not have.
fn both_ends() -> BothEnds {
    let wire = |id: &str, side, baseline: Option<&str>| Wire {
        id: id.to_owned(),
        side,
        name: format!("{id} & memory"),
        about: "No <wire>.".to_owned(),
        baseline: baseline.map(str::to_owned),
        command: "baton run -- SERVER; baton run -- CLIENT".to_owned(),
    };
    let load = |id: &str| LoadInfo {
        id: id.to_owned(),
        name: format!("{id}, made up"),
        about: "A load.".to_owned(),
        requests: true,
        command: "redis-benchmark".to_owned(),
    };
    let cell = |wire: &str, load: &str, busy: f64| {
        let run = Run {
            seconds: 1.0,
            requests: 50_000,
            latency_ns: Some([(busy * 1e5) as u64, 300_000, 900_000]),
            cpu: Cpu { busy, ..Cpu::default() },
            ..Run::default()
        };
        Cell { wire: wire.to_owned(), load: load.to_owned(), runs: vec![run; 2] }
    };
    BothEnds {
        wires: vec![wire("lo", Side::Kernel, None), wire("pair", Side::Baton, Some("lo"))],
        loads: vec![load("get"), load("fetch")],
        cells: vec![cell("lo", "get", 1.0), cell("pair", "get", 0.37), cell("lo", "fetch", 1.0)],
    }
}

/// A report with every kind of part in it. The numbers are made up.
fn example() -> Report {
    let wire = |id: &str, side, baseline: Option<&str>| Wire {
        id: id.to_owned(),
        side,
        name: format!("{id}, <offloads>"),
        about: "A wire & what it is.".to_owned(),
        baseline: baseline.map(str::to_owned),
        command: format!("baton serve --port {id}{}", " --service with-a-long-name".repeat(6)),
    };
    let load = |id: &str, requests| LoadInfo {
        id: id.to_owned(),
        name: format!("{id}, made up"),
        about: "A load.".to_owned(),
        requests,
        command: "baton load".to_owned(),
    };
    let wires = vec![
        wire("kernel", Side::Kernel, None),
        wire("tap", Side::Baton, Some("kernel")),
        wire("xdp", Side::Baton, Some("kernel")),
    ];
    let loads = vec![load("http", false), load("bulk", false), load("echo", true)];
    let mut cells = Vec::new();
    for (l, load) in loads.iter().enumerate() {
        for (w, wire) in wires.iter().enumerate() {
            let run = |i: usize| Run {
                seconds: 0.5,
                bytes: 1_000_000_000 * (w + l + i + 1) as u64,
                requests: if load.requests { 20_000 + 1000 * i as u64 } else { 0 },
                latency_ns: load.requests.then_some([20_000 + 9_000 * w as u64, 90_000, 500_000]),
                cpu: Cpu {
                    busy: 0.6 + 0.1 * (3 - w) as f64,
                    user: 0.1,
                    system: 0.5,
                    irq: 0.0,
                    softirq: 0.1 * (3 - w) as f64,
                    steal: 0.0,
                },
                tce: (wire.side == Side::Baton).then_some(0.03),
            };
            cells.push(Cell { wire: wire.id.clone(), load: load.id.clone(), runs: (0..3).map(run).collect() });
        }
    }
    let check = |ok| Check { wire: "tap".into(), what: "every byte & its <order>".into(), ok, seen: "16 MiB".into() };
    Report {
        started: "Thu, 01 Jan 1970 00:00:00 GMT".into(),
        seconds: 60.0,
        machine: Machine { cpu: "A CPU".into(), cpus: 2, kernel: "0.0".into(), ..Machine::default() },
        rounds: 3,
        wires,
        loads,
        cells,
        moves: Some(moves()),
        both_ends: Some(both_ends()),
        checks: vec![check(true), check(false)],
        not_shown: vec!["something, for a reason".into()],
    }
}

#[test]
fn the_table_lines_up_and_colour_changes_no_text() {
    let plain = table::render(&example(), false);
    let rows: Vec<&str> = plain.lines().filter(|line| line.contains("s/GB")).collect();
    assert_eq!(rows.len(), 8, "{plain}");
    let at = |line: &str| line.chars().take_while(|&c| c != '/').count();
    assert!(rows.iter().all(|row| at(row) == at(rows[0])), "{plain}");
    assert!(
        plain.contains("WRONG tap") && plain.contains("1 of 2 checks right") && plain.contains("not shown: something")
    );
    assert!(!plain.contains("caution"));
    let mut busy = example();
    busy.machine.background = 0.5;
    assert!(table::render(&busy, false).contains("caution: other programs used 50 %"));
    let coloured = table::render(&example(), true);
    assert!(coloured.contains('\x1b'));
    let stripped: String =
        coloured.split('\x1b').map(|part| part.split_once('m').map_or(part, |(_, text)| text)).collect();
    // The part before the first escape has no code to lose.
    assert_eq!(stripped, plain);
}

#[test]
fn a_baton_wire_is_compared_with_its_baseline() {
    let report = example();
    // 0.8 s of CPU for 3 GB and 0.9 s for 2 GB: medians of the second of three runs.
    let ratio = report.ratio(&report.wires[1], "http", baton_lab::report::Figure::CpuPerGb).unwrap();
    assert!((ratio - (0.8 / 3.0) / (0.9 / 2.0)).abs() < 1e-9, "{ratio}");
    assert_eq!(report.ratio(&report.wires[0], "http", baton_lab::report::Figure::CpuPerGb), None);
}

#[test]
fn the_chapter_about_moves_has_a_row_for_each_way() {
    let report = example();
    let chapter = report.moves.as_ref().unwrap();
    assert!((chapter.ratio(&chapter.ways[1]).unwrap() - 1.2).abs() < 1e-9);
    assert!((chapter.request_ratio(&chapter.ways[1]).unwrap() - 1.44).abs() < 1e-9);
    assert_eq!([0, 2].map(|way| chapter.ratio(&chapter.ways[way])), [None; 2]);
    let told = "99 moves while 400 MB arrived, longest pause 2.35 ms; engine killed: continued in the kernel after 3.46 ms, \
                longest pause 5.68 ms; digest equal";
    let plain = table::render(&report, false);
    for part in
        [told, "1.20×", "1.44×", "made-up & xdp", "not here: no <driver>", "disables the interface's receive offloads"]
    {
        assert!(plain.contains(part), "{part}: {plain}");
    }
    let mut unequal = report.clone();
    unequal.moves.as_mut().unwrap().ways[1].live.as_mut().unwrap().equal = false;
    assert!(table::render(&unequal, false).contains("digest NOT equal"));
    let page = html::render(&report);
    assert!(page.contains("99 moves while") && page.contains("not here: no &lt;driver&gt;"));
    // Each slice with received bytes is a bar.
    assert!(page.contains("data-plot=\"moves-tc\" data-marks=\"171\""));
}

#[test]
fn the_chapter_about_one_machine_has_a_row_for_each_way_of_a_load() {
    let plain = table::render(&example(), false);
    let from = plain.find("both ends here: get, made up").unwrap();
    let lines: Vec<&str> = plain[from..].lines().take(5).collect();
    assert!(lines[1].trim_start().starts_with("lo & memory") && !lines[1].contains('×'), "{plain}");
    assert!(lines[2].contains("0.37×") && lines[2].contains("37.0 µs"), "{plain}");
    assert_eq!(lines[3], "both ends here: fetch, made up", "{plain}");
    assert!(lines[4].trim_start().starts_with("lo & memory"), "{plain}");
    let page = html::render(&example());
    for part in [
        "data-plot=\"here-requests\" data-marks=\"3\"",
        "data-plot=\"here-latency\"",
        "pair &amp; memory",
        "No &lt;wire&gt;.",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn the_page_is_whole_on_phone_and_desk_in_light_and_dark() {
    baton_testkit::need_program!("chromium");
    let page = html::render(&example());
    for width in [360, 1200] {
        for dark in [false, true] {
            let seen = look(&page, width, dark);
            assert_eq!((seen.width, seen.dark), (width, dark));
            assert_eq!(seen.faults(), [""; 0]);
            assert_eq!(seen.plots.len(), 12, "{seen:?}");
            assert!(seen.plots.iter().any(|plot| plot.name == "latency" && plot.promised == 9), "{seen:?}");
        }
    }
}

#[test]
fn the_page_about_the_control_engine_is_whole_too() {
    baton_testkit::need_program!("chromium");
    let run = Run { seconds: 0.5, bytes: 500_000_000, tce: Some(0.02), ..Run::default() };
    let points = [Direction::Receive, Direction::Transmit].map(|direction| {
        [1, 2, 4, 8, 16, 32, 64]
            .map(|kib| Point { point: TceWay { direction, message_bytes: kib << 10 }, runs: vec![run.clone()] })
    });
    let outcome = Outcome { machine: example().machine, wire: "made-up wire".into(), points: points.concat() };
    let seen = look(&outcome.page(), 360, true);
    assert_eq!(seen.faults(), [""; 0]);
    // Seven sizes both ways, and the paper's figure for one.
    assert_eq!(seen.plots.iter().map(|plot| plot.drawn).collect::<Vec<_>>(), [15, 15], "{seen:?}");
}

#[test]
fn the_probe_notices_a_broken_page() {
    baton_testkit::need_program!("chromium");
    let page = html::render(&example());
    let broken = [
        ("</main>", "<script>nothing.here()</script></main>", "script error"),
        ("</main>", "<div style='width:500px'>wide</div></main>", "overflow"),
        ("</main>", "<img src='elsewhere.png' alt=''></main>", "cannot load"),
        ("</main>", "<p style='color:#888'>faint</p></main>", "contrast"),
        ("class=\"mark\"", "class=\"mark\" style=\"display:none\"", "drawn"),
        ("class=\"value\" x=\"312\"", "class=\"value\" x=\"400\"", "labels: false"),
    ];
    for (from, to, fault) in broken {
        let faults = look(&page.replacen(from, to, 1), 360, false).faults().join("; ");
        assert!(faults.contains(fault), "{fault} not noticed: {faults}");
    }
}
