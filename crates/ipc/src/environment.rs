//! Names of the variables by which `baton run` tells the programs that it starts what they are
//! to do.

/// Where the service listens.
pub const SOCKET: &str = "BATON_SOCKET";

/// When a connection moves: a rule of `baton_policy::rules`.
pub const POLICY: &str = "BATON_POLICY";

/// Ports, either side's, that the rule is for, separated by commas; others never move.
pub const PORTS: &str = "BATON_PORTS";

/// Where the engine runs: a [`Placement`](crate::placement::Placement).
pub const ENGINE: &str = "BATON_ENGINE";

/// Path of the file of counters ([`crate::account`]).
pub const ACCOUNT: &str = "BATON_ACCOUNT";

/// `0`: programs are told that the kernel has no io_uring.
pub const IO_URING: &str = "BATON_IO_URING";

/// Path of the file that the log is appended to.
pub const LOG: &str = "BATON_LOG";

/// Level of that log; `debug` if it is not set.
pub const LOG_LEVEL: &str = "BATON_LOG_LEVEL";
