//! Connections that do nothing: what they cost while they do it.
//!
//! Each is asked for one answer first, so that it is where its way has it. What is counted is the
//! CPU time of the way's server and service, and of the kernel's soft-interrupt threads: the whole
//! machine's has more of others in it than idle connections cost. A redis with nothing to do looks
//! at its clock ten times a second, which is what the kernel's way shows.

use super::place::Place;
use super::server::Kind;
use anyhow::{Context, ensure};
use baton_apps::measure::Tasks;
use baton_apps::net::kernel::raise_descriptor_limit;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How many there are.
pub const CONNECTIONS: usize = 1000;

/// Time in which what their beginning has left to do is done: timers, buffers that go back.
const SETTLE: Duration = Duration::from_secs(2);

/// What idle connections cost on one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// Id of the way.
    pub way: String,
    /// How many there were.
    pub connections: usize,
    /// Share of one CPU.
    pub cpu: f64,
}

/// Has [`CONNECTIONS`] of them to a way's redis for so long.
///
/// # Errors
/// If they cannot be had, or an answer is not redis's.
pub fn measure(place: &Place<'_>, length: Duration) -> anyhow::Result<Idle> {
    let target = (place.address, Kind::Redis.port());
    let all = place.world.client.enter(|| {
        raise_descriptor_limit();
        (0..CONNECTIONS).map(|_| begin(target)).collect::<anyhow::Result<Vec<TcpStream>>>()
    })?;
    std::thread::sleep(SETTLE);
    let tasks = Tasks::with(&place.processes(Kind::Redis))?;
    let (begun, before) = (Instant::now(), tasks.seconds()?);
    std::thread::sleep(length);
    let spent = tasks.seconds()? - before;
    Ok(Idle { way: place.way.id.into(), connections: all.len(), cpu: spent / begun.elapsed().as_secs_f64() })
}

fn begin(target: (std::net::IpAddr, u16)) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(target).context("an idle connection")?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    ensure!(&answer == b"+PONG\r\n", "redis answered '{}'", answer.escape_ascii());
    Ok(stream)
}
