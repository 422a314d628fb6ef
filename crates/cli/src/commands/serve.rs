//! `baton serve`: runs services on a stack until a signal ends it.

use super::stack::{StackArgs, listen_error};
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::net::Net;
use baton_apps::services::{Kind, Line, Message, Spec};
use baton_apps::signal::Stop;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Arguments of `baton serve`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    baton serve --port tap:baton0 --addr 10.77.0.2/24 --addr fd77::2/64 http .\n  \
    baton serve --port xdp:eth1 --addr 10.77.0.2/24 --service echo --service http=/srv@8080\n  \
    baton serve --port kernel http . --listen 8080\n  \
    baton serve --port kernel --service echo@7007 --service discard@9009")]
pub struct Args {
    #[command(flatten)]
    stack: StackArgs,

    /// Service to run: echo, discard, chargen or http
    #[arg(value_name = "SERVICE", required_unless_present = "services")]
    service: Option<String>,

    /// Directory whose files http serves
    #[arg(value_name = "DIR", requires = "service")]
    dir: Option<PathBuf>,

    /// TCP port to listen on [default: echo 7, discard 9, chargen 19, http 80]
    #[arg(long, value_name = "PORT", requires = "service")]
    listen: Option<u16>,

    /// Service as NAME[=DIR][@PORT]; repeat it for several
    #[arg(long = "service", value_name = "SPEC")]
    services: Vec<String>,

    /// Print events and counters as JSON, one object per line
    #[arg(long)]
    json: bool,

    /// Bytes per read of discard and per write of chargen
    #[arg(long, hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    message: Option<u32>,

    /// Answer each line 'stats' on standard input, and end when standard input closes
    #[arg(long, hide = true)]
    control: bool,
}

/// Longest wait of one turn; bounds the time to react to a signal.
const WAIT: Duration = Duration::from_millis(100);

/// The same with `--control`, where lines on standard input wait for an answer.
const CONTROL_WAIT: Duration = Duration::from_millis(20);

/// Serves until SIGINT or SIGTERM.
pub fn run(args: Args) -> anyhow::Result<()> {
    let specs = specs(&args)?;
    let stop = Stop::install().context("cannot catch signals")?;
    let mut net = args.stack.open()?;
    let message = args.message.map_or_else(Message::default, |bytes| Message(bytes as usize));
    let mut services = Vec::new();
    for spec in &specs {
        for ip in args.stack.local_addrs() {
            let addr = SocketAddr::new(ip, spec.port);
            let accept = spec.kind.accept(message).with_context(|| format!("cannot serve {}", spec.kind.name()))?;
            let addr = net.listen(addr, accept).map_err(|error| listen_error(addr, &error))?;
            services.push((spec.kind.name().to_owned(), addr));
        }
    }
    announce(&args, services);
    if let (false, Some(hint)) = (args.json, args.stack.hint()) {
        println!("{hint}");
    }
    let control = args.control.then(control_lines);
    let start = Instant::now();
    while !stop.requested() {
        net.turn(if args.control { CONTROL_WAIT } else { WAIT })?;
        match control.as_ref().map(Receiver::try_recv) {
            Some(Ok(line)) if line == "stats" => print_stats(true, start, net.as_mut()),
            Some(Err(TryRecvError::Disconnected)) => break,
            _ => {}
        }
    }
    print_stats(args.json, start, net.as_mut());
    Ok(())
}

fn specs(args: &Args) -> anyhow::Result<Vec<Spec>> {
    let mut specs = Vec::new();
    if let Some(name) = &args.service {
        let kind = Kind::new(name, args.dir.clone())?;
        specs.push(Spec { port: args.listen.unwrap_or(kind.default_port()), kind });
    }
    for text in &args.services {
        specs.push(text.parse()?);
    }
    for (i, spec) in specs.iter().enumerate() {
        if spec.port != 0 && specs[..i].iter().any(|other| other.port == spec.port) {
            return Err(usage(
                format!("two services use port {}", spec.port),
                "give one of them another port with @PORT",
            ));
        }
    }
    Ok(specs)
}

/// Reads lines of standard input on a thread of its own. The channel closes when standard input
/// does, so that a server never outlives the process that controls it.
pub fn control_lines() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn announce(args: &Args, services: Vec<(String, SocketAddr)>) {
    if args.json {
        return print(&Line::Ready { services });
    }
    for (name, addr) in services {
        println!("{name} on {}", args.stack.place(addr));
    }
}

fn print_stats(json: bool, start: Instant, net: &mut dyn Net) {
    let (seconds, stats) = (start.elapsed().as_secs_f64(), net.stats());
    if json {
        return print(&Line::Stats { seconds, stats });
    }
    println!(
        "{} connections, {} bytes in, {} bytes out in {seconds:.1} s",
        stats.accepted, stats.bytes_in, stats.bytes_out
    );
}

fn print(line: &Line) {
    let text = serde_json::to_string(line).expect("counters and addresses have a JSON form");
    // A closed standard output does not stop the services.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
