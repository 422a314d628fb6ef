//! Tests of the policies: tables of which connections move when, and laws that hold for all
//! connections.

use baton_policy::Reason;
use baton_policy::bounds::parse_ports;
use baton_policy::conditions::{Condition, Direction, Facts, Verdict};
use baton_policy::places::Prices;
use baton_policy::rules::{
    BULK_BYTES, Decision, Entry, History, Known, PREDICT_SENDS, Policy, Room, Rule, Ruling, SMALL_BYTES, SMALL_SENDS,
    Stay, Wait,
};
use baton_policy::survival::Expected;
use proptest::prelude::*;
use std::num::NonZeroU64;

const ROOMY: Room = Room { connections: 0, at_most: 1, load_limit: u64::MAX };
const FULL: Room = Room { connections: 1, at_most: 1, load_limit: u64::MAX };

fn sends(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

fn known(sends: u64) -> Known {
    Known { sends, bytes: 0, expected: None, history: History::New }
}

#[test]
fn who_moves_when() {
    use Decision::{Move, Never, NotYet};
    let t4 = Rule::AfterSends(sends(4));
    let table = [
        (Rule::FirstCome, 0, ROOMY, Move),
        (Rule::FirstCome, 7, ROOMY, Move),
        (Rule::FirstCome, 0, FULL, NotYet(Wait::Room)),
        // CH §5.2: "using T4, the operating system attempts a handoff when the fourth
        // enqueue operation occurs".
        (t4, 0, ROOMY, NotYet(Wait::Sends(sends(4)))),
        (t4, 3, ROOMY, NotYet(Wait::Sends(sends(1)))),
        (t4, 4, ROOMY, Move),
        (t4, 5, ROOMY, Move),
        (t4, 3, FULL, NotYet(Wait::Sends(sends(1)))),
        (t4, 4, FULL, NotYet(Wait::Room)),
        (Rule::UntilBulk, 0, ROOMY, Move),
        (Rule::Pairs, 0, ROOMY, Never(Stay::OnlyPairs)),
        (Rule::Pairs, SMALL_SENDS, ROOMY, Never(Stay::OnlyPairs)),
        (Rule::Never, 100, ROOMY, Never(Stay::Rule)),
    ];
    for (rule, count, room, decision) in table {
        assert_eq!(rule.decide(&known(count), room), decision, "{rule}, {count} sends, {room:?}");
    }
}

#[test]
fn who_carries_little_at_a_time_moves_once_it_is_known_to_live() {
    let carried = |sends, bytes| Rule::Small(None).decide(&Known { bytes, ..known(sends) }, ROOMY);
    let last = SMALL_SENDS - 1;
    assert_eq!(carried(0, 0), Decision::NotYet(Wait::Sends(sends(SMALL_SENDS))));
    assert_eq!(carried(last, 0), Decision::NotYet(Wait::Sends(sends(1))));
    for count in [SMALL_SENDS, 10 * SMALL_SENDS] {
        assert_eq!(carried(count, count * SMALL_BYTES), Decision::Move);
        assert_eq!(carried(count, count * (SMALL_BYTES + 1)), Decision::NotYet(Wait::Smaller));
    }
    assert_eq!("small".parse(), Ok(Rule::Small(None)));
    assert_eq!(Rule::Small(None).to_string(), "small");
}

#[test]
fn a_small_request_can_be_given_in_bytes() {
    let rule = Rule::Small(Some(sends(4096)));
    let carried = |bytes| rule.decide(&Known { bytes: SMALL_SENDS * bytes, ..known(SMALL_SENDS) }, ROOMY);
    assert_eq!((carried(4096), carried(4097)), (Decision::Move, Decision::NotYet(Wait::Smaller)));
    assert!(!rule.keeps(u64::MAX));
    assert_eq!("small 4096 bytes".parse(), Ok(rule));
    assert_eq!(rule.to_string(), "small 4096 bytes");
    for bad in ["small 0 bytes", "small 4096", "small -1 bytes", "small 1.5 bytes"] {
        assert!(bad.parse::<Rule>().is_err(), "{bad}");
    }
}

#[test]
fn what_is_expected_to_send_enough_moves() {
    let prices = Prices { saving_ns: 1_000, move_ns: 100_000 };
    let rule = Rule::Predict(Some(prices));
    let expected = |packets| Some(Expected { packets, ended: 7 });
    let decide = |sends, packets| rule.decide(&Known { expected: expected(packets), ..known(sends) }, ROOMY);
    let few = Expected { packets: 100, ended: 7 };
    assert_eq!(decide(PREDICT_SENDS, 101), Decision::Move);
    assert_eq!(decide(1000, 100), Decision::NotYet(Wait::Packets(few)));
    assert_eq!(decide(PREDICT_SENDS - 1, 1000), Decision::NotYet(Wait::Sends(sends(1))));
    let said = decide(1000, 100).to_string();
    assert!(said.starts_with("it is expected to send 100 packets more, from 7 connections like it"), "{said}");
    // Where nobody counts, the one that counts is asked.
    assert_eq!(rule.decide(&known(PREDICT_SENDS), ROOMY), Decision::Move);
    let full = Room { connections: 4, at_most: 4, load_limit: 4 };
    let eager = Known { expected: expected(1000), ..known(PREDICT_SENDS) };
    assert_eq!(rule.decide(&eager, full), Decision::NotYet(Wait::Room));
    assert!(rule.keeps(u64::MAX));
    for (text, rule) in [("predict", Rule::Predict(None)), ("predict saving 1000 ns move 100000 ns", rule)] {
        assert_eq!((text.parse(), rule.to_string().as_str()), (Ok(rule), text));
        assert!(Policy::of(rule).predicts() && !Policy::of(Rule::FirstCome).predicts());
    }
    for bad in ["predict 1000", "predict saving 1 ns", "predict saving 1 ns move -1 ns"] {
        assert!(bad.parse::<Rule>().is_err(), "{bad}");
    }
}

#[test]
fn bulk_goes_home_by_its_rules_alone() {
    for bytes in [0, BULK_BYTES - 1, BULK_BYTES, u64::MAX] {
        assert_eq!(Rule::UntilBulk.keeps(bytes), bytes < BULK_BYTES);
        assert_eq!(Rule::Small(None).keeps(bytes), bytes < BULK_BYTES);
        assert!(Rule::FirstCome.keeps(bytes) && Rule::AfterSends(sends(4)).keeps(bytes));
    }
    assert_eq!("until bulk".parse(), Ok(Rule::UntilBulk));
    assert_eq!(Rule::UntilBulk.to_string(), "until bulk");
}

#[test]
fn what_was_tried_or_given_back_stays() {
    for (history, stay) in [(History::Failed, Stay::Failed), (History::Restored, Stay::Restored)] {
        let known = Known { history, ..known(9) };
        assert_eq!(Rule::FirstCome.decide(&known, ROOMY), Decision::Never(stay));
    }
}

/// An entry with these conditions, as key and text.
fn entry(conditions: &[(&str, &str)], rule: Rule) -> Entry {
    let read = |(key, text): &(&str, &str)| Condition::parse(key, text).unwrap();
    Entry { conditions: conditions.iter().map(read).collect(), rule }
}

fn on_ports(local: u16, remote: u16) -> Facts {
    let any = Some("10.0.0.1".parse().unwrap());
    Facts { local: (any, local), remote: (any, remote), sends: Some(0), bytes: Some(0), ..Facts::default() }
}

#[test]
fn the_first_rule_whose_conditions_hold_decides() {
    let policy = Policy {
        entries: vec![
            entry(&[("local-port", "22")], Rule::Never),
            entry(&[("local-port", "80-89, 8080")], Rule::AfterSends(sends(20))),
            entry(&[("local-port", "85")], Rule::Never),
            entry(&[("remote-port", "5432"), ("remote", "10.0.0.0/8")], Rule::FirstCome),
            entry(&[("remote-port", "5432"), ("remote", "11.0.0.0/8")], Rule::Small(None)),
        ],
        otherwise: Rule::Never,
    };
    let table = [
        (22, 5432, Rule::Never, Some(0)),
        (80, 1, Rule::AfterSends(sends(20)), Some(1)),
        (85, 1, Rule::AfterSends(sends(20)), Some(1)),
        (8080, 1, Rule::AfterSends(sends(20)), Some(1)),
        (90, 1, Rule::Never, None),
        (40_000, 5432, Rule::FirstCome, Some(3)),
        (5432, 40_000, Rule::Never, None),
    ];
    for (local, remote, rule, entry) in table {
        let ruling = policy.ruling(&on_ports(local, remote));
        assert_eq!(ruling, Ruling::By { rule, entry, later: None }, "{local} {remote}");
    }
    assert_eq!(policy.shadowed(), [(1, 2)]);
    assert_eq!(policy.to_string().parse(), Ok(policy));
}

#[test]
fn every_condition_is_checked() {
    let facts = Facts {
        local: (Some("fd00::1".parse().unwrap()), 443),
        remote: (Some("fd00::2:0:0:1".parse().unwrap()), 50_000),
        interface: Some("eth0".into()),
        direction: Some(Direction::Accepted),
        user: Some(33),
        program: Some("a-rather-long-n".into()),
        cgroup: Some("/system.slice/nginx.service/worker".into()),
        sends: Some(20),
        bytes: Some(1 << 20),
        age_us: Some(5_000_000),
        expected: None,
        round_trip_us: Some(300),
    };
    let table = [
        ("local-port", "80, 443", Verdict::Holds),
        ("remote-port", "1-1023", Verdict::Fails),
        ("local", "fd00::1", Verdict::Holds),
        ("remote", "10.0.0.0/8, fd00::/16", Verdict::Holds),
        ("remote", "fd00::3:0:0:0/80", Verdict::Fails),
        ("remote", "0.0.0.0/0", Verdict::Fails),
        ("family", "ipv6", Verdict::Holds),
        ("family", "ipv4", Verdict::Fails),
        ("interface", "lo, eth0", Verdict::Holds),
        ("direction", "connected", Verdict::Fails),
        ("user", "0, 33", Verdict::Holds),
        // The kernel keeps 15 bytes of a name.
        ("program", "a-rather-long-name", Verdict::Holds),
        ("cgroup", "/system.slice", Verdict::Holds),
        ("cgroup", "/system.slice/nginx", Verdict::Fails),
        ("bytes", ">= 1 MiB", Verdict::Holds),
        ("bytes", "<= 64 KiB", Verdict::Fails),
        ("bytes", "2 MiB - 1 GiB", Verdict::Later),
        ("sends", ">= 21", Verdict::Later),
        ("age", "1 s - 1 min", Verdict::Holds),
        ("age", "<= 100 ms", Verdict::Fails),
        ("round-trip", "<= 1 ms", Verdict::Holds),
        ("round-trip", ">= 1 ms", Verdict::Later),
        ("round-trip", "<= 200 us", Verdict::Later),
    ];
    for (key, text, verdict) in table {
        let condition = Condition::parse(key, text).unwrap();
        assert_eq!((condition.key(), condition.check(&facts)), (key, verdict), "{key} {text}");
        assert_eq!(Condition::parse(key, &condition.to_string()), Ok(condition.clone()), "{key} {text}");
        assert!(condition.covers(&condition));
        let unknown = condition.check(&Facts::default());
        assert!(key.ends_with("port") || unknown == Verdict::Unknown, "{key}");
    }
}

#[test]
fn bad_conditions_are_refused_with_a_remedy() {
    let table = [
        ("local-port", "80, 79-81", "80 and 79-81 overlap; name each port once"),
        ("local-port", "0", "write a port"),
        ("remote", "10.0.0.1/8", "write an address, or a prefix"),
        ("remote", "10.0.0.0/33", "write an address, or a prefix"),
        ("family", "v4", "write ipv4 or ipv6"),
        ("direction", "in", "write accepted or connected"),
        ("user", "www", "write a name or a number"),
        ("program", "a,,b", "write names with commas"),
        ("cgroup", "nginx", "write its path"),
        ("bytes", "1 MB", "write them as >= 64 KiB"),
        ("bytes", "99999999999999999999", "write them as >= 64 KiB"),
        ("age", "5 s - 1 s", "write them as >= 10 ms"),
        ("port", "80", "write one of local-port, remote-port"),
    ];
    for (key, text, remedy) in table {
        let error = Condition::parse(key, text).unwrap_err().to_string();
        assert!(error.contains(remedy), "{key} {text}: {error}");
    }
}

/// A rule whose conditions may hold later keeps one behind it from deciding for good.
#[test]
fn a_connection_waits_for_conditions_that_may_come() {
    for (otherwise, stay) in [(Rule::Never, Stay::Rule), (Rule::Pairs, Stay::OnlyPairs)] {
        let entries = vec![entry(&[("bytes", "4 KiB - 64 KiB")], Rule::FirstCome)];
        let policy = Policy { entries, otherwise };
        let decide = |bytes| policy.decide(&Facts { bytes, ..on_ports(1, 2) }, History::New, ROOMY);
        assert_eq!(decide(Some(0)), Some(Decision::NotYet(Wait::Condition)));
        assert_eq!(decide(Some(4 << 10)), Some(Decision::Move));
        assert_eq!(decide(Some(65 << 10)), Some(Decision::Never(stay)));
        assert_eq!(decide(None), None);
    }
}

#[test]
fn without_a_word_the_first_come_are_served() {
    assert_eq!(Policy::default().decide(&Facts::default(), History::New, ROOMY), Some(Decision::Move));
}

#[test]
fn what_is_no_rule_is_said_to_be_none() {
    for text in ["", "FCFS", "after", "after 0 sends", "after -1 sends", "after 5", "after 5 sends now", "always"] {
        let error = text.parse::<Rule>().unwrap_err().to_string();
        assert!(error.contains(&format!("'{text}'")) && error.contains("after N sends"), "{error}");
    }
    assert_eq!("after 1 send".parse(), Ok(Rule::AfterSends(sends(1))));
}

#[test]
fn ports_are_one_or_a_range() {
    assert_eq!(parse_ports("443"), Ok(443..=443));
    assert_eq!(parse_ports("8000 - 8999"), Ok(8000..=8999));
    for text in ["", "0", "0-5", "9-8", "65536", "80,81", "-", "1-2-3", "http"] {
        assert!(parse_ports(text).is_err(), "{text}");
    }
}

#[test]
fn each_decision_has_its_code_and_its_sentence() {
    let all = [
        Decision::Move,
        Decision::NotYet(Wait::Sends(sends(3))),
        Decision::NotYet(Wait::Room),
        Decision::NotYet(Wait::Condition),
        Decision::Never(Stay::Rule),
        Decision::Never(Stay::Failed),
        Decision::Never(Stay::Restored),
    ];
    let codes: std::collections::BTreeSet<_> =
        all.iter().map(|decision| decision.reason().map_or("move", Reason::code)).collect();
    assert_eq!(codes.len(), all.len());
    assert_eq!(all[1].to_string(), "it moves after 3 more sends");
}

fn any_rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::FirstCome),
        Just(Rule::Never),
        (1u64..).prop_map(|count| Rule::AfterSends(sends(count))),
        (1u64..20).prop_map(|count| Rule::AfterSends(sends(count))),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let key = prop_oneof![Just("local-port"), Just("remote-port")];
    let entry = (key, 1u16..50, 0u16..20, any_rule()).prop_map(|(key, from, more, rule)| {
        let condition = Condition::parse(key, &format!("{from}-{}", from + more)).unwrap();
        Entry { conditions: vec![condition], rule }
    });
    (prop::collection::vec(entry, 0..6), any_rule()).prop_map(|(entries, otherwise)| Policy { entries, otherwise })
}

