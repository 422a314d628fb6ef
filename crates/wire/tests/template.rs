//! A template's segments are read back by the parser, with right checksums.

use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::error::BuildError;
use baton_wire::packet::{Link, Packet};
use baton_wire::seq::Seq;
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use baton_wire::template::{Emit, MAX_HEADERS, Route, Template, emit_once};
use proptest::prelude::*;

/// Everything that goes into a frame.
#[derive(Clone, Debug)]
struct Case {
    tags: usize,
    v6: bool,
    bare: bool,
    src: u128,
    dst: u128,
    ports: (u16, u16),
    ttl: u8,
    traffic_class: u8,
    flow_label: u32,
    numbers: (u32, u32, u16, u16, u16),
    flags: u16,
    ts: Option<(u32, u32)>,
    sack: Vec<(u32, u32)>,
    payload: Vec<u8>,
    ecn: u8,
}

fn case() -> impl Strategy<Value = Case> {
    let route = (0..=2usize, any::<bool>(), any::<bool>(), any::<u128>(), any::<u128>(), any::<(u16, u16)>());
    let fields = (any::<u8>(), any::<u8>(), 0..1u32 << 20, any::<(u32, u32, u16, u16, u16)>(), 0..0x200u16);
    let options = (any::<Option<(u32, u32)>>(), proptest::collection::vec(any::<(u32, u32)>(), 0..=4));
    let rest = (proptest::collection::vec(any::<u8>(), 0..200), 0..4u8);
    (route, fields, options, rest).prop_map(|(route, fields, (ts, sack), (payload, ecn))| {
        let (tags, v6, bare, src, dst, ports) = route;
        let (ttl, traffic_class, flow_label, numbers, flags) = fields;
        Case { tags, v6, bare, src, dst, ports, ttl, traffic_class, flow_label, numbers, flags, ts, sack, payload, ecn }
    })
}

impl Case {
    fn addr(&self, bits: u128) -> Addr {
        // The high bit keeps a random IPv6 address from being a mapped one.
        if self.v6 { Addr(bits | 1 << 127) } else { Addr::v4((bits as u32).to_be_bytes()) }
    }

    fn link(&self) -> Vec<u8> {
        if self.bare {
            return Vec::new();
        }
        let mut link = vec![7; 12];
        for tag in 0..self.tags as u8 {
            link.extend([0x81, 0x00, 0x20, tag]);
        }
        link.extend([0xee, 0xee]);
        link
    }

