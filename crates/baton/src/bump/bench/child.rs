//! `baton bump` as a child: started, asked for its counters, ended.

use crate::bump::{Line, Report};
use crate::demo::Namespace;
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// A running bump. It ends when this is dropped, and by itself when this process dies,
/// since its standard input then ends.
pub struct BumpChild {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl BumpChild {
    /// Starts one in `namespace`; frames pass when this returns.
    pub fn start(namespace: &Namespace, arguments: &[String]) -> anyhow::Result<BumpChild> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = namespace.command(&program.to_string_lossy());
        command.args(["bump", "--json", "--control"]).args(arguments);
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a bump")?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("no pipe from a bump")?);
        let mut bump = BumpChild { child, stdin, stdout };
        match bump.line()? {
            Line::Ready { .. } => Ok(bump),
            Line::Stats(_) => bail!("a bump that counts before it is ready"),
        }
    }

    /// What it has counted so far.
    pub fn report(&mut self) -> anyhow::Result<Report> {
        self.stdin.as_mut().context("a bump that was told to end")?.write_all(b"stats\n").context("a bump ended")?;
        match self.line()? {
            Line::Stats(report) => Ok(report),
            Line::Ready { .. } => bail!("a bump that is ready twice"),
        }
    }

    /// Its next line. It answers within a turn, or has ended: then there is none.
    fn line(&mut self) -> anyhow::Result<Line> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).context("a bump ended")? == 0 {
            bail!("a bump ended; it has said why");
        }
        serde_json::from_str(&line).with_context(|| format!("a bump printed '{}'", line.trim()))
    }
}

impl Drop for BumpChild {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        // It did not end by itself: no harm if it does so just now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
