//! `baton run`: runs an unmodified program with its connections on the engine.

use crate::calibration::{self, File};
use crate::latency::times::Times;
use crate::logging::Log;
use crate::run::account::Account;
use crate::run::home::Home;
use crate::run::passing::Passing;
use crate::run::place::Setup;
use crate::run::private::Private;
use crate::run::program::{self, Found};
use crate::run::service::{is_elsewhere, usable};
use crate::run::unreached::Unreached;
use anyhow::Context;
use baton_apps::fail::{one_line, usage};
use baton_client::{SOCKET, Service};
use baton_ipc::environment;
use baton_ipc::placement::Placement;
use baton_journal::{Kind, Level, tell};
use baton_kernel::Rules;
use baton_policy::bounds::parse_ports;
use baton_policy::rules::{Policy, Rule, for_ports};
use baton_service::broker::PairUsers;
use rustix::process::{Pid, Resource, Rlimit, getpid, getrlimit, set_child_subreaper, setrlimit};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// File name of the preloaded library.
const LIBRARY: &str = "libbaton_shim.so";

/// Arguments of `baton run`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  baton run -- nginx -g 'daemon off;'\n  \
                  baton run --explain -- curl -O https://example.org/file\n  \
                  baton run --engine direct --steer tc -- redis-server\n  \
                  baton run --log baton.log -- redis-server\n  \
                  baton run --policy 'after 20 sends' --ports 8000-8999 -- python3 -m http.server 8080\n\n\
                  baton run uses the service that is running. If there is none, it starts one, which needs\n\
                  root; other runs in the same network namespace share it. If no service can be had, baton run\n\
                  says so and runs the program with its connections in the kernel; with --require it does not\n\
                  run the program and exits with code 2.\n\
                  baton run exits with the program's exit code or signal, after every process that the program\n\
                  left behind has ended.")]
pub struct Args {
    /// When a connection moves: fcfs (at once), small (after 32 sends, if they were small), 'small N
    /// bytes' (if they had at most N bytes), predict (once it is expected to send enough yet),
    /// 'until bulk', 'after N sends', pairs (to no engine, only into memory that both ends on this
    /// machine share), or never.
    /// The default keeps connections in the kernel where the engine measured slower: pairs on one
    /// CPU, fcfs with --steer xdp, otherwise as `baton calibrate` found here, or small without that
    #[arg(long, value_name = "RULE", value_parser = |text: &str| text.parse::<Rule>())]
    policy: Option<Rule>,
    /// File with a [policy] (`baton service --print-config` explains it), which the service that this
    /// command starts follows
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "ports", "socket"])]
    policy_file: Option<PathBuf>,
    /// Ports, local or remote, whose connections may move: numbers and ranges, separated by commas
    /// [default: all]
    #[arg(long, value_name = "PORTS", value_delimiter = ',', value_parser = ports)]
    ports: Vec<String>,
    /// Interface for a service that this command starts; repeat it for several [default: all]
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// How frames reach the engine of a service that this command starts: auto, xdp or tc
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ["auto", "xdp", "tc"])]
    steer: String,
    /// Where the engine runs: direct (inside the program, driven by the program's own calls) or
    /// service (in a process of its own). The default is the faster one as measured: service with
    /// --steer xdp, otherwise direct
    #[arg(long, value_name = "PLACE", value_parser = |text: &str| text.parse::<Placement>())]
    engine: Option<Placement>,
    /// Treatment of connections that firewall rules act on, by a service that this command starts:
    /// refuse (they stay in the kernel), strict (those that rules only count or log stay too), or
    /// follow (they move and bypass such rules)
    #[arg(long, value_name = "RULES", default_value = "refuse", value_parser = |text: &str| text.parse::<Rules>())]
    firewall: Rules,
    /// Join connections whose both ends are in programs on this machine that 'baton run' started: never, same-user
    /// (programs of one user) or any. Such a connection goes through memory that both programs share. The service's
    /// own setting decides, too
    #[arg(long, value_name = "USERS", default_value = "same-user", value_parser = |text: &str| text.parse::<PairUsers>())]
    pair: PairUsers,
    /// Socket of the service to use; no service is started
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// File of `baton calibrate`, for the default of --policy
    #[arg(long, value_name = "FILE", default_value = calibration::PATH)]
    calibration: PathBuf,
    /// Print at the end how many connections moved, how many stayed, and why
    #[arg(long)]
    explain: bool,
    /// Print at the end where the time of the program's messages went, by layer, in the kernel and in
    /// engines; `baton latency` explains the tables
    #[arg(long)]
    latency: bool,
    /// Make io_uring unavailable to the program, so that its connections can move; for programs
    /// that use io_uring but can do without it
    #[arg(long)]
    no_io_uring: bool,
    /// If no connection could move, do not run the program: print the reason and the remedy, and
    /// exit with code 2
    #[arg(long)]
    require: bool,
    #[command(flatten)]
    log: Log,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Args {
    /// Where the service that is started, and the library in the program, log to: each move is told,
    /// if no level is named.
    fn log(&self) -> Log {
        if self.log.file.is_some() { self.log.or(Level::Debug) } else { Log::default() }
    }
}

