//! The settings that `baton run` passes to the programs it starts, as environment variables
//! ([`environment`]).

use baton_ipc::environment;
use baton_ipc::placement::Placement;
use baton_journal::Level;
use baton_policy::conditions::cgroup_of;
use baton_policy::rules::Policy;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Settings of `baton run`, read from the environment once.
pub struct Config {
    pub socket: PathBuf,
    pub policy: Policy,
    pub placement: Placement,
    pub account: Option<PathBuf>,
    pub log: Option<(PathBuf, Level)>,
    pub io_uring: bool,
    pub pair: Pairs,
    own: OnceLock<Own>,
}

/// Connections that may be joined with their other ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    None,
    /// Those whose addresses show that both ends are on this machine.
    Here,
    All,
}

impl Pairs {
    fn of(word: &str) -> Pairs {
        match word {
            "1" => Pairs::Here,
            environment::ALL_PAIRS => Pairs::All,
            _ => Pairs::None,
        }
    }
}

/// Facts about this process that the policy's conditions ask for. Nothing is read for the others.
#[derive(Default)]
pub struct Own {
    pub user: Option<u32>,
    pub program: Option<String>,
    pub cgroup: Option<String>,
}

impl Config {
    pub fn own(&self) -> &Own {
        self.own.get_or_init(|| {
            let file = |key: &str, file: &str| {
                self.policy.asks_for(key).then(|| std::fs::read_to_string(format!("/proc/self/{file}")).ok())?
            };
            Own {
                user: self.policy.asks_for("user").then(|| rustix::process::geteuid().as_raw()),
                program: file("program", "comm").map(|name| name.trim_end().to_owned()),
                cgroup: file("cgroup", "cgroup").and_then(|lines| cgroup_of(&lines)),
            }
        })
    }
}

/// The settings with which the process was started. An invalid value counts as missing: `baton run`
/// has checked the values, and a program cannot report the error.
pub fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let text = |name| std::env::var(name).ok();
        let level = text(environment::LOG_LEVEL).and_then(|level| level.parse().ok()).unwrap_or(Level::Debug);
        Config {
            socket: text(environment::SOCKET).map_or_else(|| baton_client::SOCKET.into(), PathBuf::from),
            policy: text(environment::POLICY).and_then(|policy| policy.parse().ok()).unwrap_or_default(),
            placement: text(environment::ENGINE).and_then(|place| place.parse().ok()).unwrap_or_default(),
            account: text(environment::ACCOUNT).map(PathBuf::from),
            io_uring: text(environment::IO_URING).is_none_or(|word| word != "0"),
            pair: text(environment::PAIR).map_or(Pairs::None, |word| Pairs::of(&word)),
            own: OnceLock::new(),
            log: text(environment::LOG).map(|path| (PathBuf::from(path), level)),
        }
    })
}
