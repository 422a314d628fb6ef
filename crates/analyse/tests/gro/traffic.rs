//! Traffic made for comparison with the kernel: each kind meets other limits of GRO.

use crate::build::{Ip, Packet};

const MSS: usize = 1448;

/// The segments of a number of connections, in turns of one each.
pub fn bulk(connections: u16, each: u32) -> Vec<Packet> {
    let mut all = Vec::new();
    for n in 0..each {
        for connection in 0..connections {
            all.push(Packet {
                ip: Ip::V4 { src: [10, 0, 0, 1], dst: [10, 0, 0, 2] },
                ip_id: n as u16,
                src_port: 2000 + connection,
                dst_port: 80,
                seq: 1 + n * MSS as u32,
                ack: 9,
                ttl: 64,
                window: 500,
                ts: Some((n / 8, 7)),
                payload: MSS,
                ..Packet::default()
            });
        }
    }
    all
}

/// Named kinds of traffic.
pub fn kinds() -> Vec<(&'static str, Vec<Packet>)> {
    let changed = |change: &dyn Fn(usize, &mut Packet)| {
        let mut all = bulk(1, 2000);
        all.iter_mut().enumerate().for_each(|(at, packet)| change(at, packet));
        all
    };
    vec![
        ("1 connection", bulk(1, 2000)),
        ("16 connections in turns", bulk(16, 150)),
        ("200 connections in turns", bulk(200, 12)),
        ("a window that changes every third segment", changed(&|at, packet| packet.window += (at / 3) as u16)),
        ("an acknowledgment that moves every fifth", changed(&|at, packet| packet.ack += (at / 5) as u32)),
        ("timestamps that tick with every second", changed(&|at, packet| packet.ts = Some((at as u32 / 2, 7)))),
        ("one identification for all", changed(&|_, packet| packet.ip_id = 7)),
        ("identifications of no order", changed(&|at, packet| packet.ip_id = (at * 7919) as u16)),
        ("a PSH every eighth", changed(&|at, packet| packet.psh = at % 8 == 7)),
        (
            "every tenth lost",
            bulk(1, 2000).into_iter().enumerate().filter(|(at, _)| at % 10 != 9).map(|(_, p)| p).collect(),
        ),
        ("every fourth with a wrong checksum", changed(&|at, packet| packet.bad_tcp_sum = at % 4 == 3)),
        ("congestion marks on every third", changed(&|at, packet| packet.class = if at % 3 == 2 { 3 } else { 2 })),
        ("short requests", changed(&|at, packet| (packet.payload, packet.seq) = (100, 1 + at as u32 * 100))),
    ]
}
