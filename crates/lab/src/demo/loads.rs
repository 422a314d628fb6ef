//! The loads that clients put on a wire, and how a run is measured.

use super::Options;
use crate::report::{LoadInfo, Run};
use crate::workload::generate::{generate, tce_share, word};
use crate::workload::site::Site;
use crate::workload::wires::Link;
use crate::world::serve::port;
use crate::world::{World, process};
use anyhow::Context;
use baton_apps::load::Kind;
use baton_apps::measure::Cpu;
use baton_apps::signal::Stop;
use std::time::Duration;

/// Time that one run may take beyond its length.
const PATIENCE: Duration = Duration::from_secs(12);

/// A load of the demo.
pub struct Load {
    /// How the report names it.
    pub info: LoadInfo,
    /// The program to run.
    pub what: What,
    length: Duration,
}

/// The program of a load.
#[derive(Clone, Debug)]
pub enum What {
    /// `curl` over one connection, with as many successive downloads of the file as fit into a run.
    Curl,
    /// `baton load`.
    Generator {
        /// The kind of load.
        kind: Kind,
        /// Connections at once.
        connections: usize,
        /// Bytes in a request or a write.
        size: usize,
    },
}

/// All loads of the demo.
pub fn all(options: &Options) -> Vec<Load> {
    let load = |id: &str, name: &str, about: &str, requests: bool, what: What| Load {
        info: LoadInfo {
            id: id.to_owned(),
            name: name.to_owned(),
            about: about.to_owned(),
            requests,
            command: command_line(&what, options.run),
        },
        what,
        length: options.run,
    };
    let generator = |kind, connections, size| What::Generator { kind, connections, size };
    vec![
        load(
            "http",
            "HTTP download (curl)",
            "curl repeatedly fetches a 64 MiB file over one connection.",
            false,
            What::Curl,
        ),
        load(
            "receive",
            "bulk, service sends",
            "One connection receives from chargen.",
            false,
            generator(Kind::Receive, 1, 0),
        ),
        load("send", "bulk, service receives", "One connection sends to discard.", false, generator(Kind::Send, 1, 0)),
        load(
            "echo-1",
            "echo 64 B, 1 connection",
            "A 64-byte request, its echo, then the next.",
            true,
            generator(Kind::Echo, 1, 64),
        ),
        load(
            "echo-256",
            "echo 64 B, 256 connections",
            "The same on 256 connections at once.",
            true,
            generator(Kind::Echo, 256, 64),
        ),
    ]
}

fn command_line(what: &What, length: Duration) -> String {
    match what {
        What::Curl => format!("curl -s -o /dev/null 'http://SERVER/{}?[1-N]'", Site::NAME),
        What::Generator { kind, .. } => {
            format!("baton load {} SERVER:{} {}", word(*kind), port::of(*kind), arguments(what, length).join(" "))
        }
    }
}

fn arguments(what: &What, length: Duration) -> Vec<String> {
    let What::Generator { connections, size, .. } = what else { return Vec::new() };
    vec![
        format!("--connections={connections}"),
        format!("--size={size}"),
        format!("--seconds={}", length.as_secs_f64()),
        format!("--warmup={}", (length / 4).as_secs_f64()),
    ]
}

/// Runs a load over a wire once and measures it.
pub fn measure(world: &World, link: &mut Link, load: &Load, stop: &Stop) -> anyhow::Result<Run> {
    let before = link.server.borrow_mut().stats(stop)?;
    let mut run = match &load.what {
        What::Curl => {
            if link.downloads == 0 {
                let run = curl(world, &url(link, 1), stop)?;
                link.downloads = fitting(&run, 1, load.length);
            }
            let run = curl(world, &url(link, link.downloads), stop)?;
            link.downloads = fitting(&run, link.downloads, load.length);
            run
        }
        What::Generator { kind, .. } => {
            let outcome = generate(world, link.addrs[0], *kind, &arguments(&load.what, load.length), stop)?;
            Run::from(outcome)
        }
    };
    let after = link.server.borrow_mut().stats(stop)?;
    run.tce = tce_share(before.engine.as_ref(), after.engine.as_ref());
    Ok(run)
}

fn url(link: &Link, downloads: usize) -> String {
    format!("http://{}/{}?[1-{downloads}]", link.addrs[0], Site::NAME)
}

/// Downloads from the client's side; a URL may stand for several.
pub fn curl(world: &World, url: &str, stop: &Stop) -> anyhow::Result<Run> {
    let mut command = world.client.command("curl");
    command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "/dev/null"]);
    command.args(["--write-out", "%{size_download} %{time_total}\n", url]);
    let cpu = Cpu::now()?;
    let printed = process::run(&mut command, stop, PATIENCE)?;
    let cpu = Cpu::now()? - cpu;
    let (mut bytes, mut seconds) = (0, 0.0);
    for line in printed.lines() {
        let parsed = line.split_once(' ').and_then(|(b, s)| Some((b.parse::<u64>().ok()?, s.parse::<f64>().ok()?)));
        let (b, s) = parsed.with_context(|| format!("curl printed '{line}'"))?;
        bytes += b;
        seconds += s;
    }
    Ok(Run { seconds, bytes, requests: 0, latency_ns: None, cpu, tce: None })
}

/// The number of downloads that fit into `length`, at the rate of a run that completed `downloads`.
fn fitting(run: &Run, downloads: usize, length: Duration) -> usize {
    let one = (run.seconds / downloads as f64).max(1e-3);
    ((length.as_secs_f64() / one).round() as usize).clamp(1, 200)
}

impl Load {
    /// Describes the load for clients and services in the same process.
    pub fn in_process(mut self) -> Load {
        if matches!(self.what, What::Curl) {
            self.info.name = "HTTP download".to_owned();
            self.info.about = "A 64 MiB file, over a new connection each time.".to_owned();
        }
        self.info.command = "in this process".to_owned();
        self
    }
}
