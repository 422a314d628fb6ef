//! The `baton` program: see the crate's library for what it does.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    baton_cli::cli::main()
}
