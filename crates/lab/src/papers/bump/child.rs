//! Runs `baton bump` as a child process, and reads its counters.

use crate::report::bump::{Line, Report};
use crate::world::Namespace;
use anyhow::{Context, bail};
use baton_apps::background::Background;
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

/// Time that a bump may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A running bump. It ends when this is dropped, and by itself when this process dies,
/// since its standard input then ends.
pub struct BumpChild {
    child: Background,
    stdout: BufReader<ChildStdout>,
}

impl BumpChild {
    /// Starts one in `namespace`; frames pass when this returns.
    pub fn start(namespace: &Namespace, arguments: &[String]) -> anyhow::Result<BumpChild> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = namespace.command(&program.to_string_lossy());
        command.args(["bump", "--json", "--control"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Background::start(&mut command, PATIENCE).context("cannot start a bump")?;
        let stdout = BufReader::new(child.child().stdout.take().context("no pipe from a bump")?);
        let mut bump = BumpChild { child, stdout };
        match bump.line()? {
            Line::Ready { .. } => Ok(bump),
            Line::Stats(_) => bail!("a bump sent counters before it was ready"),
        }
    }

    /// Number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads its counters.
    pub fn report(&mut self) -> anyhow::Result<Report> {
        self.child.tell(b"stats\n").context("a bump ended")?;
        match self.line()? {
            Line::Stats(report) => Ok(report),
            Line::Ready { .. } => bail!("a bump reported twice that it is ready"),
        }
    }

    /// Reads its next line. It answers within a turn, unless it has ended; then this fails.
    fn line(&mut self) -> anyhow::Result<Line> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).context("a bump ended")? == 0 {
            bail!("a bump ended; its message above says why");
        }
        serde_json::from_str(&line).with_context(|| format!("a bump printed '{}'", line.trim()))
    }
}
