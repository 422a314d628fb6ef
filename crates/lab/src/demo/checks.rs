//! Checks before the measurements that every byte arrives intact.

use super::loads::{Load, What};
use crate::report::Check;
use crate::workload::generate::generate;
use crate::workload::site::Site;
use crate::workload::wires::Link;
use crate::world::{World, process};
use anyhow::Context;
use baton_apps::load::Kind;
use baton_apps::signal::Stop;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// Time that one check may take.
const PATIENCE: Duration = Duration::from_secs(12);

/// Bytes that are echoed and compared one by one.
const ECHOED: usize = 16 << 20;

/// Runs the check of a load, if it has one: HTTP by digest over IPv4 and IPv6, streams by comparing
/// every byte.
///
/// # Errors
/// Only if the demo is asked to end. Any other error is a failed check.
pub fn run(world: &World, link: &Link, load: &Load, site: &Site, stop: &Stop) -> anyhow::Result<Option<Check>> {
    let (what, seen) = match &load.what {
        What::Curl => {
            let mut each = link.addrs.iter().map(|&addr| {
                let url = format!("http://{}/{}", SocketAddr::new(addr, 80), Site::NAME);
                digest(&mut world.client.command("curl"), &url, site, stop)
            });
            let seen = each.try_fold(String::new(), |_, seen| seen);
            ("curl's download has the file's digest, over each IP version", seen)
        }
        What::Generator { kind: Kind::Echo, connections: 1, .. } => {
            ("16 MiB there and back, every byte compared", echo(world, link, stop))
        }
        What::Generator { kind: Kind::Receive, .. } => {
            ("a received stream, every byte compared", receive(world, link, stop))
        }
        What::Generator { .. } => return Ok(None),
    };
    if stop.requested() {
        anyhow::bail!("interrupted");
    }
    let (ok, seen) = match seen {
        Ok(seen) => (true, seen),
        Err(error) => (false, format!("{error:#}")),
    };
    Ok(Some(Check { wire: link.wire.name.clone(), what: what.to_owned(), ok, seen }))
}

/// Fetches the site's file with a command of curl, and compares its digest.
pub fn digest(curl: &mut Command, url: &str, site: &Site, stop: &Stop) -> anyhow::Result<String> {
    curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--globoff", url]);
    let (mut digest, mut bytes) = (Sha256::new(), 0);
    process::stream(curl, stop, PATIENCE, &mut |data| {
        digest.update(data);
        bytes += data.len();
    })?;
    let got: [u8; 32] = digest.finalize().into();
    let hex = |digest: &[u8; 32]| digest[..4].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    anyhow::ensure!(got == site.sha256, "{bytes} bytes with digest {}…, not {}…", hex(&got), hex(&site.sha256));
    Ok(format!("{bytes} bytes, {}…", hex(&got)))
}

fn echo(world: &World, link: &Link, stop: &Stop) -> anyhow::Result<String> {
    let arguments = ["--verify", "--warmup=0", "--seconds=0"].map(str::to_owned).to_vec();
    let arguments = [arguments, vec![format!("--size={ECHOED}")]].concat();
    // A load starts to measure only after every connection has had one complete answer.
    let outcome = generate(world, link.addrs[0], Kind::Echo, &arguments, stop)?;
    anyhow::ensure!(outcome.connections == 1, "no answer");
    Ok(format!("{ECHOED} bytes"))
}

fn receive(world: &World, link: &Link, stop: &Stop) -> anyhow::Result<String> {
    let arguments = ["--verify", "--warmup=0", "--seconds=0.1"].map(str::to_owned);
    let addr = link.addrs.last().context("a wire without address")?;
    let outcome = generate(world, *addr, Kind::Receive, &arguments, stop)?;
    anyhow::ensure!(outcome.bytes > 0, "no bytes");
    Ok(format!("{} bytes from {addr}", outcome.bytes))
}
