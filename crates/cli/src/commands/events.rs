//! `baton events`: what a running service did last.

use super::control::At;
use anyhow::Context;
use baton_client::Service;
use baton_journal::{Numbered, RING};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

/// Time between two looks for what is new.
const LOOK: Duration = Duration::from_millis(250);

/// Arguments of `baton events`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton events\n  baton events -n 20 --follow\n  \
                        baton events --json | jq 'select(.reason == \"engine-died\")'\n\n\
                  A line is time, level, kind and text, then what is known of connection=OURS,PEERS,\n\
                  reason=CODE, pid=, uid= and us= (for a move: how long the connection stood still, in\n\
                  microseconds). The service keeps the last thousand events, whatever its log level. Root and\n\
                  the service's user see all; others see their own programs' and those about no program.\n\
                  Exit code: 0, 1 for a failure, 2 if no service answers.")]
pub struct Args {
    #[command(flatten)]
    at: At,
    /// Go on with events as they happen, until the service ends or Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// The last COUNT events
    #[arg(short = 'n', value_name = "COUNT", default_value_t = RING as u16)]
    count: u16,
}

/// An event in JSON.
#[derive(Serialize)]
struct Row<'a> {
    number: u64,
    time: String,
    level: &'a str,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    local: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    us: Option<u64>,
    text: &'a str,
}

impl<'a> From<&'a Numbered> for Row<'a> {
    fn from(Numbered { number, event }: &'a Numbered) -> Row<'a> {
        Row {
            number: *number,
            time: event.time(),
            level: event.level.word(),
            kind: &event.kind.0,
            local: event.tuple.map(|tuple| tuple.local_addr()),
            remote: event.tuple.map(|tuple| tuple.remote_addr()),
            pid: event.program.map(|program| program.0),
            uid: event.program.map(|program| program.1),
            reason: &event.reason,
            us: event.took_us,
            text: &event.text,
        }
    }
}

/// Shows the last events, and goes on if that is asked for.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let service = args.at.connect()?;
    let (events, mut last) = service.events(0, args.count).context("asking for events")?;
    let mut is_read = show(args, &events)?;
    while args.follow && is_read {
        sleep(LOOK);
        let Some((events, now)) = newer(&service, last)? else { return Ok(()) };
        last = now;
        is_read = show(args, &events)?;
    }
    Ok(())
}

/// Events since that one; `None` once the service has ended.
fn newer(service: &Service, last: u64) -> anyhow::Result<Option<(Vec<Numbered>, u64)>> {
    match service.events(last, RING as u16) {
        Ok(answer) => Ok(Some(answer)),
        // Its broker died, and another goes on, which knows the question no more.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(Some((Vec::new(), last))),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(None),
        Err(error) => Err(error).context("asking for events"),
    }
}

/// Prints events; false if nobody reads them any more.
fn show(args: &Args, events: &[Numbered]) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    for event in events {
        let line = if args.json { serde_json::to_string(&Row::from(event))? } else { event.event.to_string() };
        match writeln!(stdout, "{line}") {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
            written => written.context("writing events")?,
        }
    }
    stdout.flush().context("writing events")?;
    Ok(true)
}
