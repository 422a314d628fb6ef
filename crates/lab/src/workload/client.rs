//! The clients: the load that each puts on its server, and the CPU time of the whole machine.

use super::account::Account;
use super::at::Caller;
use super::generate::ask;
use super::place::Place;
use super::server::Kind;
use super::ways::{Over, Way};
use crate::world::find_program;
use crate::world::process::{self, Said};
use anyhow::{Context, ensure};
use baton_apps::load;
use baton_apps::measure::Cpu;
use baton_apps::signal::Stop;
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::Duration;

/// Time that a run may take beyond its length.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs of a number of requests that may be too short, before the last one counts as it is.
const TRIES: usize = 4;

/// A client program and its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// `redis-benchmark` with this command, without pipelining.
    Redis {
        /// GET or SET.
        command: &'static str,
        /// Number of connections.
        connections: u32,
    },
    /// `wrk` with one thread, for a file that nginx serves.
    Wrk {
        /// Name of the file.
        file: &'static str,
        /// Number of connections.
        connections: u32,
    },
    /// `iperf3`.
    Iperf {
        /// True if the server sends.
        reverse: bool,
        /// Number of connections.
        connections: u32,
    },
    /// One byte there and back, then the next.
    PingPong,
}

/// A load that a client puts on a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Short identifier.
    pub id: &'static str,
    /// Name for people.
    pub name: &'static str,
    /// The client program and its parameters.
    pub what: What,
}

/// All loads, in the order of display.
pub const LOADS: [Load; 16] = [
    redis("redis-get", "redis GET, 50 connections", "GET"),
    redis("redis-set", "redis SET, 50 connections", "SET"),
    wrk("nginx-1k", "nginx, 1 KB, 32 connections", "1k"),
    wrk("nginx-4k", "nginx, 4 KB, 32 connections", "4k"),
    wrk("nginx-16k", "nginx, 16 KB, 32 connections", "16k"),
    wrk("nginx-64k", "nginx, 64 KB, 32 connections", "64k"),
    wrk("nginx-256k", "nginx, 256 KB, 32 connections", "256k"),
    wrk("nginx-1m", "nginx, 1 MB, 32 connections", "1m"),
    iperf("receive-1", "iperf3, server receives, 1 connection", false, 1),
    iperf("receive-16", "iperf3, server receives, 16 connections", false, 16),
    iperf("send-1", "iperf3, server sends, 1 connection", true, 1),
    iperf("send-16", "iperf3, server sends, 16 connections", true, 16),
    Load { id: "ping-pong", name: "1 byte there and back, 1 connection", what: What::PingPong },
    redis("redis-get-1", "redis GET, 1 connection", "GET"),
    iperf("iperf3-1", "iperf3, 1 connection", false, 1),
    iperf("iperf3-16", "iperf3, 16 connections", false, 16),
];

const fn redis(id: &'static str, name: &'static str, command: &'static str) -> Load {
    let connections = if id.len() > "redis-get".len() { 1 } else { 50 };
    Load { id, name, what: What::Redis { command, connections } }
}

const fn wrk(id: &'static str, name: &'static str, file: &'static str) -> Load {
    Load { id, name, what: What::Wrk { file, connections: 32 } }
}

const fn iperf(id: &'static str, name: &'static str, reverse: bool, connections: u32) -> Load {
    Load { id, name, what: What::Iperf { reverse, connections } }
}

/// The results of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Length in seconds.
    pub seconds: f64,
    /// Requests answered; 0 for bulk loads.
    pub requests: u64,
    /// Payload bytes; 0 for loads measured in requests.
    pub bytes: u64,
    /// Median latency of a request in nanoseconds; 0 for bulk loads, and if requests wait for each other.
    pub p50_ns: u64,
    /// 99th percentile and largest latency in nanoseconds; 0 like the median.
    #[serde(default)]
    pub tail_ns: [u64; 2],
    /// CPU time of the whole machine, including the client.
    pub cpu: Cpu,
    /// The account that `baton run` gave of the client's connections, if the client was under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
}

impl Outcome {
    /// CPU time in nanoseconds per request or per byte.
    pub fn cost(&self) -> Option<f64> {
        let count = if self.requests > 0 { self.requests } else { self.bytes };
        (count > 0).then(|| self.cpu.busy * 1e9 / count as f64)
    }

    /// Requests or bytes per second.
    pub fn rate(&self) -> f64 {
        let count = if self.requests > 0 { self.requests } else { self.bytes };
        count as f64 / self.seconds
    }
}

impl Load {
    /// The load with this id.
    pub fn of(id: &str) -> Option<Load> {
        LOADS.into_iter().find(|load| load.id == id)
    }

    /// True if it can run on a way: not every program knows Unix domain sockets, or many requests at once.
    pub fn runs_on(&self, way: &Way) -> bool {
        match way.over {
            Over::Wire(_) | Over::Loopback => true,
            Over::Unix => matches!(self.what, What::Redis { .. } | What::PingPong),
            Over::Pipelined => matches!(self.what, What::Redis { .. }),
        }
    }

