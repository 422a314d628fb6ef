//! Where a server listens, and how a client reaches it.

use crate::world::Namespace;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

/// Where servers listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// At this address, each server at its own port.
    Ip(IpAddr),
    /// At Unix domain sockets in this directory.
    Unix(PathBuf),
}

/// Where a client runs, and which servers it asks.
#[derive(Clone, Debug)]
pub struct Caller<'a> {
    /// The namespace that it is in.
    pub namespace: &'a Namespace,
    /// Words before those of its program, as of `baton run`.
    pub prefix: Vec<String>,
    /// Where the servers listen.
    pub servers: At,
    /// Requests that `redis-benchmark` sends at once.
    pub at_once: u32,
}

impl Caller<'_> {
    /// A command of the client's program.
    pub fn command(&self, program: &str) -> Command {
        let mut words = self.prefix.iter().map(String::as_str).chain([program]);
        let mut command = self.namespace.command(words.next().unwrap_or(program));
        command.args(words);
        command
    }
}
