//! The headers of a run, written over those of its first segment (RA §3.2).
//!
//! | field | in the run's headers |
//! | --- | --- |
//! | sequence number, ports, addresses, traffic class | the first's, and everybody's |
//! | acknowledgment, window, timestamps | the last's |
//! | PSH | set if a segment has it |
//! | IP length | of the headers and all payload |
//! | time to live, hop limit | the smallest |
//! | IPv4 checksum | made anew |
//! | TCP checksum | the pseudo header's sum, for the port to go on from |
//! | IPv4 identification and DF, IPv6 flow label, padding of options | the first's |
//!
//! The TCP checksum of the whole would cost a pass over the payload, which RA leaves
//! out too: whoever takes the run is told that its segments' checksums were right, or
//! that the sum is yet to be completed.

use crate::run::Run;
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::packet::PROTOCOL_TCP;
use baton_wire::tcp::Flags;
use baton_wire::tcp::options::kind;

/// Why a run's headers cannot be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// Writes the headers of `run` over those of its first frame; `frame` has that
/// frame's headers at least, and is not changed if it is refused. Returns the length
/// of all headers, link header included, in bytes.
///
/// # Errors
/// [`HeadersError`].
pub fn write_headers(run: &Run, frame: &mut [u8]) -> Result<usize, HeadersError> {
    let first = &run.first;
    let (tcp_at, payload_at) = (first.tcp_offset(), first.payload_offset());
    let tcp_len = u32::from(first.tcp_header_len) + run.payload_len;
    let ip_len = if first.flow.is_v6() { tcp_len } else { tcp_len.saturating_add(20) };
    let ip_len = u16::try_from(ip_len).map_err(|_| HeadersError::TooLong)?;
    let headers = frame.get_mut(..payload_at).ok_or(HeadersError::OtherFrame)?;
    let (ip, tcp) = headers.split_at_mut(tcp_at);
    let ip = &mut ip[first.ip_offset as usize..];
    // What is written below lies in the first 20 bytes, and in options of this length.
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
