//! The neighbour table: its transitions, and who may change an address.

use super::*;
use std::fmt::Write as _;

const OWN: LinkAddress = LinkAddress { mac: [2, 0, 0, 0, 0, 1], vlan: None };
const PEER: Addr = Addr::v4([10, 0, 0, 9]);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 66];

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

/// Runs the table until nothing is due by `end`, deadline by deadline.
fn run(table: &mut Neighbours, end: Instant) -> Vec<(u64, Option<[u8; 6]>)> {
    let mut asked = Vec::new();
    while let Some(next) = table.next_deadline().filter(|&next| next <= end) {
        table.poll(next, &mut |solicit| asked.push((next.0 / 1_000_000, solicit.unicast)));
    }
    asked
}

fn state(table: &Neighbours, addr: Addr) -> State {
    table.entry(table.index[&addr]).expect("an entry").state
}

#[test]
fn every_state_and_every_event() {
    use State::{Delay, Failed, Incomplete, Probe, Reachable, Stale};
    let mut picture = String::new();
    let yes = |b: bool| if b { '+' } else { '-' };
    for from in [Incomplete, Reachable, Stale, Delay, Probe, Failed] {
        writeln!(picture, "{from:?}: used {:?}", from.on_use()).unwrap();
        for (held, spent) in [(true, true), (true, false), (false, true), (false, false)] {
            let to = from.on_expiry(held, spent);
            writeln!(picture, "  expired held{} spent{}: {to:?}", yes(held), yes(spent)).unwrap();
        }
        for bits in 0..16 {
            let [differs, solicited, overrides, doubts] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let (to, take) = from.on_news(News { differs, solicited, overrides, doubts });
            let said = [("differs", differs), ("solicited", solicited), ("overrides", overrides), ("doubts", doubts)];
            let said: Vec<_> = said.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
            writeln!(picture, "  news [{}]: {to:?}{}", said.join(" "), if take { ", taken" } else { "" }).unwrap();
        }
    }
    assert_eq!(picture, include_str!("transitions.txt"));
}

#[test]
fn an_unknown_neighbour_is_asked_three_times_then_reported() {
    let mut table = Neighbours::new(OWN);
    let hop = table.acquire(PEER, at(0)).expect("room");
    assert_eq!(table.header(hop), None);
    assert_eq!(run(&mut table, at(2_999)), [(0, None), (1000, None), (2000, None)]);
    assert_eq!(table.pop_failed(), None);
    assert_eq!(run(&mut table, at(60_000)), []);
    assert_eq!((table.pop_failed(), table.pop_failed()), (Some(hop), None));
    assert_eq!(table.next_deadline(), None);
    // A retransmission through it starts over.
    assert!(table.hold(hop, &[1; 40], &mut Outbox::default()));
    assert_eq!(run(&mut table, at(61_000)).first(), Some(&(0, None)));
}

#[test]
fn packets_wait_for_the_answer_and_the_oldest_makes_room() {
    let mut table = Neighbours::new(OWN);
    let mut outbox = Outbox::default();
    let hop = table.acquire(PEER, at(0)).expect("room");
    for i in 0..5 {
        assert!(table.hold(hop, &[i; HELD_BYTES], &mut outbox));
    }
    assert!(!table.hold(hop, &[9; HELD_BYTES + 1], &mut outbox), "too big to wait");
    assert!(table.learn(PEER, MAC, Source::Arp { solicited: true }, false, at(1), &mut outbox));
    let header = [&MAC[..], &OWN.mac, &[8, 0]].concat();
    assert_eq!(table.header(hop), Some(&header[..]));
    for i in 1..5 {
        assert_eq!(outbox.pop(), Some(&[&header[..], &[i; HELD_BYTES]].concat()[..]));
    }
    assert_eq!(outbox.pop(), None);
    // Resolved: nothing waits.
    assert!(table.hold(hop, &[7], &mut outbox));
    assert_eq!(outbox.pop(), Some(&[&header[..], &[7]].concat()[..]));
}

#[test]
fn a_vlan_and_an_ipv6_neighbour_get_their_headers() {
    let mut table = Neighbours::new(LinkAddress { vlan: Some(7), ..OWN });
    let peer = Addr::v6([0xfd; 16]);
    let hop = table.acquire(peer, at(0)).expect("room");
    table.learn(peer, MAC, Source::Solicitation, false, at(1), &mut Outbox::default());
    let header = [&MAC[..], &OWN.mac, &[0x81, 0, 0, 7, 0x86, 0xdd]].concat();
    assert_eq!(table.header(hop), Some(&header[..]));
    assert_eq!(table.header(HopId::BARE), Some(&[][..]));
    assert_eq!(table.header(HopId(999)), None);
}

#[test]
fn an_entry_in_use_is_probed_by_unicast_while_it_serves() {
    let mut table = Neighbours::new(OWN);
    let mut outbox = Outbox::default();
    let hop = table.acquire(PEER, at(0)).expect("room");
    table.learn(PEER, MAC, Source::Arp { solicited: true }, false, at(0), &mut outbox);
    assert_eq!(run(&mut table, at(29_999)), []);
    assert_eq!(run(&mut table, at(32_000)), [(30_000, Some(MAC)), (31_000, Some(MAC)), (32_000, Some(MAC))]);
    assert!(table.header(hop).is_some(), "it serves while it is probed");
    // The answer makes it reachable for another 30 s.
    table.learn(PEER, MAC, Source::Arp { solicited: true }, false, at(32_500), &mut outbox);
    assert_eq!(run(&mut table, at(62_499)), []);
    // Silence: by unicast, then by broadcast without an address, then failed.
    let asked = run(&mut table, at(200_000));
    assert_eq!(asked.iter().filter(|(_, to)| to.is_some()).count(), 3);
    assert_eq!(asked.iter().filter(|(_, to)| to.is_none()).count(), 3);
    assert_eq!(table.header(hop), None);
    assert_eq!(table.pop_failed(), Some(hop));
}

