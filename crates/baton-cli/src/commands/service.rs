//! `baton service`: the guardian, which starts the broker, which starts the engines.

use super::guardian::guard;
use crate::config::{self, Config, Id, Names};
use crate::logging::Log;
use crate::notify::{Word, notify};
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::signal::Waiter;
use baton_journal::{Level, tell};
use baton_kernel::steer::Kind;
use baton_service::broker::{self, Broker, Interface};
use baton_service::checkpoints::Checkpoints;
use baton_service::guardian::Guardian;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;

/// Arguments of `baton service`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  baton service --interface eth0\n  baton service --config /etc/baton/baton.toml\n\n\
                  Options come before the file. A signal (SIGTERM, Ctrl-C) brings every\n\
                  connection back to the kernel first.\n\n\
                  The log goes to standard error, with priorities where that is systemd's journal. The last\n\
                  thousand events are there as well: baton events"
)]
pub struct Args {
    /// Configuration, TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the default configuration, every key explained, and end
    #[arg(long)]
    print_config: bool,
    /// Read the configuration, say what is wrong with it, and end
    #[arg(long)]
    check_config: bool,
    /// Interface whose connections may move; may be given several times
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// How its frames reach the engine
    #[arg(long, value_name = "KIND")]
    steer: Option<Steer>,
    /// Where programs find the service
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Steer {
    Auto,
    Xdp,
    Tc,
}

/// Guards the service's broker until it is told to end.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.print_config {
        write!(std::io::stdout(), "{}", config::DEFAULT)?;
        return Ok(());
    }
    let (log, _) = settings(args)?;
    if args.check_config {
        return Ok(());
    }
    // Broker and guardian hold descriptors of every connection. Who may not have more has
    // what the system gives.
    let limits = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    log.open("guardian")?;
    let mut words = vec![own()?, "broker".into()];
    words.extend(std::env::args_os().skip(2));
    guard(Guardian::start(words).context("starting the broker")?)
}

/// Serves for the guardian at the other end of standard input.
pub fn broker(args: &Args) -> anyhow::Result<()> {
    // What a panic leaves behind is taken up by another, as a kill does.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let channel = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let (log, config) = settings(args)?;
    log.open("broker")?;
    let mut words = vec![own()?, "guardian".into()];
    words.extend(log.words()?);
    words.push(own()?);
    words.extend(std::env::args_os().skip(1));
    let checkpoints = Checkpoints::open(channel, words).context("hearing the guardian")?;
    let mut signals = Waiter::install().context("signals")?;
    let names: Vec<&str> = config.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let serving = format!("serving {} at {}", names.join(", "), config.socket.display());
    let broker = Broker::start(config, checkpoints).inspect_err(|error| {
        tell(Level::Error, baton_journal::Kind::SERVICE, |event| event.text(format!("cannot start: {error}")));
    })?;
    // Who does not run under systemd has nobody to tell.
    let _ = notify(Word::Ready(&serving));
    let stopper = broker.stopper();
    thread::Builder::new().name("baton-signals".into()).spawn(move || {
        signals.wait();
        let _ = notify(Word::Stopping);
        stopper.stop();
    })?;
    Ok(broker.run()?)
}

/// What the file and the command line say together.
fn settings(args: &Args) -> anyhow::Result<(Log, broker::Config)> {
    let config = args.config.as_deref().map_or_else(|| Ok(Config::default()), Config::load);
    let mut config = config.map_err(|error| usage(error.what_and_where(), error.remedy()))?;
    if !args.interface.is_empty() {
        config.steer.interfaces.clone_from(&args.interface);
    }
    if config.steer.interfaces.is_empty() {
        return Err(usage("no interface is named", "say --interface NAME, or interfaces = [..] in [steer]"));
    }
    let kind = match args.steer {
        None => config.steer.kind,
        Some(Steer::Auto) => Kind::Auto,
        Some(Steer::Xdp) => Kind::Xdp,
        Some(Steer::Tc) => Kind::Tc,
    };
    let socket = args.socket.clone().unwrap_or_else(|| config.socket.path.clone());
    let interfaces = config.steer.interfaces.iter().map(|name| Interface { name: name.clone(), kind }).collect();
    let names = Names::load();
    let unknown = |id: &Id| usage(format!("no user or group is called '{id}'"), "name one that there is");
    let users = config.access.uids(&names).map_err(|id| unknown(&id))?;
    let engine_user = if rustix::process::geteuid().is_root() {
        Some(names.user_and_group(&config.engine.user).ok_or_else(|| unknown(&config.engine.user))?)
    } else {
        None
    };
    let log = args.log.or(config.log.into());
    let to_broker = broker::Config {
        mode: config.socket.mode,
        users,
        descendants_of: config.access.descendants_of,
        engine_user,
        connections: config.engine.connections,
        congestion: config.engine.congestion,
        coalesce: config.engine.coalesce,
        acks: config.engine.acks,
        consumer: config.memory.consumer(),
        programs: config.memory.programs as usize,
        drain: config.engine.drain,
        patience: config.engine.patience,
        policy: config.policy,
        rules: config.firewall.rules,
        ..broker::Config::new(socket, interfaces, engine(&log)?)
    };
    Ok((log, to_broker))
}

/// The binary as it is installed when an engine starts: an upgrade replaces the file.
fn engine(log: &Log) -> anyhow::Result<Vec<OsString>> {
    let mut words = vec![own()?, "engine".into()];
    words.extend(log.words()?);
    Ok(words)
}

/// This program's file.
fn own() -> anyhow::Result<OsString> {
    Ok(std::env::current_exe().context("finding this program")?.into_os_string())
}
