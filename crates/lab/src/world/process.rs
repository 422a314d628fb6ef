//! Runs programs to their end, with a time limit, and stops them on request.

use anyhow::{Context, bail};
use baton_apps::background::LOOK;
use baton_apps::signal::Stop;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs a short command to its end.
pub fn output(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).output()
}

/// Output of a program that has ended.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// Runs a command with little output to its end, and returns its standard output.
///
/// # Errors
/// The errors of [`listen`].
pub fn run(command: &mut Command, stop: &Stop, limit: Duration) -> anyhow::Result<String> {
    Ok(listen(command, stop, limit)?.out)
}

/// Runs a command with little output to its end, and returns all that it printed.
///
/// # Errors
/// If it fails, takes longer than `limit`, or the demo is asked to end. In the last two cases the
/// program is ended.
pub fn listen(command: &mut Command, stop: &Stop, limit: Duration) -> anyhow::Result<Said> {
    let name = format!("{command:?}").replace('"', "");
    // In a process group of its own, so that a terminal's SIGINT does not reach it: the demo ends it.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let deadline = Instant::now() + limit;
    let why = loop {
        match child.try_wait()? {
            Some(_) => break None,
            None if stop.requested() => break Some("interrupted"),
            None if Instant::now() > deadline => break Some("took too long"),
            None => std::thread::sleep(LOOK),
        }
    };
    if let Some(why) = why {
        child.kill()?;
        child.wait()?;
        bail!("{name}: {why}");
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name}: {}: {}", output.status, said.trim().lines().last().unwrap_or(""));
    }
    let [out, err] = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    Ok(Said { out, err })
}

/// Runs a command and passes its output to `take` as it arrives.
///
/// # Errors
/// The errors of [`listen`].
pub fn stream(
    command: &mut Command,
    stop: &Stop,
    limit: Duration,
    take: &mut (dyn FnMut(&[u8]) + Send),
) -> anyhow::Result<()> {
    let name = format!("{command:?}").replace('"', "");
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let mut stdout = child.stdout.take().context("no pipe from a child")?;
    let deadline = Instant::now() + limit;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> io::Result<()> {
            let mut buf = vec![0; 1 << 16];
            loop {
                match stdout.read(&mut buf)? {
                    0 => return Ok(()),
                    len => take(&buf[..len]),
                }
            }
        });
        while !reader.is_finished() {
            if stop.requested() || Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("{name}: {}", if stop.requested() { "interrupted" } else { "took too long" });
            }
            std::thread::sleep(LOOK);
        }
        let status = child.wait()?;
        match reader.join() {
            Ok(read) => read?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        if !status.success() {
            bail!("{name}: {status}");
        }
        Ok(())
    })
}
