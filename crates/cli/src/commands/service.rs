//! `baton service`: runs the guardian, which starts the broker, which starts the engines.

use super::guardian::guard;
use crate::calibration;
use crate::config::{self, Config, Id, Names};
use crate::logging::Log;
use crate::notify::{Word, notify};
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::signal::{Asked, Waiter};
use baton_client::Service;
use baton_journal::{Level, tell};
use baton_kernel::steer::Kind;
use baton_service::broker::{self, Broker, Interface, PolicySource};
use baton_service::checkpoints::Checkpoints;
use baton_service::guardian::Guardian;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// Arguments of `baton service`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  baton service --interface eth0\n  baton service --config /etc/baton/baton.toml\n\n\
                  Options override the configuration file. On SIGTERM or Ctrl-C the service moves every\n\
                  connection back to the kernel before it exits.\n\n\
                  The log goes to standard error, with priorities if that is systemd's journal. baton events\n\
                  shows the last thousand events."
)]
pub struct Args {
    /// Configuration file, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the default configuration, with every key explained, and exit
    #[arg(long)]
    print_config: bool,
    /// Check the configuration, print what is wrong with it, and exit
    #[arg(long)]
    check_config: bool,
    /// Interface whose connections may move; repeat it for several
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// Serve only connections whose both ends are in programs on this machine
    #[arg(long, conflicts_with = "interface")]
    no_interface: bool,
    /// How frames reach the engine: AF_XDP (xdp), a TAP device (tc), or the better one for the
    /// interface (auto) [default: auto]
    #[arg(long, value_name = "KIND")]
    steer: Option<Steer>,
    /// Socket on which programs reach the service [default: /run/baton/baton.sock]
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

/// Starts and guards the service's broker until a signal ends it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.print_config {
        write!(std::io::stdout(), "{}", config::DEFAULT)?;
        return Ok(());
    }
    let (log, config) = settings(args)?;
    if args.check_config {
        return Ok(());
    }
    // A service manager sends SIGHUP to this process.
    let mut signals = Waiter::install().context("signals")?;
    thread::Builder::new().name("baton-signals".into()).spawn(move || {
        while signals.wait() == Asked::Reload {
            reload(&config.socket);
        }
    })?;
    // Broker and guardian hold descriptors of every connection. If the limit cannot be raised,
    // the system's default applies.
    let limits = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    log.open("guardian")?;
    let mut words = vec![own()?, "broker".into()];
    words.extend(std::env::args_os().skip(2));
    guard(Guardian::start(words).context("starting the broker")?)
}

/// Runs the broker for the guardian at the other end of standard input.
pub fn broker(args: &Args) -> anyhow::Result<()> {
    // After a panic the next broker takes over what this one left, as after a kill.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let channel = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let (log, mut config) = settings(args)?;
    log.open("broker")?;
    if let Some(figures) = calibration::fit(&mut config.policy, Path::new(calibration::PATH)) {
        let text = format!("the policy's figures: {figures}");
        tell(Level::Info, baton_journal::Kind::CONFIG, |event| event.text(text));
    }
    let mut words = vec![own()?, "guardian".into()];
    words.extend(log.words()?);
    words.push(own()?);
    words.extend(std::env::args_os().skip(1));
    let checkpoints = Checkpoints::open(channel, words).context("hearing the guardian")?;
    let mut signals = Waiter::install().context("signals")?;
    let names: Vec<&str> = config.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    let socket = config.socket.clone();
    let names = if names.is_empty() { "both ends here".to_owned() } else { names.join(", ") };
    let serving = format!("serving {names} at {}", config.socket.display());
    let broker = Broker::start(config, checkpoints).inspect_err(|error| {
        tell(Level::Error, baton_journal::Kind::SERVICE, |event| event.text(format!("cannot start: {error}")));
    })?;
    // Failure to notify systemd does not stop the service.
    let _ = notify(Word::Ready(&serving));
    let stopper = broker.stopper();
    thread::Builder::new().name("baton-signals".into()).spawn(move || {
        while signals.wait() == Asked::Reload {
            reload(&socket);
        }
        let _ = notify(Word::Stopping);
        stopper.stop();
    })?;
    Ok(broker.run()?)
}

/// Has the service that listens there read its policy again. The service says in its log what it made
/// of it.
fn reload(socket: &Path) {
    if let Err(error) = Service::connect(socket).and_then(|service| service.reload(None)) {
        tell(Level::Error, baton_journal::Kind::CONFIG, |event| event.text(format!("reloading the policy: {error}")));
    }
}

/// Combines the configuration file and the command line.
fn settings(args: &Args) -> anyhow::Result<(Log, broker::Config)> {
    let config = args.config.as_deref().map_or_else(|| Ok(Config::default()), Config::load);
    let mut config = config.map_err(|error| usage(error.what_and_where(), error.remedy()))?;
    if !args.interface.is_empty() {
        config.steer.interfaces.clone_from(&args.interface);
    }
    if config.steer.interfaces.is_empty() && !args.no_interface {
        return Err(usage(
            "no interface is named",
            "give --interface NAME, set interfaces = [..] in [steer], or give --no-interface to serve only \
             connections whose both ends are on this machine",
        ));
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
    let unknown = |id: &Id| {
        usage(format!("there is no user or group '{id}'"), "name one of /etc/passwd or /etc/group, or give its number")
    };
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
        tuning: config.engine.tuning(),
        load: config.engine.load,
        consumer: config.memory.consumer(),
        programs: config.memory.programs as usize,
        drain: config.engine.drain,
        patience: config.engine.patience,
        policy: config.policy,
        source: args.config.clone().map(source),
        pair: config.pair.users,
        rules: config.firewall.rules,
        ..broker::Config::new(socket, interfaces, engine(&log)?)
    };
    Ok((log, to_broker))
}

/// Reads the policy of the configuration file again.
fn source(file: PathBuf) -> PolicySource {
    PolicySource(Arc::new(move || {
        let mut policy = Config::load(&file).map_err(|error| error.to_string())?.policy;
        calibration::fit(&mut policy, Path::new(calibration::PATH));
        Ok(policy)
    }))
}

/// The command that starts an engine. It names the file, so that an engine started after an
/// upgrade is the new version.
fn engine(log: &Log) -> anyhow::Result<Vec<OsString>> {
    let mut words = vec![own()?, "engine".into()];
    words.extend(log.words()?);
    Ok(words)
}

/// Path of this program.
fn own() -> anyhow::Result<OsString> {
    Ok(std::env::current_exe().context("finding this program")?.into_os_string())
}
