//! The command line: parsing, and how a command's outcome becomes an exit code.

use crate::commands::{
    bare, bench, bump, completions, control, demo, doctor, engine, events, get, guardian, load, man, run, serve,
    service, trace,
};
use baton_apps::fail;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use std::io::Write;
use std::process::ExitCode;

/// A TCP offload NIC written in software.
#[derive(Parser, Debug)]
#[command(name = "baton", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Baton's commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Offer echo, discard, chargen or the files of a directory
    Serve(serve::Args),
    /// Fetch a file over HTTP
    Get(get::Args),
    /// Run a program, unchanged, with its connections on the engine
    Run(run::Args),
    /// Take connections of this machine's programs over from the kernel, and give them back
    Service(service::Args),
    /// List the connections that a service knows
    Ps(control::Ps),
    /// Show what a service did last: moves and their reasons, processes that died, programs
    Events(events::Args),
    /// Have connections of programs handed to the engine
    Handoff(control::Which),
    /// Have connections given back to the kernel
    Restore(control::Which),
    /// End a service; everything goes back to the kernel first
    Stop(control::Plain),
    /// Have the engine that is installed now take over from the one that runs
    Upgrade(control::Plain),
    /// Stand between an interface and the kernel's TCP, and coalesce what arrives
    Bump(bump::Args),
    /// Show Baton and the kernel side by side, over a wire between two namespaces
    Demo(demo::Args),
    /// Say what this machine allows, and what to do where it does not
    Doctor(doctor::Args),
    /// Say what a capture would gain from receive coalescing
    Trace(trace::Args),
    /// Measure, next to the papers' figures
    Bench(bench::Args),
    /// Print the completion script of a shell
    Completions(completions::Args),
    /// Write the manual pages
    #[command(hide = true)]
    Man(man::Args),
    /// Generate load against a service
    #[command(hide = true)]
    Load(load::Args),
    /// The process of a service that has privileges
    #[command(hide = true)]
    Broker(service::Args),
    /// The process of a service that outlives its broker
    #[command(hide = true)]
    Guardian(guardian::Args),
    /// The process of a service that moves bytes
    #[command(hide = true)]
    Engine(engine::Args),
    /// Answer a load with the bare device, without TCP
    #[command(hide = true)]
    Bare(bare::Args),
}

/// Parses the command line, runs the command, and reports how it went: 0, 1 for
/// a failure, 2 for what the caller or the machine has to change.
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
        Command::Stop(args) => control::stop(&args),
        Command::Upgrade(args) => control::upgrade(&args),
        Command::Broker(args) => service::broker(&args),
        Command::Guardian(args) => guardian::run(args),
        Command::Engine(args) => engine::run(&args),
        Command::Bump(args) => bump::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
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

/// Prints help, or a usage error on one line with what helps.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Help that a closed pipe did not take was not wanted.
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
    use clap::CommandFactory;
    Cli::command().find_subcommand(command).is_some()
}

fn complain(line: &str) {
    // Nobody is left to tell if standard error is gone.
    let _ = writeln!(std::io::stderr(), "baton: {line}");
}
