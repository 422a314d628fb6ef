//! `baton bump`: Baton as a coalescing software NIC in front of the kernel's TCP.

use super::serve::control_lines;
use crate::bump::Session;
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::signal::Stop;
use baton_bump::{Bump, Options};
use baton_coalesce::{Limits, Profile};
use baton_lab::report::bump::{Line, Report};
use baton_port::{PacketOptions, PacketPort, VnetTap};
use baton_wire::tcp::Acks;
use std::io::{IsTerminal, Write};
use std::num::NonZeroU32;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Arguments of `baton bump`.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "While it runs, the kernel's traffic over IFACE passes through a new device, TAPNAME, which gets \
        IFACE's link address, addresses and routes. IFACE keeps its own, and they apply again as soon as the \
        device is gone, however this program ends. Whatever names IFACE (firewall rules, sockets bound to \
        the device) does not apply to TAPNAME.\n\n\
        Examples:\n  \
        baton bump --wire eth0 --host bump0\n  \
        baton bump --wire eth0 --host bump0 --profile rsc --limit 5 --ack-offload off\n  \
        baton bump --wire eth0 --host bump0 --keep --json\n  \
        baton bump bench"
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,

    /// Interface whose frames pass through Baton
    #[arg(long, value_name = "IFACE", required = true)]
    wire: Option<String>,

    /// Device to create, which the kernel's stack uses instead of IFACE
    #[arg(long, value_name = "TAPNAME", required = true)]
    host: Option<String>,

    /// Rules of coalescing: receive aggregation (ra) or receive side coalescing (rsc)
    #[arg(long, value_enum, default_value = "ra")]
    profile: Rules,

    /// Most segments in a run; 1 turns coalescing off [default: 20 with ra, no limit with rsc]
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroU32>,

    /// Most bytes of payload in a run (rsc only)
    #[arg(long, value_name = "BYTES", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=64_000))]
    buffer: u32,

    /// Most connections that can have an open run at the same time
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    cache: u32,

    /// Send an ACK for every second segment, as without coalescing (on), or one per run (off)
    #[arg(long, value_enum, value_name = "on|off", default_value = "on")]
    ack_offload: Switch,

    /// Do not change addresses and routes: you configure TAPNAME yourself
    #[arg(long)]
    keep: bool,

    /// Print events and counters as JSON, one object per line
    #[arg(long)]
    json: bool,

    /// Only carry frames, as a baseline for measurements
    #[arg(long, hide = true)]
    bare: bool,

    /// Answer each line 'stats' on standard input, and end when standard input closes
    #[arg(long, hide = true)]
    control: bool,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Measure what coalescing saves the kernel's stack, next to the papers' figures
    Bench(super::bump_bench::Args),
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Rules {
    Ra,
    Rsc,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Switch {
    On,
    Off,
}

/// Longest single wait; bounds the time to react to a signal.
const WAIT: Duration = Duration::from_millis(100);
/// The same while the wire's transmit ring is full.
const STUCK_WAIT: Duration = Duration::from_millis(1);
/// Interval at which the live line is updated.
const LIVE: Duration = Duration::from_secs(1);

impl Args {
    fn options(&self) -> Options {
        let profile = match self.profile {
            Rules::Ra => Profile::Ra,
            Rules::Rsc => Profile::Rsc,
        };
        let limits = Limits::of(profile);
        let cache = NonZeroU32::new(self.cache).unwrap_or(limits.cache);
        let limits = Limits { cache, buffer: self.buffer, segments: self.limit.or(limits.segments), ..limits };
        let acks = if self.ack_offload == Switch::On { Acks::EverySecond } else { Acks::PerRun };
        Options { limits, acks, bare: self.bare }
    }
}

/// Carries frames until SIGINT or SIGTERM, or runs the benchmark.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(What::Bench(args)) = &args.what {
        return super::bump_bench::run(args);
    }
    let (Some(wire), Some(host)) = (&args.wire, &args.host) else {
        return Err(usage("a bump needs two devices", "give --wire IFACE and --host TAPNAME"));
    };
    let stop = Stop::install().context("cannot catch signals")?;
    let session = open(args, wire, host)?;
    session.announce(args.json);
    carry(args, session, &stop)
}

/// Opens both devices, the TAP device first, so that frames taken from the kernel have somewhere
/// to go.
fn open(args: &Args, wire: &str, host: &str) -> anyhow::Result<Session> {
    let change = |error: baton_port::OpenError| usage(baton_port::error::chain(&error), "see 'baton bump --help'");
    if baton_port::link::index(host).is_ok() && !args.keep {
        return Err(usage(
            format!("{host} already exists, so addresses and routes lent to it would remain afterwards"),
            "choose another name for --host, or configure the device yourself and add --keep",
        ));
    }
    baton_port::link::index(wire)
        .map_err(|_| usage(format!("there is no interface {wire}"), "name an existing one; 'ip link' lists them"))?;
    let device = VnetTap::open(host).map_err(change)?;
    let name = device.name().to_owned();
    let lent = if args.keep {
        None
    } else {
        Some(
            baton_kernel::lend::lend(wire, &name)
                .with_context(|| format!("cannot lend {wire}'s addresses to {name}"))?,
        )
    };
    let port = PacketPort::open(wire, PacketOptions { take: true }).map_err(change)?;
    Ok(Session { bump: Bump::new(port, device, args.options()), wire: wire.to_owned(), host: name, lent })
}

fn carry(args: &Args, mut session: Session, stop: &Stop) -> anyhow::Result<()> {
    let control = args.control.then(control_lines);
    let start = Instant::now();
    let live = !args.json && std::io::stderr().is_terminal();
    let (mut last, mut shown) = (Report::default(), start);
    let outcome = loop {
        if stop.requested() {
            break Ok(());
        }
        match session.bump.poll(start.elapsed().as_nanos() as u64) {
            Ok(true) => {}
            Ok(false) => session.wait(if session.bump.is_stuck() { STUCK_WAIT } else { WAIT })?,
            Err(error) => break Err(error),
        }
        match control.as_ref().map(std::sync::mpsc::Receiver::try_recv) {
            Some(Ok(line)) if line == "stats" => Line::Stats(session.report(start)).print(),
            Some(Err(TryRecvError::Disconnected)) => break Ok(()),
            _ => {}
        }
        if live && shown.elapsed() >= LIVE {
            let now = session.report(start);
            // If standard error is closed, nobody watches.
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", now.live(&last));
            (last, shown) = (now, Instant::now());
        }
    };
    if live {
        let _ = writeln!(std::io::stderr());
    }
    let report = session.report(start);
    if args.json {
        Line::Stats(report).print();
    } else {
        print!("{report}");
    }
    outcome.context("a device has disappeared")
}
