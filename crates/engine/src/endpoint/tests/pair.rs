//! Two endpoints on one wire, and one endpoint against noise.

use super::*;
use baton_tcp::time::Duration;
use proptest::prelude::*;

fn pair() -> (Endpoint, Endpoint) {
    let mut a = endpoint_with(US, ["10.77.0.2/24", "fd00::2/64"], true, None);
    let mut b = endpoint_with(THEM, ["10.77.0.9/24", "fd00::9/64"], true, None);
    settle(&mut a, &mut b, T0);
    (a, b)
}

fn carry(now: Instant, from: &mut Endpoint, to: &mut Endpoint) -> usize {
    let mut carried = 0;
    while let Some(frame) = from.pop_outbox() {
        to.handle_frame(now, frame, &mut |_| {});
        carried += 1;
    }
    carried
}

/// Lets both talk until neither has anything to say.
fn settle(a: &mut Endpoint, b: &mut Endpoint, now: Instant) {
    for _ in 0..20 {
        a.poll(now);
        b.poll(now);
        if carry(now, a, b) + carry(now, b, a) == 0 {
            return;
        }
    }
    panic!("the endpoints never stop talking");
}

#[test]
fn each_finds_the_other_by_asking() {
    for remote in [Addr::from(THEIR_V4), THEIR_V6.into(), "fe80::ff:fe00:9".parse::<Ipv6Addr>().expect("valid").into()]
    {
        let (mut a, mut b) = pair();
        let hop = a.hop_for(T0, remote).expect("a route");
        assert_eq!(a.link_header(hop), None);
        assert!(a.hold(hop, &[0x45; 40]));
        a.poll(T0);
        assert_eq!(carry(T0, &mut a, &mut b), 1, "one question");
        assert_eq!(b.counters().of(Verdict::NeighbourReply), 1);
        assert_eq!(carry(T0, &mut b, &mut a), 1, "one answer");
        assert_eq!(a.counters().of(Verdict::NeighbourLearned), 1);
        let ether_type = if remote.is_v4() { [8, 0] } else { [0x86, 0xdd] };
        let header = [&THEM[..], &US, &ether_type].concat();
        assert_eq!(a.link_header(hop), Some(&header[..]));
        assert_eq!(a.pop_outbox(), Some(&[&header[..], &[0x45; 40]].concat()[..]), "the packet that waited");
        // The one who was asked knows the other without asking.
        let local = if remote.is_v4() { Addr::from(OUR_V4) } else { a.source_for(remote).expect("an address") };
        let back = b.hop_for(T0, local).expect("a route");
        assert_eq!(b.link_header(back).map(|header| &header[..6]), Some(&US[..]));
    }
}

#[test]
fn a_passive_open_answers_where_the_frame_came_from() {
    let (mut a, _) = pair();
    let syn = ethernet(US, THEM, ether_type::IPV4, &[0x45; 40]);
    let hop = a.hop_from_frame(T0, THEIR_V4.into(), &syn).expect("a route");
    assert_eq!(a.link_header(hop).map(|header| &header[..6]), Some(&THEM[..]));
    a.poll(T0);
    assert_eq!(a.pop_outbox(), None, "nobody is asked");
    // Another frame that claims to be from there changes nothing.
    let spoofed = ethernet(US, [2, 0, 0, 0, 0, 66], ether_type::IPV4, &[0x45; 40]);
    assert_eq!(a.hop_from_frame(T0, THEIR_V4.into(), &spoofed), Some(hop));
    assert_eq!(a.link_header(hop).map(|header| &header[..6]), Some(&THEM[..]));
    // Without forward progress it is asked after 5 s, by unicast.
    let later = T0 + Duration::from_secs(5);
    assert_eq!(a.next_deadline(), Some(later));
    a.poll(later);
    assert_eq!(a.pop_outbox().map(|frame| frame[..6].to_vec()), Some(THEM.to_vec()));
    // With it, not.
    a.confirm(hop, later);
    assert_eq!(a.next_deadline(), Some(later + Duration::from_secs(30)));
    a.hop_release(hop);
    a.hop_release(hop);
}

#[test]
fn a_remote_behind_no_gateway_has_no_route() {
    let (mut a, _) = pair();
    let far = Ipv4Addr::new(8, 8, 8, 8).into();
    let syn = ethernet(US, THEM, ether_type::IPV4, &[0x45; 40]);
    assert_eq!(a.hop_for(T0, far), None);
    assert_eq!(a.hop_from_frame(T0, far, &syn), None);
    assert_eq!(a.source_for(far), None);
}