fn ports(text: &str) -> Result<String, String> {
    parse_ports(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Runs the program and exits with its exit code or signal.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.steer == "xdp" && args.engine == Some(Placement::Direct) {
        return Err(usage(
            "an engine inside a program needs a device of its own, which xdp cannot give it",
            "use --steer tc, or --engine service",
        ));
    }
    let log = args.log();
    if log.file.is_some() {
        log.open("run")?;
    } else if args.log.level.is_some() {
        return Err(usage("--log-level says how much is in the log, and there is none", "name its file: --log FILE"));
    }
    let loaded = args.policy_file.as_deref().map(super::policy::load).transpose()?;
    let placement = placement(args);
    let program = program::find(&args.words[0])?;
    let home = Home::create(Path::new("/run"))?;
    let account = Account::create(home.path()).context("making a file of counters")?;
    // Orphans of the program, such as daemons, become our children, so that we can wait for
    // them; the same holds for orphans of the service's first process.
    set_child_subreaper(Some(getpid())).context("waiting for processes of the program")?;
    let reach = reach(args, &program, placement, home.path());
    let (library, service) = match reach {
        Ok((library, service)) => (Some(library), service),
        Err(why) if args.require => return Err(why),
        Err(why) => {
            // The program runs nevertheless, on the kernel's TCP.
            let text = format!("connections stay in the kernel: {}", one_line(&why));
            say(&text);
            tell(Level::Warn, Kind::SERVICE, |event| event.text(text));
            (library().ok(), Used::at(SOCKET))
        }
    };
    if args.explain {
        service.introduce();
    }
    if log.file.is_some() && !service.is_ours() {
        say("the service was started by others and logs where they said; this log has the program's side");
    }
    if let Some(loaded) = &loaded {
        service.follow(loaded)?;
    }
    // With a file, the service decides.
    let (policy, why) = match (&loaded, args.policy) {
        (Some(_), _) => (Rule::FirstCome, None),
        (None, Some(rule)) => (rule, None),
        (None, None) => by_default(args, placement, cpus()),
    };
    why.iter().filter(|_| args.explain).for_each(|why| say(why));
    let mut command = Command::new(program.path);
    command.args(&args.words[1..]);
    if let Some(library) = &library {
        command.env("LD_PRELOAD", preload(library));
    }
    command.env(environment::SOCKET, &service.socket);
    command.env(
        environment::PAIR,
        match args.pair {
            PairUsers::Never => "0",
            _ if is_elsewhere(&service.socket) => environment::ALL_PAIRS,
            _ => "1",
        },
    );
    let whole = if args.ports.is_empty() { Policy::of(policy) } else { for_ports(policy, &args.ports)? };
    command.env(environment::POLICY, whole.to_string());
    command.env(environment::ENGINE, placement.to_string()).env(environment::ACCOUNT, account.path());
    if let (Some(file), Some(level)) = (&log.file, log.level) {
        command.env(environment::LOG, std::path::absolute(file)?).env(environment::LOG_LEVEL, level.word());
    }
    if args.no_io_uring {
        command.env(environment::IO_URING, "0");
    }
    // libuv uses io_uring for files and for its epoll set unless this variable of its own says no.
    if std::env::var_os("UV_USE_IO_URING").is_none() && policy != Rule::Never {
        command.env("UV_USE_IO_URING", "0");
    }
    make_room();
    let looks = args.explain.then(|| library.clone().map(|library| service.look_for(library))).flatten().transpose()?;
    let passing = Passing::start()?;
    let times = if args.latency { start_times(&service) } else { None };
    let child = command.spawn().with_context(|| format!("starting {}", args.words[0].to_string_lossy()))?;
    times.iter().for_each(|times| times.of(Pid::from_child(&child)));
    let status = passing.until_end(child)?;
    passing.until_all_end(|pid| service.has(pid));
    times.map_or(Ok(()), end_times)?;
    drop(service);
    if args.explain {
        let lines = account.explain(args.policy.is_some()).context("reading what was counted")?;
        for line in lines.into_iter().chain(looks.into_iter().flat_map(Unreached::explain)) {
            say(&line);
        }
    }
    drop(home);
    end_as(status)
}

/// Starts to look where the time of messages goes. The program runs without, if that cannot be had.
fn start_times(service: &Used) -> Option<Times> {
    let started = Times::start(&service.socket);
    started.inspect_err(|error| say(&format!("no times are shown: {}", one_line(error)))).ok()
}

/// Prints where it went.
fn end_times(times: Times) -> anyhow::Result<()> {
    let report = times.end().context("reading where the time went")?;
    if report.entries.is_empty() {
        say("no message of the program was seen");
        report.notes.iter().for_each(|note| say(note));
        return Ok(());
    }
    let moves = report.moves(false).unwrap_or_default();
    write!(std::io::stderr(), "{}{moves}", report.text(false)).or(Ok(()))
}

/// Where the engine runs: inside the program unless xdp is asked for, which gives programs no
/// device of their own.
fn placement(args: &Args) -> Placement {
    args.engine.unwrap_or(if args.steer == "xdp" { Placement::Service } else { Placement::Direct })
}

/// Which connections move by default, and why. Over tc the kernel carries bulk data more cheaply. Over
/// xdp the kernel, too, handles one segment per frame, and its receive path costs more than ours. With
/// one CPU the engine competes with the program for it and only adds cost.
fn by_default(args: &Args, placement: Placement, cpus: usize) -> (Rule, Option<String>) {
    if cpus == 1 {
        let why = "with one CPU, no connection goes to an engine, which costs more there; --policy overrides this";
        return (Rule::Pairs, Some(why.to_owned()));
    }
    if args.steer == "xdp" {
        return (Rule::FirstCome, None);
    }
    let read = File::read(&args.calibration).unwrap_or_else(|refused| {
        say(&format!("{refused}; the built-in default serves"));
        None
    });
    let calibrated = read.and_then(|file| Some((file.rule(placement)?, file)));
    let Some((rule, file)) = calibrated else {
        let why = format!("no calibration of this machine; the default is {}", Rule::Small(None));
        return (Rule::Small(None), Some(format!("{why}; `baton calibrate` measures where the engine costs less")));
    };
    (rule, Some(format!("by the calibration of {}, the default is {rule}", file.measured_at)))
}

/// CPUs that the program may use.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Number of descriptors that the library may use above the program's own.
const MORE: u64 = 65_536;

/// Raises the hard limit of descriptors, if this process may, where the soft limit leaves the
/// library no room below it. Otherwise the library uses part of the program's own range.
fn make_room() {
    let limit = getrlimit(Resource::Nofile);
    if let (Some(soft), Some(hard)) = (limit.current, limit.maximum)
        && hard < soft + MORE
    {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: Some(soft + MORE) });
    }
}

