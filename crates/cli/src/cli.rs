//! The command line: parses it, and turns a command's outcome into an exit code.

use crate::commands::{
    bare, bench, bump, calibrate, capture, completions, control, demo, doctor, engine, events, get, guardian, lab,
    latency, load, man, policy, run, serve, service, trace,
};
use baton_apps::fail;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// A TCP offload NIC written in software.
#[derive(Parser, Debug)]
#[command(name = "baton", version, max_term_width = 100)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// Baton's commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serve echo, discard, chargen, or a directory over HTTP
    Serve(serve::Args),
    /// Fetch a file over HTTP
    Get(get::Args),
    /// Run an unmodified program with its TCP connections on the engine
    Run(run::Args),
    /// Run the service that moves programs' connections between the kernel and an engine
    Service(service::Args),
    /// List the connections of a running service
    Ps(control::Ps),
    /// Show recent events of a service: moves, their reasons, processes that died
    Events(events::Args),
    /// Move connections from the kernel to the engine, or into pairs
    Handoff(control::HandoffArgs),
    /// Move connections from the engine back to the kernel
    Restore(control::Which),
    /// Check a policy, or say which of its rules decides about each connection
    Policy(policy::Args),
    /// Load a new policy into a running service
    Reload(policy::Reload),
    /// Stop a service, after moving every connection back to the kernel
    Stop(control::Plain),
    /// Replace running engines with the version that is installed now
    Upgrade(control::Plain),
    /// Coalesce received segments between an interface and the kernel's TCP
    Bump(bump::Args),
    /// Compare Baton with the kernel, over a wire between two network namespaces
    Demo(demo::Args),
    /// Check what this machine supports, and say how to fix what is missing
    Doctor(doctor::Args),
    /// Compute what receive coalescing would save on a capture or on live traffic
    Trace(trace::Args),
    /// Show where the time of live connections goes, by layer
    Latency(latency::Args),
    /// Write what pairs exchange through memory as a capture of packets
    Capture(capture::Args),
    /// Run measurements to compare with published figures
    Bench(bench::Args),
    /// Repeat the tables and figures of the papers, and show the papers' values beside ours
    Lab(lab::Args),
    /// Measure what the engine costs here, for the default of `baton run`
    Calibrate(calibrate::Args),
    /// Print the completion script of a shell
    Completions(completions::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(man::Args),
    /// Generate load against a service
    #[command(hide = true)]
    Load(load::Args),
    /// The privileged process of a service
    #[command(hide = true)]
    Broker(service::Args),
    /// The process of a service that restarts a dead broker
    #[command(hide = true)]
    Guardian(guardian::Args),
    /// The process of a service that runs TCP
    #[command(hide = true)]
    Engine(engine::Args),
    /// Answer a load directly on the device, without a TCP stack
    #[command(hide = true)]
    Bare(bare::Args),
}

/// Parses the command line, runs the command, and returns its exit code: 0 for success, 1 for
/// a failure, 2 for an error that the caller can fix (usage, or a property of the machine).
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Get(args) => get::run(args),
        Command::Run(args) => run::run(&args),
        Command::Service(args) => service::run(&args),
        Command::Ps(args) => control::ps(&args),
        Command::Events(args) => events::run(&args),
        Command::Handoff(args) => control::handoff(&args),
        Command::Restore(args) => control::restore(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Reload(args) => policy::reload(&args),
        Command::Stop(args) => control::stop(&args),
        Command::Upgrade(args) => control::upgrade(&args),
        Command::Broker(args) => service::broker(&args),
        Command::Guardian(args) => guardian::run(args),
        Command::Engine(args) => engine::run(&args),
        Command::Bump(args) => bump::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Latency(args) => latency::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Lab(args) => lab::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Load(args) => load::run(args),
        Command::Bare(args) => bare::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&fail::one_line(&error));
            ExitCode::from(fail::exit_code(&error))
        }
    }
}

/// Prints help, or a usage error on one line with its remedy.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A reader that closed the pipe does not want the help.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.render().to_string();
    let (what, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let what = what.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ");
    let tip = rest.lines().find_map(|line| line.trim().strip_prefix("tip: ")).map(|tip| format!("{tip}; "));
    let command = std::env::args().nth(1).filter(|word| !word.starts_with('-')).map(|word| format!(" {word}"));
    let known = command.filter(|word| clap_knows(word.trim()));
    complain(&format!("{what}; {}try 'baton{} --help'", tip.unwrap_or_default(), known.unwrap_or_default()));
    ExitCode::from(2)
}

fn clap_knows(command: &str) -> bool {
    Cli::command().find_subcommand(command).is_some()
}

fn complain(line: &str) {
    // If standard error is closed, there is nowhere left to report to.
    let _ = writeln!(std::io::stderr(), "baton: {line}");
}
