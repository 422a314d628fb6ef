//! `baton policy check`: what a policy says, and what in it cannot be meant.

use super::{conditions, lines};
use crate::config::Config;
use anyhow::bail;
use baton_policy::conditions::Condition;
use baton_policy::rules::Policy;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Arguments of `baton policy check`.
#[derive(clap::Args, Debug)]
#[command(after_help = "A finding is a rule that never decides, or a condition that nothing here can meet.\n\n\
                  Examples:\n  baton policy check /etc/baton/baton.toml\n  baton policy check --json new.toml\n\n\
                  Exit code: 0, 1 if there are findings, 2 if the file cannot be read or is wrong.")]
pub struct Args {
    /// Configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print rules and findings as JSON
    #[arg(long)]
    json: bool,
}

/// A file with its rules and findings.
#[derive(Serialize)]
struct Checked {
    file: PathBuf,
    rules: Vec<Row>,
    otherwise: String,
    findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Wrong>,
}

#[derive(Serialize)]
struct Row {
    line: Option<usize>,
    conditions: String,
    rule: String,
}

/// Something that cannot be meant.
#[derive(Serialize)]
struct Finding {
    line: Option<usize>,
    text: String,
    remedy: String,
}

/// Why the file is refused.
#[derive(Serialize)]
struct Wrong {
    line: Option<usize>,
    column: Option<usize>,
    text: String,
    remedy: String,
}

/// Checks a file.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let config = match Config::load(&args.file) {
        Ok(config) => config,
        Err(error) => {
            if args.json {
                let (line, column) = (error.line(), error.column());
                let (text, remedy) = (error.what().to_owned(), error.remedy().to_owned());
                let (file, error) = (args.file.clone(), Some(Wrong { line, column, text, remedy }));
                let (rules, findings, otherwise) = (Vec::new(), Vec::new(), String::new());
                let checked = Checked { file, rules, otherwise, findings, error };
                writeln!(stdout, "{}", serde_json::to_string_pretty(&checked)?)?;
            }
            return Err(baton_apps::fail::usage(error.place_and_what(), error.remedy()));
        }
    };
    let checked = check(&args.file, &config.policy)?;
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&checked)?)?;
    } else {
        for (number, Row { conditions, rule, .. }) in (1..).zip(&checked.rules) {
            writeln!(stdout, "rule {number}: {conditions}: {rule}")?;
        }
        writeln!(stdout, "all other connections: {}", checked.otherwise)?;
        for Finding { line, text, remedy } in &checked.findings {
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            writeln!(stdout, "{}{line}: {text}; {remedy}", args.file.display())?;
        }
    }
    match checked.findings.len() {
        0 => Ok(()),
        1 => bail!("there is a finding"),
        count => bail!("there are {count} findings"),
    }
}

fn check(file: &Path, policy: &Policy) -> anyhow::Result<Checked> {
    let lines = lines(file)?;
    let line = |at: usize| lines.get(at).copied();
    let mut findings: Vec<Finding> = policy
        .shadowed()
        .into_iter()
        .map(|(by, at)| Finding {
            line: line(at),
            text: format!("rule {} never decides: rule {} is for all its connections", at + 1, by + 1),
            remedy: "move it before that rule, or remove it".to_owned(),
        })
        .collect();
    for (at, entry) in policy.entries.iter().enumerate() {
        findings.extend(entry.conditions.iter().flat_map(missing).map(|(text, remedy)| Finding {
            line: line(at),
            text,
            remedy,
        }));
    }
    let row = |(at, entry): (usize, &baton_policy::rules::Entry)| Row {
        line: line(at),
        conditions: conditions(entry),
        rule: entry.rule.to_string(),
    };
    let rules = policy.entries.iter().enumerate().map(row).collect();
    Ok(Checked { file: file.to_owned(), rules, otherwise: policy.otherwise.to_string(), findings, error: None })
}

/// The things that a condition names and this machine does not have, with a remedy.
fn missing(condition: &Condition) -> Vec<(String, String)> {
    let absent = |names: &[String], root: &str| -> Vec<String> {
        names.iter().filter(|name| !Path::new(&format!("{root}{name}")).exists()).cloned().collect()
    };
    match condition {
        Condition::Cgroup(paths) => absent(paths, "/sys/fs/cgroup")
            .into_iter()
            .map(|path| (format!("there is no cgroup {path}"), "`systemd-cgls` lists them".to_owned()))
            .collect(),
        Condition::Interface(names) => absent(names, "/sys/class/net/")
            .into_iter()
            .map(|name| (format!("there is no interface {name}"), "`ip link` lists them".to_owned()))
            .collect(),
        _ => Vec::new(),
    }
}
