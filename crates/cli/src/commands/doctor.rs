//! `baton doctor`: what this machine supports, and how to fix what is missing.

use super::surroundings;
use anyhow::bail;
use baton_kernel::{conntrack, latency, probe, steer};
use baton_lab::world::find_program;
use baton_port::doctor::{Finding, examine};
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Arguments of `baton doctor`.
#[derive(clap::Args, Debug)]
#[command(after_help = "yes  present\nno   missing; Baton works without it\nNO   missing; no connection can be \
                        moved without it: exit code 1\n\nExamples:\n  baton doctor\n  baton doctor --all\n  baton doctor --json")]
pub struct Args {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Print every kernel behaviour that Baton relies on, including those that hold
    #[arg(long)]
    all: bool,
}

/// Programs that the demo runs: name, package and purpose.
const PROGRAMS: [(&str, &str, &str); 4] = [
    ("ip", "iproute2", "creates namespaces and wires"),
    ("ethtool", "ethtool", "turns off a device's offloads"),
    ("curl", "curl", "fetches from Baton"),
    ("nginx", "nginx", "serves to Baton"),
];

/// A group of findings under one title.
struct Section {
    title: &'static str,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    ok: bool,
    needed: bool,
    detail: String,
    remedy: String,
}

impl From<Finding> for Row {
    fn from(Finding { name, ok, needed, detail, remedy }: Finding) -> Row {
        Row { name, ok, needed, detail, remedy }
    }
}

/// Title of the results of the probes, each of which tries one behaviour of the kernel.
const TRIED: &str = "Moving connections, as tried in this kernel";

/// Examines everything, in the order in which it is printed.
fn sections() -> Vec<Section> {
    let section = |title, found: Vec<Finding>| Section { title, rows: found.into_iter().map(Row::from).collect() };
    vec![
        section("Privileges of this user, and devices that can carry packets to an engine", examine()),
        section("Engines inside programs", steer::findings().into()),
        section(TRIED, probe::findings()),
        section(
            "Firewall, and other users of packets and sockets",
            [conntrack::finding()].into_iter().chain(surroundings::findings()).collect(),
        ),
        section("Measuring the kernel", vec![latency::finding()]),
        section("Programs that baton demo runs", PROGRAMS.map(program).into()),
    ]
}

/// Prints every finding: the machine's devices and privileges, the results of the kernel probes,
/// and the programs.
///
/// # Errors
/// If something that is needed is missing, or the output is closed.
pub fn run(args: Args) -> anyhow::Result<()> {
    let sections = sections();
    let mut stdout = std::io::stdout().lock();
    if args.json {
        let rows: Vec<&Row> = sections.iter().flat_map(|section| &section.rows).collect();
        writeln!(stdout, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        for section in &sections {
            print(&mut stdout, section, args.all, colour)?;
        }
    }
    let rows = sections.iter().flat_map(|section| &section.rows);
    let missing: Vec<_> = rows.filter(|row| row.needed && !row.ok).map(|row| row.name.as_str()).collect();
    if missing.is_empty() { Ok(()) } else { bail!("no connection can be moved; missing: {}", missing.join(", ")) }
}

fn print(to: &mut impl Write, section: &Section, all: bool, colour: bool) -> std::io::Result<()> {
    writeln!(to, "{}", section.title)?;
    let is_told = |row: &&Row| all || !row.ok || section.title != TRIED;
    let width = section.rows.iter().filter(is_told).map(|row| row.name.chars().count()).max().unwrap_or(0);
    let paint = |row: &Row| {
        let (set, word) = match (row.ok, row.needed) {
            (true, _) => ("\x1b[32m", "yes"),
            (false, false) => ("\x1b[33m", "no "),
            (false, true) => ("\x1b[31m", "NO "),
        };
        if colour { format!("{set}{word}\x1b[0m") } else { word.to_owned() }
    };
    for row in section.rows.iter().filter(is_told) {
        writeln!(to, "  {}  {:width$}  {}", paint(row), row.name, row.detail)?;
        if !row.ok {
            writeln!(to, "       {:width$}  → {}", "", row.remedy)?;
        }
    }
    let rest: Vec<&Row> = section.rows.iter().filter(|row| !is_told(row)).collect();
    if let Some(first) = rest.first() {
        let (holds, of) = (rest.len(), section.rows.len());
        writeln!(
            to,
            "  {}  {holds} of {of} behaviours that Baton relies on hold (baton doctor --all lists them)",
            paint(first)
        )?;
    }
    Ok(())
}

fn program((name, package, purpose): (&str, &str, &str)) -> Finding {
    match find_program(name) {
        Some(file) => Finding::yes(name, format!("{}; {purpose}", file.display())),
        None => Finding::no(name, format!("not found; {purpose}"), format!("apt-get install {package}")),
    }
}
