//! What a broker is started with.

use baton_consumer::consumer::ConsumerConfig;
use baton_engine::engine::COALESCE;
use baton_kernel::Rules;
use baton_kernel::steer::Kind;
use baton_policy::rules::Policy;
use baton_tcp::config::{Acks, Congestion};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// An interface that is steered.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// How.
    pub kind: Kind,
}

/// See the file's head.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where programs connect to.
    pub socket: PathBuf,
    /// The socket's mode bits.
    pub mode: u32,
    /// Users that may use the service beside its own and root.
    pub users: Vec<u32>,
    /// What descends from this process may use it too, whatever its user. The broker ends with it,
    /// and with those that join it.
    pub descendants_of: Option<u32>,
    /// Interfaces, each with an engine.
    pub interfaces: Vec<Interface>,
    /// Program and arguments that start an engine, whose standard input is the broker.
    pub engine: Vec<OsString>,
    /// User and group that an engine becomes; `None` to stay who the broker is.
    pub engine_user: Option<(u32, u32)>,
    /// Connections in an engine at most.
    pub connections: u32,
    /// What an engine's connections run.
    pub congestion: Congestion,
    /// Segments that an engine handles as one, at most; below two, none.
    pub coalesce: u16,
    /// How it acknowledges them.
    pub acks: Acks,
    /// Sizes of the memory that a program shares with an engine.
    pub consumer: ConsumerConfig,
    /// Programs at most.
    pub programs: usize,
    /// Which of the sockets that programs hand over move, and when.
    pub policy: Policy,
    /// What becomes of those that rules of the firewall act on.
    pub rules: Rules,
    /// For how long a move home waits until what is in flight has landed, and one either way
    /// until nothing received lies beyond a gap.
    pub drain: Duration,
    /// For how long an engine may say nothing before it counts as dead.
    pub patience: Duration,
}

impl Config {
    /// Defaults, for programs of this user.
    pub fn new(socket: PathBuf, interfaces: Vec<Interface>, engine: Vec<OsString>) -> Config {
        Config {
            socket,
            mode: 0o600,
            users: Vec::new(),
            descendants_of: None,
            interfaces,
            engine,
            engine_user: None,
            connections: 16_384,
            congestion: Congestion::default(),
            coalesce: COALESCE,
            acks: Acks::PerRun,
            consumer: ConsumerConfig::for_connections(2048),
            programs: 256,
            policy: Policy::default(),
            rules: Rules::default(),
            drain: Duration::from_millis(500),
            patience: Duration::from_secs(5),
        }
    }
}
