//! Headers of what the Streamer sends.
//!
//! A [`Template`] holds what does not change between a connection's segments. It is as large as
//! half a context, so a small cache keeps it for the connections that sent last, and idle
//! connections have none.

use super::context::{Flow, bits};
use super::{ConnId, Streamer};
use crate::endpoint::HopId;
use crate::frame_io::TxMeta;
use crate::options::IpFields;
use arrayvec::ArrayVec;
use baton_tcp::command::SynReply;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use baton_wire::error::BuildError;
use baton_wire::seq::Seq;
use baton_wire::tcp::header::{HEADER_LEN, Header, MAX_HEADER_LEN, fill_checksum};
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps, unsummed};
use baton_wire::template::{Emit, Route, Template};

/// Room for all headers of a frame.
pub(super) const MAX_HEADER: usize = baton_wire::template::MAX_HEADERS;

/// Bytes of the longest link header.
const LINK: usize = 22;

/// Templates kept; a power of two.
const KEPT: usize = 256;

/// Templates of the connections that sent last, by connection modulo [`KEPT`].
pub(super) struct TemplateCache {
    entries: Vec<Option<Kept>>,
}

#[derive(Clone)]
struct Kept {
    conn: ConnId,
    /// The link header that the template was made with; it changes with the neighbour.
    link: [u8; LINK],
    link_len: u8,
    template: Template,
}

impl TemplateCache {
    pub(super) fn new() -> TemplateCache {
        TemplateCache { entries: vec![None; KEPT] }
    }

    /// The connection's template, if it is kept.
    #[inline]
    fn get(&self, conn: ConnId) -> Option<&Kept> {
        self.entries[conn.0 as usize % KEPT].as_ref().filter(|kept| kept.conn == conn)
    }

    /// The template that [`Streamer::ready_template`] made sure of.
    #[inline]
    pub(super) fn template(&self, conn: ConnId) -> Option<&Template> {
        self.get(conn).map(|kept| &kept.template)
    }

    /// Forgets a connection: its index is about to name another one, or its headers change.
    pub(super) fn forget(&mut self, conn: ConnId) {
        self.entries[conn.0 as usize % KEPT] = None;
    }
}

impl Streamer {
    /// Makes sure that the connection's template is in the cache; false while
    /// its neighbour is not known.
    #[inline]
    pub(super) fn ready_template(&mut self, conn: ConnId) -> bool {
        let flow = &self.flows[conn.0];
        let Some(link) = self.endpoint.link_header(HopId(flow.tx.hop)) else { return false };
        if self.templates.get(conn).is_some_and(|kept| kept.link[..usize::from(kept.link_len)] == *link) {
            return true;
        }
        let Ok(template) = template_of(&self.route(link, &flow.rx.tuple, flow.ip), flow.ip) else { return false };
        let template = if flow.has(bits::SENDS_UNSUMMED) { template.unsummed() } else { template };
        let mut kept = Kept { conn, link: [0; LINK], link_len: link.len() as u8, template };
        kept.link[..link.len()].copy_from_slice(link);
        self.templates.entries[conn.0 as usize % KEPT] = Some(kept);
        true
    }

    /// Writes a segment of headers alone that is not part of the data flow: SYN,
    /// RST, probe, or the answer to a segment of no connection. While the
    /// neighbour is not known the packet is held for it (RFC 9293 leaves SYNs to
    /// the retransmission timer; a second lost at each first contact is too much).
    pub(super) fn build_control(
        &mut self,
        tuple: &Tuple,
        hop: u16,
        ip: IpFields,
        control: &ControlSegment,
        buffer: &mut [u8],
    ) -> Option<(usize, TxMeta)> {
        self.ip_id = self.ip_id.wrapping_add(1);
        let hop = HopId(hop);
        let link = self.endpoint.link_header(hop);
        let route = self.route(link.unwrap_or_default(), tuple, ip);
        let len = write_control(&template_of(&route, ip).ok()?, &route, control, self.ip_id, buffer)?;
        if link.is_none() {
            self.endpoint.hold(hop, &buffer[..len]);
            self.counters.tx_no_neighbour += 1;
            return None;
        }
        Some((len, TxMeta { header_len: len as u16, ipv6: !tuple.remote.is_v4(), ..TxMeta::default() }))
    }

