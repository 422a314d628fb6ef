//! Damage that the CRC of a link catches, and damage that only TCP's checksum would have (LA §4.2.1).
//!
//! Two engines in virtual time exchange a stream over a [`path`] that damages frames at one place. Once
//! the stream has checksums; once the engines wanted to leave them out (`baton_wire::tcp::unsummed`).
//! The receiver compares every byte.

mod damage;
mod path;

use super::findings;
use crate::experiment::{Axis, Experiment, Extent, Findings, Lab, Row, of};
use anyhow::{Context, bail};
use baton_consumer::consumer::{Conn, SocketEvent};
use baton_engine::frame_io::{FrameIo, FrameSink, RxFrame, TxMeta};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::Instant;
use damage::Damage;
use path::{Path, Source};
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// Damage at each of the paper's four sources.
pub const EXPERIMENT: Experiment = Experiment {
    id: "la-corruption",
    title: "Damage at a switch, a controller, a gateway and a link: who finds it",
    needs: &[],
    axes: &[Axis { name: "frames", about: "damaged frames for each source and kind of damage" }],
    command: "baton lab la",
    run,
};

/// Virtual nanoseconds between two looks of the engines.
const STEP: u64 = 50_000;
/// Looks after which a transfer counts as stuck.
const MOST_STEPS: u64 = 20_000_000;

fn run(lab: &Lab<'_>, extent: &Extent) -> anyhow::Result<Findings> {
    let frames = extent.values::<u64>("frames")?.into_iter().max().unwrap_or(1);
    let mut rows = Vec::new();
    for source in Source::ALL {
        for (seed, damage) in (1..).zip(source.damages()) {
            lab.step(&format!("{source} · {damage}"))?;
            let [with, without] = [false, true].map(|unsummed| transfer(source, damage, seed, frames, unsummed));
            let (with, without) = (with?, without?);
            let share = |part: u64, whole: u64| (whole > 0).then(|| 100.0 * part as f64 / whole as f64);
            let mut row = |name: &str, unit, value| {
                rows.push(Row::new(format!("{source}, {damage}: {name}"), unit, None, value));
            };
            let rest = with.damaged - with.by_crc;
            row("damaged", "frames", Some(with.damaged as f64));
            row("the CRC finds", "%", share(with.by_crc, with.damaged));
            row("TCP's checksum finds of the rest", "%", share(with.by_sum, rest));
            row("read wrong, with checksums", "frames", Some(with.wrong as f64));
            row("read wrong, where they may be left out", "frames", Some(without.wrong as f64));
        }
    }
    findings(extent, of("la-error-sources", rows))
}

/// The fate of the damaged frames of a stream.
#[derive(Clone, Copy, Debug)]
struct Fate {
    damaged: u64,
    by_crc: u64,
    by_sum: u64,
    /// Those whose bytes a program read.
    wrong: u64,
}

/// Sends a stream until this many of its frames were damaged, and reads all of it.
fn transfer(source: Source, damage: Damage, seed: u64, frames: u64, unsummed: bool) -> anyhow::Result<Fate> {
    let mut world = World::new(Path::new(source, damage, seed), unsummed)?;
    let [client, server] = world.connect()?;
    let (mut written, mut read, mut wrong) = (0, 0, BTreeSet::new());
    let mut buf = vec![0; 64 << 10];
    for _ in 0..MOST_STEPS {
        if world.path.damaged < frames {
            let data: Vec<u8> = (written..written + 32_000).map(byte).collect();
            written += some(world.hosts[0].write(client, &data))? as u64;
        }
        loop {
            let count = some(world.hosts[1].read(server, &mut buf))?;
            if count == 0 {
                break;
            }
            wrong.extend((read..).zip(&buf[..count]).filter(|(at, got)| byte(*at) != **got).map(|(at, _)| at));
            read += count as u64;
        }
        if world.path.damaged >= frames && read == written {
            let counters = *world.hosts[1].engine().streamer().counters();
            let path = &world.path;
            let is_wrong = |range: &&std::ops::Range<u64>| wrong.range((*range).clone()).next().is_some();
            return Ok(Fate {
                damaged: path.damaged,
                by_crc: path.by_crc,
                by_sum: counters.drop_tcp_checksum,
                wrong: path.arrived.iter().filter(is_wrong).count() as u64,
            });
        }
        world.step()?;
    }
    bail!("{source}, {damage}: {read} of {written} bytes arrived")
}

