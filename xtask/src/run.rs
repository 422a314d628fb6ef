//! Starting programs: cargo and others that a step needs.

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// The cargo that runs this program, so that a toolchain override holds.
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A command from a program and its arguments.
pub fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments);
    command
}

/// True in CI (`CI=true`).
pub fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|v| v == "true")
}

/// True for the superuser.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program is on the `PATH`, or where Debian keeps administrators'.
pub fn on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory: std::path::PathBuf| directory.join(name).is_file())
}

/// Runs a command to its end; an error if it fails.
pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    if !status.success() {
        bail!("{}: {status}", line(command));
    }
    Ok(())
}

/// Runs a command to its end and returns what it printed; an error if it fails.
pub fn capture(command: &mut Command) -> Result<String> {
    let out = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {}", line(command)))?;
    if !out.status.success() {
        bail!("{}: {}", line(command), out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The command as a person would type it, without the program's directory.
pub fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command, shows each line that it prints and gives it to `see`; after `limit` ends it
/// with everything that it started. `None` if that happened.
pub fn watch(command: &mut Command, limit: Option<Duration>, mut see: impl FnMut(&str)) -> Result<Option<ExitStatus>> {
    if limit.is_some() {
        // A group of its own can be ended whole. Not so by default: a developer's
        // Ctrl-C has to reach it.
        command.process_group(0);
    }
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {}", line(command)))?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let group = Pid::from_child(&child);
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let watchdog = limit.map(|limit| {
        thread::spawn(move || {
            let late = ended.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
            if late {
                let _ = kill_process_group(group, Signal::KILL);
            }
            late
        })
    });
    for text in BufReader::new(stdout).split(b'\n') {
        let text = text.context("cannot read what it prints")?;
        let text = String::from_utf8_lossy(&text);
        println!("{text}");
        see(&text);
    }
    let status = child.wait()?;
    drop(done);
    let late = watchdog.is_some_and(|thread| thread.join().expect("the watchdog does not panic"));
    Ok((!late).then_some(status))
}

/// A duration for people.
pub fn seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}

/// Where cargo puts what it builds.
pub fn target() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_past_its_limit_is_ended_with_its_children() {
        let start = Instant::now();
        // The inner sleep holds the pipe open: if only the shell were ended, the read would
        // last as long as the sleep.
        let mut command = program("sh", &["-c", "echo one; sleep 100; echo two"]);
        let mut lines = Vec::new();
        let status = watch(&mut command, Some(Duration::from_millis(200)), |l| lines.push(l.to_owned())).unwrap();
        assert_eq!(status, None);
        assert_eq!(lines, ["one"]);
        assert!(start.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn a_program_within_its_limit_keeps_its_status() {
        let mut command = program("sh", &["-c", "exit 7"]);
        let status = watch(&mut command, Some(Duration::from_secs(50)), |_| ()).unwrap();
        assert_eq!(status.and_then(|s| s.code()), Some(7));
    }
}
