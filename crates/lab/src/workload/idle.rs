//! The CPU cost of idle connections.
//!
//! Each connection carries one request first, so that it runs where its way puts it. The cost is the
//! CPU time of the way's server and service, and of the kernel's soft-interrupt threads. CPU time of
//! the whole machine would be dominated by other programs. An idle redis checks its clock ten times per
//! second, which is the cost that the kernel's way shows.

use super::place::Place;
use super::server::Kind;
use anyhow::{Context, ensure};
use baton_apps::measure::Tasks;
use baton_apps::net::kernel::raise_descriptor_limit;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Number of idle connections.
pub const CONNECTIONS: usize = 1000;

/// Time for work left from opening them: timers, and buffers that are returned.
const SETTLE: Duration = Duration::from_secs(2);

/// The cost of idle connections on one way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// Id of the way.
    pub way: String,
    /// Number of connections.
    pub connections: usize,
    /// Share of one CPU, from 0 to 1.
    pub cpu: f64,
}

/// Opens [`CONNECTIONS`] connections to a way's redis, and measures their cost for this time.
///
/// # Errors
/// If they cannot be opened, or if an answer is wrong.
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
