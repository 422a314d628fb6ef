//! The cases of Linux's `tools/testing/selftests/net/gro.c`, in its order.

use super::build::{Ip, Packet};

const P: usize = 100;
/// So that 16 segments and a rest make a packet as long as IP allows.
const MSS: usize = 4096 - 60;

/// A case: frames of one connection, and the lengths of payload that come out.
pub struct Case {
    pub name: &'static str,
    pub frames: Vec<Packet>,
    pub ra: Vec<usize>,
    /// `None` where the size of its buffers would be all that it shows.
    pub rsc: Option<Vec<usize>>,
    /// The kernel's output; if there are several, versions differ.
    pub kernel: Vec<Vec<usize>>,
    /// Why ours differs from the kernel's.
    pub why: &'static str,
}

/// All the same.
fn same(name: &'static str, frames: Vec<Packet>, out: &[usize]) -> Case {
    Case { name, frames, ra: out.to_vec(), rsc: Some(out.to_vec()), kernel: vec![out.to_vec()], why: "" }
}

fn base(v6: bool) -> Packet {
    let ip = if v6 {
        let of = |last| [0xfd, 0xaa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        Ip::V6 { src: of(2), dst: of(1) }
    } else {
        Ip::V4 { src: [192, 168, 1, 200], dst: [192, 168, 1, 100] }
    };
    Packet { ip, seq: 100, ack: 100, ttl: 8, window: 65_535, payload: P, dst_port: 8000, ..Packet::default() }
}

/// Segments that follow each other, of these lengths.
fn data(v6: bool, lengths: &[usize]) -> Vec<Packet> {
    let mut seq = 100;
    let next = |payload: &usize| {
        let packet = Packet { seq, payload: *payload, ..base(v6) };
        seq += *payload as u32;
        packet
    };
    lengths.iter().map(next).collect()
}

/// The same, the last of them changed.
fn last(v6: bool, count: usize, change: impl Fn(&mut Packet)) -> Vec<Packet> {
    let mut frames = data(v6, &vec![P; count]);
    change(&mut frames[count - 1]);
    frames
}

/// Cases for one IP version.
pub fn cases(v6: bool) -> Vec<Case> {
    let mut all = vec![
        same("data packets of the same size", data(v6, &[P, P]), &[2 * P]),
        same("large data packets followed by a smaller one", data(v6, &[P, P / 2]), &[P + P / 2]),
        Case {
            ra: vec![P + P / 2],
            rsc: Some(vec![P + P / 2]),
            why: "a run keeps each segment's length; a super-frame of the kernel has one for all but the last",
            ..same("small data packets followed by a larger one", data(v6, &[P / 2, P]), &[P / 2, P])
        },
        same("duplicate and pure ACKs", data(v6, &[0, 0, 0]), &[0, 0, 0]),
    ];
    all.extend(flags(v6));
    all.extend(tcp(v6));
    all.extend(if v6 { ipv6() } else { ipv4() });
    all.extend(large(v6));
    all
}

fn flags(v6: bool) -> Vec<Case> {
    let mut push = data(v6, &[P; 5]);
    push[2].psh = true;
    let mut all = vec![Case {
        ra: vec![5 * P],
        why: "PSH does not matter to receive aggregation (RA §3)",
        ..same("PSH ends coalescing", push, &[3 * P, 2 * P])
    }];
    for (name, flags) in [("SYN", 0x12), ("RST", 0x14), ("URG", 0x30)] {
        let mut frames = data(v6, &[P; 5]);
        frames[2] = Packet { flags, payload: 0, ..base(v6) };
        all.push(same(name, frames, &[2 * P, 0, 2 * P]));
    }
    all
}

fn tcp(v6: bool) -> Vec<Case> {
    let stamped = |n: u32, val: u8, options: [u8; 4]| {
        let [a, b, c, d] = options;
        // The values, with padding before, around or behind.
        let value = [0, 0, 0, val, 0, 0, 0, 0];
        let options = match (a, b, c, d) {
            (1, 1, 8, 10) => [&[1, 1, 8, 10][..], &value].concat(),
            (1, 8, 10, 1) => [&[1, 8, 10][..], &value, &[1]].concat(),
            _ => [&[8, 10][..], &value, &[0, 1]].concat(),
        };
        Packet { seq: 100 + n * P as u32, options, ..base(v6) }
    };
    let (usual, around, behind) = ([1, 1, 8, 10], [1, 8, 10, 1], [8, 10, 0, 1]);
    let stamps = vec![
        stamped(0, 0, usual),
        stamped(1, 0, usual),
        stamped(2, 100, usual),
        stamped(3, 100, around),
        stamped(4, 100, behind),
    ];
    let scale = Packet { seq: 300, options: vec![1, 3, 3, 0], ..base(v6) };
    vec![
        same("changed checksum", last(v6, 2, |p| p.bad_tcp_sum = true), &[P, P]),
        same("wrong sequence number", last(v6, 2, |p| p.seq += 1), &[P, P]),
        Case {
            ra: vec![5 * P],
            rsc: Some(vec![5 * P]),
            why: "timestamps may rise within a run, which has the last's (RA §3.2), wherever they stand",
            ..same("different timestamps", stamps.clone(), &[2 * P, P, P, P])
        },
        same("different options", vec![stamps[0].clone(), stamps[1].clone(), scale], &[2 * P, P]),
        same("different ECN", last(v6, 2, |p| p.class = 2), &[P, P]),
        same("different type of service", last(v6, 2, |p| p.class = if v6 { 0xf0 } else { 1 }), &[P, P]),
    ]
}

fn ipv4() -> Vec<Case> {
    let mut options = data(false, &[P; 3]);
    options[1].ip_options = 40;
    let mut all = vec![
        Case {
            ra: vec![2 * P],
            rsc: Some(vec![2 * P]),
            why: "the time to live is not compared; the smallest is kept",
            ..same("different time to live", last(false, 2, |p| p.ttl = 7), &[P, P])
        },
        same("IP options", options, &[P, P, P]),
        same("fragments", last(false, 2, |p| p.fragment = Some(0x6000)), &[P, P]),
    ];
    const ONE: &[usize] = &[2 * P];
    for (name, df, ids, either) in [
        ("DF, identification rises", true, &[8, 9][..], false),
        ("DF, identification fixed", true, &[8, 8], false),
        ("no DF, identification rises", false, &[8, 9], false),
        // Linux 6.16 and later merge these.
        ("no DF, identification fixed", false, &[8, 8], true),
    ] {
        let case = same(name, with_ids(df, ids), ONE);
        let apart = either.then(|| vec![P, P]);
        all.push(Case { kernel: case.kernel.iter().cloned().chain(apart).collect(), ..case });
    }
    for (name, ids) in [("identification rises, then not", [8, 9, 9]), ("identification fixed, then rises", [8, 8, 9])]
    {
        all.push(Case {
            ra: vec![3 * P],
            rsc: Some(vec![3 * P]),
            why: "the identification is not compared: no segment is a fragment",
            ..same(name, with_ids(true, &ids), &[2 * P, P])
        });
    }
    all
}

fn with_ids(df: bool, ids: &[u16]) -> Vec<Packet> {
    let fragment = Some(if df { 0x4000 } else { 0 });
    let frames = data(false, &vec![P; ids.len()]);
    frames.into_iter().zip(ids).map(|(packet, id)| Packet { ip_id: *id, fragment, ..packet }).collect()
}

fn ipv6() -> Vec<Case> {
    let mut fragment = data(true, &[P; 4]);
    fragment[2].extensions = vec![44];
    let mut extended = data(true, &[P; 2]);
    extended.iter_mut().for_each(|packet| packet.extensions = vec![60]);
    vec![
        Case {
            kernel: vec![vec![P, 2 * P, P]],
            why: "ours flushes the connection's run before a fragment; the kernel's is overtaken by it",
            ..same("fragments", fragment, &[2 * P, P, P])
        },
        Case {
            ra: vec![P, P],
            rsc: Some(vec![P, P]),
            why: "a segment behind extension headers is not eligible (RSC §4.1: no header options)",
            ..same("the same extension header", extended, &[2 * P])
        },
    ]
}

fn large(v6: bool) -> Vec<Case> {
    let most = 65_535 - 20 - if v6 { 40 } else { 20 };
    let (count, rest) = (most / MSS, most % MSS);
    let frames = |rest: usize| data(v6, &[vec![MSS; count], vec![rest; 2]].concat());
    vec![
        Case { rsc: None, ..same("as long as an IP packet can be", frames(rest), &[most, rest]) },
        // The segment that does not fit starts our next run. The kernel's goes on alone,
        // unless the packet before it had been flushed already.
        Case {
            rsc: None,
            kernel: vec![vec![count * MSS, rest + 1, rest + 1], vec![count * MSS, 2 * (rest + 1)]],
            ..same("longer than an IP packet can be", frames(rest + 1), &[count * MSS, 2 * (rest + 1)])
        },
    ]
}
