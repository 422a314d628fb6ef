//! `baton bare`: answers on a bare device without TCP, as a baseline for `bench tap`.

use super::serve::control_lines;
use anyhow::Context;
use baton_apps::fail::usage;
use baton_apps::services::Line;
use baton_lab::workload::bare::Bare;
use baton_port::PortSpec;
use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

/// Arguments of `baton bare`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The device, as tap:NAME[,novnet][,nomerge]
    port: PortSpec,

    /// Address to answer for
    addr: Ipv4Addr,
}

/// Answers frames until standard input closes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let PortSpec::Tap { name, options } = &args.port else {
        return Err(usage("the bare device must be a TAP device", "write tap:NAME"));
    };
    let mut bare = Bare::open(name, *options, args.addr).context("cannot open the device")?;
    let ready = serde_json::to_string(&Line::Ready { services: Vec::new() })?;
    writeln!(std::io::stdout(), "{ready}")?;
    let control = control_lines();
    while !matches!(control.try_recv(), Err(TryRecvError::Disconnected)) {
        bare.turn(Duration::from_millis(20)).context("the device has disappeared")?;
    }
    Ok(())
}
