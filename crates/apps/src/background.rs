//! Child programs that run in the background until this program ends them.

use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command};
use std::time::{Duration, Instant};

/// Interval between two checks of a running program.
pub const LOOK: Duration = Duration::from_millis(5);

/// A running program. Dropping this value asks the program to end: it closes the program's standard
/// input if that is a pipe, and sends `SIGTERM` otherwise. A program that does not end in time is
/// killed.
pub struct Background {
    child: Child,
    stdin: Option<ChildStdin>,
    patience: Duration,
}

impl Background {
    /// Starts a program, which may take up to `patience` to end. It gets a process group of its own, so
    /// that a terminal's Ctrl-C does not reach it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command, patience: Duration) -> io::Result<Background> {
        let mut child = command.process_group(0).spawn()?;
        let stdin = child.stdin.take();
        Ok(Background { child, stdin, patience })
    }

    /// The child process, to read what it prints.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its process id, which no other process can get before this one has been reaped.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its standard input.
    ///
    /// # Errors
    /// If its standard input is not a pipe, or if it has ended.
    pub fn tell(&mut self, words: &[u8]) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        io::Write::write_all(stdin, words)
    }

    /// Returns true if it has ended.
    ///
    /// # Errors
    /// If `waitpid` fails.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Sends it a signal if it is still running.
    pub fn signal(&self, signal: Signal) {
        // It may have ended by itself; its id cannot be reused before it is reaped.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Ends it, and waits until it has ended.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub fn end(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        if self.stdin.take().is_none() && !self.has_ended()? {
            self.signal(Signal::TERM);
        }
        while !self.has_ended()? {
            if begun.elapsed() > self.patience {
                self.child.kill()?;
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // There is nobody to report an error to.
        let _ = self.end();
    }
}

/// The last line of a program's output, without the prefix `baton: `.
pub fn last_words(said: &str) -> String {
    let last = said.trim().lines().last().unwrap_or("it ended without output");
    last.trim_start_matches("baton: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn start(words: &[&str], stdin: Stdio, patience: Duration) -> Background {
        Background::start(Command::new(words[0]).args(&words[1..]).stdin(stdin), patience).unwrap()
    }

    #[test]
    fn a_program_ends_with_its_input() {
        let mut cat = start(&["cat"], Stdio::piped(), Duration::MAX);
        assert!(!cat.has_ended().unwrap());
        cat.end().unwrap();
        // It was not ended by a signal.
        assert!(cat.child().wait().unwrap().success());
    }

    #[test]
    fn a_program_without_input_is_ended_by_a_signal() {
        let mut sleep = start(&["sleep", "1000"], Stdio::null(), Duration::MAX);
        sleep.end().unwrap();
        assert!(sleep.has_ended().unwrap());
    }

    #[test]
    fn a_program_that_does_not_listen_is_killed() {
        let mut deaf = start(&["sleep", "1000"], Stdio::piped(), Duration::from_millis(20));
        deaf.end().unwrap();
        assert!(deaf.has_ended().unwrap());
    }

    #[test]
    fn the_last_line_is_returned() {
        assert_eq!(last_words("one\nbaton: two\n"), "two");
        assert_eq!(last_words(""), "it ended without output");
    }
}
