//! `--log` and `--log-level`: where the processes of a service log to, and how much.

use baton_apps::fail::usage;
use baton_journal::{Level, sink};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where a process logs to. Each process of a service gets the same.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    /// Append the log to this file; standard error, if none is named
    #[arg(long = "log", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How much the log tells: error, warn, info, debug (each connection that moves, and why) or trace
    #[arg(long = "log-level", value_name = "LEVEL", value_parser = |text: &str| text.parse::<Level>())]
    pub level: Option<Level>,
}

impl Log {
    /// The same with this level, if none was named.
    pub fn or(&self, level: Level) -> Log {
        Log { level: self.level.or(Some(level)), ..self.clone() }
    }

    /// Has this process, which lines call by this name, log there from now on.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(&self, process: &'static str) -> anyhow::Result<()> {
        let level = self.level.unwrap_or(Level::Info);
        let Some(file) = &self.file else {
            sink::to_standard_error(process, level);
            return Ok(());
        };
        let failed = |error| unusable(file, &error);
        sink::to_file(process, level, sink::append(file).map_err(failed)?).map_err(failed)
    }

    /// Words of a command line that say the same, wherever it is run.
    ///
    /// # Errors
    /// If the file has no name that holds everywhere: there is no working directory.
    pub fn words(&self) -> std::io::Result<Vec<OsString>> {
        let mut words: Vec<OsString> = Vec::new();
        if let Some(file) = &self.file {
            words.extend(["--log".into(), std::path::absolute(file)?.into()]);
        }
        if let Some(level) = self.level {
            words.extend(["--log-level".into(), level.word().into()]);
        }
        Ok(words)
    }
}

fn unusable(file: &Path, error: &std::io::Error) -> anyhow::Error {
    usage(format!("the log {}: {error}", file.display()), "name a file that this user may append to")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        log: Log,
    }

    #[test]
    fn its_words_say_the_same() {
        for words in [vec!["x"], vec!["x", "--log", "/a b", "--log-level", "trace"]] {
            let log = Line::parse_from(&words).log;
            let again = log.words().unwrap();
            let again = std::iter::once(OsString::from("x")).chain(again);
            assert_eq!(Line::parse_from(again).log, log);
        }
    }

    #[test]
    fn a_level_that_was_named_counts() {
        let log = Line::parse_from(["x", "--log-level", "warn"]).log;
        assert_eq!(log.or(Level::Debug).level, Some(Level::Warn));
        assert_eq!(Log::default().or(Level::Debug).level, Some(Level::Debug));
    }
}
