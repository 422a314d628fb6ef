//! A host made for many connections asks for large pages, a host of the usual size does not. It is
//! a separate test program because tables of other tests could share a mapping with these.
#![cfg(target_os = "linux")]

use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use std::ops::Range;

/// Whether large pages were requested for the mapping of this address (`hg` in proc_pid_smaps(5));
/// `None` if the kernel does not report it.
fn asked_for(address: usize) -> Option<bool> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let covers = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let parse = |number| usize::from_str_radix(number, 16).ok();
        Some((parse(start)?..parse(end)?).contains(&address))
    };
    let mut lines = maps.lines().skip_while(|line| covers(line) != Some(true));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"))?;
    Some(flags.split_whitespace().any(|flag| flag == "hg"))
}

fn config() -> HostConfig {
    HostConfig::new("10.0.0.1/24".parse().unwrap())
}

fn tables(config: HostConfig) -> (Host<MemoryPort>, [Range<usize>; 4]) {
    let mut host = Host::new(&config, MemoryPort::pair(MemoryOptions::default()).0).unwrap();
    let tables = host.engine().tables();
    (host, tables)
}

#[test]
fn a_host_made_for_many_connections_asks_for_large_pages() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return baton_testkit::note_skip!("the kernel has no transparent huge pages");
    }
    let mut many = config();
    many.engine.max_connections = 1_000_000;
    let (many, large) = tables(many);
    for table in &large {
        assert_eq!(asked_for(table.start.midpoint(table.end)), Some(true), "{} bytes", table.len());
    }
    drop(many);
    let (_few, small) = tables(config());
    for table in &small {
        assert_eq!(asked_for(table.start.midpoint(table.end)), Some(false), "{} bytes", table.len());
    }
}
