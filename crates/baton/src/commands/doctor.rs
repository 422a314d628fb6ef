//! `baton doctor`: what this machine allows, and what to do where it does not.

use crate::demo::find_program;
use baton_port::doctor::{Finding, examine};
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Arguments of `baton doctor`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton doctor\n  baton doctor --json")]
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
    detail: String,
    remedy: String,
}

impl From<Finding> for Row {
    fn from(finding: Finding) -> Row {
        Row { name: finding.name, ok: finding.ok, detail: finding.detail, remedy: finding.remedy }
    }
}

/// Prints every finding. It succeeds whatever they are: a *no* is an answer.
pub fn run(args: Args) -> anyhow::Result<()> {
    let rows: Vec<Row> = examine().into_iter().map(Row::from).chain(PROGRAMS.map(program)).collect();
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(());
    }
    let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    for row in &rows {
        let (set, word) = if row.ok { ("\x1b[32m", "yes") } else { ("\x1b[31m", "no ") };
        let (set, end) = if colour { (set, "\x1b[0m") } else { ("", "") };
        writeln!(stdout, "{set}{word}{end}  {:width$}  {}", row.name, row.detail)?;
        if !row.ok {
            writeln!(stdout, "     {:width$}  → {}", "", row.remedy)?;
        }
    }
    Ok(())
}

fn program((name, package, purpose): (&str, &str, &str)) -> Row {
    let found = find_program(name);
    let remedy = if found.is_some() { String::new() } else { format!("apt-get install {package}") };
    Row {
        name: name.to_owned(),
        ok: found.is_some(),
        remedy,
        detail: found.map_or_else(|| format!("not found; {purpose}"), |file| format!("{}; {purpose}", file.display())),
    }
}
