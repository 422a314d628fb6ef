//! `baton policy explain`: which rule decides about each live connection, and what it waits for.

use super::sockets::{Found, find};
use super::{conditions, load};
use crate::calibration;
use crate::commands::control::At;
use crate::tuple::tuple;
use anyhow::bail;
use baton_ipc::message::Entry as Listed;
use baton_policy::conditions::{Facts, Verdict};
use baton_policy::rules::{Decision, History, Policy, Room, Rule, Ruling};
use baton_wire::addr::Tuple;
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Arguments of `baton policy explain`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Without a file, the policy of the running service is explained. Which side opened a connection is\n\
                  concluded from the ports on which programs listen. Root sees all programs, others their own.\n\n\
                  Examples:\n  baton policy explain\n  baton policy explain --pid 1234\n  \
                  baton policy explain 10.0.0.1:443,10.0.0.9:51234\n  \
                  baton policy explain --policy-file new.toml --json\n\n\
                  Exit code: 0, 1 if no such connection is found, 2 for a bad file or if no service answers."
)]
pub struct Args {
    /// Connection, as LOCAL,REMOTE, each as ADDRESS:PORT [default: all]
    #[arg(value_name = "TUPLE", value_parser = tuple)]
    tuple: Option<Tuple>,
    /// Connections of this process only
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// File whose [policy] is explained, instead of the service's
    #[arg(long, value_name = "FILE")]
    policy_file: Option<PathBuf>,
    #[command(flatten)]
    at: At,
    /// Print the connections as JSON
    #[arg(long)]
    json: bool,
}
/// A connection and the policy's word about it.
#[derive(Serialize)]
struct Row {
    local: SocketAddr,
    remote: SocketAddr,
    pid: u32,
    program: String,
    place: String,
    /// Its number in the file; 0 for the rule for all others, `null` if it cannot be said.
    rule: Option<usize>,
    conditions: String,
    decision: String,
    /// The rule that may decide later, or what is not known here.
    changes: Option<String>,
    /// The packets that it is expected to send yet, if its rule is `predict`.
    expected: Option<u64>,
    /// When the figures of the policy's rules were measured by `baton calibrate`, if they were.
    calibration: Option<String>,
}

/// Explains.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let service = args.at.connect();
    let policy = match (&args.policy_file, &service) {
        (Some(file), _) => load(file)?,
        (None, Ok(service)) => service.policy()?,
        (None, Err(_)) => return service.map(drop),
    };
    // A file can be explained without a service.
    let listed = service.as_ref().ok().and_then(|service| service.list().ok()).unwrap_or_default();
    // The life tables are those of the service's own policy.
    let counts = service.ok().filter(|_| args.policy_file.is_none());
    let calibration = calibration::source(&policy, Path::new(calibration::PATH));
    let mut rows: Vec<Row> = Vec::new();
    for Found { pid, facts } in find(args.pid)? {
        let Some((local, remote)) = ends(&facts) else { continue };
        let wanted = args.tuple.is_none_or(|tuple| tuple == Tuple::new(local, remote));
        let is_loopback = local.ip().is_loopback();
        if wanted && (!is_loopback || args.tuple.is_some()) {
            let entry = listed.iter().find(|entry| entry.tuple == Tuple::new(local, remote));
            let class = policy.predicted(&facts).map(|(class, _)| class);
            let expected = class
                .zip(counts.as_ref())
                .and_then(|(class, service)| service.expected(class, facts.sends.unwrap_or(0)).ok().flatten());
            let facts = Facts { expected, ..facts };
            let row = row(&policy, pid, (local, remote), facts, entry);
            rows.push(Row { expected: expected.map(|it| it.packets), calibration: calibration.clone(), ..row });
        }
    }
    if rows.is_empty() && (args.tuple.is_some() || args.pid.is_some()) {
        bail!("no such connection is found; root sees those of all programs, and `ss -tn` lists them");
    }
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(());
    }
    for Row { local, remote, pid, program, place, rule, conditions, decision, changes, .. } in &rows {
        let which = match rule {
            Some(0) => "the rule for all others".to_owned(),
            Some(number) => format!("rule {number} ({conditions})"),
            None => "no rule yet".to_owned(),
        };
        writeln!(stdout, "{local},{remote}  {program}[{pid}]  in the {place}\n  {which}: {decision}")?;
        changes.iter().try_for_each(|changes| writeln!(stdout, "  {changes}"))?;
    }
    match &calibration {
        Some(measured_at) => writeln!(stdout, "the figures of its rules are of the calibration of {measured_at}")?,
        None if measured(&policy) => writeln!(stdout, "the figures of its rules are not of a calibration")?,
        None => {}
    }
    Ok(())
}

/// True if some rule has figures that `baton calibrate` measures.
fn measured(policy: &Policy) -> bool {
    let mut rules = policy.entries.iter().map(|entry| entry.rule).chain([policy.otherwise]);
    rules.any(|rule| matches!(rule, Rule::Small(_) | Rule::Predict(_)))
}

fn ends(facts: &Facts) -> Option<(SocketAddr, SocketAddr)> {
    let end = |(addr, port): (Option<std::net::IpAddr>, u16)| addr.map(|addr| SocketAddr::new(addr, port));
    Some((end(facts.local)?, end(facts.remote)?))
}

fn row(
    policy: &Policy,
    pid: u32,
    (local, remote): (SocketAddr, SocketAddr),
    facts: Facts,
    entry: Option<&Listed>,
) -> Row {
    let interface = entry.map(|entry| entry.interface.clone()).filter(|name| !name.is_empty());
    let facts = Facts { interface, ..facts };
    let place = entry.map_or("kernel", |entry| entry.place.as_str()).to_owned();
    let is_for_service = policy.predicted(&facts).is_some() && facts.expected.is_none();
    let decision = policy.decide(&facts, History::New, Room { connections: 0, at_most: 1, load_limit: 1 });
    let about = |at: usize| format!("rule {} ({})", at + 1, conditions(&policy.entries[at]));
    let (rule, which, changes) = match policy.ruling(&facts) {
        Ruling::By { entry, later, .. } => (
            Some(entry.map_or(0, |at| at + 1)),
            entry.map(|at| conditions(&policy.entries[at])).unwrap_or_default(),
            later.map(|at| format!("{} decides instead once its conditions hold", about(at))),
        ),
        Ruling::Unknown(at) => {
            let unknown = policy.entries[at].conditions.iter().filter(|it| it.check(&facts) == Verdict::Unknown);
            let keys: Vec<&str> = unknown.map(|it| it.key()).collect();
            (None, String::new(), Some(format!("{} asks for what is not known here: {}", about(at), keys.join(", "))))
        }
    };
    let decision = decision.filter(|it| !is_for_service || *it != Decision::Move);
    let decision = decision.map_or("the service or the program's library decides".to_owned(), |it| it.to_string());
    let program = facts.program.clone().unwrap_or_default();
    let (expected, calibration) = (None, None);
    Row { local, remote, pid, program, place, rule, conditions: which, decision, changes, expected, calibration }
}
