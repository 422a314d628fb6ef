//! Tools that tests and benchmarks of several crates share; a dev-dependency only.
//!
//! * [`skip!`], [`note_skip!`], [`need_root!`], [`need_program!`]: a test that
//!   cannot run here says so and is counted as skipped, never as passed.
//! * [`Netns`]: a network namespace that goes away with the test, whatever
//!   happens to it; [`veth`] puts a wire between two of them.
//! * [`Running`]: a program in the background that ends with the test; [`wait_for`] what it does.
//! * [`throttle::Throttle`]: a process gets a part of a CPU.
//! * [`vm`]: a test runs anew under another kernel, in an emulator.
//! * [`types`]: a test runs anew where the kernel does not show its types (BTF).
//! * [`bpf`]: BPF programs of others, that count what they see.
//! * [`c`]: C programs, built against the library.
//! * [`corpus`]: the inputs that fuzzing found, replayed.
//! * [`rounds::Rounds`]: benchmarks that alternate, with medians and raw figures.
//!
//! # How a skip is counted
//!
//! The test runner knows only passed and failed. So a skip prints `SKIPPED why`
//! and appends a line to the file named by `BATON_SKIP_LOG`, from which
//! `cargo xtask test` moves the test from *passed* to *skipped*. In CI (`CI=true`)
//! and as root, nothing that set-up provides can be missing: there the `need_*`
//! macros fail the test instead.
#![forbid(unsafe_code)]

pub mod bpf;
pub mod c;
pub mod corpus;
pub mod netns;
pub mod process;
pub mod rounds;
pub mod skip;
pub mod throttle;
pub mod types;
pub mod vm;

pub use netns::{Netns, veth};
pub use process::{LONG, Running, build_beside, output, run, wait_for};

/// The running test's or benchmark's name, without the hash that cargo adds.
fn binary_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    stem.rsplit_once('-').map_or(stem.clone(), |(name, _)| name.to_owned())
}

/// Ends the test here and counts it as skipped: `skip!("no {name} on this kernel")`.
///
/// For what no set-up can change, such as a kernel without a feature. The test
/// function must return `()`.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::skip::record($crate::skip::Extent::Whole, &format!($($why)*));
        return;
    }};
}

/// Records that a part of the test cannot run here; the test goes on and counts
/// by its outcome.
#[macro_export]
macro_rules! note_skip {
    ($($why:tt)*) => {
        $crate::skip::record($crate::skip::Extent::Part, &format!($($why)*))
    };
}

/// Skips the test unless it may make namespaces and devices; fails it in CI as root.
#[macro_export]
macro_rules! need_root {
    () => {
        if let Err(why) = $crate::skip::check_root() {
            $crate::skip::missing(&why);
            return;
        }
    };
}

/// Skips the test where the kernel does not show its types (BTF): without them a program gets
/// no engine of its own.
#[macro_export]
macro_rules! need_types {
    () => {
        if !$crate::types::are_there() {
            $crate::skip!("this kernel does not show its types (CONFIG_DEBUG_INFO_BTF)");
        }
    };
}

/// Skips the test unless a program is on the `PATH`; fails it in CI as root.
#[macro_export]
macro_rules! need_program {
    ($name:expr) => {
        if let Err(why) = $crate::skip::check_program($name) {
            $crate::skip::missing(&why);
            return;
        }
    };
}
