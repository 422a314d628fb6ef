//! `baton load`: runs a load generator on kernel sockets, for `demo` and `bench`.

use anyhow::Context;
use baton_apps::load::{self, Check, Kind, Load};
use baton_apps::net::kernel::KernelNet;
use std::net::{AddrParseError, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Arguments of `baton load`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Kind of load
    #[arg(value_enum)]
    kind: Kind,

    /// Address and port of the service, or unix:PATH
    #[arg(value_name = "ADDR:PORT")]
    target: Target,

    /// Number of connections, all open at once
    #[arg(long, default_value_t = 1)]
    connections: usize,

    /// Bytes in a request, or in one write of bulk data (0: as many as fit in the buffer)
    #[arg(long, default_value_t = 0)]
    size: usize,

    /// Seconds before the measured interval
    #[arg(long, default_value_t = 0.2)]
    warmup: f64,

    /// Seconds to measure
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// Check every byte received
    #[arg(long)]
    verify: bool,

    /// Check no byte received
    #[arg(long, conflicts_with = "verify")]
    unchecked: bool,

    /// Also count the CPU time of this process, which runs the other end; repeat it for several
    #[arg(long, value_name = "PID")]
    peer_pid: Vec<u32>,

    /// Also count the work of this CPU, to which the other end is pinned
    #[arg(long, value_name = "NUMBER")]
    peer_cpu: Option<usize>,
}

/// Where the service is.
#[derive(Clone, Debug)]
enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Target {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Target, AddrParseError> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(Target::Unix(path.into())),
            None => text.parse().map(Target::Tcp),
        }
    }
}

/// Runs the load and prints its results as one line of JSON.
pub fn run(args: Args) -> anyhow::Result<()> {
    let limit = args.connections.max(1);
    let (net, target) = match &args.target {
        Target::Tcp(addr) => (KernelNet::new(limit), *addr),
        Target::Unix(path) => (KernelNet::over_unix(limit, path.clone()), SocketAddr::new([0; 4].into(), 0)),
    };
    let mut net = net.context("cannot make an epoll instance")?;
    let seconds = |value: f64| Duration::try_from_secs_f64(value).context("seconds must be a number of at least 0");
    let check = match (args.verify, args.unchecked) {
        (true, _) => Check::All,
        (_, true) => Check::None,
        _ => Check::Ends,
    };
    let load = Load {
        kind: args.kind,
        target,
        connections: args.connections,
        size: args.size,
        warmup: seconds(args.warmup)?,
        length: seconds(args.seconds)?,
        check,
        peer_pids: args.peer_pid,
        peer_cpu: args.peer_cpu,
    };
    let outcome = load::run(&mut net, &load, None).with_context(|| format!("{:?} at {:?}", args.kind, args.target));
    net.abort();
    println!("{}", serde_json::to_string(&outcome?)?);
    Ok(())
}