/// Exits with the program's exit code, or ends by the same signal.
fn end_as(status: ExitStatus) -> anyhow::Result<()> {
    if let Some(signal) = status.signal() {
        signal_hook::low_level::emulate_default_handler(signal).context("ending by the program's signal")?;
    }
    std::process::exit(status.code().unwrap_or(1))
}

/// Finds the library next to this program or where packages install it.
fn library() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let places = ["", "../lib/baton", "../lib"].map(|place| own.with_file_name(place).join(LIBRARY));
    let found = places.into_iter().find(|path| path.is_file());
    let found = found.ok_or_else(|| {
        usage(
            format!("{LIBRARY} is not next to {}", own.display()),
            "build it: cargo build --package baton-shim (with --release for a release build)",
        )
    })?;
    let found = fs::canonicalize(found)?;
    if found.to_string_lossy().contains([':', ' ']) {
        return Err(usage(
            format!("ld.so cannot load {}", found.display()),
            "install Baton at a path without colons and spaces",
        ));
    }
    Ok(found)
}

fn preload(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

/// The service that the program uses.
struct Used {
    socket: PathBuf,
    /// Set if it is the service that runs share, which this run may have to end.
    private: Option<Private>,
}

impl Used {
    fn at(socket: impl Into<PathBuf>) -> Used {
        Used { socket: socket.into(), private: None }
    }

    /// Whether this run started it.
    fn is_ours(&self) -> bool {
        self.private.as_ref().is_some_and(|private| !private.was_joined())
    }

    fn introduce(&self) {
        if let Some(private) = &self.private {
            let whose = if private.was_joined() { "sharing the service of another run" } else { "started a service" };
            say(&format!("{whose}; list its connections with: baton ps --socket {}", self.socket.display()));
        }
    }

    /// Has the service follow this policy, if this run started it. Others keep theirs.
    fn follow(&self, policy: &Policy) -> anyhow::Result<()> {
        if !self.is_ours() {
            say("the service was started by others and keeps its policy; `baton reload FILE` replaces it");
            return Ok(());
        }
        let service = Service::connect(&self.socket).context("asking the service to follow the policy")?;
        service.reload(Some(policy)).context("loading the policy")?;
        Ok(())
    }

    /// Starts to watch for processes of the program that run without the library.
    fn look_for(&self, library: PathBuf) -> anyhow::Result<Unreached> {
        let place = self.private.as_ref().map(Private::place);
        let others = move |pid| place.as_ref().is_some_and(|place| place.has(pid));
        Unreached::watch(library, others).context("looking at processes")
    }

    fn has(&self, pid: Pid) -> bool {
        self.private.as_ref().is_some_and(|private| private.has(pid))
    }
}

/// Finds what moves the program's connections: the library, and a service.
fn reach(args: &Args, program: &Found, placement: Placement, home: &Path) -> anyhow::Result<(PathBuf, Used)> {
    if let Some(why) = &program.unreached {
        return Err(usage(why, "run a dynamically linked program that keeps its user"));
    }
    Ok((library()?, service(args, placement, home)?))
}

/// Finds the service for this run, or starts one.
fn service(args: &Args, placement: Placement, home: &Path) -> anyhow::Result<Used> {
    let remedy = "check that 'baton service' is running and that its [access] section lists this user";
    if let Some(socket) = &args.socket {
        let connected =
            Service::connect(socket).map_err(|error| usage(format!("{}: {error}", socket.display()), remedy));
        return connected.map(|_| Used::at(socket));
    }
    let named = !args.interface.is_empty() || args.steer != "auto";
    let there = || Service::connect(SOCKET).is_ok();
    if !named && there() {
        return Ok(Used::at(SOCKET));
    }
    if !rustix::process::geteuid().is_root() {
        let none =
            || usage("no service is running, and only root can start one", "run: sudo baton service --interface NAME");
        return usable().map(Used::at).ok_or_else(none);
    }
    // Only tc can give a program a device of its own.
    let steer = if placement == Placement::Direct { "tc" } else { args.steer.as_str() };
    let setup = Setup {
        steer: steer.to_owned(),
        rules: args.firewall,
        pair: args.pair,
        interfaces: args.interface.clone(),
        log: args.log(),
    };
    match Private::enter(home, setup) {
        Ok(private) => Ok(Used { socket: private.socket(), private: Some(private) }),
        // The running service may already steer the interface that was named.
        Err(_) if named && there() => Ok(Used::at(SOCKET)),
        Err(error) => Err(error),
    }
}

/// Prints a line to standard error, and ignores that it may be closed.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "baton: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_engine_is_inside_the_program_where_it_can_be() {
        let place = |words: &[&str]| {
            let words = ["run"].iter().chain(words).chain(&["--", "true"]);
            placement(&Line::parse_from(words).args).to_string()
        };
        assert_eq!(place(&[]), "direct");
        assert_eq!(place(&["--steer", "tc"]), "direct");
        assert_eq!(place(&["--steer", "xdp"]), "service");
        assert_eq!(place(&["--engine", "service"]), "service");
        assert_eq!(place(&["--steer", "tc", "--engine", "service"]), "service");
    }

    /// The default with this many CPUs and this calibration.
    fn rule(words: &[&str], cpus: usize, calibration: &Path) -> (Rule, String) {
        let calibration = format!("--calibration={}", calibration.display());
        let words = ["run", &calibration].into_iter().chain(words.iter().copied()).chain(["--", "true"]);
        let args = Line::parse_from(words).args;
        let (rule, why) = by_default(&args, placement(&args), cpus);
        (rule, why.unwrap_or_default())
    }

    #[test]
    fn bulk_stays_in_the_kernel_where_that_costs_less() {
        let none = Path::new("/nowhere/calibration.toml");
        assert_eq!(rule(&[], 2, none).0, Rule::Small(None));
        assert_eq!(rule(&["--engine", "service"], 2, none).0, Rule::Small(None));
        assert_eq!(rule(&["--steer", "xdp"], 2, none).0, Rule::FirstCome);
        assert!(rule(&[], 2, none).1.starts_with("no calibration of this machine; the default is small;"));
    }

    #[test]
    fn on_one_cpu_only_what_is_asked_for_goes_to_an_engine() {
        let none = Path::new("/nowhere/calibration.toml");
        assert_eq!(rule(&[], 1, none).0, Rule::Pairs);
        assert_eq!(rule(&["--steer", "xdp"], 1, none).0, Rule::Pairs);
    }

    #[test]
    fn a_calibration_gives_the_default_of_its_placement() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.toml");
        let placement = |name: &str, crossover_bytes| baton_lab::calibrate::Placement {
            name: name.to_owned(),
            crossover_bytes,
            saving_ns: 1,
            move_ns: 1,
            sizes: Vec::new(),
        };
        let placements = vec![placement("direct", Some(2048)), placement("service", None)];
        let file = File::here(baton_lab::calibrate::Calibration { rounds: 5, background: 0.0, placements });
        file.write(&path).unwrap();
        let (direct, why) = rule(&[], 2, &path);
        assert_eq!(direct.to_string(), "small 2048 bytes");
        assert_eq!(why, format!("by the calibration of {}, the default is small 2048 bytes", file.measured_at));
        assert_eq!(rule(&["--engine", "service"], 2, &path).0, Rule::Pairs);
        assert_eq!(rule(&["--steer", "xdp"], 2, &path).0, Rule::FirstCome);
        std::fs::write(&path, "format = 77").unwrap();
        assert_eq!(rule(&[], 2, &path).0, Rule::Small(None));
    }
}
