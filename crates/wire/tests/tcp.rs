//! TCP headers, options, and the quotations of ICMP errors.

use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::error::{BuildError, ParseError};
use baton_wire::quote::QuotedTcp;
use baton_wire::seq::Seq;
use baton_wire::tcp::header::{Header, Segment, fill_checksum};
use baton_wire::tcp::options::{BrokenOption, OptionsIter, TcpOption, write_options};
use baton_wire::tcp::{Flags, SackBlocks, Timestamps};
use baton_wire::{ipv4, ipv6};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn sack(blocks: &[(u32, u32)]) -> SackBlocks {
    let mut sack = SackBlocks::new();
    for (start, end) in blocks {
        assert!(sack.push(Seq(*start), Seq(*end)));
    }
    sack
}

/// An option to be borrowed from.
#[derive(Clone, Debug)]
enum Owned {
    Known(TcpOption<'static>),
    Unknown(u8, Vec<u8>),
}

impl Owned {
    fn option(&self) -> TcpOption<'_> {
        match self {
            Owned::Known(option) => *option,
            Owned::Unknown(kind, data) => TcpOption::Unknown { kind: *kind, data },
        }
    }
}

fn option() -> impl Strategy<Value = Owned> {
    prop_oneof![
        any::<u16>().prop_map(|mss| Owned::Known(TcpOption::Mss(mss))),
        any::<u8>().prop_map(|shift| Owned::Known(TcpOption::WindowScale(shift))),
        Just(Owned::Known(TcpOption::SackPermitted)),
        vec(any::<(u32, u32)>(), 0..=4).prop_map(|blocks| Owned::Known(TcpOption::Sack(sack(&blocks)))),
        any::<(u32, u32)>().prop_map(|(val, ecr)| Owned::Known(TcpOption::Timestamps(Timestamps { val, ecr }))),
        (9..=255u8, vec(any::<u8>(), 0..20)).prop_map(|(kind, data)| Owned::Unknown(kind, data)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // tests: MUST-4, MUST-5, MUST-6, MUST-14, MUST-68
    #[test]
    fn segments(
        numbers in any::<(u16, u16, u32, u32)>(),
        fields in any::<(u16, u16, u16)>(),
        flags in 0..0x200u16,
        options in vec(option(), 0..5),
        payload in vec(any::<u8>(), 0..50),
    ) {
        let (src_port, dst_port, seq, ack) = numbers;
        let (window, checksum, urgent) = fields;
        let (seq, ack, flags) = (Seq(seq), Seq(ack), Flags(flags));
        let header = Header { src_port, dst_port, seq, ack, flags, window, checksum, urgent };
        let options: Vec<TcpOption<'_>> = options.iter().map(Owned::option).collect();
        let mut out = vec![0xaa; 60];
        let len = match header.write(&options, &mut out) {
            Ok(len) => len,
            Err(error) => {
                // Only for what is too long, paddings (two or three bytes each) included.
                let longest: usize = options.iter().map(|option| option.len() + 3).sum();
                prop_assert_eq!(error, BuildError::TooLong);
                prop_assert!(longest > 40);
                return Ok(());
            }
        };
        prop_assert_eq!(len % 4, 0);
        for short in 0..len {
            prop_assert_eq!(header.write(&options, &mut out[..short]), Err(BuildError::BufferTooSmall));
        }
        prop_assert_eq!(header.write(&options, &mut out), Ok(len));
        out.truncate(len);
        out.extend(&payload);
        let segment = Segment::parse(&out).unwrap();
        prop_assert_eq!((segment.header, segment.payload), (header, &payload[..]));
        let read: Vec<_> = segment.options().collect();
        prop_assert_eq!(read, options.iter().copied().map(Ok).collect::<Vec<_>>());
    }

    // tests: MUST-2
    #[test]
    fn a_filled_checksum_is_right(payload in vec(any::<u8>(), 0..50), v6 in any::<bool>()) {
        let (src, dst) = if v6 {
            (Addr::v6([1; 16]), Addr::v6([2; 16]))
        } else {
            (Addr::v4([1; 4]), Addr::v4([2; 4]))
        };
        let mut segment = vec![0; 20];
        Header { checksum: 77, ..Header::default() }.write(&[], &mut segment).unwrap();
        segment.extend(payload);
        fill_checksum(&mut segment, src, dst).unwrap();
        let sum = checksum::pseudo(src, dst, 6, segment.len() as u32) + checksum::sum(&segment);
        prop_assert_eq!(checksum::fold(sum), 0xffff);
        prop_assert_eq!(fill_checksum(&mut segment[..17], src, dst), Err(BuildError::BufferTooSmall));
    }
}

#[test]
fn data_offsets_that_contradict_the_segment() {
    let mut bytes = [0; 24];
    for (offset, expected) in [(0, ParseError::BadLength), (4, ParseError::BadLength), (7, ParseError::Truncated)] {
        bytes[12] = offset << 4;
        assert_eq!(Segment::parse(&bytes).unwrap_err(), expected);
    }
    bytes[12] = 6 << 4;
    assert_eq!(Segment::parse(&bytes).unwrap().options.len(), 4);
    assert_eq!(Segment::parse(&bytes[..19]).unwrap_err(), ParseError::Truncated);
}

// tests: MUST-64
#[test]
fn options_begin_on_any_byte() {
    let expected = TcpOption::Timestamps(Timestamps { val: 0x01020304, ecr: 0x05060708 });
    for shift in 0..4 {
        let mut list = vec![1; shift];
        list.extend([8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(OptionsIter::new(&list).collect::<Vec<_>>(), [Ok(expected)]);
    }
}

// tests: MUST-7
#[test]
fn impossible_lengths_end_the_walk_with_a_report() {
    let mss = [2, 4, 5, 0xb4];
    for broken in [&[8, 0][..], &[8, 1], &[8, 11, 0, 0], &[8], &[254, 255]] {
        let list = [&mss, broken].concat();
        let mut options = OptionsIter::new(&list);
        assert_eq!(options.next(), Some(Ok(TcpOption::Mss(1460))));
        assert_eq!(options.next(), Some(Err(BrokenOption { kind: broken[0] })), "{broken:?}");
        assert_eq!(options.next(), None);
    }
}

// tests: MUST-6
#[test]
fn unknown_options_and_known_ones_of_a_wrong_length_are_kept_apart() {
    // An unknown option, an MSS of one byte, SACK of seven bytes, then a good one.
    let list = [253, 4, 1, 2, 2, 3, 9, 5, 9, 0, 0, 0, 0, 0, 0, 0, 3, 3, 7];
    let options: Vec<_> = OptionsIter::new(&list).map(Result::unwrap).collect();
    assert_eq!(
        options,
        [
            TcpOption::Unknown { kind: 253, data: &[1, 2] },
            TcpOption::Unknown { kind: 2, data: &[9] },
            TcpOption::Unknown { kind: 5, data: &[0; 7] },
            TcpOption::WindowScale(7),
        ]
    );
}

// tests: MUST-69
#[test]
fn a_list_is_padded_with_zeros_and_aligned() {
    let ts = TcpOption::Timestamps(Timestamps { val: 1, ecr: 2 });
    let mut out = [0xff; 40];
    assert_eq!(write_options(&[TcpOption::WindowScale(7)], &mut out), Ok(4));
    assert_eq!(out[..4], [3, 3, 7, 0]);
    assert_eq!(write_options(&[ts], &mut out), Ok(12));
    assert_eq!(out[..12], [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    // As on a SYN: MSS, SACK permitted, timestamps, window scale fill 20 bytes.
    let syn = [TcpOption::Mss(1460), TcpOption::SackPermitted, ts, TcpOption::WindowScale(7)];
    assert_eq!(write_options(&syn, &mut out), Ok(20));
    assert_eq!(out[..20], [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 3, 3, 7, 0]);
    // Bytes after the end of the list are not looked at.
    assert_eq!(OptionsIter::new(&[0, 2, 4, 5, 0xb4]).next(), None);
}

#[test]
fn timestamps_and_three_sack_blocks_fill_the_option_space() {
    let ts = TcpOption::Timestamps(Timestamps { val: 1, ecr: 2 });
    let mut out = [0; 60];
    assert_eq!(write_options(&[ts, TcpOption::Sack(sack(&[(1, 2), (3, 4), (5, 6)]))], &mut out), Ok(40));
    let four = TcpOption::Sack(sack(&[(1, 2), (3, 4), (5, 6), (7, 8)]));
    assert_eq!(write_options(&[four], &mut out), Ok(36));
    assert_eq!(write_options(&[ts, four], &mut out), Err(BuildError::TooLong));
}

#[test]
fn an_icmp_error_names_the_segment_that_it_is_about() {
    let tcp = Header { src_port: 4000, dst_port: 80, seq: Seq(0xfeed_beef), ..Header::default() };
    let mut segment = [0; 20];
    tcp.write(&[], &mut segment).unwrap();
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let header = ipv4::Header {
        traffic_class: 0,
        id: 1,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 3,
        protocol: 6,
        src,
        dst,
    };
    let expected = QuotedTcp { src: src.into(), dst: dst.into(), src_port: 4000, dst_port: 80, seq: Seq(0xfeed_beef) };
    let mut quote = [0; 100];
    let len = header.write(&[], 1000, &mut quote).unwrap();
    quote[len..len + 20].copy_from_slice(&segment);
    // RFC 792 promises eight bytes of the segment; routers change the checksum's header.
    quote[8] = 0;
    assert_eq!(QuotedTcp::parse(&quote[..len + 8]), Some(expected));
    assert_eq!(QuotedTcp::parse(&quote[..len + 7]), None);
    let other = |header: ipv4::Header| {
        let mut quote = quote;
        header.write(&[], 1000, &mut quote).unwrap();
        QuotedTcp::parse(&quote)
    };
    assert_eq!(other(ipv4::Header { protocol: 17, ..header }), None);
    assert_eq!(other(ipv4::Header { fragment_offset: 8, ..header }), None);

    let (src, dst) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
    let header = ipv6::Header { traffic_class: 0, flow_label: 0, next_header: 60, hop_limit: 1, src, dst };
    let mut quote = [0; 100];
    header.write(1000, &mut quote).unwrap();
    quote[40..48].copy_from_slice(&[6, 0, 1, 4, 0, 0, 0, 0]);
    quote[48..68].copy_from_slice(&segment);
    let expected = QuotedTcp { src: src.into(), dst: dst.into(), ..expected };
    assert_eq!(QuotedTcp::parse(&quote[..56]), Some(expected));
    assert_eq!(QuotedTcp::parse(&quote[..55]), None);
    assert_eq!(QuotedTcp::parse(&[]), None);
}
