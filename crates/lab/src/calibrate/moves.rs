//! The cost of a move: connections that move, each with a few bytes, and the same ones that stay.
//!
//! The server runs under `baton run` both times, so the difference is the move alone: capture, husk and
//! adoption, and the end of a connection that is on an engine.

use crate::workload::place::Place;
use crate::workload::server::Kind;
use anyhow::{Context, ensure};
use baton_apps::measure::Tasks;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Connections at once.
const CONNECTIONS: usize = 64;

/// Bytes that each of them sends and gets back, at a time.
const BYTES: usize = 16;

/// The longest wait for an answer, and for connections to move.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at the connections.
const LOOK: Duration = Duration::from_millis(5);

/// Connections that were opened, used and closed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Batch {
    /// How many of them moved.
    pub moved: usize,
    /// CPU time of each, in nanoseconds.
    pub each_ns: f64,
}

/// Opens connections to the echo server of a place, uses them, and closes them once they have moved, if
/// they move there.
///
/// # Errors
/// If a connection fails, or less than half of them move in time.
pub fn batch(place: &Place<'_>) -> anyhow::Result<Batch> {
    let tasks = Tasks::with(&place.processes(Kind::Echo))?;
    let before = tasks.seconds()?;
    let moved = place.world.client.enter(|| {
        let target = SocketAddr::new(place.address, Kind::Echo.port());
        let mut all = Vec::new();
        for _ in 0..CONNECTIONS {
            let connection = TcpStream::connect_timeout(&target, PATIENCE).context("connecting to the echo server")?;
            connection.set_read_timeout(Some(PATIENCE))?;
            all.push(connection);
        }
        all.iter_mut().try_for_each(echo)?;
        let moved = if place.way.moves() { wait_for_moves(place)? } else { 0 };
        all.iter_mut().try_for_each(echo)?;
        Ok(moved)
    })?;
    // Connections end a little later than they are closed.
    std::thread::sleep(10 * LOOK);
    let spent = tasks.seconds()? - before;
    Ok(Batch { moved, each_ns: spent * 1e9 / CONNECTIONS as f64 })
}

/// The number of connections on the engine, once all are there or time is over.
fn wait_for_moves(place: &Place<'_>) -> anyhow::Result<usize> {
    let service = place.service().context("no service moves connections here")?.connect()?;
    let begun = Instant::now();
    loop {
        let listed = service.list()?;
        let moved = listed.iter().filter(|entry| entry.place == "engine").count();
        if moved >= CONNECTIONS || begun.elapsed() > PATIENCE {
            ensure!(moved >= CONNECTIONS / 2, "only {moved} of {CONNECTIONS} connections moved");
            return Ok(moved);
        }
        std::thread::sleep(LOOK);
    }
}

fn echo(connection: &mut TcpStream) -> anyhow::Result<()> {
    let sent = [7; BYTES];
    connection.write_all(&sent)?;
    let mut got = [0; BYTES];
    connection.read_exact(&mut got).context("waiting for the echo server")?;
    ensure!(got == sent, "the echo server returned other bytes");
    Ok(())
}

/// The cost of a move, in nanoseconds, from a batch that moved and one that stayed.
pub fn cost(moved: &Batch, stayed: &Batch) -> f64 {
    let all = (moved.each_ns - stayed.each_ns) * CONNECTIONS as f64;
    (all / moved.moved.max(1) as f64).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_that_of_the_connections_that_moved() {
        let stayed = Batch { moved: 0, each_ns: 100_000.0 };
        let half = Batch { moved: CONNECTIONS / 2, each_ns: 140_000.0 };
        assert_eq!(cost(&half, &stayed), 80_000.0);
        assert_eq!(cost(&Batch { moved: 64, each_ns: 90_000.0 }, &stayed), 0.0);
    }
}
