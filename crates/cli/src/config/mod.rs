//! The service's configuration file, in TOML.
//!
//! ```text
//!   file --read--> Config, all of it checked      or  FILE:LINE: what; remedy
//!   DEFAULT: a file with every key at its default, and explained
//! ```
//!
//! Unknown keys and impossible values are refused: a service that does not do what its file says
//! is worse than one that does not start. Each section is a struct in this file ([`Config`]);
//! `values.rs` parses the values, and `access.rs` holds the users who may use the service.

mod access;
mod error;
mod policy;
mod values;

pub use access::{Access, Id, Names};
pub use error::ConfigError;

use baton_consumer::consumer::ConsumerConfig;
use baton_engine::tuning::EngineTuning;
use baton_kernel::{Rules, steer};
use baton_policy::rules::Policy;
use baton_policy::watermarks::Choice;
use baton_service::broker::PairUsers;
use baton_tcp::config::{Acks, Congestion};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default configuration with a comment at each key.
pub const DEFAULT: &str = include_str!("default.toml");

/// The configuration of the service. Its default equals [`DEFAULT`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// How much is logged.
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
    /// `[pair]`
    pub pair: Pair,
    /// `[engine]`
    pub engine: Engine,
    /// `[memory]`
    pub memory: Memory,
}

/// How much is logged; each level includes the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Failures.
    Error,
    /// Settings and events that may be unintended.
    Warn,
    /// The start and end of the service.
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

/// The interfaces to steer, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Steer {
    /// Names of the interfaces whose connections may move.
    #[serde(deserialize_with = "values::interfaces")]
    pub interfaces: Vec<String>,
    /// How frames reach the engine.
    #[serde(deserialize_with = "values::kind")]
    pub kind: steer::Kind,
}

/// The socket on which programs reach the service.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Socket {
    /// Absolute path of the socket.
    #[serde(deserialize_with = "values::absolute")]
    pub path: PathBuf,
    /// Mode bits of the socket.
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
    /// How connections whose packets its rules act on are treated.
    #[serde(deserialize_with = "values::rules")]
    pub rules: Rules,
}

/// Connections whose both ends are on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Pair {
    /// The users whose programs are joined.
    #[serde(deserialize_with = "values::pair_users")]
    pub users: PairUsers,
}

/// Settings of the engines.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Engine {
    /// The user that engines run as if the service runs as root.
    pub user: Id,
    /// Most connections on each interface.
    #[serde(deserialize_with = "values::connections")]
    pub connections: u32,
    /// How engines control their load.
    #[serde(deserialize_with = "values::load")]
    pub load: Choice,
    /// Congestion control of the connections in the engine.
    #[serde(deserialize_with = "values::congestion")]
    pub congestion: Congestion,
    /// Most segments that are handled as one; 1 turns coalescing off.
    #[serde(deserialize_with = "values::coalesce")]
    pub coalesce: u16,
    /// How often coalesced segments are acknowledged.
    #[serde(deserialize_with = "values::acks")]
    pub acks: Acks,
    /// Longest wait of a move for acknowledgements of data in flight and for missing data.
    #[serde(deserialize_with = "values::drain")]
    pub drain: Duration,
    /// Longest silence of an engine before it counts as dead.
    #[serde(deserialize_with = "values::patience")]
    pub patience: Duration,
}

impl Default for Engine {
    fn default() -> Engine {
        let EngineTuning { connections, congestion, coalesce, acks } = EngineTuning::default();
        Engine {
            user: Id::Name("nobody".to_owned()),
            connections,
            load: Choice::default(),
            congestion,
            coalesce,
            acks,
            drain: Duration::from_millis(500),
            patience: Duration::from_secs(5),
        }
    }
}

impl Engine {
    /// The keys that engines themselves follow.
    pub fn tuning(&self) -> EngineTuning {
        let Engine { connections, congestion, coalesce, acks, .. } = *self;
        EngineTuning { connections, congestion, coalesce, acks }
    }
}

/// Memory limits of each program.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Memory {
    /// Most programs at a time.
    #[serde(deserialize_with = "values::programs")]
    pub programs: u32,
    /// Most connections of a program.
    #[serde(deserialize_with = "values::connections")]
    pub connections: u32,
    /// Size of a stream buffer in bytes.
    #[serde(deserialize_with = "values::stream_buffer")]
    pub stream_buffer: u32,
    /// Size of a large stream buffer in bytes.
    #[serde(deserialize_with = "values::large_buffer")]
    pub large_buffer: u32,
    /// Most large buffers of a program.
    #[serde(deserialize_with = "values::large_buffers")]
    pub large_buffers: u32,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { programs: 64, connections: 2048, stream_buffer: 256 << 10, large_buffer: 4 << 20, large_buffers: 64 }
    }
}

impl Memory {
    /// Sizes of a program's region: two buffers per connection, so that no connection waits for
    /// another to release one.
    pub fn consumer(&self) -> ConsumerConfig {
        let small = (self.stream_buffer, 2 * self.connections);
        ConsumerConfig::new(self.connections, small, (self.large_buffer, self.large_buffers))
    }
}

impl Config {
    /// Parses a configuration. Errors name it `name`.
    ///
    /// # Errors
    /// [`ConfigError`], with the line and the remedy.
    pub fn read(name: &Path, text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| ConfigError::new(name, text, &error))?;
        if let Some((key, what, remedy)) = config.contradiction() {
            return Err(ConfigError::at_key(name, text, key, what, remedy));
        }
        Ok(config)
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read or is wrong.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        Config::read(path, &text)
    }

    /// Finds values that are valid alone but contradict each other. Returns section and key, the
    /// fault, and the remedy.
    fn contradiction(&self) -> Option<((&'static str, &'static str), &'static str, &'static str)> {
        let listed = self.access != Access::default();
        if listed && self.socket.mode & 0o066 == 0 {
            return Some((
                ("socket", "mode"),
                "[access] lists other users, but only the socket's owner may connect",
                "set mode = \"0666\" in [socket]; users that [access] does not list are still refused",
            ));
        }
        if self.memory.large_buffers > 0 && self.memory.large_buffer < self.memory.stream_buffer {
            return Some((
                ("memory", "large-buffer"),
                "large buffers are smaller than stream buffers",
                "make large-buffer larger, or set large-buffers = 0",
            ));
        }
        None
    }
}
