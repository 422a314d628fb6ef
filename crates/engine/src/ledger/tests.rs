//! A ledger that an untrusted program has written to.

use super::record::{ADDRESSES, FIN_AT, QP, RECEIVED, UNA, WORDS};
use super::recover::{FAR, path_mtu};
use super::*;
use crate::region::{EngineRegion, Layout, Region};
use baton_tcp::time::Instant;

#[test]
fn what_a_program_writes_into_its_record_harms_nobody() {
    let layout = Layout { qps: 1, queue_depth: 8, requests: 8, data_bytes: 1 << 16 };
    let region = EngineRegion::new(Region::heap(layout).unwrap());
    let ledger = Ledger::heap(1);
    let record = ledger.record(ConnId(0)).unwrap();
    let values = [0, 1, 2, 7, 1 << 31, u64::from(u32::MAX), FAR, FAR + 1, FIN_RECEIVED, u64::MAX - 1, u64::MAX];
    let mut found = 0;
    for (at, value) in (ADDRESSES..UNA + 6).flat_map(|at| values.map(|value| (at, value))) {
        for (other, more) in (QP..UNA + 6).flat_map(|other| values.map(|more| (other, more))) {
            (0..WORDS).for_each(|word| record.set(word, 0));
            record.set(at, value);
            record.set(other, more);
            record.set(LIVE, 1);
            let recovered = ledger.recover(0, Instant(0), |_| Some(&region));
            found += usize::from(recovered.is_some());
            let held = recovered.map_or(0, |it| it.send.iter().map(|extent| u64::from(extent.len())).sum());
            assert!(held <= layout.data_bytes, "word {at} is {value:x}, word {other} {more:x}");
        }
    }
    assert!(found > 0, "none was taken for a connection");
}

#[test]
fn payloads_tell_what_the_path_carries_if_they_changed() {
    let sizes = |peer_mss: u64, path_mtu: u64, mss: u64| peer_mss | 1460 << 16 | path_mtu << 32 | mss << 48;
    for (sizes, ipv6, timestamps, expected) in [
        (sizes(1460, 1500, 0), false, true, 1500),
        (sizes(1460, 1500, 1448), false, true, 1500),
        (sizes(1460, 1500, 1460), false, false, 1500),
        (sizes(1440, 1500, 1428), true, true, 1500),
        (sizes(536, 1500, 524), false, true, 1500),
        (sizes(1460, 1500, 1248), false, true, 1300),
        (sizes(1440, 1500, 1240), true, false, 1300),
        // Wider than in the beginning.
        (sizes(1460, 1300, 1448), false, true, 1500),
        (sizes(1460, 20, u64::from(u16::MAX)), false, true, u16::MAX),
    ] {
        assert_eq!(path_mtu(sizes, ipv6, timestamps), expected, "{sizes:x}, IPv6 {ipv6}");
    }
}

#[test]
fn a_record_tells_how_its_connection_ended() {
    let ledger = Ledger::heap(1);
    let record = ledger.record(ConnId(0)).unwrap();
    let name = record.tuple();
    // LIVE, the peer's FIN, our FIN's position plus 1, acknowledged up to.
    for (live, received, fin_at, una_pos, expected) in [
        (0, 0, 0, 0, None),
        (1, 0, 0, 5, Some(End::Open)),
        (1, FIN_RECEIVED, 0, 5, Some(End::Open)),
        (1, 0, 6, 6, Some(End::Open)),
        (1, FIN_RECEIVED, 6, 5, Some(End::Open)),
        (1, FIN_RECEIVED, 6, 6, Some(End::Closed)),
        // The last ACK ended it before it was published.
        (ENDED, FIN_RECEIVED, 6, 5, Some(End::Closed)),
        (ENDED, 0, 6, 6, Some(End::Reset)),
        (ENDED, FIN_RECEIVED, 0, 5, Some(End::Reset)),
    ] {
        (ADDRESSES..WORDS).for_each(|word| record.set(word, 0));
        record.set(LIVE, live);
        record.set(RECEIVED, received);
        record.set(FIN_AT, fin_at);
        record.set(UNA, una_pos);
        assert_eq!(ledger.end(0, &name), expected, "{live} {received:x} {fin_at} {una_pos}");
        assert_eq!(ledger.end(0, &Tuple { local_port: 1, ..name }), None, "another's");
        assert_eq!(ledger.end(1, &name), None, "no such record");
    }
}
