//! A web server with thousands of connections, and what can be seen of it while it serves them.

use super::{Arm, Sample};
use crate::experiment::Lab;
use crate::workload::place::{Place, Setting, home};
use crate::workload::server::{COUNTS, Kind};
use crate::workload::ways::Way;
use crate::world::Namespace;
use anyhow::{Context, ensure};
use baton_apps::background::Background;
use baton_client::Service;
use rustix::process::Signal;
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

const SUBNET: u8 = 150;
/// Interval between two samples.
const LOOK: Duration = Duration::from_millis(250);
/// Time that connections may take to open and to reach the engine.
const RAMP: Duration = Duration::from_secs(40);
/// Time that wrk may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// No run is longer than this, in seconds; it is ended before.
const LONGEST_S: u32 = 600;

/// nginx, wrk and a service on a wire of their own.
pub struct Crowd<'a> {
    wrk: Background,
    said: PathBuf,
    service: Option<Service>,
    place: Place<'a>,
    connections: u32,
    /// How often the counts were asked for.
    asked: Cell<u64>,
    _files: tempfile::TempDir,
}

/// The counts of nginx.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Connections that it accepted.
    pub accepted: u64,
    /// Connections that are open.
    pub active: u64,
    /// Requests that it had.
    pub requests: u64,
}

/// The output of wrk at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// Responses.
    pub requests: u64,
    /// Socket errors, and responses that are none of success.
    pub errors: u64,
}

impl<'a> Crowd<'a> {
    /// Starts them, and waits until as many connections are on the engine as `arm` allows.
    pub fn start(lab: &'a Lab<'_>, arm: Arm, connections: u32) -> anyhow::Result<Crowd<'a>> {
        let (world, files) = (lab.world()?, home()?);
        let way = Way::of(if arm == Arm::Kernel { "kernel" } else { "service-tc" }).context("an unknown way")?;
        let setting = Setting { settings: &arm.settings(), ..Setting::default() };
        let mut place = Place::with(world, way, SUBNET, files.path(), &setting)?;
        place.serve(Kind::Crowd)?;
        let service = place.service().map(|service| service.connect()).transpose()?;
        let said = files.path().join("wrk.said");
        let url = format!("http://{}:{}/1k", place.address, Kind::Crowd.port());
        let mut wrk = world.client.command("wrk");
        wrk.args(["-t1", &format!("-c{connections}"), &format!("-d{LONGEST_S}s")]);
        // A request that waits is not lost.
        wrk.args([&format!("--timeout={LONGEST_S}s"), &url]);
        wrk.stdin(Stdio::null()).stdout(File::create(&said)?).stderr(Stdio::null());
        let wrk = Background::start(&mut wrk, PATIENCE).context("cannot start wrk")?;
        let crowd = Crowd { wrk, said, service, place, connections, asked: Cell::new(0), _files: files };
        // Nineteen of twenty are enough: a connection whose move fails tries it again after many requests.
        let (begun, wanted) = (Instant::now(), u64::from(arm.limit().min(connections)) * 19 / 20);
        while u64::from(connections) > crowd.counts()?.active || crowd.on_engine()? < wanted {
            ensure!(!lab.stop().requested(), "interrupted");
            if begun.elapsed() > RAMP {
                // Load control may keep some of them in the kernel from the beginning.
                ensure!(arm == Arm::Auto, "the connections are not all there after {} s", RAMP.as_secs());
                break;
            }
            std::thread::sleep(LOOK);
        }
        Ok(crowd)
    }

    /// The process id of the engine.
    pub fn engine(&self) -> Option<u32> {
        self.place.service()?.engine().ok()
    }

    /// The counts of nginx, without the connection and the request that ask for it.
    pub fn counts(&self) -> anyhow::Result<Counts> {
        let (server, address) = (&self.place.world.server, SocketAddr::new(self.place.address, COUNTS));
        let said = server.enter(|| {
            let mut connection = TcpStream::connect(address).context("nginx does not answer")?;
            connection.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
            let mut said = String::new();
            connection.read_to_string(&mut said)?;
            Ok(said)
        })?;
        // wrk tries the address with a connection before it begins.
        self.asked.set(self.asked.get() + 1);
        let counts = Counts::parse(&said).with_context(|| format!("nginx said '{said}'"))?;
        let without = |count: u64, ours: u64| count.saturating_sub(ours);
        Ok(Counts {
            accepted: without(counts.accepted, self.asked.get() + 1),
            active: without(counts.active, 1),
            requests: without(counts.requests, self.asked.get()),
        })
    }

    fn on_engine(&self) -> anyhow::Result<u64> {
        let Some(service) = &self.service else { return Ok(0) };
        Ok(service.list()?.iter().filter(|entry| entry.place == "engine").count() as u64)
    }

    /// Connections of the client that were reset since the namespaces were made. The server's kernel also
    /// counts each socket that becomes a husk.
    pub fn resets(&self) -> anyhow::Result<u64> {
        resets(&self.place.world.client)
    }

    /// Takes samples for `length`; their times are those since `begun`.
    pub fn watch(&self, lab: &Lab<'_>, begun: Instant, length: Duration) -> anyhow::Result<Vec<Sample>> {
        let (from, mut samples) = (Instant::now(), Vec::new());
        while from.elapsed() < length {
            ensure!(!lab.stop().requested(), "interrupted");
            let requests = self.counts()?.requests;
            let mut sample = Sample { at_ms: begun.elapsed().as_millis() as u64, requests, ..Sample::default() };
            let loads = self.service.as_ref().map(Service::loads).transpose()?.unwrap_or_default();
            if let Some((_, past)) = loads.last() {
                sample.on_engine = past.load.connections;
                sample.soft_limit = past.load.soft_limit.min(self.connections);
                (sample.queued, sample.high) = (past.load.queued, past.load.watermarks.1);
                sample.sheds = past.load.state.name() == "decrease";
                sample.idle_permille = past.load.idle_permille;
            }
            samples.push(sample);
            std::thread::sleep(LOOK);
        }
        Ok(samples)
    }

    /// Ends wrk, then all of it.
    pub fn end(self) -> anyhow::Result<Told> {
        let Crowd { mut wrk, said, place, .. } = self;
        wrk.signal(Signal::INT);
        let begun = Instant::now();
        while !wrk.has_ended()? {
            ensure!(begun.elapsed() < PATIENCE, "wrk does not end");
            std::thread::sleep(LOOK);
        }
        let said = std::fs::read_to_string(said)?;
        let world = place.world;
        place.end()?;
        world.client.ip(&format!("link delete bt-{SUBNET}"))?;
        Told::parse(&said).with_context(|| format!("wrk printed '{}'", said.trim()))
    }
}

