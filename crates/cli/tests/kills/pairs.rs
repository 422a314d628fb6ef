//! Kills beside pairs: of one of two programs, of both at once, and of the service's processes, which pairs do
//! without.

use crate::figures::Figures;
use crate::kinds::{AT_ONCE, name, word};
use crate::lines::End;
use crate::program::{BULK, TURN};
use crate::rig::{GUARDIAN, Plan, Rig, kill};
use crate::words::{Answer, Ended, Order, Role, monotonic_ns};
use baton_ipc::message::Selector;
use baton_testkit::{LONG, need_program, need_root};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Instant;

/// How the ends of a role have ended, and how many of them.
type Seen = BTreeMap<(&'static str, &'static str), usize>;

/// The number of programs that share pairs two by two.
const TWOS: usize = 2;

fn start(plan: Plan, roles: bool) -> (Rig, Vec<[usize; 2]>) {
    let mut rig = Rig::start(plan);
    let twos = (0..TWOS).map(|_| rig.start_two(plan.connections / TWOS, true, roles)).collect();
    (rig, twos)
}

/// Has all connections joined, and waits until all are.
#[track_caller]
fn all_paired(rig: &mut Rig) {
    rig.programs.values_mut().for_each(|program| program.tell(&Order::Adopt));
    for program in rig.programs.values_mut() {
        assert!(matches!(program.hear(), Answer::Adopted));
    }
    let admin = rig.admin();
    let begun = Instant::now();
    loop {
        admin.handoff(Selector::All).unwrap();
        let mut last = admin.list().unwrap();
        let known = last.len();
        last.retain(|entry| entry.place != "pair");
        if known == 2 * rig.plan.connections && last.is_empty() {
            return;
        }
        assert!(begun.elapsed() < LONG, "{known} ends are known, not in pairs are {last:?}");
        // A connection whose other end was taken back waits for that program.
        sleep(2 * TURN);
    }
}

/// Fails if something took longer than [`AT_ONCE`], without the time in which the machine stood still. It happened in
/// the first `within_ns` nanoseconds since the witness's mark.
#[track_caller]
fn assert_at_once(rig: &Rig, what: &str, took_ns: u64, within_ns: u64) {
    let stalled = rig.witness.stalled_ns(within_ns);
    let late = took_ns.saturating_sub(stalled) > AT_ONCE.as_nanos() as u64;
    assert!(!late, "{what} took {took_ns} ns, {stalled} ns of them the machine stood still");
}

/// Tells a program that its connections may end from now on.
fn mortal(rig: &mut Rig, number: usize) {
    let program = rig.programs.get_mut(&number).expect("it runs");
    program.tell(&Order::Mortal);
    assert!(matches!(program.hear(), Answer::Mortal));
}

/// Kills a program. Its other program sees, of each connection, all that was written and then the end that the
/// kernel would have shown. `pairs` says that all connections are pairs.
fn die(rig: &mut Rig, [victim, other]: [usize; 2], figures: &mut Figures, what: &'static str, pairs: bool) -> Seen {
    let lines = rig.plan.connections / TWOS;
    mortal(rig, other);
    let pid = rig.programs.get_mut(&victim).expect("it runs").pid();
    rig.witness.mark();
    let killed = monotonic_ns();
    kill(pid);
    let survivor = rig.programs.get_mut(&other).expect("it runs");
    survivor.tell(&Order::Ends);
    let Answer::Ends(ends) = survivor.hear() else { panic!("it says how its connections ended") };
    assert_eq!(ends.len(), lines);
    let longest = figures.times(what, ends.iter().map(|ended| ended.at_ns.saturating_sub(killed)));
    assert_at_once(rig, "the end of a connection", longest, longest);
    let mut seen = Seen::new();
    for (at, (Ended { end, read, .. }, written)) in ends.into_iter().zip(rig.written(victim, lines)).enumerate() {
        // The kernel drops what it has yet to send when it resets a connection. A pair has nothing to send.
        let complete = pairs || end == End::Fin;
        assert!(!complete || read >= written, "line {at}: {read} of {written} bytes, then {end:?}");
        // It may have died before it wrote the last piece down.
        assert!(read <= written + BULK as u64, "line {at}: {read} bytes, of {written}");
        *seen.entry((name(Role::of(at, true)), word(end))).or_default() += 1;
    }
    rig.programs.remove(&victim);
    seen
}

/// Those that are the same each time, whatever was under way: of the program that connects, those that have read
/// everything and those that have not; of the far one, those to which nobody writes.
fn certain(seen: &Seen, far_died: bool) -> Vec<usize> {
    let roles = if far_died { vec![Role::Unread] } else { vec![Role::Drained, Role::Unread] };
    let of = |role| [End::Fin, End::Reset].map(|end| seen.get(&(name(role), word(end))).copied().unwrap_or(0));
    roles.into_iter().flat_map(of).collect()
}