/// The byte of the stream at a place: no block of it looks like its neighbour.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// How many bytes went; none while there is no room, or nothing to read.
fn some(moved: std::io::Result<usize>) -> anyhow::Result<usize> {
    match moved {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        moved => moved.context("a stream in memory failed"),
    }
}

/// A client, a server, and the path between.
struct World {
    hosts: [Host<MemoryPort>; 2],
    far: [MemoryPort; 2],
    path: Path,
    now: u64,
}

impl World {
    fn new(path: Path, unsummed: bool) -> anyhow::Result<World> {
        let [(a, far_a), (b, far_b)] = [(), ()].map(|()| MemoryPort::pair(MemoryOptions::new()));
        let host = |address: &str, port| -> anyhow::Result<Host<MemoryPort>> {
            let mut config = HostConfig::new(address.parse()?);
            config.engine.tcp.unsummed = unsummed;
            Ok(Host::new(&config, port)?)
        };
        Ok(World { hosts: [host("10.77.0.1/24", a)?, host("10.77.0.2/24", b)?], far: [far_a, far_b], path, now: 0 })
    }

    fn step(&mut self) -> anyhow::Result<()> {
        self.now += STEP;
        for host in &mut self.hosts {
            host.poll(Instant(self.now))?;
        }
        for from in 0..2 {
            let mut frames = Frames(Vec::new());
            self.far[from].receive(usize::MAX, &mut frames)?;
            for frame in frames.0 {
                let to = &mut self.far[1 - from];
                if let Some(frame) = self.path.carry(frame, from == 0)
                    && let Some(slot) = to.slot(frame.len())
                {
                    slot[..frame.len()].copy_from_slice(&frame);
                    to.commit(frame.len(), TxMeta::default());
                }
            }
        }
        for far in &mut self.far {
            far.flush()?;
        }
        Ok(())
    }

    fn connect(&mut self) -> anyhow::Result<[Conn; 2]> {
        let address = "10.77.0.2:7".parse()?;
        self.hosts[1].listen(address, 1)?;
        self.step()?;
        self.hosts[0].connect(address, None)?;
        let mut conns = [None; 2];
        for _ in 0..MOST_STEPS {
            self.step()?;
            for (host, conn) in self.hosts.iter_mut().zip(&mut conns) {
                while let Some(event) = host.next_event() {
                    if let SocketEvent::Opening { conn: new, .. } | SocketEvent::Accepted { conn: new, .. } = event {
                        *conn = Some(new);
                    }
                }
            }
            if let [Some(client), Some(server)] = conns
                && self.hosts[0].stream(client).is_some_and(|stream| stream.is_established())
            {
                return Ok([client, server]);
            }
        }
        bail!("no connection")
    }
}

struct Frames(Vec<Vec<u8>>);

impl FrameSink for Frames {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.0.extend(frames.iter().map(|frame| frame.data.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(source: Source, damage: Damage) -> [Fate; 2] {
        [false, true].map(|unsummed| transfer(source, damage, 1, 40, unsummed).unwrap())
    }

    #[test]
    fn a_crc_from_end_to_end_finds_what_switches_and_links_do() {
        for (source, damage) in [(Source::Switch, Damage::Swap), (Source::Link, Damage::Burst)] {
            for fate in fates(source, damage) {
                assert_eq!((fate.by_crc, fate.by_sum, fate.wrong), (fate.damaged, 0, 0), "{source}: {fate:?}");
            }
        }
    }

    #[test]
    fn only_tcps_checksum_finds_what_happens_under_a_right_crc() {
        for (source, damage) in
            [(Source::Controller, Damage::Bit), (Source::Relay, Damage::Bit), (Source::Link, Damage::Codeword)]
        {
            let [with, without] = fates(source, damage);
            assert_eq!((with.by_crc, with.by_sum, with.wrong), (0, with.damaged, 0), "{source}: {with:?}");
            assert_eq!((without.by_crc, without.by_sum), (0, 0), "{source}: {without:?}");
            assert!(without.wrong >= 40, "{source}: {without:?}");
        }
    }

    #[test]
    fn behind_a_gateway_checksums_stay() {
        for fate in fates(Source::Gateway, Damage::Bit) {
            assert_eq!((fate.by_crc, fate.by_sum, fate.wrong), (0, fate.damaged, 0), "{fate:?}");
        }
    }

    #[test]
    fn nobody_finds_words_that_changed_places_under_a_right_crc() {
        let [with, without] = fates(Source::Controller, Damage::Swap);
        assert!(with.by_sum == 0 && with.wrong >= 40 && without.wrong >= 40, "{with:?}, {without:?}");
    }
}
