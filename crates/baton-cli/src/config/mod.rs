//! What the service is told by its configuration file, TOML.
//!
//! ```text
//!   file --read--> Config, all of it checked      or  FILE:LINE: what; remedy
//!   DEFAULT: the file that says what is so without one, each key explained
//! ```
//!
//! A key that is not known is refused, as is a value that cannot be meant: a service that
//! does what its file does not say is worse than one that does not start. Each section is
//! a struct here ([`Config`]); how values are written is in `values.rs`, who may use the
//! service in `access.rs`.

mod access;
mod error;
mod policy;
mod values;

pub use access::{Access, Id, Names};
pub use error::ConfigError;

use baton_consumer::consumer::ConsumerConfig;
use baton_engine::engine::COALESCE;
use baton_kernel::{Rules, steer};
use baton_policy::rules::Policy;
use baton_tcp::config::{Acks, Congestion};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default configuration with a comment at each key.
pub const DEFAULT: &str = include_str!("default.toml");

/// What the service is told. The default is that of [`DEFAULT`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// How much is told.
    pub log: Level,
    /// `[steer]`
    pub steer: Steer,
    /// `[socket]`
    pub socket: Socket,
    /// `[access]`
    pub access: Access,
    /// `[policy]`
    #[serde(deserialize_with = "policy::read")]
    pub policy: Policy,
    /// `[firewall]`
    pub firewall: Firewall,
    /// `[engine]`
    pub engine: Engine,
    /// `[memory]`
    pub memory: Memory,
}

/// How much is told; each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// What does not work.
    Error,
    /// What may not be meant.
    Warn,
    /// What has begun and ended.
    #[default]
    Info,
    /// Each move.
    Debug,
    /// Each message between processes.
    Trace,
}

impl From<Level> for baton_journal::Level {
    fn from(level: Level) -> baton_journal::Level {
        match level {
            Level::Error => baton_journal::Level::Error,
            Level::Warn => baton_journal::Level::Warn,
            Level::Info => baton_journal::Level::Info,
            Level::Debug => baton_journal::Level::Debug,
            Level::Trace => baton_journal::Level::Trace,
        }
    }
}

/// What is steered, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Steer {
    /// Names of interfaces.
    #[serde(deserialize_with = "values::interfaces")]
    pub interfaces: Vec<String>,
    /// How frames get to the engine.
    #[serde(deserialize_with = "values::kind")]
    pub kind: steer::Kind,
}

/// Where the service is found.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Socket {
    /// The socket's name, an absolute path.
    #[serde(deserialize_with = "values::absolute")]
    pub path: PathBuf,
    /// Its mode bits.
    #[serde(deserialize_with = "values::mode")]
    pub mode: u32,
}

impl Default for Socket {
    fn default() -> Socket {
        Socket { path: "/run/baton/baton.sock".into(), mode: 0o600 }
    }
}

/// The host's firewall.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Firewall {
    /// What becomes of connections whose packets its rules act on.
    #[serde(deserialize_with = "values::rules")]
    pub rules: Rules,
}

/// The engine.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Engine {
    /// The user that it runs as, if the service is root's.
    pub user: Id,
    /// Connections at most, on each interface.
    #[serde(deserialize_with = "values::connections")]
    pub connections: u32,
    /// Congestion control of connections that have none that the engine knows.
    #[serde(deserialize_with = "values::congestion")]
    pub congestion: Congestion,
    /// Segments that are handled as one, at most; 1 for none.
    #[serde(deserialize_with = "values::coalesce")]
    pub coalesce: u16,
    /// How they are acknowledged.
    #[serde(deserialize_with = "values::acks")]
    pub acks: Acks,
    /// The longest wait of a move for what is in flight, or lies beyond a gap.
    #[serde(deserialize_with = "values::drain")]
    pub drain: Duration,
    /// The longest silence of an engine that lives.
    #[serde(deserialize_with = "values::patience")]
    pub patience: Duration,
}

impl Default for Engine {
    fn default() -> Engine {
        Engine {
            user: Id::Name("nobody".to_owned()),
            connections: 16_384,
            congestion: Congestion::Cubic,
            coalesce: COALESCE,
            acks: Acks::PerRun,
            drain: Duration::from_millis(500),
            patience: Duration::from_secs(5),
        }
    }
}

/// What each program may have.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Memory {
    /// Programs at most.
    #[serde(deserialize_with = "values::programs")]
    pub programs: u32,
    /// Connections of a program at most.
    #[serde(deserialize_with = "values::connections")]
    pub connections: u32,
    /// Bytes of a stream buffer.
    #[serde(deserialize_with = "values::stream_buffer")]
    pub stream_buffer: u32,
    /// Bytes of a large one.
    #[serde(deserialize_with = "values::large_buffer")]
    pub large_buffer: u32,
    /// Large ones of a program at most.
    #[serde(deserialize_with = "values::large_buffers")]
    pub large_buffers: u32,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { programs: 64, connections: 2048, stream_buffer: 256 << 10, large_buffer: 4 << 20, large_buffers: 64 }
    }
}

impl Memory {
    /// Sizes of a program's region: two buffers a connection, so that none waits for
    /// another's to come free.
    pub fn consumer(&self) -> ConsumerConfig {
        ConsumerConfig {
            stream_buffer: self.stream_buffer,
            stream_buffers: 2 * self.connections,
            large_buffer: self.large_buffer,
            large_buffers: self.large_buffers,
            connections: self.connections,
        }
    }
}

impl Config {
    /// Reads a configuration; `name` is what errors call it.
    ///
    /// # Errors
    /// [`ConfigError`], with the line and what to do.
    pub fn read(name: &Path, text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| ConfigError::new(name, text, &error))?;
        if let Some((key, what, remedy)) = config.contradiction() {
            return Err(ConfigError::at_key(name, text, key, what, remedy));
        }
        Ok(config)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`ConfigError`], also if it cannot be read.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        Config::read(path, &text)
    }

    /// Values that are right by themselves and not together: section and key, what is
    /// wrong, and what helps.
    fn contradiction(&self) -> Option<((&'static str, &'static str), &'static str, &'static str)> {
        let listed = self.access != Access::default();
        if listed && self.socket.mode & 0o066 == 0 {
            return Some((
                ("socket", "mode"),
                "[access] lists others, but only the socket's owner may connect",
                "set mode = \"0666\" in [socket]; who is not listed is refused all the same",
            ));
        }
        if self.memory.large_buffers > 0 && self.memory.large_buffer < self.memory.stream_buffer {
            return Some((
                ("memory", "large-buffer"),
                "large buffers are smaller than stream buffers",
                "make them larger, or set large-buffers = 0",
            ));
        }
        None
    }
}
