//! `baton ps --load`: the load of a service's engines.

use super::write_table;
use anyhow::Context;
use baton_client::Service;
use baton_ipc::load::Past;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// The load at one time; lengths in frames, limits in connections.
#[derive(Serialize)]
struct Reading {
    ago_ms: u64,
    state: &'static str,
    soft_limit: u32,
    connections: u32,
    queued: u32,
    low: u32,
    high: u32,
    idle: f64,
}

/// An engine with its last reading and its history, the oldest first.
#[derive(Serialize)]
struct Engine {
    engine: String,
    #[serde(flatten)]
    now: Reading,
    history: Vec<Reading>,
}

impl From<&Past> for Reading {
    fn from(Past { ago_ms, load }: &Past) -> Reading {
        Reading {
            ago_ms: *ago_ms,
            state: load.state.name(),
            soft_limit: load.soft_limit,
            connections: load.connections,
            queued: load.queued,
            low: load.watermarks.0,
            high: load.watermarks.1,
            idle: f64::from(load.idle_permille) / 1000.0,
        }
    }
}

fn engines(service: &Service) -> anyhow::Result<Vec<Engine>> {
    let mut histories: BTreeMap<String, Vec<Past>> = BTreeMap::new();
    for (engine, past) in service.loads().context("cannot read the load of the engines")? {
        histories.entry(engine).or_default().push(past);
    }
    let engine = |(engine, history): (String, Vec<Past>)| {
        let now = history.last()?.into();
        Some(Engine { engine, now, history: history.iter().map(Reading::from).collect() })
    };
    Ok(histories.into_iter().filter_map(engine).collect())
}

/// Prints the load of each engine that controls it.
pub(super) fn print(service: &Service, json: bool) -> anyhow::Result<()> {
    let engines = engines(service)?;
    let mut stdout = std::io::stdout().lock();
    if json {
        writeln!(stdout, "{}", serde_json::to_string_pretty(&engines)?)?;
        return Ok(());
    }
    let header = ["ENGINE", "STATE", "LIMIT", "CONNECTIONS", "QUEUE", "LOW", "HIGH", "IDLE", "AGO"].map(str::to_owned);
    let cells = engines.iter().map(|Engine { engine, now, .. }| {
        let [limit, connections, queued, low, high] =
            [now.soft_limit, now.connections, now.queued, now.low, now.high].map(|n| n.to_string());
        let (idle, ago) = (format!("{:.0} %", now.idle * 100.0), format!("{} s", now.ago_ms / 1000));
        [engine.clone(), now.state.to_owned(), limit, connections, queued, low, high, idle, ago]
    });
    write_table(&mut stdout, &std::iter::once(header).chain(cells).collect::<Vec<_>>())
}
