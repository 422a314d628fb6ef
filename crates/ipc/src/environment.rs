//! Environment variables with which `baton run` configures the programs that it starts.

/// Path of the service's socket.
pub const SOCKET: &str = "BATON_SOCKET";

/// When connections move: a policy of `baton_policy::rules`, as text.
pub const POLICY: &str = "BATON_POLICY";

/// Where the engine runs: a [`Placement`](crate::placement::Placement).
pub const ENGINE: &str = "BATON_ENGINE";

/// Path of the file of counters ([`crate::account`]).
pub const ACCOUNT: &str = "BATON_ACCOUNT";

/// With the value `0`, programs are told that the kernel lacks io_uring.
pub const IO_URING: &str = "BATON_IO_URING";

/// Path of the file that the log is appended to.
pub const LOG: &str = "BATON_LOG";

/// Level of that log; `debug` if it is not set.
pub const LOG_LEVEL: &str = "BATON_LOG_LEVEL";

/// With the value `1`, connections whose both ends are on this machine are handed over, to be joined: those whose
/// addresses show it. With the value [`ALL_PAIRS`], every connection may be one.
pub const PAIR: &str = "BATON_PAIR";

/// A value of [`PAIR`]: the program is in another network namespace than the service, which has no other use for its
/// connections.
pub const ALL_PAIRS: &str = "all";
