//! Scripts of the programs at both ends of a connection.

use baton_tcp::time::Duration;

/// One step of a program's sending half; the next begins when it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Sends this many bytes of its stream.
    Send(u64),
    /// Waits until this many bytes in all were received.
    Await(u64),
    /// Does nothing for a while.
    Sleep(Duration),
    /// Shuts down sending.
    Shutdown,
    /// Resets the connection.
    Abort,
    /// Only full segments leave, or (false) the rest too (`TCP_CORK`).
    Cork(bool),
}

/// How a program reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reader {
    /// Stops reading for a while each time that this many bytes were read, so that the window
    /// closes.
    pub stall: Option<(u64, Duration)>,
    /// Bytes taken at one go, at most; 0 for all there is.
    pub at_once: u64,
}

/// One end of a connection. When its acts are done and the peer's stream has
/// ended, it closes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The sending half.
    pub acts: Vec<Act>,
    /// The receiving half.
    pub reader: Reader,
    /// Longest piece posted at once, in bytes.
    pub piece: u32,
    /// Probes the peer when nothing is heard, so that a lost reset is noticed.
    pub keepalive: bool,
    /// Nagle's algorithm is off.
    pub nodelay: bool,
    /// Asks for its buffers back soon after one in this many posts; 0 for never.
    pub unposts: u8,
}

impl Script {
    /// Bytes that it sends, if nothing interrupts it.
    pub fn sends(&self) -> u64 {
        self.acts.iter().map(|act| if let Act::Send(bytes) = act { *bytes } else { 0 }).sum()
    }

    /// Whether it resets the connection itself.
    pub fn aborts(&self) -> bool {
        self.acts.contains(&Act::Abort)
    }
}

/// How a connection has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// All bytes arrive, both ways, and both close normally.
    Complete,
    /// Nobody listens: the open is refused.
    Refused,
    /// One end resets it: what arrived is a prefix, and both ends end.
    Aborted,
}

/// A connection of the workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dialogue {
    /// When its client opens it.
    pub start: Duration,
    /// Port of the server.
    pub port: u16,
    /// Port of the client; 0 for any.
    pub from_port: u16,
    /// The client's script.
    pub client: Script,
    /// The server's script.
    pub server: Script,
    /// The server opens it too, at the same time: the SYNs cross (RFC 9293 §3.5).
    pub crossed: bool,
    /// How it has to end.
    pub expect: Expect,
}
