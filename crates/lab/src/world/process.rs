//! Runs programs to their end, with a time limit, and stops them on request.

use anyhow::{Context, bail};
use baton_apps::background::LOOK;
use baton_apps::signal::Stop;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
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

/// Runs a command to its end, and returns its standard output.
///
/// # Errors
/// The errors of [`listen`].
pub fn run(command: &mut Command, stop: &Stop, limit: Duration) -> anyhow::Result<String> {
    Ok(listen(command, stop, limit)?.out)
}

/// Runs a command to its end, and returns all that it printed.
///
/// # Errors
/// If it fails, takes longer than `limit`, or the demo is asked to end. In the last two cases the
/// program is ended.
pub fn listen(command: &mut Command, stop: &Stop, limit: Duration) -> anyhow::Result<Said> {
    let name = format!("{command:?}").replace('"', "");
    // In a process group of its own, so that a terminal's SIGINT does not reach it: the demo ends it.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    // A pipe holds little, and a program waits while it is full.
    let (out, err) = (read_to_end(child.stdout.take()), read_to_end(child.stderr.take()));
    let deadline = Instant::now() + limit;
    let status = loop {
        let why = match child.try_wait()? {
            Some(status) => break status,
            None if stop.requested() => "interrupted",
            None if Instant::now() > deadline => "took too long",
            None => {
                std::thread::sleep(LOOK);
                continue;
            }
        };
        child.kill()?;
        child.wait()?;
        bail!("{name}: {why}");
    };
    let said = |reader: JoinHandle<io::Result<Vec<u8>>>| {
        let said = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        said.map(|said| String::from_utf8_lossy(&said).into_owned())
    };
    let said = Said { out: said(out)?, err: said(err)? };
    if !status.success() {
        bail!("{name}: {status}: {}", said.err.trim().lines().last().unwrap_or(""));
    }
    Ok(said)
}

/// Reads a pipe on a thread of its own, until all that have it open for writing have closed it.
fn read_to_end(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut said)).map(|_| said)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_print_more_than_a_pipe_holds() {
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2"]);
        let said = listen(&mut command, &Stop::default(), Duration::from_secs(20)).unwrap();
        assert_eq!((said.out.len(), said.err.len()), (300_000, 200_000));
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let error = listen(Command::new("sleep").arg("60"), &Stop::default(), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "sleep 60: took too long");
    }
}
