//! The headers of a run, written over those of its first segment (RA §3.2).

use crate::run::Run;
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::packet::PROTOCOL_TCP;
use baton_wire::tcp::Flags;
use baton_wire::tcp::options::kind;

/// Why a run's headers cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HeadersError {
    /// An IP header cannot say its length; only runs of [`Profile::Rsc`] with a
    /// buffer near 64 KiB or beyond.
    ///
    /// [`Profile::Rsc`]: crate::Profile::Rsc
    TooLong,
    /// The frame is not the run's first.
    OtherFrame,
}

impl core::fmt::Display for HeadersError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            HeadersError::TooLong => "the run is longer than an IP packet can be",
            HeadersError::OtherFrame => "the frame is not the first of the run",
        })
    }
}

impl core::error::Error for HeadersError {}

/// Writes the headers of `run` over those of its first frame (RA §3.2); `frame` has
/// that frame's headers at least. Returns the length of all headers, link header
/// included, in bytes.
///
/// | field | in the run's headers | of the other segments |
/// | --- | --- | --- |
/// | addresses, ports, VLAN tags, traffic class, flags but PSH | everybody's | kept: all have the same |
/// | sequence number | the first's | kept: it follows from the lengths of the [`Part`](crate::Part)s |
/// | IP length | of the headers and all payload | kept, there |
/// | acknowledgment, PSH | the last's; set if a segment has it | kept, there |
/// | window | the last's | given up: a later window replaces an earlier one (RFC 9293 §3.10.7.4) |
/// | timestamps | the last's | given up: segments that arrive together were sent within a tick of that clock or two (RA §3.6) |
/// | time to live, hop limit | the smallest | given up: nothing above IP looks at it, and the smallest never prolongs a path |
/// | IPv4 identification, DF | the first's | given up: they serve reassembly, and no segment is a fragment |
/// | IPv6 flow label | the first's | given up: routers are behind, and endpoints do not look at it (RFC 6437 §3) |
/// | link addresses | the first's | given up: the link is behind |
/// | urgent pointer, padding of options | the first's | given up: without meaning, since none has URG |
/// | IPv4 checksum | made anew | follows from the rest |
/// | TCP checksum | the pseudo header's sum, for the port to go on from | follows from the rest |
///
/// The TCP checksum of the whole would cost a pass over the payload, which RA leaves
/// out too: the receiver of the run is told that its segments' checksums were right, or
/// that the sum is yet to be completed.
///
/// # Errors
/// [`HeadersError`].
pub fn write_headers(run: &Run, frame: &mut [u8]) -> Result<usize, HeadersError> {
    let first = &run.first;
    let (tcp_at, payload_at) = (first.tcp_offset(), first.payload_offset());
    let tcp_len = run.payload_len.saturating_add(u32::from(first.tcp_header_len));
    let ip_len = if first.flow.is_v6() { tcp_len } else { tcp_len.saturating_add(20) };
    let ip_len = u16::try_from(ip_len).map_err(|_| HeadersError::TooLong)?;
    let headers = frame.get_mut(..payload_at).ok_or(HeadersError::OtherFrame)?;
    let (ip, tcp) = headers.split_at_mut(tcp_at);
    let ip = &mut ip[first.ip_offset as usize..];
    // The fields written below lie in the first 20 bytes, and in options of this length.
    if tcp.first_chunk().map(|head: &[u8; 20]| u32::from_be_bytes([head[4], head[5], head[6], head[7]]))
        != Some(first.seq.0)
    {
        return Err(HeadersError::OtherFrame);
    }
    write_ip(run, ip, ip_len)?;
    tcp[8..12].copy_from_slice(&run.ack.0.to_be_bytes());
    if run.push {
        tcp[13] |= Flags::PSH.0 as u8;
    }
    tcp[14..16].copy_from_slice(&run.window.to_be_bytes());
    let (src, dst) = (Addr::from(first.flow.src()), Addr::from(first.flow.dst()));
    let pseudo = checksum::pseudo(src, dst, PROTOCOL_TCP, tcp_len);
    tcp[16..18].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
    if let (Some(last), Some(at)) = (run.timestamps, timestamps_at(&tcp[20..])) {
        tcp[20 + at..24 + at].copy_from_slice(&last.val.to_be_bytes());
        tcp[24 + at..28 + at].copy_from_slice(&last.ecr.to_be_bytes());
    }
    Ok(payload_at)
}

fn write_ip(run: &Run, ip: &mut [u8], len: u16) -> Result<(), HeadersError> {
    match ip {
        [first, _, len_0, len_1, _, _, _, _, ttl, _, ..] if *first == 0x45 && ip_is(run, 20) => {
            [*len_0, *len_1] = len.to_be_bytes();
            *ttl = run.ttl;
            ip[10..12].fill(0);
            let field = !checksum::rfc1071(ip);
            ip[10..12].copy_from_slice(&field.to_be_bytes());
        }
        [first, _, _, _, len_0, len_1, _, hops, ..] if *first >> 4 == 6 && ip_is(run, 40) => {
            [*len_0, *len_1] = len.to_be_bytes();
            *hops = run.ttl;
        }
        _ => return Err(HeadersError::OtherFrame),
    }
    Ok(())
}

fn ip_is(run: &Run, header_len: u8) -> bool {
    run.first.ip_header_len == header_len
}

/// Where the values of the last timestamps option begin.
fn timestamps_at(options: &[u8]) -> Option<usize> {
    let (mut at, mut found) = (0, None);
    while let Some(&kind) = options.get(at) {
        at += match (kind, options.get(at + 1)) {
            (kind::END, _) => break,
            (kind::NOP, _) => 1,
            (_, Some(&len)) if len >= 2 && options.len() >= at + usize::from(len) => {
                if kind == kind::TIMESTAMPS && len == 10 {
                    found = Some(at + 2);
                }
                usize::from(len)
            }
            _ => break,
        };
    }
    found
}