    /// The server that it needs.
    pub fn server(&self) -> Kind {
        match self.what {
            What::Redis { .. } => Kind::Redis,
            What::Wrk { .. } => Kind::Nginx,
            What::Iperf { .. } => Kind::Iperf,
            What::PingPong => Kind::Echo,
        }
    }

    /// The client's program and the Debian package that brings it.
    pub fn program(&self) -> (&'static str, &'static str) {
        match self.what {
            What::Redis { .. } => ("redis-benchmark", "redis-tools"),
            What::Wrk { .. } => ("wrk", "wrk"),
            What::Iperf { .. } => ("iperf3", "iperf3"),
            What::PingPong => ("baton", "baton"),
        }
    }

    /// The program that is not installed, if one is missing, and how to get it.
    pub fn missing(&self) -> Option<String> {
        let programs = [self.program(), self.server().program()];
        let (name, package) =
            programs.into_iter().find(|(name, _)| *name != "baton" && find_program(name).is_none())?;
        Some(format!("{}: {name} is not installed: apt-get install {package}", self.name))
    }

    /// Returns true if it is measured in requests, and false if in bytes.
    pub fn has_requests(&self) -> bool {
        !matches!(self.what, What::Iperf { .. })
    }

    /// Runs it for about `seconds`. `requests` is the number of requests in a run of that length, taken
    /// from the previous run, for clients that run for a number of requests and not for a time.
    ///
    /// # Errors
    /// The client's error message, or an interruption.
    pub fn run(&self, place: &Place<'_>, seconds: u32, requests: &mut u64, stop: &Stop) -> anyhow::Result<Outcome> {
        let (length, caller) = (Duration::from_secs(seconds.into()), place.caller()?);
        let (port, Caller { servers, at_once, .. }) = (self.server().port(), &caller);
        let address = place.address;
        let mut client = caller.command(self.program().0);
        match self.what {
            What::Redis { command, connections } => {
                let mut measured = Outcome::default();
                // A short run says too little of how many requests fit into a long one.
                for _ in 0..TRIES {
                    let number = (*requests).max(1000 * u64::from(*at_once));
                    let mut client = caller.command(self.program().0);
                    match self.server().socket(servers) {
                        Some(socket) => client.arg("-s").arg(socket),
                        None => client.args(["-h", &address.to_string(), "-p", &port.to_string()]),
                    };
                    client.args(["-t", command, "--csv", "-P", &at_once.to_string()]);
                    client.args(["-c", &connections.to_string(), "-n", &number.to_string()]);
                    measured = timed(&mut client, length, stop, |said| redis_outcome(said, command, number))?;
                    *requests = (measured.rate() * f64::from(seconds)) as u64 + 1;
                    if measured.seconds > f64::from(seconds) / 2.0 {
                        break;
                    }
                }
                if *at_once > 1 {
                    // Each request waited for the others.
                    (measured.p50_ns, measured.tail_ns) = Default::default();
                }
                Ok(measured)
            }
            What::Wrk { file, connections } => {
                client.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "--latency"]);
                timed(client.arg(format!("http://{address}:{port}/{file}")), length, stop, wrk_outcome)
            }
            What::Iperf { reverse, connections } => {
                client.args(["--json", "--client", &address.to_string(), "--time", &seconds.to_string()]);
                client.args(["--parallel", &connections.to_string()]);
                timed(client.args(reverse.then_some("--reverse")), length, stop, iperf_outcome)
            }
            What::PingPong => {
                let arguments = ["--connections=1", "--size=1", "--warmup=0.2"].map(str::to_owned).into_iter();
                let arguments: Vec<String> = arguments.chain([format!("--seconds={seconds}")]).collect();
                let (run, account) = ask(&caller, load::Kind::Echo, &arguments, stop)?;
                Ok(Outcome { account, ..Outcome::from(run) })
            }
        }
    }

    /// Connections that carry it.
    pub fn connections(&self) -> u32 {
        match self.what {
            What::Redis { connections, .. } | What::Wrk { connections, .. } | What::Iperf { connections, .. } => {
                connections
            }
            What::PingPong => 1,
        }
    }
}

impl From<load::Outcome> for Outcome {
    fn from(run: load::Outcome) -> Outcome {
        let [p50_ns, p99, largest] = run.latency_ns.unwrap_or_default();
        let bytes = if run.requests > 0 { 0 } else { run.bytes };
        let load::Outcome { seconds, requests, cpu, .. } = run;
        Outcome { seconds, requests, bytes, p50_ns, tail_ns: [p99, largest], cpu, account: None }
    }
}