#[test]
fn a_silent_neighbour_is_reported_and_found_again() {
    let (mut a, mut b) = pair();
    let hop = a.hop_for(T0, THEIR_V4.into()).expect("a route");
    let mut now = T0;
    let mut asked = 0;
    while let Some(next) = a.next_deadline() {
        now = next.max(now);
        a.poll(now);
        while a.pop_outbox().is_some() {
            asked += 1;
        }
    }
    assert_eq!((asked, a.pop_unreachable(), a.pop_unreachable()), (3, Some(hop), None));
    // The next packet through it asks anew, and this time it is there.
    assert!(a.hold(hop, &[1; 40]));
    assert!(a.next_deadline().is_some_and(|at| at <= now));
    settle(&mut a, &mut b, now);
    assert!(a.link_header(hop).is_some());
    assert_eq!(a.pop_unreachable(), None);
}

#[test]
fn a_neighbour_that_moved_is_followed() {
    let (mut a, mut b) = pair();
    let hop = a.hop_for(T0, THEIR_V4.into()).expect("a route");
    settle(&mut a, &mut b, T0);
    let now = T0 + Duration::from_secs(10);
    let mut moved = endpoint_with([2, 0, 0, 0, 0, 10], ["10.77.0.9/24", "fd00::9/64"], true, None);
    settle(&mut moved, &mut a, now);
    assert_eq!(a.link_header(hop).map(|header| header[5]), Some(10), "its announcement was heard");
}

/// Any frame that starts like one for us.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let ether_type = prop_oneof![Just(0x0800u16), Just(0x0806), Just(0x86dd), Just(0x8100), any::<u16>()];
    let first = prop_oneof![Just(0x45u8), Just(0x60), Just(0x46), any::<u8>()];
    let rest = proptest::collection::vec(any::<u8>(), 0..200);
    (ether_type, first, rest, any::<bool>()).prop_map(|(ether_type, first, mut rest, group)| {
        if let Some(byte) = rest.first_mut() {
            *byte = first;
        }
        ethernet(if group { BROADCAST } else { US }, THEM, ether_type, &rest)
    })
}

/// A frame that is right but for a few bytes.
fn almost_right() -> impl Strategy<Value = Vec<u8>> {
    let quote = v4_packet(OUR_V4, THEIR_V4, 6, 0, &[1; 8]);
    let right = vec![
        arp_frame(US, request(THEIR_V4, OUR_V4)),
        icmp_v4(THEIR_V4, OUR_V4, &V4::EchoRequest { id: 7, seq: 8, data: &[5; 30] }),
        icmp_v4(THEIR_V4, OUR_V4, &V4::Unreachable { code: 1, quote: &quote }),
        icmp_v6(THEIR_V6, OUR_V6, 255, &V6::NeighbourSolicitation { target: OUR_V6, source_link: Some(MacAddr(THEM)) }),
        icmp_v6(THEIR_V6, OUR_V6, 64, &V6::EchoRequest { id: 7, seq: 8, data: &[5; 30] }),
    ];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (prop::sample::select(right), changes, any::<prop::sample::Index>()).prop_map(|(mut frame, changes, cut)| {
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        frame.truncate(cut.index(frame.len()) + 20);
        frame
    })
}

proptest! {
    #[test]
    fn noise_neither_panics_nor_piles_up(frames in proptest::collection::vec(prop_oneof![noise(), almost_right()], 1..50)) {
        let mut ethernet = endpoint();
        let mut bare = endpoint_with(US, ["10.77.0.2/24", "fd00::2/64"], false, None);
        for (i, frame) in frames.iter().enumerate() {
            let now = T0 + Duration::from_millis(i as u64 * 100);
            ethernet.handle_frame(now, frame, &mut |_| {});
            bare.handle_frame(now, frame.get(14..).unwrap_or_default(), &mut |_| {});
            ethernet.poll(now);
            bare.poll(now);
            if let Some(hop) = ethernet.hop_from_frame(now, THEIR_V4.into(), frame) {
                ethernet.hold(hop, frame);
                ethernet.hop_release(hop);
            }
        }
        let total: u64 = Verdict::ALL.iter().map(|verdict| ethernet.counters().of(*verdict)).sum();
        prop_assert_eq!(total, frames.len() as u64);
        prop_assert!(ethernet.neighbours() <= frames.len() + 1);
    }
}