#[test]
fn forward_progress_spares_the_probe() {
    let mut table = Neighbours::new(OWN);
    let hop = table.acquire(PEER, at(0)).expect("room");
    table.learn(PEER, MAC, Source::Arp { solicited: true }, false, at(0), &mut Outbox::default());
    for s in 1..100 {
        table.confirm(hop, at(s * 1000));
        assert_eq!(run(&mut table, at(s * 1000)), []);
    }
    assert_eq!(state(&table, PEER), State::Reachable);
    table.release(hop);
    // Nobody holds it: it ages without a timer, and its next use is delayed.
    assert_eq!(run(&mut table, at(500_000)), []);
    assert_eq!(table.acquire(PEER, at(500_000)), Some(hop));
    assert_eq!(state(&table, PEER), State::Delay);
    assert_eq!(run(&mut table, at(505_000)), [(505_000, Some(MAC))]);
}

#[test]
fn confirm_does_not_resurrect_what_failed() {
    let mut table = Neighbours::new(OWN);
    let hop = table.acquire(PEER, at(0)).expect("room");
    run(&mut table, at(10_000));
    table.confirm(hop, at(10_000));
    assert_eq!((state(&table, PEER), table.header(hop)), (State::Failed, None));
}

#[test]
fn who_may_change_a_known_address() {
    // (what says it, seconds after it was learned, by a holder of a reference, new address taken)
    let table = [
        (Source::Arp { solicited: true }, 0, true, false),
        (Source::Arp { solicited: false }, 2, true, true),
        (Source::Arp { solicited: true }, 2, true, true),
        (Source::Solicitation, 0, true, true),
        (Source::Advertisement { solicited: true, overrides: true }, 0, true, true),
        (Source::Advertisement { solicited: true, overrides: false }, 2, true, false),
        (Source::Frame, 2, true, false),
        (Source::Frame, 40, true, false),
        (Source::Frame, 2, false, false),
        (Source::Frame, 40, false, true),
    ];
    for (source, after_s, held, taken) in table {
        let mut table = Neighbours::new(OWN);
        let mut outbox = Outbox::default();
        let hop = table.acquire(PEER, at(0)).expect("room");
        table.learn(PEER, MAC, Source::Arp { solicited: true }, false, at(0), &mut outbox);
        if !held {
            table.release(hop);
        }
        table.learn(PEER, OTHER, source, true, at(after_s * 1000), &mut outbox);
        let expected = if taken { OTHER } else { MAC };
        assert_eq!(table.lookup(PEER).map(|(mac, _)| mac), Some(expected), "{source:?} after {after_s} s, held {held}");
        assert_eq!(table.header(hop).map(|header| &header[..6]), Some(&expected[..]));
    }
}

#[test]
fn an_advertisement_that_may_not_override_casts_doubt() {
    let mut table = Neighbours::new(OWN);
    let mut outbox = Outbox::default();
    table.acquire(PEER, at(0)).expect("room");
    table.learn(PEER, MAC, Source::Advertisement { solicited: true, overrides: true }, false, at(0), &mut outbox);
    let news = Source::Advertisement { solicited: false, overrides: false };
    table.learn(PEER, OTHER, news, false, at(10), &mut outbox);
    assert_eq!(table.lookup(PEER), Some((MAC, State::Delay)));
}

#[test]
fn strangers_get_an_entry_only_when_they_asked_for_us() {
    let mut table = Neighbours::new(OWN);
    let mut outbox = Outbox::default();
    assert!(!table.learn(PEER, MAC, Source::Arp { solicited: false }, false, at(0), &mut outbox));
    assert_eq!(table.len(), 0);
    assert!(table.learn(PEER, MAC, Source::Arp { solicited: false }, true, at(0), &mut outbox));
    assert_eq!(table.lookup(PEER), Some((MAC, State::Stale)));
    assert_eq!(table.next_deadline(), None, "a stranger costs no timer");
}

#[test]
fn a_flood_evicts_the_least_recently_used_and_never_what_is_held() {
    let mut table = Neighbours::new(OWN);
    let mut outbox = Outbox::default();
    let held = table.acquire(PEER, at(0)).expect("room");
    table.learn(PEER, MAC, Source::Solicitation, false, at(0), &mut outbox);
    let stranger = |i: u32| Addr::v4((0x0b00_0000 + i).to_be_bytes());
    for i in 0..10_000 {
        assert!(table.learn(stranger(i), MAC, Source::Arp { solicited: false }, true, at(u64::from(i)), &mut outbox));
        assert!(table.len() <= CAPACITY);
    }
    assert_eq!(table.header(held).map(|header| &header[..6]), Some(&MAC[..]));
    assert_eq!(table.lookup(stranger(0)), None);
    assert!(table.lookup(stranger(9_999)).is_some());
    assert!(table.entries.len() <= CAPACITY + 1 && table.due.len() <= CAPACITY && table.idle.len() < CAPACITY);
}

#[test]
fn a_table_full_of_held_entries_refuses_and_recovers() {
    let mut table = Neighbours::new(OWN);
    let hops: Vec<_> = (0..CAPACITY as u32)
        .map(|i| table.acquire(Addr::v4((0x0b00_0000 + i).to_be_bytes()), at(0)).expect("room"))
        .collect();
    assert_eq!(table.acquire(PEER, at(1)), None);
    table.release(hops[17]);
    assert!(table.acquire(PEER, at(2)).is_some());
    assert_eq!(table.acquire(Addr::v4([9; 4]), at(3)), None);
}
