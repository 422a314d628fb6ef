//! The `baton` program. The crate's library does the work.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    baton_cli::cli::main()
}
