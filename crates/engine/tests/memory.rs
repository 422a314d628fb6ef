//! Tables made for many connections cost nothing before they are used. A test
//! program of its own, since it looks at the whole process's memory.
#![cfg(target_os = "linux")]

use baton_engine::flow_table::FlowTable;
use baton_engine::region::{Layout, Region};
use baton_engine::slab::Slab;
use baton_engine::streamer::Flow;
use baton_engine::wheel::Wheel;
use baton_tcp::time::{Duration, Instant};

/// Memory of this process that is resident, in KiB.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn what_is_not_used_is_not_resident() {
    const CONNS: u32 = 4_000_000;
    let before = resident_kib();
    let mut table = FlowTable::new(CONNS, [1, 2]);
    let mut wheel = Wheel::new(CONNS, Instant(0));
    let mut flows: Slab<Flow> = Slab::new(CONNS);
    let layout = Layout { qps: CONNS, queue_depth: 4, requests: 1024, data_bytes: 1 << 32 };
    let region = Region::heap(layout).unwrap();
    let made = resident_kib() - before;
    assert!(made < 4096, "{made} KiB");
    for id in 0..1000 {
        flows.grow_to(id);
        wheel.arm(id, Instant(0) + Duration::from_secs(1));
        table.insert(u64::from(id) << 54, id).unwrap();
    }
    let used = resident_kib() - before;
    assert!(used < 16 * 1024, "a page at most for each of the thousand: {used} KiB");
    // 17.1 bytes a connection in the flow table, 16 in the wheel, 256 in its queue
    // pair, and its share of the rings.
    assert!(layout.bytes().unwrap() - (1 << 32) < 310 * CONNS as usize);
    drop((table, wheel, flows, region));
}