/// Runs a client to its end, and reads its output. Adds the machine's CPU time in that period, and the account
/// of the client's connections.
fn timed(
    client: &mut Command,
    length: Duration,
    stop: &Stop,
    read: impl FnOnce(&str) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Outcome> {
    let before = Cpu::now()?;
    let Said { out, err } = process::listen(client, stop, length + PATIENCE)?;
    let cpu = Cpu::now()? - before;
    Ok(Outcome { cpu, account: Account::parse(&err), ..read(&out)? })
}

/// `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",...`
fn redis_outcome(said: &str, command: &str, requests: u64) -> anyhow::Result<Outcome> {
    let line = said.lines().find(|line| line.starts_with(&format!("\"{command}\"")));
    let line = line.with_context(|| format!("redis-benchmark printed '{}'", said.trim()))?;
    let field = |at: usize| line.split(',').nth(at).and_then(|field| field.trim_matches('"').parse::<f64>().ok());
    let parse = || {
        let [p50_ns, p99, largest] = [field(4)?, field(6)?, field(7)?].map(|ms| (ms * 1e6).round() as u64);
        let seconds = requests as f64 / field(1)?;
        Some(Outcome { seconds, requests, p50_ns, tail_ns: [p99, largest], ..Outcome::default() })
    };
    parse().with_context(|| format!("redis-benchmark printed '{line}'"))
}

/// `    50%  123.00us`, `    Latency   123.00us   45.00us   1.00ms   80.00%`, of which the third is the largest,
/// and `  6789 requests in 1.10s, 7.89MB read`.
fn wrk_outcome(said: &str) -> anyhow::Result<Outcome> {
    let failed = said.lines().find(|line| line.contains("Socket errors") || line.contains("Non-2xx"));
    ensure!(failed.is_none(), "wrk: {}", failed.unwrap_or_default().trim());
    let parse = || {
        let after = |name: &str| said.lines().find_map(|line| line.trim().strip_prefix(name));
        let nanos = |text: &str| Some((span(text)? * 1e9).round() as u64);
        let largest = after("Latency ").and_then(|rest| rest.split_whitespace().nth(2));
        let total = said.lines().find_map(|line| line.trim().split_once(" requests in "))?;
        let seconds = span(total.1.split(',').next()?)?;
        Some(Outcome {
            seconds,
            requests: total.0.parse().ok()?,
            p50_ns: nanos(after("50%")?)?,
            tail_ns: [nanos(after("99%")?)?, nanos(largest?)?],
            ..Outcome::default()
        })
    };
    parse().with_context(|| format!("wrk printed '{}'", said.trim()))
}

/// Parses a time that wrk printed; returns seconds.
fn span(text: &str) -> Option<f64> {
    let text = text.trim();
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0)];
    let (number, unit) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    Some(number.parse::<f64>().ok()? * unit)
}

fn iperf_outcome(said: &str) -> anyhow::Result<Outcome> {
    let told: serde_json::Value = serde_json::from_str(said).context("iperf3 did not print JSON")?;
    let sum = &told["end"]["sum_received"];
    let (bytes, seconds) = (sum["bytes"].as_u64(), sum["seconds"].as_f64());
    let (bytes, seconds) = bytes.zip(seconds).with_context(|| format!("iperf3: {}", told["error"]))?;
    Ok(Outcome { seconds, bytes, ..Outcome::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::ways::LOCAL;

    #[test]
    fn what_clients_print_is_read() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                   \"p99_latency_ms\",\"max_latency_ms\"\n\
                   \"GET\",\"50000.00\",\"0.5\",\"0.1\",\"0.431\",\"0.8\",\"0.9\",\"2.5\"\n";
        let run = redis_outcome(csv, "GET", 100_000).unwrap();
        assert_eq!((run.seconds, run.p50_ns, run.tail_ns), (2.0, 431_000, [900_000, 2_500_000]));
        assert!(redis_outcome("Could not connect\n", "GET", 1).is_err());
        let wrk = "    Latency   500.00us   90.00us   7.00ms   88.00%\n  Latency Distribution\n     50%  471.00us\n\
                   \x20    99%    1.00ms\n  5000 requests in 1.25s, 1.0MB read\n";
        let run = wrk_outcome(wrk).unwrap();
        assert_eq!((run.seconds, run.requests, run.p50_ns), (1.25, 5000, 471_000));
        assert_eq!(run.tail_ns, [1_000_000, 7_000_000]);
        assert!(wrk_outcome(&format!("{wrk}  Socket errors: connect 0, read 7, write 0, timeout 0\n")).is_err());
        let run = iperf_outcome(r#"{"end":{"sum_received":{"bytes":1000,"seconds":0.5}}}"#).unwrap();
        assert_eq!((run.bytes, run.rate()), (1000, 2000.0));
        assert!(iperf_outcome(r#"{"error":"unable to connect"}"#).is_err());
    }

    #[test]
    fn only_programs_that_know_unix_domain_sockets_run_over_them() {
        let over = |id: &str| {
            let load = Load::of(id).unwrap();
            LOCAL.into_iter().filter(|way| load.runs_on(way)).map(|way| way.id).collect::<Vec<_>>()
        };
        assert_eq!(over("nginx-1k"), ["kernel", "kernel-again", "pair"]);
        assert_eq!(over("ping-pong"), ["kernel", "kernel-again", "pair", "unix"]);
        assert_eq!(over("redis-get").len(), LOCAL.len());
    }

    #[test]
    fn loads_have_names_of_their_own() {
        for (at, load) in LOADS.iter().enumerate() {
            assert!(LOADS[..at].iter().all(|before| before.id != load.id && before.name != load.name));
        }
    }
}
