//! `baton ps`, `handoff`, `restore`, `stop` and `upgrade`: requests to a running service.

mod load;

use anyhow::Context;
use baton_apps::fail::usage;
use baton_client::{SOCKET, Service, Tally};
use baton_ipc::message::{Destination, Entry, Selector};
use baton_wire::addr::{Addr, Tuple};
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Which service to ask.
#[derive(clap::Args, Debug)]
pub struct At {
    /// Socket of the service
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

impl At {
    /// Connects to it.
    pub fn connect(&self) -> anyhow::Result<Service> {
        Service::connect(&self.socket).map_err(|error| {
            usage(
                format!("{}: {error}", self.socket.display()),
                "check that 'baton service' is running and that its [access] section lists this user",
            )
        })
    }
}

/// Arguments of `baton ps`.
#[derive(clap::Args, Debug)]
#[command(after_help = "WHERE is the place of the connection, WHY is the reason code, and SECONDS is the time since\n\
                  it came there.\n\n\
                  With --load: LIMIT is the most connections that the load allows, QUEUE the frames that wait,\n\
                  LOW and HIGH the lengths between which the limit stays, IDLE the time that the engine sleeps.\n\n\
                  Examples:\n  baton ps\n  baton ps --json\n  baton ps --load\n  baton ps --socket /run/baton/baton.sock")]
pub struct Ps {
    #[command(flatten)]
    at: At,
    /// Show the load of the engines instead of the connections
    #[arg(long)]
    load: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `baton stop` and `baton upgrade`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton stop\n  baton upgrade\n  baton stop --socket /run/baton/baton.sock")]
pub struct Plain {
    #[command(flatten)]
    at: At,
}

/// Where connections go.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum To {
    /// To an engine, if a served interface leads to the other end
    Engine,
    /// Into memory that both programs share, if the service knows the other end
    Pair,
}

/// Arguments of `baton handoff`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton handoff 443\n  baton handoff --to engine 10.0.0.1:443,10.0.0.9:51234")]
pub struct HandoffArgs {
    #[command(flatten)]
    which: Which,
    /// Where they go [default: where they were before]
    #[arg(long, value_name = "PLACE")]
    to: Option<To>,
}

/// Arguments of `baton restore`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton restore all\n  baton restore 443\n  \
                        baton restore 10.0.0.1:443,10.0.0.9:51234")]
pub struct Which {
    /// Connections to move: 'all', a port at either end, or LOCAL,REMOTE, each as ADDRESS:PORT
    #[arg(value_name = "WHICH", value_parser = selector)]
    which: Selector,
    #[command(flatten)]
    at: At,
}

fn selector(text: &str) -> Result<Selector, String> {
    if text == "all" {
        return Ok(Selector::All);
    }
    if let Ok(port) = text.parse() {
        return Ok(Selector::Port(port));
    }
    let pair = text.split_once(',').and_then(|(local, remote)| {
        Some(Selector::Tuple(Tuple::new(local.parse::<SocketAddr>().ok()?, remote.parse::<SocketAddr>().ok()?)))
    });
    pair.ok_or_else(|| "write 'all', a port, or LOCAL,REMOTE, each as ADDRESS:PORT".to_owned())
}

#[derive(Serialize)]
struct Row {
    id: u64,
    local: SocketAddr,
    remote: SocketAddr,
    place: String,
    why: String,
    interface: String,
    pid: u32,
    uid: u32,
    bytes_sent: u64,
    bytes_received: u64,
    sent_per_second: u64,
    received_per_second: u64,
    since_ms: u64,
    moves: u64,
}

impl From<Entry> for Row {
    fn from(entry: Entry) -> Row {
        let end = |addr: Addr, port| SocketAddr::new(addr.ip(), port);
        Row {
            id: entry.id,
            local: end(entry.tuple.local, entry.tuple.local_port),
            remote: end(entry.tuple.remote, entry.tuple.remote_port),
            place: entry.place,
            why: entry.why,
            interface: entry.interface,
            pid: entry.program.pid,
            uid: entry.program.uid,
            bytes_sent: entry.bytes.sent,
            bytes_received: entry.bytes.received,
            sent_per_second: entry.rate.sent,
            received_per_second: entry.rate.received,
            since_ms: entry.since_ms,
            moves: entry.moves,
        }
    }
}

/// Lists connections.
pub fn ps(args: &Ps) -> anyhow::Result<()> {
    if args.load {
        return load::print(&args.at.connect()?, args.json);
    }
    let rows: Vec<Row> =
        args.at.connect()?.list().context("cannot list connections")?.into_iter().map(Row::from).collect();
    let mut stdout = std::io::stdout().lock();
    if args.json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(());
    }
    let header =
        ["WHERE", "WHY", "LOCAL", "REMOTE", "PID", "SENT", "RECEIVED", "SENT/S", "RECEIVED/S", "SECONDS", "MOVES"]
            .map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let rates = [row.sent_per_second, row.received_per_second];
        let [sent, received] = [row.bytes_sent, row.bytes_received].map(|n| n.to_string());
        let [out, back] = rates.map(|n| n.to_string());
        let [seconds, moves] = [row.since_ms / 1000, row.moves].map(|n| n.to_string());
        let (local, remote, pid) = (row.local.to_string(), row.remote.to_string(), row.pid.to_string());
        [row.place.clone(), row.why.clone(), local, remote, pid, sent, received, out, back, seconds, moves]
    });
    write_table(&mut stdout, &std::iter::once(header).chain(cells).collect::<Vec<_>>())
}

/// Writes lines of cells as columns.
fn write_table<const N: usize>(to: &mut impl Write, lines: &[[String; N]]) -> anyhow::Result<()> {
    let widths: [usize; N] = std::array::from_fn(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or(0));
    for line in lines {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(to, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Asks the service to move connections out of the kernel.
pub fn handoff(args: &HandoffArgs) -> anyhow::Result<()> {
    let (service, which) = (args.which.at.connect()?, args.which.which);
    let (tally, what) = match args.to {
        None => (service.handoff(which), "moved out of the kernel"),
        Some(To::Engine) => (service.handoff_to(which, Destination::Engine), "moved to the engine"),
        Some(To::Pair) => (service.handoff_to(which, Destination::Pair), "moved into pairs"),
    };
    say(what, tally.context("cannot move connections out of the kernel")?)
}

/// Asks the service to move connections back to the kernel.
pub fn restore(args: &Which) -> anyhow::Result<()> {
    let tally = args.at.connect()?.bring_home(args.which).context("cannot move connections to the kernel")?;
    say("moved to the kernel", tally)
}

/// Asks the service to move everything back to the kernel and to exit.
pub fn stop(args: &Plain) -> anyhow::Result<()> {
    say("moved to the kernel", args.at.connect()?.stop().context("cannot stop the service")?)
}

/// Asks the service to replace its engines with the version installed now.
pub fn upgrade(args: &Plain) -> anyhow::Result<()> {
    say("moved to the new engine", args.at.connect()?.upgrade().context("cannot upgrade the service")?)
}

/// Prints how many connections moved.
pub(super) fn say(what: &str, tally: Tally) -> anyhow::Result<()> {
    let Tally { count, failed, pause_us, .. } = tally;
    writeln!(std::io::stdout(), "{} {what}, {failed} failed; the longest pause was {pause_us} µs", count - failed)?;
    Ok(())
}
