//! The broker's configuration.

use baton_consumer::consumer::ConsumerConfig;
use baton_engine::tuning::EngineTuning;
use baton_ipc::order::RunAs;
use baton_kernel::Rules;
use baton_kernel::steer::Kind;
use baton_policy::rules::Policy;
use baton_policy::watermarks::Choice;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// An interface that is steered.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// How it is steered.
    pub kind: Kind,
}

/// Reads the service's configuration file again.
#[derive(Clone)]
pub struct PolicySource(pub Arc<dyn Fn() -> Result<Policy, String> + Send + Sync>);

impl fmt::Debug for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicySource")
    }
}

/// The users whose programs the service joins, if both ends of a connection are on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PairUsers {
    /// Nobody's.
    Never,
    /// Both ends belong to one user.
    #[default]
    Same,
    /// Everybody's.
    Any,
}

impl FromStr for PairUsers {
    type Err = String;

    fn from_str(text: &str) -> Result<PairUsers, String> {
        let known = [PairUsers::Never, PairUsers::Same, PairUsers::Any];
        let found = known.into_iter().find(|users| users.word() == text);
        found.ok_or_else(|| format!("'{text}' is not known; write never, same-user or any"))
    }
}

impl PairUsers {
    /// The word for it in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            PairUsers::Never => "never",
            PairUsers::Same => "same-user",
            PairUsers::Any => "any",
        }
    }
}

/// The configuration of a broker.
#[derive(Clone, Debug)]
pub struct Config {
    /// The path of the socket on which the broker listens for programs.
    pub socket: PathBuf,
    /// The socket's mode bits.
    pub mode: u32,
    /// Users that may use the service, in addition to its own user and root.
    pub users: Vec<u32>,
    /// Descendants of this process may use the service too, whatever their user. The broker ends
    /// with this process and those that join it.
    pub descendants_of: Option<u32>,
    /// The interfaces, each with an engine.
    pub interfaces: Vec<Interface>,
    /// The program that starts an engine, and its arguments. Its standard input is the broker's
    /// channel.
    pub engine: Vec<OsString>,
    /// The user and group that an engine switches to; `None` keeps the broker's.
    pub engine_user: Option<RunAs>,
    /// The choices that engines follow. An engine inside a program has a number of
    /// connections of its own.
    pub tuning: EngineTuning,
    /// Sizes of the memory that a program shares with an engine.
    pub consumer: ConsumerConfig,
    /// The most programs at a time.
    pub programs: usize,
    /// Which of the sockets that programs hand over move, and when.
    pub policy: Policy,
    /// Where a new policy comes from when somebody asks for it without naming one.
    pub source: Option<PolicySource>,
    /// How engines control their load.
    pub load: Choice,
    /// The users whose connections are joined if both ends are on this machine.
    pub pair: PairUsers,
    /// Treatment of connections that firewall rules act on.
    pub rules: Rules,
    /// How long a move home waits for data in flight to arrive, and how long a move in either
    /// direction waits until no received data lies beyond a gap.
    pub drain: Duration,
    /// How long an engine may be silent before it counts as dead.
    pub patience: Duration,
}

impl Config {
    /// The defaults, for programs of the broker's own user.
    pub fn new(socket: PathBuf, interfaces: Vec<Interface>, engine: Vec<OsString>) -> Config {
        Config {
            socket,
            mode: 0o600,
            users: Vec::new(),
            descendants_of: None,
            interfaces,
            engine,
            engine_user: None,
            tuning: EngineTuning::default(),
            consumer: ConsumerConfig::for_connections(2048),
            programs: 256,
            policy: Policy::default(),
            source: None,
            load: Choice::default(),
            pair: PairUsers::default(),
            rules: Rules::default(),
            drain: Duration::from_millis(500),
            patience: Duration::from_secs(5),
        }
    }
}
