//! What `baton run` tells the programs that it starts, by their environment.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `BATON_SOCKET` | where the service listens |
//! | `BATON_POLICY` | when a connection moves: a rule of [`baton_policy::rules`] |
//! | `BATON_PORTS` | ports, either side's, that the rule is for; others never move |
//! | `BATON_ENGINE` | where the engine runs: a [`Placement`] |
//! | `BATON_ACCOUNT` | file of the counters |
//! | `BATON_LOG` | file that the log is appended to |
//! | `BATON_LOG_LEVEL` | how much it tells; `debug` if that is not said |
//! | `BATON_IO_URING` | `0`: programs are told that the kernel has no io_uring |

use baton_journal::Level;
use baton_policy::rules::{Policy, PortRule, Rule, Side, parse_ports};
use baton_socket::service::Placement;
use std::path::PathBuf;
use std::sync::OnceLock;

/// See the file's head.
pub struct Config {
    pub socket: PathBuf,
    pub policy: Policy,
    pub placement: Placement,
    pub account: Option<PathBuf>,
    pub log: Option<(PathBuf, Level)>,
    pub io_uring: bool,
}

/// As the process was started. What makes no sense is as if it was not there: `baton run`
/// has checked it, and a program is not the place to complain.
pub fn config() -> &'static Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    CONFIG.get_or_init(|| {
        let text = |name| std::env::var(name).ok();
        let level = text("BATON_LOG_LEVEL").and_then(|level| level.parse().ok()).unwrap_or(Level::Debug);
        let rule = text("BATON_POLICY").and_then(|rule| rule.parse().ok()).unwrap_or_default();
        Config {
            socket: text("BATON_SOCKET").map_or_else(|| baton_socket::service::SOCKET.into(), PathBuf::from),
            policy: policy(rule, &text("BATON_PORTS").unwrap_or_default()),
            placement: text("BATON_ENGINE").and_then(|place| place.parse().ok()).unwrap_or_default(),
            account: text("BATON_ACCOUNT").map(PathBuf::from),
            log: text("BATON_LOG").map(|path| (PathBuf::from(path), level)),
            io_uring: text("BATON_IO_URING").is_none_or(|word| word != "0"),
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
