//! One event: when, how grave, of what kind, about which connection and program, and why.

use crate::time;
use baton_wire::addr::Tuple;
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// How grave an event is. A log of one level has all levels before it, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// A connection was lost, or a process died.
    Error,
    /// The host is at fault, or a step failed and is tried again.
    Warn,
    /// The life of the service, its programs and its processes; moves as a sum.
    Info,
    /// Each connection's move, and its reason.
    Debug,
    /// Each message between processes.
    Trace,
}

impl Level {
    /// All of them, the gravest first.
    pub const ALL: [Level; 5] = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];

    /// Its name in configurations, on the command line and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        }
    }

    /// The priority of `syslog(3)` that systemd's journal files it under.
    pub const fn priority(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warn => 4,
            Level::Info => 6,
            Level::Debug | Level::Trace => 7,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        let found = Level::ALL.into_iter().find(|level| level.word() == text);
        found.ok_or_else(|| format!("'{text}' is no level; use error, warn, info, debug or trace"))
    }
}

/// The subject of an event: a word that never changes its meaning. The limit counts each kind alone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kind(pub Cow<'static, str>);

impl Kind {
    /// The service begins to serve, or ends.
    pub const SERVICE: Kind = Kind(Cow::Borrowed("service"));
    /// A configuration was taken.
    pub const CONFIG: Kind = Kind(Cow::Borrowed("config"));
    /// Steering was attached to an interface, or detached.
    pub const STEERING: Kind = Kind(Cow::Borrowed("steering"));
    /// An engine started or ended.
    pub const ENGINE: Kind = Kind(Cow::Borrowed("engine"));
    /// A broker died, or took up the connections of a dead one.
    pub const BROKER: Kind = Kind(Cow::Borrowed("broker"));
    /// A guardian died or was started.
    pub const GUARDIAN: Kind = Kind(Cow::Borrowed("guardian"));
    /// A program connected or disconnected.
    pub const PROGRAM: Kind = Kind(Cow::Borrowed("program"));
    /// A program may not use the service, or was cut off.
    pub const DENIED: Kind = Kind(Cow::Borrowed("denied"));
    /// A person asked for something: `baton restore`, `baton stop` and the like.
    pub const ASKED: Kind = Kind(Cow::Borrowed("asked"));
    /// A connection is in the engine.
    pub const MOVED: Kind = Kind(Cow::Borrowed("moved"));
    /// A connection stays where it is.
    pub const STAYS: Kind = Kind(Cow::Borrowed("stays"));
    /// A connection is in the kernel again.
    pub const HOME: Kind = Kind(Cow::Borrowed("home"));
    /// A connection is on neither side until the kernel has a route for it.
    pub const LEFT: Kind = Kind(Cow::Borrowed("left"));
    /// A connection was lost.
    pub const LOST: Kind = Kind(Cow::Borrowed("lost"));
    /// A connection ended in the engine by itself.
    pub const ENDED: Kind = Kind(Cow::Borrowed("ended"));
    /// Moves of a while as a sum.
    pub const MOVES: Kind = Kind(Cow::Borrowed("moves"));
    /// Routes, links or firewall rules changed.
    pub const HOST: Kind = Kind(Cow::Borrowed("host"));
    /// A step failed, and the service goes on.
    pub const FAILED: Kind = Kind(Cow::Borrowed("failed"));
    /// A message between processes.
    pub const MESSAGE: Kind = Kind(Cow::Borrowed("message"));
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Bytes of a text at most; a longer one is cut.
const TEXT: usize = 400;

/// Something that happened in a process of Baton's: when, of what kind, to which connection or
/// program, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Microseconds since 1970 began (UTC).
    pub at_us: u64,
    /// How important it is.
    pub level: Level,
    /// The kind of occurrence.
    pub kind: Kind,
    /// Addresses and ports of the connection, if the event is about one.
    pub tuple: Option<Tuple>,
    /// The program's process id and user id.
    pub program: Option<(u32, u32)>,
    /// The reason's code; empty without one.
    pub reason: Cow<'static, str>,
    /// How long it took, in microseconds: for a move, the time that the connection stood still.
    pub took_us: Option<u64>,
    /// A sentence for people.
    pub text: String,
}

impl Event {
    /// An event that happens now.
    pub fn new(level: Level, kind: Kind) -> Event {
        let at_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let (tuple, program, took_us) = (None, None, None);
        Event { at_us, level, kind, tuple, program, reason: Cow::Borrowed(""), took_us, text: String::new() }
    }

    /// With a sentence for people.
    pub fn text(mut self, text: impl Into<String>) -> Event {
        self.text = text.into();
        if self.text.len() > TEXT {
            let end = (0..=TEXT).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
            self.text.truncate(end);
            self.text.push('…');
        }
        self
    }

    /// About this connection.
    pub fn tuple(self, tuple: impl Into<Option<Tuple>>) -> Event {
        Event { tuple: tuple.into(), ..self }
    }

    /// About this program: its process id and user id.
    pub fn program(self, program: (u32, u32)) -> Event {
        Event { program: Some(program), ..self }
    }

    /// For this reason: a code.
    pub fn reason(self, code: impl Into<Cow<'static, str>>) -> Event {
        Event { reason: code.into(), ..self }
    }

    /// With its duration in microseconds.
    pub fn took_us(self, took_us: u64) -> Event {
        Event { took_us: Some(took_us), ..self }
    }

    /// Our address and the peer's, as `baton restore` takes them.
    pub fn connection(&self) -> Option<String> {
        self.tuple.map(|tuple| format!("{},{}", tuple.local_addr(), tuple.remote_addr()))
    }

    /// When it happened, as RFC 3339 has it.
    pub fn time(&self) -> String {
        time::rfc3339(self.at_us)
    }
}

/// `TIME LEVEL KIND: TEXT key=value ...`, on one line.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = format!("{} {:5} {}: {}", self.time(), self.level, self.kind, self.text);
        if let Some(connection) = self.connection() {
            write!(line, " connection={connection}")?;
        }
        if !self.reason.is_empty() {
            write!(line, " reason={}", self.reason)?;
        }
        if let Some((pid, uid)) = self.program {
            write!(line, " pid={pid} uid={uid}")?;
        }
        if let Some(us) = self.took_us {
            write!(line, " us={us}")?;
        }
        f.write_str(&one_line(&line))
    }
}

/// A text without characters that would end the line or steer a terminal.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if text.chars().any(char::is_control) {
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line_with_its_fields() {
        let tuple = Tuple::new("10.0.0.1:443".parse().unwrap(), "10.0.0.9:51234".parse().unwrap());
        let event = Event::new(Level::Debug, Kind::HOME).tuple(tuple).program((77, 1000));
        let event = Event { at_us: 1_000_000_000_000_123, ..event.reason("engine-died").took_us(42) };
        let event = event.text("it is in the\nkernel again");
        assert_eq!(
            event.to_string(),
            "2001-09-09T01:46:40.000123Z debug home: it is in the kernel again \
             connection=10.0.0.1:443,10.0.0.9:51234 reason=engine-died pid=77 uid=1000 us=42"
        );
    }

    #[test]
    fn a_long_text_is_cut() {
        let event = Event::new(Level::Info, Kind::FAILED).text("ü".repeat(TEXT));
        assert!(event.text.len() <= TEXT + '…'.len_utf8() && event.text.ends_with('…'));
    }

    #[test]
    fn levels_are_read_as_they_are_written() {
        for level in Level::ALL {
            assert_eq!(level.word().parse(), Ok(level));
        }
        assert!("loud".parse::<Level>().is_err());
    }
}
