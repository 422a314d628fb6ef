//! The client of a round trip: a thread that waits in its calls, as the paper's (§1.2), on a socket of the
//! kernel.

use super::far::PORT;
use crate::world::World;
use anyhow::{Context, ensure};
use baton_apps::services::ramp;
use baton_wire::addr::Tuple;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes that a message may have.
const BYTES: RangeInclusive<usize> = 1..=64 << 10;

/// The longest wait for a connection or a part of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection from the client's namespace to a server.
pub struct Client {
    stream: TcpStream,
    /// Place of the next request in the ramp.
    offset: u64,
    answer: Vec<u8>,
    /// Addresses and ports, the server's first.
    pub at_server: Tuple,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// If messages of this size are not possible, or nobody answers.
    pub fn connect(world: &World, server: IpAddr, bytes: usize) -> anyhow::Result<Client> {
        ensure!(BYTES.contains(&bytes), "a message has {} to {} bytes", BYTES.start(), BYTES.end());
        let target = SocketAddr::new(server, PORT);
        let connect =
            || TcpStream::connect_timeout(&target, PATIENCE).with_context(|| format!("cannot reach {target}"));
        let stream = world.client.enter(connect)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let at_server = Tuple::new(target, stream.local_addr()?);
        Ok(Client { stream, offset: 0, answer: vec![0; bytes], at_server })
    }

    /// Makes so many round trips.
    ///
    /// # Errors
    /// If an answer does not come, or is not the request.
    pub fn turn(&mut self, trips: usize) -> anyhow::Result<()> {
        for _ in 0..trips {
            let request = &ramp::from(self.offset)[..self.answer.len()];
            self.stream.write_all(request).context("cannot send a request")?;
            self.stream.read_exact(&mut self.answer).context("no answer")?;
            ensure!(self.answer == request, "the answer is not the request");
            self.offset += self.answer.len() as u64;
        }
        Ok(())
    }
}
