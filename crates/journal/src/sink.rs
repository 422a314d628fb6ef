//! The log of a process: lines on standard error, or at the end of a file.
//!
//! ```text
//!   2026-11-26T16:31:12.123456Z info  broker[812] service: serves eth0 at /run/baton/baton.sock
//!   <6>broker service: serves eth0 at /run/baton/baton.sock            (to systemd's journal)
//! ```
//!
//! Where standard error is systemd's journal (`JOURNAL_STREAM` names it), a line begins with its
//! priority instead of time, level and process id (`sd-daemon(3)`). The journal's own socket would
//! keep fields apart, too. But the engine has given up its privileges and may not find that socket,
//! messages to it get lost when journald starts anew, and `baton events --json` has the fields.
//!
//! There are no spans, so `tracing` alone is enough: this is its subscriber. A line is one
//! `write(2)`, which appends as a whole; nothing is kept back, and no lock is taken. A line is
//! left out if the reader of standard error has no room for it. A library inside
//! a program can use it: it calls the kernel, not libc, and it writes to a descriptor only while that
//! still is the file it opened, since a program may close descriptors that it does not know.

use crate::event::{Level, one_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::process::getpid;
use std::fmt::{self, Write};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Where lines go.
enum Output {
    /// Standard error, which is systemd's journal or not.
    Error { is_journal: bool },
    /// A file, with its device and inode.
    File(OwnedFd, (u64, u64)),
}

/// Where this process's events are written.
struct Sink {
    process: String,
    level: LevelFilter,
    output: Output,
}

/// Sends events down to this level to standard error. `process` is the name of this process in each
/// line. If the process has a subscriber already, that one stays, and nothing changes.
pub fn to_standard_error(process: impl Into<String>, level: Level) {
    let is_journal = std::env::var("JOURNAL_STREAM").is_ok_and(|stream| is_of(&stream));
    install(process.into(), level, Output::Error { is_journal });
}

/// Sends them to the end of a file, which [`append`] has opened.
///
/// # Errors
/// As of `fstat(2)`.
pub fn to_file(process: impl Into<String>, level: Level, file: OwnedFd) -> io::Result<()> {
    let identity = identity(&file)?;
    install(process.into(), level, Output::File(file, identity));
    Ok(())
}

/// Opens a file for a log, and makes it if it is not there.
///
/// # Errors
/// As of `open(2)`.
pub fn append(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(open(path, flags, Mode::from_raw_mode(0o644))?)
}

fn install(process: String, level: Level, output: Output) {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    // Fails if there is a subscriber already: that one stays.
    let _ = tracing::subscriber::set_global_default(Sink { process, level, output });
}

/// Whether a line can be written without waiting for a reader: the broker waits for nobody. A pipe
/// that is ready takes at least 4096 bytes (`pipe(7)`), more than a line has.
fn has_room(fd: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&now)).is_ok_and(|ready| ready > 0)
}

fn identity(fd: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Whether standard error is the stream of this device and inode (`systemd.exec(5)`).
fn is_of(stream: &str) -> bool {
    let numbers = stream.split_once(':').and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?)));
    numbers.is_some() && identity(rustix::stdio::stderr()).ok() == numbers
}

impl Subscriber for Sink {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("baton")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            tracing::Level::DEBUG => Level::Debug,
            tracing::Level::TRACE => Level::Trace,
        };
        self.write(level, &fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Sink {
    fn line(&self, level: Level, fields: &Fields) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let head = match self.output {
            Output::Error { is_journal: true } => format!("<{}>{}", level.priority(), self.process),
            _ => {
                let pid = getpid().as_raw_nonzero();
                format!("{} {level:5} {}[{pid}]", crate::time::rfc3339(now), self.process)
            }
        };
        let line = format!("{head} {}: {}{}", fields.kind, fields.text, fields.rest);
        one_line(&line).into_owned() + "\n"
    }

    fn write(&self, level: Level, fields: &Fields) {
        let line = self.line(level, fields);
        // Nobody is left to tell if the log is gone, or full.
        let _ = match &self.output {
            Output::Error { .. } if has_room(rustix::stdio::stderr()) => {
                rustix::io::write(rustix::stdio::stderr(), line.as_bytes())
            }
            Output::File(file, opened) if identity(file).is_ok_and(|now| now == *opened) => {
                rustix::io::write(file, line.as_bytes())
            }
            Output::Error { .. } | Output::File(..) => Ok(0),
        };
    }
}

/// The fields of an event as text.
#[derive(Default)]
struct Fields {
    kind: String,
    text: String,
    /// The others, each with a space before it.
    rest: String,
}

impl Fields {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.text, "{value}"),
            "kind" => write!(self.kind, "{value}"),
            name => write!(self.rest, " {name}={value}"),
        };
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::pread;

    fn fields() -> Fields {
        Fields { kind: "denied".into(), text: "user 7\nmay not".into(), rest: " reason=denied".into() }
    }

    fn sink(output: Output) -> Sink {
        Sink { process: "broker".into(), level: LevelFilter::TRACE, output }
    }

    #[test]
    fn the_journal_gets_priorities() {
        let sink = sink(Output::Error { is_journal: true });
        let lines = Level::ALL.map(|level| sink.line(level, &fields()));
        let expected = ["<3>", "<4>", "<6>", "<7>", "<7>"];
        assert_eq!(lines, expected.map(|head| format!("{head}broker denied: user 7 may not reason=denied\n")));
    }

    #[test]
    fn others_get_time_level_and_process_id() {
        let line = sink(Output::Error { is_journal: false }).line(Level::Warn, &fields());
        let end = format!("Z warn  broker[{}] denied: user 7 may not reason=denied\n", std::process::id());
        assert!(line.ends_with(&end) && line.lines().count() == 1, "{line}");
    }

    #[test]
    fn a_descriptor_that_is_another_file_by_now_is_left_alone() {
        let file = || memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        let written = |opened: &OwnedFd, file: OwnedFd| {
            let kept = file.try_clone().unwrap();
            sink(Output::File(file, identity(opened).unwrap())).write(Level::Info, &fields());
            pread(&kept, &mut [0; 200], 0).unwrap()
        };
        let opened = file();
        assert!(written(&opened, opened.try_clone().unwrap()) > 0);
        assert_eq!(written(&opened, file()), 0);
    }

    #[test]
    fn standard_error_is_the_stream_of_its_own_name() {
        let (dev, ino) = identity(rustix::stdio::stderr()).unwrap();
        assert!(is_of(&format!("{dev}:{ino}")));
        assert!(!is_of(&format!("{dev}:{}", ino + 1)) && !is_of("") && !is_of("8:"));
    }
}
