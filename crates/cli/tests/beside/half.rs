//! The program at one end of the connection, and its reports.

use crate::world::baton;
use baton_testkit::{Running, run};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The environment variable that holds the world's directory in all its processes.
pub const MARK: &str = "BATON_BESIDE_WORLD";

/// Longest wait for a report of a live program.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program: see `end.c`.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &PROGRAM
        .get_or_init(|| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/beside/end.c");
            let directory = tempfile::tempdir().unwrap();
            let program = directory.path().join("end");
            run(&mut baton_testkit::c::compiler(&source, &program));
            (directory, program)
        })
        .1
}

/// An end's report of its connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub sent: u64,
    pub received: u64,
    /// `-` while it lives, else `eof` or the name of the first error.
    pub end: String,
}

pub struct Half {
    running: Running,
    lines: Receiver<String>,
    name: &'static str,
}

impl Half {
    /// Starts a program with this command, which ends with the program's name.
    pub fn start(name: &'static str, mut command: Command, words: [&str; 4]) -> Half {
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = Running::start(&mut command);
        let stdout = BufReader::new(running.child().stdout.take().expect("it is piped"));
        let (tell, lines) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Half { running, lines, name }
    }

    #[track_caller]
    pub fn hear(&self, word: &str) {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => assert_eq!(line, word, "{}", self.name),
            Err(error) => panic!("{} does not say {word}: {error}", self.name),
        }
    }

    pub fn tell(&mut self, order: char) {
        let mut stdin = self.running.child().stdin.as_ref().expect("it is piped");
        // A killed program reads no commands, so ignore errors.
        let _ = stdin.write_all(&[order as u8, b'\n']);
    }

    /// Asks for its report. Returns `None` if it has ended.
    #[track_caller]
    pub fn report(&mut self) -> Option<Report> {
        self.tell('r');
        let line = match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => panic!("{} hangs: no answer within {PATIENCE:?}", self.name),
        };
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<i64>().unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(number(7), -1, "{}: the byte at this place is wrong: {line}", self.name);
        Some(Report { sent: number(1) as u64, received: number(3) as u64, end: words[5].to_owned() })
    }

    /// Ends it by closing its input, and waits until it has ended.
    pub fn finish(&mut self) {
        drop(self.running.child().stdin.take());
        let begun = std::time::Instant::now();
        while matches!(self.running.child().try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                panic!("{} does not end", self.name);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Kills the processes of a world that have this role: the programs, or the service's processes.
#[track_caller]
pub fn kill(world: &Path, role: &str) {
    let found = processes(world, role);
    assert!(!found.is_empty(), "no {role} runs");
    for pid in found {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn processes(world: &Path, role: &str) -> Vec<Pid> {
    let mark = format!("{MARK}={}", world.display());
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.filter_map(|pid| {
        let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).ok();
        read("environ")?.split(|byte| *byte == 0).find(|variable| *variable == mark.as_bytes())?;
        let words = read("cmdline")?;
        let mut words = words.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let (first, second) = (words.next()?, words.next()?);
        let is_it = match role {
            "program" => *first == *program().to_string_lossy(),
            role => *first == *baton().to_string_lossy() && second == role || first == role,
        };
        is_it.then(|| Pid::from_raw(pid)).flatten()
    });
    found.collect()
}