/// A connection's facts and history.
type Case = (Facts, History);

fn any_known() -> impl Strategy<Value = Case> {
    let history = prop_oneof![3 => Just(History::New), 1 => Just(History::Failed), 1 => Just(History::Restored)];
    (0u16..50, 0u16..50, prop_oneof![0u64..30, any::<u64>()], history)
        .prop_map(|(local, remote, sends, history)| (Facts { sends: Some(sends), ..on_ports(local, remote) }, history))
}

fn decide(policy: &Policy, (facts, history): &Case, room: Room) -> Decision {
    policy.decide(facts, *history, room).expect("everything is known")
}

/// The same connection after more sends.
fn after((facts, history): &Case, more: u64) -> Case {
    (Facts { sends: facts.sends.map(|sends| sends.saturating_add(more)), ..facts.clone() }, *history)
}

proptest! {
    #[test]
    fn a_rule_is_read_as_it_is_written(rule in any_rule()) {
        prop_assert_eq!(rule.to_string().parse(), Ok(rule));
    }

    #[test]
    fn a_policy_is_read_as_it_is_written(policy in any_policy()) {
        prop_assert_eq!(policy.to_string().parse(), Ok(policy));
    }

    /// An entry that an earlier one covers never decides.
    #[test]
    fn a_shadowed_entry_never_decides(policy in any_policy(), known in any_known()) {
        let Ruling::By { entry, .. } = policy.ruling(&known.0) else { panic!("everything is known") };
        prop_assert!(policy.shadowed().iter().all(|(_, shadowed)| entry != Some(*shadowed)));
    }

    #[test]
    fn nothing_moves_into_a_full_engine(
        policy in any_policy(),
        known in any_known(),
        connections in any::<u64>(),
        at_most in any::<u64>(),
    ) {
        let decision = decide(&policy, &known, Room { connections, at_most, load_limit: u64::MAX });
        prop_assert!(decision != Decision::Move || connections < at_most);
    }

    /// A connection that is told to wait for more sends moves after them, and no sooner.
    #[test]
    fn a_wait_for_sends_is_exact(policy in any_policy(), known in any_known()) {
        if let Decision::NotYet(Wait::Sends(more)) = decide(&policy, &known, ROOMY) {
            let then = |more| decide(&policy, &after(&known, more), ROOMY);
            prop_assert_eq!(then(more.get()), Decision::Move);
            prop_assert_eq!(then(more.get() - 1), Decision::NotYet(Wait::Sends(sends(1))));
        }
    }

    /// A connection that never moves does not, however much it sends and whatever room there is. So
    /// a caller that stops asking misses nothing.
    #[test]
    fn never_is_for_good(policy in any_policy(), known in any_known(), more in any::<u64>(), room in any::<bool>()) {
        let before = decide(&policy, &known, ROOMY);
        let after = decide(&policy, &after(&known, more), if room { ROOMY } else { FULL });
        prop_assert_eq!(matches!(before, Decision::Never(_)), matches!(after, Decision::Never(_)));
    }

    /// A connection that moves now does not stop wanting to.
    #[test]
    fn more_sends_never_hinder(policy in any_policy(), known in any_known(), more in any::<u64>()) {
        if decide(&policy, &known, ROOMY) == Decision::Move {
            prop_assert_eq!(decide(&policy, &after(&known, more), ROOMY), Decision::Move);
        }
    }

    #[test]
    fn only_what_has_a_history_is_told_so(policy in any_policy(), known in any_known()) {
        let decision = decide(&policy, &known, ROOMY);
        prop_assert_eq!(known.1 == History::Failed, decision == Decision::Never(Stay::Failed));
        prop_assert_eq!(known.1 == History::Restored, decision == Decision::Never(Stay::Restored));
    }

    /// Parsing any text, also for ports, yields a rule or a helpful message.
    #[test]
    fn any_text_is_read(text in ".{0,40}") {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        for key in Condition::KEYS {
            if let Ok(condition) = Condition::parse(key, &text) {
                prop_assert_eq!(Condition::parse(key, &condition.to_string()), Ok(condition));
            }
        }
        if let Ok(policy) = text.parse::<Policy>() {
            prop_assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        if let Ok(ports) = parse_ports(&text) {
            prop_assert!(!ports.is_empty() && *ports.start() > 0);
        }
    }
}