#[test]
fn a_program_of_pairs_dies() {
    need_root!();
    need_program!("clang");
    let plan = Plan::of_pairs(10, 100);
    let lines = plan.connections / TWOS;
    let (mut rig, mut twos) = start(plan, true);
    let mut figures = Figures::new("pair-program", plan.seed);
    // The other program sees this when one of two ordinary programs on the kernel's TCP is killed.
    let shown = [false, true].map(|far| {
        let [near, there] = rig.start_two(lines, false, true);
        let two = if far { [there, near] } else { [near, there] };
        let seen = die(&mut rig, two, &mut figures, "the kernel alone, until the other sees the end", false);
        rig.programs.remove(&two[1]);
        certain(&seen, far)
    });
    for round in 0..plan.rounds {
        all_paired(&mut rig);
        // Every second time, while connections are joined and come home.
        let settled = round % 2 == 0;
        rig.moves(!settled);
        rig.random_moment(300);
        let [near, far] = twos.swap_remove(rig.random.usize(..twos.len()));
        let far_dies = rig.random.bool();
        let two = if far_dies { [far, near] } else { [near, far] };
        let seen = die(&mut rig, two, &mut figures, "until the other sees the end", settled);
        figures.tell(round, plan.rounds, &format!("{seen:?}"));
        let shown = &shown[usize::from(far_dies)];
        assert_eq!(certain(&seen, far_dies), *shown, "beside the kernel's own, far {far_dies}");
        rig.programs.remove(&two[1]);
        rig.moves(false);
        twos.push(rig.start_two(lines, true, true));
        rig.look();
    }
    figures.report(&rig.growth);
    rig.programs.clear();
    rig.finish();
}

#[test]
fn both_programs_of_pairs_die() {
    need_root!();
    need_program!("clang");
    let plan = Plan::of_pairs(10, 100);
    let lines = plan.connections / TWOS;
    let (mut rig, mut twos) = start(plan, true);
    let mut figures = Figures::new("pair-programs", plan.seed);
    for round in 0..plan.rounds {
        all_paired(&mut rig);
        rig.moves(round % 2 == 1);
        rig.random_moment(300);
        let two = twos.swap_remove(rig.random.usize(..twos.len()));
        let pids = two.map(|number| rig.programs.get_mut(&number).expect("it runs").pid());
        two.into_iter().for_each(|number| mortal(&mut rig, number));
        rig.witness.mark();
        let killed = Instant::now();
        pids.into_iter().for_each(kill);
        let admin = rig.admin();
        while admin.list().unwrap().iter().any(|entry| pids.contains(&entry.program.pid)) {
            assert!(killed.elapsed() < LONG, "the service keeps connections of programs that have gone");
        }
        let took = figures.times("until the service has forgotten both", [killed.elapsed().as_nanos() as u64]);
        assert_at_once(&rig, "forgetting both programs", took, took);
        figures.tell(round, plan.rounds, &format!("forgotten after {} ms", took / 1_000_000));
        two.iter().for_each(|number| drop(rig.programs.remove(number)));
        rig.moves(false);
        twos.push(rig.start_two(lines, true, true));
        rig.look();
    }
    figures.report(&rig.growth);
    rig.programs.clear();
    rig.finish();
}

#[test]
fn a_broker_dies_beside_pairs() {
    a_process_dies("pair-broker", &["broker"]);
}

#[test]
fn a_guardian_dies_beside_pairs() {
    a_process_dies("pair-guardian", &GUARDIAN);
}

/// Repeatedly kills the process that has one of these roles. All connections go on.
fn a_process_dies(kind: &'static str, roles: &[&str]) {
    need_root!();
    need_program!("clang");
    let plan = Plan::of_pairs(10, 100);
    let (mut rig, twos) = start(plan, false);
    let mut figures = Figures::new(kind, plan.seed);
    let resets = rig.resets();
    for round in 0..plan.rounds {
        all_paired(&mut rig);
        // Every second time, while connections are joined and come home.
        let settled = round % 2 == 0;
        rig.moves(!settled);
        let victim = rig.first(roles);
        rig.random_moment(300);
        rig.watch(false, || kill(victim));
        let numbers: Vec<usize> = rig.programs.keys().copied().collect();
        let mut longest = 0;
        for number in numbers {
            let report = rig.programs.get_mut(&number).expect("it runs").report();
            figures.times("until bytes come", report.bytes);
            let what = if settled { "longest time without a byte" } else { "the same, while connections move" };
            longest = longest.max(figures.times(what, report.gap));
        }
        if settled {
            // Nobody noted when the longest time began.
            assert_at_once(&rig, "a byte", longest, u64::MAX);
        }
        figures.tell(round, plan.rounds, &format!("at most {} ms without a byte", longest / 1_000_000));
        rig.moves(false);
        assert_ne!(rig.first(roles), victim, "there is another");
        rig.look();
    }
    assert_eq!(rig.resets(), resets);
    twos.into_iter().for_each(|two| finish(&mut rig, two));
    figures.report(&rig.growth);
    rig.finish();
}

/// Checks that every byte between two programs arrives and that every connection closes in order.
#[track_caller]
fn finish(rig: &mut Rig, two: [usize; 2]) {
    let mut programs = two.map(|number| rig.programs.remove(&number).expect("it runs"));
    programs.iter_mut().for_each(|program| program.tell(&Order::Hush));
    let written = programs.each_mut().map(|program| match program.hear() {
        Answer::Hushed(written) => written,
        _ => panic!("it is asked to write no more"),
    });
    for (program, expected) in programs.iter_mut().zip(written.iter().rev()) {
        program.tell(&Order::Finish(expected.clone()));
    }
    for program in &mut programs {
        assert!(matches!(program.hear(), Answer::Finished));
    }
}