    fn route<'a>(&self, link: &'a [u8]) -> Route<'a> {
        Route {
            link,
            src: self.addr(self.src),
            dst: self.addr(self.dst),
            src_port: self.ports.0,
            dst_port: self.ports.1,
            ttl: self.ttl,
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
        }
    }

    fn sack(&self) -> SackBlocks {
        let mut blocks = SackBlocks::new();
        for (start, end) in &self.sack {
            blocks.push(Seq(*start), Seq(*end));
        }
        blocks
    }

    fn emit<'a>(&self, sack: &'a SackBlocks, payload_sum: Option<u32>) -> Emit<'a> {
        let (seq, ack, window, urgent, ip_id) = self.numbers;
        Emit {
            seq: Seq(seq),
            ack: Seq(ack),
            flags: Flags(self.flags),
            window,
            urgent,
            ts: self.ts.map(|(val, ecr)| Timestamps { val, ecr }),
            sack,
            payload_len: self.payload.len() as u32,
            payload_sum,
            ip_id,
            ecn: self.ecn,
        }
    }

    /// The frame, and the length of its headers.
    fn frame(&self, payload_sum: Option<u32>) -> (Vec<u8>, usize) {
        let (link, sack) = (self.link(), self.sack());
        let template = Template::new(&self.route(&link)).unwrap();
        let mut frame = vec![0xaa; MAX_HEADERS];
        let len = template.emit(&mut frame, &self.emit(&sack, payload_sum));
        frame.truncate(len);
        frame.extend(&self.payload);
        (frame, len)
    }

    fn kind(&self) -> Link {
        if self.bare { Link::Ip } else { Link::Ethernet }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // tests: MUST-2
    #[test]
    fn parse_reads_what_emit_wrote(case in case()) {
        let (frame, len) = case.frame(Some(checksum::sum(&case.payload)));
        let packet = Packet::parse(&frame, case.kind()).unwrap();
        let (seq, ack, window, urgent, _) = case.numbers;
        prop_assert_eq!((packet.src, packet.dst), (case.addr(case.src), case.addr(case.dst)));
        prop_assert_eq!((packet.src_port, packet.dst_port), case.ports);
        prop_assert_eq!((packet.seq, packet.ack), (Seq(seq), Seq(ack)));
        prop_assert_eq!((packet.window, packet.urgent, packet.flags), (window, urgent, Flags(case.flags)));
        prop_assert_eq!((packet.ttl, packet.ecn), (case.ttl, case.ecn));
        prop_assert_eq!(packet.traffic_class, case.traffic_class & !3 | case.ecn);
        prop_assert_eq!(packet.timestamps.map(|ts| (ts.val, ts.ecr)), case.ts);
        prop_assert_eq!(packet.plain_options, case.sack.is_empty());
        prop_assert_eq!(packet.is_v6(), case.v6);
        prop_assert_eq!(packet.vlan.len(), if case.bare { 0 } else { case.tags });
        prop_assert_eq!(usize::from(packet.payload_offset), len);
        prop_assert_eq!(packet.payload(&frame), &case.payload[..]);
        let right = packet.header_sum(&frame) + checksum::sum(&case.payload);
        prop_assert_eq!(checksum::fold(right), 0xffff);
        let blocks = packet.options(&frame).find_map(|option| match option {
            Ok(TcpOption::Sack(blocks)) => Some(blocks.as_slice().to_vec()),
            _ => None,
        });
        let fit = if case.ts.is_some() { 3 } else { 4 };
        let sent: Vec<_> = case.sack.iter().take(fit).map(|(start, end)| (Seq(*start), Seq(*end))).collect();
        prop_assert_eq!(blocks.unwrap_or_default(), sent);
    }

    #[test]
    fn without_a_payload_sum_the_field_holds_the_pseudo_header(case in case()) {
        let (frame, _) = case.frame(None);
        let packet = Packet::parse(&frame, case.kind()).unwrap();
        let tcp = usize::from(packet.tcp_offset);
        // The port sums from the TCP header on, the field included, and stores the complement.
        let whole = checksum::sum(&frame[tcp..]);
        let mut sent = frame.clone();
        sent[tcp + 16..tcp + 18].copy_from_slice(&checksum::finish(whole).to_be_bytes());
        let right = packet.header_sum(&sent) + checksum::sum(packet.payload(&sent));
        prop_assert_eq!(checksum::fold(right), 0xffff);
    }

    #[test]
    fn too_short_a_buffer_is_refused_and_the_exact_length_is_enough(case in case()) {
        let (frame, len) = case.frame(None);
        let (link, sack) = (case.link(), case.sack());
        let template = Template::new(&case.route(&link)).unwrap();
        let mut out = vec![0; len];
        for short in 0..len {
            prop_assert_eq!(template.emit(&mut out[..short], &case.emit(&sack, None)), 0);
        }
        prop_assert_eq!(emit_once(&case.route(&link), &mut out, &case.emit(&sack, None)), Ok(len));
        prop_assert_eq!(&out[..], &frame[..len]);
    }
}

#[test]
fn a_template_is_small_enough_to_keep_per_connection() {
    assert!(size_of::<Template>() <= 96);
}

#[test]
fn a_fragmentable_template_has_no_dont_fragment_and_a_right_checksum() {
    let addr = Addr::v4([10, 0, 0, 1]);
    let ports = (1, 2);
    let route = Route {
        link: &[],
        src: addr,
        dst: addr,
        src_port: ports.0,
        dst_port: ports.1,
        ttl: 64,
        traffic_class: 0x20,
        flow_label: 0,
    };
    let sack = SackBlocks::new();
    let segment = Emit {
        seq: Seq(0),
        ack: Seq(0),
        flags: Flags::ACK,
        window: 0,
        urgent: 0,
        ts: None,
        sack: &sack,
        payload_len: 100,
        payload_sum: None,
        ip_id: 7,
        ecn: 0,
    };
    let template = Template::new(&route).unwrap();
    for (template, flags) in [(template, 0x40), (template.fragmentable(), 0)] {
        let mut out = [0; MAX_HEADERS];
        assert_eq!(template.emit(&mut out, &segment), 40);
        assert_eq!(out[6], flags);
        assert_eq!(baton_wire::checksum::fold(baton_wire::checksum::sum(&out[..20])), 0xffff);
    }
}

#[test]
fn odd_link_headers_and_overlong_packets_are_refused() {
    let addr = Addr::v4([10, 0, 0, 1]);
    let mut route = Route {
        link: &[0; 16],
        src: addr,
        dst: addr,
        src_port: 1,
        dst_port: 2,
        ttl: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    assert_eq!(Template::new(&route), Err(BuildError::TooLong));
    route.link = &[];
    let sack = SackBlocks::new();
    let mut segment = Emit {
        seq: Seq(0),
        ack: Seq(0),
        flags: Flags::ACK,
        window: 0,
        urgent: 0,
        ts: None,
        sack: &sack,
        payload_len: 65_535 - 40,
        payload_sum: None,
        ip_id: 0,
        ecn: 0,
    };
    let mut out = [0; MAX_HEADERS];
    assert_eq!(Template::new(&route).unwrap().emit(&mut out, &segment), 40);
    segment.payload_len += 1;
    assert_eq!(Template::new(&route).unwrap().emit(&mut out, &segment), 0);
}