impl Counts {
    fn parse(said: &str) -> Option<Counts> {
        let (_, page) = said.split_once("Active connections:")?;
        let mut numbers = page.split_whitespace().filter_map(|word| word.parse().ok());
        let [active, accepted, _, requests]: [u64; 4] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
        (requests > 0).then_some(Counts { accepted, active, requests })
    }
}

impl Told {
    fn parse(said: &str) -> Option<Told> {
        let requests = said.lines().find_map(|line| line.trim().split_once(" requests in "))?.0.parse().ok()?;
        let of = |prefix: &str| {
            let line = said.lines().find_map(|line| line.trim().strip_prefix(prefix));
            let words = line.unwrap_or_default().split([' ', ',']);
            words.filter_map(|word| word.parse::<u64>().ok()).sum::<u64>()
        };
        Some(Told { requests, errors: of("Socket errors:") + of("Non-2xx or 3xx responses:") })
    }
}

/// `EstabResets` of `/proc/net/snmp`.
fn resets(namespace: &Namespace) -> anyhow::Result<u64> {
    let text = namespace.enter(|| Ok(std::fs::read_to_string("/proc/thread-self/net/snmp")?))?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = lines.next().zip(lines.next()).context("no counters of TCP")?;
    let pair = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "EstabResets");
    Ok(pair.context("no count of resets")?.1.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let said = "HTTP/1.1 200 OK\r\n\r\nActive connections: 4 \nserver accepts handled requests\n 16 17 31 \n\
                    Reading: 6 Writing: 179 Waiting: 106 \n";
        assert_eq!(Counts::parse(said), Some(Counts { accepted: 16, active: 4, requests: 31 }));
        assert_eq!(Counts::parse("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }

    #[test]
    fn errors_are_summed() {
        let well = "  5000 requests in 1.25s, 1.0MB read\n";
        assert_eq!(Told::parse(well), Some(Told { requests: 5000, errors: 0 }));
        let ill = format!(
            "{well}  Socket errors: connect 1, read 20, write 300, timeout 4000\n  Non-2xx or 3xx responses: 5\n"
        );
        assert_eq!(Told::parse(&ill).unwrap().errors, 4326);
        assert_eq!(Told::parse("unable to connect"), None);
    }
}
