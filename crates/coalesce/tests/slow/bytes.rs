//! The meaning of a frame's bytes, rule by rule.

use super::Frame;

/// The fields that identify a connection: VLAN tags, addresses, ports.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    pub tags: Vec<[u8; 4]>,
    pub src: Vec<u8>,
    pub dst: Vec<u8>,
    pub ports: [u8; 4],
}

/// An eligible segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    pub key: Key,
    pub seq: u32,
    pub ack: u32,
    pub psh: bool,
    pub ts: Option<u32>,
    pub class: u8,
    /// Length of IP header and TCP header.
    pub headers: usize,
    /// Length of payload.
    pub payload: usize,
    /// Where in the frame the IP header begins.
    pub ip_at: usize,
}

/// Why not, and whose run is flushed.
pub type Refusal = (&'static str, Option<Key>);

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) * 256 + usize::from(bytes[at + 1])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    (u16_at(bytes, at) * 65536 + u16_at(bytes, at + 2)) as u32
}

/// IP version as the link layer has it, its tags, and where IP begins.
fn link(frame: &Frame) -> Option<(u8, Vec<[u8; 4]>, usize)> {
    let b = &frame.bytes;
    let (mut kind, mut at) = match frame.link_type {
        0 | 108 if b.len() >= 4 => {
            let family = if frame.link_type == 108 || b[0] == 0 {
                u32_at(b, 0)
            } else {
                u32::from_le_bytes([b[0], b[1], b[2], b[3]])
            };
            (
                match family {
                    2 => 0x0800,
                    24 | 28 | 30 | 10 => 0x86dd,
                    _ => 0,
                },
                4,
            )
        }
        1 if b.len() >= 14 => (u16_at(b, 12), 14),
        101 | 228 | 229 if !b.is_empty() => (
            match b[0] >> 4 {
                4 => 0x0800,
                6 => 0x86dd,
                _ => 0,
            },
            0,
        ),
        113 if b.len() >= 16 => (u16_at(b, 14), 16),
        276 if b.len() >= 20 => (u16_at(b, 0), 20),
        _ => return None,
    };
    let mut tags = Vec::new();
    while kind == 0x8100 || kind == 0x88a8 {
        if b.len() < at + 4 || tags.len() == 4 {
            return None;
        }
        tags.push([(kind / 256) as u8, (kind % 256) as u8, b[at], b[at + 1]]);
        kind = u16_at(b, at + 2);
        at += 4;
    }
    match kind {
        0x0800 => Some((4, tags, at)),
        0x86dd => Some((6, tags, at)),
        _ => None,
    }
}

/// The facts of an IP header, or of IP headers, before TCP.
struct Ip {
    src: Vec<u8>,
    dst: Vec<u8>,
    class: u8,
    protocol: u8,
    /// All headers before the IP payload.
    header: usize,
    /// Headers and payload.
    total: usize,
    first_fragment: bool,
    later_fragment: bool,
    options: bool,
}

fn ipv4(b: &[u8], on_wire: usize) -> Option<Ip> {
    if b.len() < 20 || b[0] / 16 != 4 {
        return None;
    }
    let header = usize::from(b[0] % 16) * 4;
    let total = if u16_at(b, 2) == 0 { on_wire } else { u16_at(b, 2) };
    if header < 20 || total < header || b.len() < header {
        return None;
    }
    let more = b[6] & 0x20 != 0;
    let offset = u16_at(b, 6) % 0x2000;
    Some(Ip {
        src: b[12..16].to_vec(),
        dst: b[16..20].to_vec(),
        class: b[1],
        protocol: b[9],
        header,
        total,
        first_fragment: more && offset == 0,
        later_fragment: offset != 0,
        options: header > 20,
    })
}

