//! `baton doctor`: what this machine allows, and what to do where it does not.

use crate::demo::find_program;
use anyhow::bail;
use baton_host::{conntrack, probe, steer};
use baton_port::doctor::{Finding, examine};
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Arguments of `baton doctor`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "yes  it is so\nno   it is not, and Baton does without\nNO   it is not, and no connection can be \
                        moved: exit code 1\n\nExamples:\n  baton doctor\n  baton doctor --json"
)]
pub struct Args {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Programs that the demo runs, with the packages that bring them.
const PROGRAMS: [(&str, &str, &str); 4] = [
    ("ip", "iproute2", "makes namespaces and wires"),
    ("ethtool", "ethtool", "switches a device's offloads off"),
    ("curl", "curl", "fetches from Baton"),
    ("nginx", "nginx", "serves to Baton"),
];

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

/// Prints every finding: what the machine has, what is believed about its kernel, tried
/// by the probes, and programs.
///
/// # Errors
/// If something that is needed is missing, or the output is closed.
pub fn run(args: Args) -> anyhow::Result<()> {
    let findings =
        examine().into_iter().chain(steer::findings()).chain([conntrack::finding()]).chain(probe::findings());
    let rows: Vec<Row> = findings.chain(PROGRAMS.map(program)).map(Row::from).collect();
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else {
        let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        print(&mut stdout, &rows, colour)?;
    }
    let missing: Vec<_> = rows.iter().filter(|row| row.needed && !row.ok).map(|row| row.name.as_str()).collect();
    if missing.is_empty() { Ok(()) } else { bail!("no connection can be moved here without: {}", missing.join(", ")) }
}

fn print(to: &mut impl Write, rows: &[Row], colour: bool) -> std::io::Result<()> {
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    for row in rows {
        let (set, word) = match (row.ok, row.needed) {
            (true, _) => ("\x1b[32m", "yes"),
            (false, false) => ("\x1b[33m", "no "),
            (false, true) => ("\x1b[31m", "NO "),
        };
        let (set, end) = if colour { (set, "\x1b[0m") } else { ("", "") };
        writeln!(to, "{set}{word}{end}  {:width$}  {}", row.name, row.detail)?;
        if !row.ok {
            writeln!(to, "     {:width$}  → {}", "", row.remedy)?;
        }
    }
    Ok(())
}

fn program((name, package, purpose): (&str, &str, &str)) -> Finding {
    match find_program(name) {
        Some(file) => Finding::yes(name, format!("{}; {purpose}", file.display())),
        None => Finding::no(name, format!("not found; {purpose}"), format!("apt-get install {package}")),
    }
}
