//! The kinds of kills: which process is killed, and what must follow.

use crate::figures::Figures;
use crate::lines::End;
use crate::rig::{GUARDIAN, Plan, Rig, kill};
use crate::words::{Role, monotonic_ns};
use baton_ipc::message::Selector;
use baton_testkit::{need_program, need_root};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// Time within which the kernel must have taken over, or the peers must have seen the end. Time in
/// which the machine stood still does not count.
pub const AT_ONCE: Duration = Duration::from_secs(1);

/// Two programs that share the connections.
pub fn start(plan: Plan, roles: bool) -> Rig {
    let mut rig = Rig::start(plan);
    for _ in 0..2 {
        rig.start_program(plan.connections / 2, true, roles);
    }
    rig
}

/// Checks that every connection continues, and returns the times as text.
pub fn went_on(rig: &mut Rig, figures: &mut Figures, after_ns: u64) -> String {
    let numbers: Vec<usize> = rig.programs.keys().copied().collect();
    let (mut home, mut texts) = (0, Vec::new());
    for number in numbers {
        let ours = rig.programs.get_mut(&number).expect("it runs").report();
        let theirs = rig.peers.report(number);
        let after = |ns: u64| ns.saturating_sub(after_ns);
        home = home.max(figures.times("until it is in the kernel", ours.home.iter().flatten().map(|ns| after(*ns))));
        texts.push(figures.times("until bytes come from the peer", ours.bytes.into_iter().map(after)));
        texts.push(figures.times("until bytes get to the peer", theirs.bytes));
        texts.push(figures.times("longest time without a byte from the peer", ours.gap));
        texts.push(figures.times("longest time without a byte to the peer", theirs.gap));
    }
    let stalled = rig.witness.stalled_ns(after_ns + home);
    let late = home.saturating_sub(stalled) > AT_ONCE.as_nanos() as u64;
    assert!(!late, "not all are in the kernel after a second: {home} ns, {stalled} ns of them the machine stood still");
    let texts: Vec<String> = texts.iter().map(|ns| (ns / 1_000_000).to_string()).collect();
    format!("in the kernel after {} ms; {}", home / 1_000_000, texts.join(" "))
}

#[test]
fn an_engine_dies() {
    a_process_dies("engine", &["engine"], Plan::of(30));
}

#[test]
fn an_engine_over_xdp_dies() {
    a_process_dies("engine-over-xdp", &["engine"], Plan::of(8).over_xdp());
}

#[test]
fn a_broker_dies() {
    a_process_dies("broker", &["broker"], Plan::of(20));
}

#[test]
fn a_guardian_dies() {
    a_process_dies("guardian", &GUARDIAN, Plan::of(20));
}

/// Repeatedly kills the process that has one of these roles, and checks that nothing is lost.
fn a_process_dies(kind: &'static str, roles: &[&str], plan: Plan) {
    need_root!();
    need_program!("clang");
    let (mut rig, mut figures) = (start(plan, false), Figures::new(kind, plan.seed));
    let resets = rig.resets();
    for round in 0..plan.rounds {
        // Every second time, in the middle of a move of all connections.
        let settled = round % 2 == 0;
        if settled {
            rig.all_in_engine()
        } else {
            rig.an_engine()
        }
        rig.moves(true);
        let (admin, victim) = (rig.admin(), rig.first(roles));
        let mut after = 0;
        thread::scope(|scope| {
            if !settled {
                // The request may fail if the broker is the victim.
                scope.spawn(|| admin.handoff(Selector::All));
            }
            rig.random_moment(300);
            let begun = monotonic_ns();
            // Connections that move to the next engine at once may not be seen in the kernel.
            rig.watch(settled && kind != "guardian", || {
                after = monotonic_ns() - begun;
                kill(victim);
            });
        });
        let text = went_on(&mut rig, &mut figures, after);
        rig.moves(false);
        figures.tell(round, plan.rounds, &text);
        assert_ne!(rig.first(roles), victim, "there is another");
        rig.look();
    }
    assert_eq!(rig.resets(), resets);
    rig.finish_programs();
    figures.report(&rig.growth);
    rig.finish();
}

#[test]
fn a_program_dies() {
    need_root!();
    need_program!("clang");
    let plan = Plan::of(40);
    let (mut rig, mut figures) = (start(plan, true), Figures::new("program", plan.seed));
    let lines = plan.connections / 2;
    // Peers see this when an ordinary program on the kernel's TCP is killed.
    let ordinary = rig.start_program(lines, false, true);
    let shown = die(&mut rig, ordinary, &mut figures, "the kernel alone, until the peer sees the end");
    for round in 0..plan.rounds {
        rig.moves(true);
        rig.random_moment(300);
        let victims: Vec<usize> = rig.programs.keys().copied().collect();
        let victim = victims[rig.random.usize(..victims.len())];
        let seen = die(&mut rig, victim, &mut figures, "until the peer sees the end");
        figures.tell(round, plan.rounds, &format!("{seen:?}"));
        for role in [Role::Drained, Role::Unread] {
            let of = |all: &BTreeMap<(&str, &str), usize>| {
                [End::Fin, End::Reset].map(|end| all.get(&(name(role), word(end))).copied().unwrap_or(0))
            };
            assert_eq!(of(&seen), of(&shown), "{role:?}: fin, reset, beside the kernel's own");
        }
        rig.moves(false);
        rig.look();
        rig.start_program(lines, true, true);
    }
    figures.report(&rig.growth);
    // These programs' connections must not be closed in order.
    for number in rig.programs.keys().copied().collect::<Vec<_>>() {
        die(&mut rig, number, &mut figures, "until the peer sees the end");
    }
    rig.finish();
}

pub fn name(role: Role) -> &'static str {
    match role {
        Role::Drained => "all read",
        Role::Unread => "not read",
        Role::Light | Role::Bulk => "both ways",
    }
}

pub fn word(end: End) -> &'static str {
    match end {
        End::Fin => "FIN",
        End::Reset => "RST",
    }
}

/// Kills a program, and returns what its peers see within [`AT_ONCE`].
fn die(
    rig: &mut Rig,
    victim: usize,
    figures: &mut Figures,
    what: &'static str,
) -> BTreeMap<(&'static str, &'static str), usize> {
    rig.peers.expect_death(victim);
    let pid = rig.programs.get_mut(&victim).expect("it runs").pid();
    rig.witness.mark();
    let killed = monotonic_ns();
    kill(pid);
    let ends = rig.peers.ends(victim);
    let longest = figures.times(what, ends.iter().map(|(_, _, at)| at.saturating_sub(killed)));
    let stalled = rig.witness.stalled_ns(longest);
    let late = longest.saturating_sub(stalled) > AT_ONCE.as_nanos() as u64;
    assert!(!late, "a peer saw the end after {longest} ns, {stalled} ns of them the machine stood still");
    let mut seen = BTreeMap::new();
    for (role, end, _) in ends {
        *seen.entry((name(role), word(end))).or_default() += 1;
    }
    rig.programs.remove(&victim);
    rig.peers.remove(victim);
    seen
}
