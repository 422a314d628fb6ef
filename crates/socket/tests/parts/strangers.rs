//! SYNs with an invalid source or a foreign destination get no answer, and a counter tells why.

use baton_engine::frame_io::{FrameIo, FrameSink, RxFrame, TxMeta};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::Instant;
use baton_wire::addr::Addr;
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks};
use baton_wire::template::{Emit, Route, emit_once};
use std::net::IpAddr;

const OURS: &str = "10.0.0.2";
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Counts TCP segments.
struct Segments(usize);

impl FrameSink for Segments {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        // Untagged IPv4 frames with TCP.
        self.0 += frames.iter().filter(|f| f.data.get(12..14) == Some(&[8, 0]) && f.data.get(23) == Some(&6)).count();
    }
}

fn addr(text: &str) -> Addr {
    text.parse::<IpAddr>().unwrap().into()
}

fn syn(mac: [u8; 6], src: &str, dst: &str) -> Vec<u8> {
    let link = [&mac[..], &PEER_MAC, &[8, 0]].concat();
    let route = Route {
        link: &link,
        src: addr(src),
        dst: addr(dst),
        src_port: 4000,
        dst_port: 7,
        ttl: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    let segment = Emit {
        seq: Seq(1),
        ack: Seq(0),
        flags: Flags::SYN,
        window: 1000,
        urgent: 0,
        ts: None,
        sack: &SackBlocks::new(),
        payload_len: 0,
        payload_sum: Some(0),
        ip_id: 1,
        ecn: 0,
    };
    let mut frame = vec![0; 128];
    let len = emit_once(&route, &mut frame, &segment).unwrap();
    frame.truncate(len);
    frame
}

/// Sends a SYN. Returns the number of answering segments, and the drops for a bad source and for a
/// foreign destination.
fn answers(src: &str, dst: &str) -> (usize, u64, u64) {
    let (port, mut wire) = MemoryPort::pair(MemoryOptions::default());
    let config = HostConfig::new(format!("{OURS}/24").parse().unwrap());
    let frame = syn(config.engine.interface.mac, src, dst);
    let mut host = Host::new(&config, port).unwrap();
    host.listen(format!("{OURS}:7").parse().unwrap(), 16).unwrap();
    host.poll(Instant(1_000_000)).unwrap();
    wire.slot(frame.len()).unwrap().copy_from_slice(&frame);
    wire.commit(frame.len(), TxMeta::default());
    wire.flush().unwrap();
    let mut seen = Segments(0);
    for step in 2..10 {
        host.poll(Instant(step * 1_000_000)).unwrap();
        wire.receive(64, &mut seen).unwrap();
    }
    let counters = *host.engine().streamer().counters();
    (seen.0, counters.drop_source, counters.drop_not_ours)
}

// tests: MUST-63
#[test]
fn a_syn_from_an_address_that_is_no_hosts_is_dropped() {
    assert_eq!(answers("10.0.0.9", OURS), (1, 0, 0), "a valid SYN is answered");
    for src in ["224.0.0.1", "255.255.255.255", "10.0.0.255", "127.0.0.1", "0.0.0.0", OURS] {
        assert_eq!(answers(src, OURS), (0, 1, 0), "{src}");
    }
}

// tests: MUST-57
#[test]
fn a_syn_to_a_group_or_a_network_is_dropped() {
    for dst in ["224.0.0.1", "255.255.255.255", "10.0.0.255"] {
        assert_eq!(answers("10.0.0.9", dst), (0, 0, 1), "{dst}");
    }
}