fn ipv6(b: &[u8], on_wire: usize) -> Option<Ip> {
    if b.len() < 40 || b[0] / 16 != 6 {
        return None;
    }
    let total = if u16_at(b, 4) == 0 { on_wire.max(40) } else { 40 + u16_at(b, 4) };
    let mut ip = Ip {
        src: b[8..24].to_vec(),
        dst: b[24..40].to_vec(),
        class: (u16_at(b, 0) / 16 % 256) as u8,
        protocol: b[6],
        header: 40,
        total,
        first_fragment: false,
        later_fragment: false,
        options: false,
    };
    let mut count = 0;
    while [0, 43, 44, 51, 60, 135, 139, 140].contains(&ip.protocol) && !ip.later_fragment {
        count += 1;
        let end = total.min(b.len());
        if count > 8 || ip.header + 8 > end {
            return None;
        }
        let len = match ip.protocol {
            44 => 8,
            51 => (usize::from(b[ip.header + 1]) + 2) * 4,
            _ => (usize::from(b[ip.header + 1]) + 1) * 8,
        };
        if ip.header + len > end {
            return None;
        }
        if ip.protocol == 44 {
            let offset = u16_at(b, ip.header + 2) / 8;
            ip.first_fragment = offset == 0;
            ip.later_fragment = offset != 0;
        }
        ip.options = true;
        ip.protocol = b[ip.header];
        ip.header += len;
    }
    Some(ip)
}

/// TSval if the options are timestamps and padding only: outer `None` if not.
fn options(mut b: &[u8]) -> Option<Option<u32>> {
    let mut ts = None;
    while !b.is_empty() && b[0] != 0 {
        if b[0] == 1 {
            b = &b[1..];
            continue;
        }
        if b[0] != 8 || b.len() < 10 || b[1] != 10 {
            return None;
        }
        ts = Some(u32_at(b, 2));
        b = &b[10..];
    }
    Some(ts)
}

/// The ones' complement sum of RFC 1071.
fn sum(b: &[u8]) -> u32 {
    let mut total = 0;
    for pair in b.chunks(2) {
        total += u32::from(pair[0]) * 256 + u32::from(*pair.get(1).unwrap_or(&0));
        if total > 0xffff {
            total -= 0xffff;
        }
    }
    total
}

fn checksums_right(b: &[u8], ip: &Ip) -> bool {
    if ip.src.len() == 4 && sum(&b[..ip.header]) != 0xffff {
        return false;
    }
    if b.len() < ip.total {
        return false;
    }
    let mut all = [ip.src.clone(), ip.dst.clone()].concat();
    all.extend(((ip.total - ip.header) as u32).to_be_bytes());
    all.extend([0, 0, 0, 6]);
    all.extend(&b[ip.header..ip.total]);
    sum(&all) == 0xffff
}

/// The rules of a bypass in their order.
pub fn look(frame: &Frame, verify: bool) -> Result<Segment, Refusal> {
    let (version, tags, ip_at) = link(frame).ok_or(("not_ip", None))?;
    let b = &frame.bytes[ip_at..];
    let on_wire = frame.wire_len.saturating_sub(ip_at);
    let ip = if version == 4 { ipv4(b, on_wire) } else { ipv6(b, on_wire) };
    let ip = ip.ok_or(("malformed", None))?;
    if ip.protocol != 6 {
        return Err(("not_tcp", None));
    }
    if ip.later_fragment {
        return Err(("fragment", None));
    }
    let end = ip.total.min(b.len());
    if ip.header + 20 > end {
        return Err(("malformed", None));
    }
    let t = &b[ip.header..end];
    let header = usize::from(t[12] / 16) * 4;
    if header < 20 || header > t.len() {
        return Err(("malformed", None));
    }
    let key = Key { tags, src: ip.src.clone(), dst: ip.dst.clone(), ports: [t[0], t[1], t[2], t[3]] };
    let no = |reason| Err((reason, Some(key.clone())));
    // A fragment header that an extension header follows is still one.
    if ip.first_fragment {
        return no("fragment");
    }
    if ip.options {
        return no("ip_options");
    }
    let flags = u16_at(t, 12) % 0x1000;
    if flags != 0x010 && flags != 0x018 {
        return no("flags");
    }
    let Some(ts) = options(&t[20..header]) else { return no("tcp_options") };
    let payload = ip.total - ip.header - header;
    if payload == 0 {
        return no("no_payload");
    }
    if verify && !checksums_right(b, &ip) {
        return no("checksum");
    }
    Ok(Segment {
        key,
        seq: u32_at(t, 4),
        ack: u32_at(t, 8),
        psh: flags == 0x018,
        ts,
        class: ip.class,
        headers: ip.header + header,
        payload,
        ip_at,
    })
}
