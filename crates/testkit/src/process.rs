//! Programs that tests start.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to end after `SIGTERM`.
const GRACE: Duration = Duration::from_secs(2);

/// The longest wait for anything: a guard against hanging, even on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Runs a command to its end and returns what it printed.
///
/// # Panics
/// If it cannot be started or fails; its words are in the message.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let out = output(command);
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Runs a command to its end, also if it fails.
///
/// # Panics
/// If it cannot be started.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"))
}

/// Builds the library of a package beside a program of this build, which loads it from there.
/// Cargo does not build it for tests that cannot link to it. `directory` is any of the
/// workspace's.
///
/// # Panics
/// If it cannot be built.
#[track_caller]
pub fn build_beside(program: &Path, package: &str, directory: &str) {
    let target = program.ancestors().nth(2).expect("target/debug/program");
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let words = ["build", "--locked", "--package", package, "--lib", "--profile", "test", "--quiet"];
    run(Command::new(cargo).current_dir(directory).args(words).arg("--target-dir").arg(target));
}

/// Waits until `done` is true.
///
/// # Panics
/// If that takes longer than [`LONG`].
#[track_caller]
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{what} does not come");
        sleep(Duration::from_millis(2));
    }
}

/// A program in the background. Dropped, it is asked to end (`SIGTERM`), then,
/// after two seconds, made to.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts a program.
    ///
    /// # Panics
    /// If it cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        let child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        Running { child }
    }

    /// The process, for its pipes, its id or a wait.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal to the process, if it has not been waited for.
    pub fn signal(&mut self, signal: Signal) {
        if let Ok(None) = self.child.try_wait() {
            // It may end between the two calls, but stays a zombie of ours, so
            // the number cannot be somebody else's.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_program_ends_with_its_guard() {
        let mut sleeper = Running::start(Command::new("sleep").arg("1000"));
        let proc = PathBuf::from(format!("/proc/{}", sleeper.child().id()));
        assert!(proc.exists());
        drop(sleeper);
        assert!(!proc.exists());
    }

    #[test]
    fn a_program_that_ignores_the_request_ends_too() {
        let mut deaf = Running::start(Command::new("sh").args(["-c", "trap '' TERM; while :; do sleep 1; done"]));
        let proc = PathBuf::from(format!("/proc/{}", deaf.child().id()));
        // Without a pause the signal may come before the trap, which proves less
        // but fails nothing.
        sleep(Duration::from_millis(50));
        drop(deaf);
        assert!(!proc.exists());
    }

    #[test]
    #[should_panic(expected = "words of the program")]
    fn a_failure_shows_what_the_program_said() {
        run(Command::new("sh").args(["-c", "echo words of the program >&2; exit 3"]));
    }
}
