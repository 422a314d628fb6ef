//! The settings that `baton run` passes to the programs it starts, as environment variables
//! ([`environment`]).

use baton_ipc::environment;
use baton_ipc::placement::Placement;
use baton_journal::Level;
use baton_policy::rules::{Policy, PortRule, Rule, Side, parse_ports};
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
}

/// The settings with which the process was started. An invalid value counts as missing: `baton run`
/// has checked the values, and a program cannot report the error.
pub fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let text = |name| std::env::var(name).ok();
        let level = text(environment::LOG_LEVEL).and_then(|level| level.parse().ok()).unwrap_or(Level::Debug);
        let rule = text(environment::POLICY).and_then(|rule| rule.parse().ok()).unwrap_or_default();
        Config {
            socket: text(environment::SOCKET).map_or_else(|| baton_client::SOCKET.into(), PathBuf::from),
            policy: policy(rule, &text(environment::PORTS).unwrap_or_default()),
            placement: text(environment::ENGINE).and_then(|place| place.parse().ok()).unwrap_or_default(),
            account: text(environment::ACCOUNT).map(PathBuf::from),
            io_uring: text(environment::IO_URING).is_none_or(|word| word != "0"),
            log: text(environment::LOG).map(|path| (PathBuf::from(path), level)),
        }
    })
}

fn policy(rule: Rule, ports: &str) -> Policy {
    let ranges = ports.split(',').filter_map(|range| parse_ports(range.trim()).ok());
    let both = |ports: std::ops::RangeInclusive<u16>| {
        [Side::Local, Side::Remote].map(|side| PortRule { side, ports: ports.clone(), rule })
    };
    let ports: Vec<PortRule> = ranges.flat_map(both).collect();
    let otherwise = if ports.is_empty() { rule } else { Rule::Never };
    Policy { ports, otherwise }
}
