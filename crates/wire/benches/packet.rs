//! Parsing a data frame and stamping out its headers, cache-hot.
//!
//! `cargo bench -p baton-wire --bench packet`.

use baton_testkit::rounds::{Effort, Rounds};
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::packet::{Link, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use baton_wire::template::{Emit, MAX_HEADERS, Route, Template};
use std::hint::black_box;

const BATCH: usize = 64;

fn main() {
    let effort = Effort::asked();
    let (rounds, batches) = (effort.rounds(301), effort.pick(100, 10));
    let v4 = (Addr::v4([10, 77, 0, 1]), Addr::v4([10, 77, 0, 2]));
    let v6 = (Addr::v6([0xfd; 16]), Addr::v6([0xfe; 16]));
    let mut set = Rounds::new("headers of a 1448-byte data segment with timestamps", batches * BATCH);
    for (name, addrs) in [("IPv4", v4), ("IPv6", v6)] {
        let frames: Vec<Vec<u8>> = (0..BATCH).map(|i| frame(addrs, i as u32)).collect();
        let parsed = frames.clone();
        set.add(format!("parse, {name}"), move || {
            for _ in 0..batches {
                for frame in &frames {
                    let packet = Packet::parse(black_box(frame), Link::Ethernet);
                    black_box(&packet);
                }
            }
        });
        set.add(format!("parse and header sum, {name}"), move || {
            for _ in 0..batches {
                for frame in &parsed {
                    if let Ok(packet) = Packet::parse(black_box(frame), Link::Ethernet) {
                        black_box(packet.header_sum(frame));
                        black_box(&packet);
                    }
                }
            }
        });
    }
    for (name, addrs) in [("IPv4", v4), ("IPv6", v6)] {
        let template = Template::new(&route(addrs)).expect("the link header has 14 bytes");
        let mut out = vec![0u8; 2048];
        set.add(format!("emit, {name}"), move || {
            let sack = SackBlocks::new();
            for i in 0..batches * BATCH {
                let segment = segment(i as u32, &sack);
                black_box(black_box(&template).emit(black_box(&mut out), black_box(&segment)));
            }
        });
        let mut out = vec![0u8; 2048];
        set.add(format!("template made and emitted, {name}"), move || {
            let sack = SackBlocks::new();
            for i in 0..batches * BATCH {
                let template = Template::new(black_box(&route(addrs))).expect("the link header has 14 bytes");
                black_box(template.emit(black_box(&mut out), black_box(&segment(i as u32, &sack))));
            }
        });
    }
    set.run(rounds);
    set.report();
}

fn route(addrs: (Addr, Addr)) -> Route<'static> {
    Route {
        link: &[2; 14],
        src: addrs.0,
        dst: addrs.1,
        src_port: 80,
        dst_port: 4_000,
        ttl: 64,
        traffic_class: 0,
        flow_label: 7,
    }
}

fn segment(i: u32, sack: &SackBlocks) -> Emit<'_> {
    Emit {
        seq: Seq(i.wrapping_mul(1448)),
        ack: Seq(1),
        flags: Flags::ACK | Flags::PSH,
        window: 1000,
        urgent: 0,
        ts: Some(Timestamps { val: i, ecr: 1 }),
        sack,
        payload_len: 1448,
        payload_sum: Some(0x1234),
        ip_id: i as u16,
        ecn: 2,
    }
}

fn frame(addrs: (Addr, Addr), i: u32) -> Vec<u8> {
    let payload = vec![i as u8; 1448];
    let sack = SackBlocks::new();
    let mut frame = vec![0; MAX_HEADERS];
    let segment = Emit { payload_sum: Some(checksum::sum(&payload)), ..segment(i, &sack) };
    let len = Template::new(&route(addrs)).expect("the link header has 14 bytes").emit(&mut frame, &segment);
    frame.truncate(len);
    frame.extend(payload);
    frame
}
