//! Tests of the policies: tables of which connections move when, and laws that hold for all
//! connections.

use baton_policy::Reason;
use baton_policy::rules::{
    BULK_BYTES, Decision, History, Known, Policy, PortRule, Room, Rule, SMALL_BYTES, SMALL_SENDS, Side, Stay, Wait,
    parse_ports,
};
use proptest::prelude::*;
use std::num::NonZeroU64;

const ROOMY: Room = Room { connections: 0, at_most: 1, load_limit: u64::MAX };
const FULL: Room = Room { connections: 1, at_most: 1, load_limit: u64::MAX };

fn sends(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

fn known(sends: u64) -> Known {
    Known { local_port: 80, remote_port: 40_000, sends, bytes: 0, history: History::New }
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
        (Rule::Never, 100, ROOMY, Never(Stay::Rule)),
    ];
    for (rule, count, room, decision) in table {
        assert_eq!(rule.decide(&known(count), room), decision, "{rule}, {count} sends, {room:?}");
    }
}

#[test]
fn who_carries_little_at_a_time_moves_once_it_is_known_to_live() {
    let carried = |sends, bytes| Rule::Small.decide(&Known { bytes, ..known(sends) }, ROOMY);
    let last = SMALL_SENDS - 1;
    assert_eq!(carried(0, 0), Decision::NotYet(Wait::Sends(sends(SMALL_SENDS))));
    assert_eq!(carried(last, 0), Decision::NotYet(Wait::Sends(sends(1))));
    for count in [SMALL_SENDS, 10 * SMALL_SENDS] {
        assert_eq!(carried(count, count * SMALL_BYTES), Decision::Move);
        assert_eq!(carried(count, count * (SMALL_BYTES + 1)), Decision::NotYet(Wait::Smaller));
    }
    assert_eq!("small".parse(), Ok(Rule::Small));
    assert_eq!(Rule::Small.to_string(), "small");
}

#[test]
fn bulk_goes_home_by_its_rules_alone() {
    for bytes in [0, BULK_BYTES - 1, BULK_BYTES, u64::MAX] {
        assert_eq!(Rule::UntilBulk.keeps(bytes), bytes < BULK_BYTES);
        assert_eq!(Rule::Small.keeps(bytes), bytes < BULK_BYTES);
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

#[test]
fn the_first_rule_for_a_port_decides() {
    let rule = |side, ports, rule| PortRule { side, ports, rule };
    let policy = Policy {
        ports: vec![
            rule(Side::Local, 22..=22, Rule::Never),
            rule(Side::Local, 80..=89, Rule::AfterSends(sends(20))),
            rule(Side::Local, 85..=85, Rule::Never),
            rule(Side::Remote, 5432..=5432, Rule::FirstCome),
        ],
        otherwise: Rule::Never,
    };
    let table = [
        (22, 5432, Rule::Never),
        (80, 1, Rule::AfterSends(sends(20))),
        (85, 1, Rule::AfterSends(sends(20))),
        (90, 1, Rule::Never),
        (40_000, 5432, Rule::FirstCome),
        (5432, 40_000, Rule::Never),
    ];
    for (local_port, remote_port, rule) in table {
        assert_eq!(policy.rule(&Known { local_port, remote_port, ..known(0) }), rule, "{local_port} {remote_port}");
    }
}

#[test]
fn without_a_word_the_first_come_are_served() {
    assert_eq!(Policy::default().decide(&known(0), ROOMY), Decision::Move);
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
    let side = prop_oneof![Just(Side::Local), Just(Side::Remote)];
    let port = (side, 0u16..50, 0u16..50, any_rule()).prop_map(|(side, from, to, rule)| PortRule {
        side,
        ports: from..=to,
        rule,
    });
    (prop::collection::vec(port, 0..6), any_rule()).prop_map(|(ports, otherwise)| Policy { ports, otherwise })
}

fn any_known() -> impl Strategy<Value = Known> {
    let history = prop_oneof![3 => Just(History::New), 1 => Just(History::Failed), 1 => Just(History::Restored)];
    (0u16..50, 0u16..50, prop_oneof![0u64..30, any::<u64>()], history).prop_map(
        |(local_port, remote_port, sends, history)| Known { local_port, remote_port, sends, bytes: 0, history },
    )
}

proptest! {
    #[test]
    fn a_rule_is_read_as_it_is_written(rule in any_rule()) {
        prop_assert_eq!(rule.to_string().parse(), Ok(rule));
    }

    #[test]
    fn nothing_moves_into_a_full_engine(
        policy in any_policy(),
        known in any_known(),
        connections in any::<u64>(),
        at_most in any::<u64>(),
    ) {
        let decision = policy.decide(&known, Room { connections, at_most, load_limit: u64::MAX });
        prop_assert!(decision != Decision::Move || connections < at_most);
    }

    /// A connection that is told to wait for more sends moves after them, and no sooner.
    #[test]
    fn a_wait_for_sends_is_exact(policy in any_policy(), known in any_known()) {
        if let Decision::NotYet(Wait::Sends(more)) = policy.decide(&known, ROOMY) {
            let then = |sends| policy.decide(&Known { sends, ..known }, ROOMY);
            prop_assert_eq!(then(known.sends + more.get()), Decision::Move);
            prop_assert_eq!(then(known.sends + more.get() - 1), Decision::NotYet(Wait::Sends(sends(1))));
        }
    }

    /// A connection that never moves does not, however much it sends and whatever room there is. So
    /// a caller that stops asking misses nothing.
    #[test]
    fn never_is_for_good(policy in any_policy(), known in any_known(), more in any::<u64>(), room in any::<bool>()) {
        let before = policy.decide(&known, ROOMY);
        let later = Known { sends: known.sends.saturating_add(more), ..known };
        let after = policy.decide(&later, if room { ROOMY } else { FULL });
        prop_assert_eq!(matches!(before, Decision::Never(_)), matches!(after, Decision::Never(_)));
    }

    /// A connection that moves now does not stop wanting to.
    #[test]
    fn more_sends_never_hinder(policy in any_policy(), known in any_known(), more in any::<u64>()) {
        if policy.decide(&known, ROOMY) == Decision::Move {
            let later = Known { sends: known.sends.saturating_add(more), ..known };
            prop_assert_eq!(policy.decide(&later, ROOMY), Decision::Move);
        }
    }

    #[test]
    fn only_what_has_a_history_is_told_so(policy in any_policy(), known in any_known()) {
        let decision = policy.decide(&known, ROOMY);
        prop_assert_eq!(known.history == History::Failed, decision == Decision::Never(Stay::Failed));
        prop_assert_eq!(known.history == History::Restored, decision == Decision::Never(Stay::Restored));
    }

    /// Parsing any text, also for ports, yields a rule or a helpful message.
    #[test]
    fn any_text_is_read(text in ".{0,40}") {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        if let Ok(ports) = parse_ports(&text) {
            prop_assert!(!ports.is_empty() && *ports.start() > 0);
        }
    }
}