    /// The constant part of a connection's headers.
    fn route<'a>(&self, link: &'a [u8], tuple: &Tuple, ip: IpFields) -> Route<'a> {
        Route {
            link,
            src: tuple.local,
            dst: tuple.remote,
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            // MUST-49 (RFC 9293 §3.9.2): the connection's, or else the host's.
            ttl: if ip.ttl == 0 { self.config.ttl } else { ip.ttl },
            // MUST-48 (RFC 9293 §3.9.1.9): the application's choice.
            traffic_class: ip.traffic_class,
            flow_label: 0,
        }
    }
}

fn template_of(route: &Route<'_>, ip: IpFields) -> Result<Template, BuildError> {
    let template = Template::new(route)?;
    Ok(if ip.fragments { template.fragmentable() } else { template })
}

/// The template lays link and IP headers, the TCP header comes with its options.
fn write_control(
    template: &Template,
    route: &Route<'_>,
    control: &ControlSegment,
    ip_id: u16,
    buffer: &mut [u8],
) -> Option<usize> {
    let mut options: ArrayVec<TcpOption<'_>, 5> = ArrayVec::new();
    // The order in which Linux sends them, ours last.
    if let Some(syn) = &control.syn {
        options.push(TcpOption::Mss(syn.mss));
        if syn.sack_permitted {
            options.push(TcpOption::SackPermitted);
        }
    }
    options.extend(control.ts.map(TcpOption::Timestamps));
    options.extend(control.syn.and_then(|syn| syn.window_scale).map(|scale| TcpOption::WindowScale(scale.shift())));
    if control.syn.is_some_and(|syn| syn.unsummed) {
        options.push(TcpOption::Unsummed { ttl: route.ttl });
    }
    let mut tcp = [0; MAX_HEADER_LEN];
    let header = Header {
        src_port: route.src_port,
        dst_port: route.dst_port,
        seq: control.seq,
        ack: control.ack,
        flags: control.flags,
        window: control.wnd,
        ..Header::default()
    };
    let tcp_len = header.write(&options, &mut tcp).ok()?;
    let emit = Emit {
        seq: control.seq,
        ack: control.ack,
        flags: control.flags,
        window: control.wnd,
        urgent: 0,
        ts: None,
        sack: &SackBlocks::EMPTY,
        payload_len: (tcp_len - HEADER_LEN) as u32,
        payload_sum: None,
        ip_id,
        ecn: 0,
    };
    let at = template.tcp_offset();
    if template.emit(buffer, &emit) == 0 {
        return None;
    }
    let segment = buffer.get_mut(at..at + tcp_len)?;
    segment.copy_from_slice(&tcp[..tcp_len]);
    if control.unsummed {
        unsummed::mark(segment);
    } else {
        fill_checksum(segment, route.src, route.dst).ok()?;
    }
    Some(at + tcp_len)
}

/// A segment of headers alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlSegment {
    pub flags: Flags,
    pub seq: Seq,
    pub ack: Seq,
    pub wnd: u16,
    pub syn: Option<SynReply>,
    pub ts: Option<Timestamps>,
    /// It goes without a checksum.
    pub unsummed: bool,
}

impl Flow {
    /// The facts of a segment that the TCE wants sent as it is.
    pub(super) fn control_timestamps(&self, now: Instant, ecr: Option<u32>) -> Option<Timestamps> {
        ecr.map(|ecr| Timestamps { val: now.timestamp_ms().wrapping_add(self.ts_offset), ecr })
    }
}
