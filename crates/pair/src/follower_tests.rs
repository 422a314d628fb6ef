//! A follower against ends that write over what it has not read.

use super::*;
use crate::End;
use crate::layout::Layout;
use crate::link::Link;
use proptest::prelude::*;

const AREA: usize = 8192;
const NUMBER: NonZeroU64 = NonZeroU64::MIN;

struct Pair {
    sides: [Arc<Side>; 2],
    links: [Link; 2],
    x: End,
    y: End,
    follower: Follower,
    written: u64,
}

/// The byte at a stream position: a ramp of prime length.
fn ramp(position: u64) -> u8 {
    (position % 251) as u8
}

fn pair() -> Pair {
    let sides = [(); 2].map(|()| Side::heap(Layout::new(3, AREA as u32).unwrap()));
    let links = [[0, 1], [1, 0]].map(|[a, b]| Link::new(sides[a].clone(), sides[b].clone()).unwrap());
    let [x, y] = links.each_ref().map(|link| link.begin(1, NUMBER).unwrap());
    let follower = Follower::new(sides.clone(), 1, NUMBER).unwrap();
    Pair { sides, links, x, y, follower, written: 0 }
}

impl Pair {
    fn write(&mut self, count: usize) {
        let bytes: Vec<u8> = (0..count as u64).map(|at| ramp(self.written + at)).collect();
        self.written += self.x.write(&bytes).unwrap().0 as u64;
    }

    fn read(&mut self, count: usize) {
        let _ = self.y.read(&mut vec![0; count]).unwrap();
    }

    /// Writes bytes that are read at once.
    fn exchange(&mut self, count: usize) {
        self.write(count);
        self.read(count);
    }

    /// Gives memory back to the system, which is zero from then on.
    fn give_back(&mut self, keep: usize) {
        if let Some(range) = self.x.unused_memory(keep).unwrap() {
            let start = range.start - self.sides[0].area_of(1).start;
            self.sides[0].copy_in(1, start as u32, &vec![0; range.len()]);
        }
    }

    /// Looks, passes bytes, and checks them.
    fn follow(&mut self, most: usize) -> Passed {
        let head = self.follower.look().unwrap().course.written[0];
        assert_eq!(head, self.written);
        let (before, mut into) = (self.follower.passed(0), vec![0; most]);
        let passed = self.follower.read(0, head, &mut into).unwrap();
        self.check(before, &passed, &into);
        passed
    }

    fn check(&self, before: u64, passed: &Passed, into: &[u8]) {
        assert_eq!((passed.from, self.follower.passed(0)), (before + passed.lost, passed.from + passed.count as u64));
        for (at, byte) in (passed.from..).zip(&into[..passed.count]) {
            assert_eq!(*byte, ramp(at), "at {at}");
        }
    }
}

fn passed(lost: u64, from: u64, count: usize) -> Passed {
    Passed { lost, from, count }
}

#[test]
fn what_both_ends_write_is_followed_to_its_end() {
    let mut pair = pair();
    pair.write(500);
    assert_eq!(pair.follow(300), passed(0, 0, 300));
    let _ = pair.y.write(b"answer").unwrap();
    let _ = pair.x.finish();
    let course = Course { written: [500, 6], read: [0, 0], ends: [Ending::Finished, Ending::Open] };
    assert_eq!(pair.follower.look(), Ok(Sight { course, stage: Stage::Goes }));
    assert_eq!(pair.follow(300), passed(0, 300, 200));
    assert_eq!(pair.follow(300), passed(0, 500, 0));
    pair.read(400);
    let mut bytes = [0; 9];
    assert_eq!(pair.follower.read(1, u64::MAX, &mut bytes), Ok(passed(0, 0, 6)));
    assert_eq!(&bytes[..6], b"answer");
    assert_eq!(pair.follower.look().unwrap().course.read, [0, 400]);
}

#[test]
fn who_comes_late_begins_with_what_is_written_next() {
    let mut pair = pair();
    pair.exchange(5000);
    assert_eq!(pair.follower.begin_here().unwrap().written, [5000, 0]);
    pair.write(10);
    assert_eq!(pair.follow(100), passed(0, 5000, 10));
}

#[test]
fn bytes_that_were_written_over_are_counted() {
    let mut pair = pair();
    pair.exchange(AREA);
    pair.exchange(100);
    assert_eq!(pair.follow(2 * AREA), passed(100, 100, AREA));
    // Many areas later.
    (0..10).for_each(|_| pair.exchange(AREA - 1));
    let lost = pair.follow(2 * AREA).lost;
    assert!(lost > 8 * AREA as u64, "{lost}");
}

#[test]
fn bytes_before_the_present_origin_are_whole_until_it_reaches_them() {
    let mut pair = pair();
    pair.exchange(4000);
    assert_eq!(pair.follow(3900), passed(0, 0, 3900));
    // It begins again, since it would touch another page.
    pair.exchange(200);
    assert_eq!(pair.follow(AREA), passed(0, 3900, 100));
    assert_eq!(pair.follow(50), passed(0, 4000, 50));
    // Bytes at the area's end by the origin before are not reached by those at its start.
    pair.exchange(3800);
    assert_eq!(pair.follow(3940), passed(0, 4050, 3940));
    pair.exchange(200);
    assert_eq!(pair.follow(AREA), passed(0, 7990, 10));
    assert_eq!(pair.follow(AREA), passed(0, 8000, 200));
    // By the first of three origins nobody knows where it lay.
    pair.exchange(3800);
    pair.exchange(200);
    pair.exchange(4000);
    assert_eq!(pair.follow(AREA), passed(4000, 12200, 0));
    assert_eq!(pair.follow(AREA), passed(0, 12200, 4000));
}

#[test]
fn a_copy_that_met_a_write_is_judged_by_it() {
    for (before, after, whole) in [(AREA, 100, AREA - 100), (4000, 200, 3800), (4000, 4050, 0), (AREA, 0, AREA)] {
        let mut pair = pair();
        pair.exchange(before);
        pair.follower.look().unwrap();
        let (mut into, copied) = (vec![0; AREA], pair.follower.locate(0, u64::MAX, AREA).unwrap());
        pair.exchange(after);
        pair.follower.copy(0, &copied, &mut into);
        let settled = pair.follower.settle(0, &copied, &mut into).unwrap();
        assert_eq!(settled.count, whole, "{before} {after}");
        pair.check(0, &settled, &into);
    }
}

#[test]
fn memory_that_was_given_back_is_not_followed() {
    let mut pair = pair();
    pair.exchange(AREA);
    pair.give_back(4096);
    assert_eq!(pair.follow(AREA), passed(AREA as u64, AREA as u64, 0));
    pair.exchange(10);
    assert_eq!(pair.follow(AREA), passed(0, AREA as u64, 10));
}

#[test]
fn a_pair_that_goes_home_is_stopped_and_the_next_one_is_another() {
    let mut pair = pair();
    pair.write(10);
    Course::stop([&pair.sides[0], &pair.sides[1]], 1, NUMBER).unwrap();
    assert_eq!(pair.follower.look().unwrap().stage, Stage::Stopped);
    drop((pair.x, pair.y));
    let [mut x, _y] = pair.links.each_ref().map(|link| link.begin(1, NonZeroU64::new(2).unwrap()).unwrap());
    let _ = x.write(&[99; 20]).unwrap();
    assert_eq!(pair.follower.read(0, 10, &mut [0; 99]), Ok(passed(10, 10, 0)));
    let sight = pair.follower.look().unwrap();
    assert_eq!((sight.stage, sight.course.written), (Stage::Over, [10, 0]));
    assert_eq!(pair.follower.read(0, 10, &mut [0; 99]), Ok(passed(0, 10, 0)));
}

#[test]
fn a_pair_that_has_yet_to_begin_has_come_nowhere() {
    let sides = [(); 2].map(|()| Side::heap(Layout::new(1, 4096).unwrap()));
    assert_eq!(Follower::new(sides.clone(), 1, NUMBER).err(), Some(SlotError::Range(1)));
    let mut follower = Follower::new(sides, 0, NUMBER).unwrap();
    let sight = follower.look().unwrap();
    assert_eq!((sight.stage, sight.course.written), (Stage::Goes, [0, 0]));
    assert_eq!(follower.read(0, u64::MAX, &mut [0; 9]), Ok(passed(0, 0, 0)));
}

#[test]
fn words_that_cannot_be_are_faults() {
    type Change = fn(&Block);
    let cases: [(Change, Fault); 4] = [
        (|block| block.out.head.store(9, Relaxed), Fault::HeadBack(10, 9)),
        (|block| block.out.head.store(u64::MAX, Relaxed), Fault::TooFar(u64::MAX)),
        (|block| block.out.end.store(4, Relaxed), Fault::NoSuchEnd(4)),
        (|block| block.inward.tail.store(FARTHEST + 1, Relaxed), Fault::TooFar(FARTHEST + 1)),
    ];
    for (change, fault) in cases {
        let mut pair = pair();
        pair.write(10);
        pair.follow(4);
        change(pair.sides[0].block(1));
        assert_eq!(pair.follower.look(), Err(fault));
    }
    let mut pair = pair();
    pair.write(10);
    let _ = pair.x.finish();
    pair.follow(10);
    pair.sides[0].block(1).out.head.store(11, Relaxed);
    assert_eq!(pair.follower.look(), Err(Fault::AfterEnd(1)));
}

#[test]
fn programs_that_do_not_announce_what_they_write_are_not_followed() {
    let mut pair = pair();
    pair.write(10);
    pair.sides[0].block(1).inward.reach.store(0, Relaxed);
    pair.follower.look().unwrap();
    assert_eq!(pair.follower.read(0, 10, &mut [0; 10]), Err(Fault::Unannounced(0, 10)));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize),
    Read(usize),
    GiveBack(usize),
    Follow(usize),
    /// The three parts of following, between which anything can happen.
    Locate(usize),
    Copy,
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = || prop_oneof![0..200usize, 0..2 * AREA, Just(4096), Just(AREA)];
    let step = prop_oneof![
        8 => size().prop_map(Step::Write),
        8 => size().prop_map(Step::Read),
        1 => size().prop_map(Step::GiveBack),
        3 => size().prop_map(Step::Follow),
        3 => size().prop_map(Step::Locate),
        3 => Just(Step::Copy),
        3 => Just(Step::Settle),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 30 } else { 200 })
}

/// A copy that goes on.
struct Copying {
    before: u64,
    copied: Copied,
    into: Vec<u8>,
    is_there: bool,
}

fn run(script: Vec<Step>) {
    let mut pair = pair();
    let (mut copying, mut sum): (Option<Copying>, u64) = (None, 0);
    for step in script {
        match step {
            Step::Write(count) => pair.write(count),
            Step::Read(count) => pair.read(count),
            Step::GiveBack(keep) => pair.give_back(keep),
            Step::Follow(most) if copying.is_none() => {
                let Passed { lost, count, .. } = pair.follow(most);
                sum += lost + count as u64;
            }
            Step::Locate(most) if copying.is_none() => {
                pair.follower.look().unwrap();
                let before = pair.follower.passed(0);
                let located = pair.follower.locate(0, u64::MAX, most);
                copying = located.map(|copied| Copying { before, copied, into: vec![0; most], is_there: false });
            }
            Step::Copy => {
                if let Some(copying) = &mut copying {
                    pair.follower.copy(0, &copying.copied, &mut copying.into);
                    copying.is_there = true;
                }
            }
            Step::Settle => {
                if let Some(Copying { before, copied, mut into, .. }) = copying.take_if(|copying| copying.is_there) {
                    let settled = pair.follower.settle(0, &copied, &mut into).unwrap();
                    pair.check(before, &settled, &into);
                    sum += settled.lost + settled.count as u64;
                }
            }
            Step::Follow(_) | Step::Locate(_) => {}
        }
        assert_eq!(pair.follower.passed(0), sum, "each byte is copied or lost, once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 5 } else { 2000 }))]

    #[test]
    fn a_follower_never_gives_what_was_not_written_there(script in steps()) {
        run(script);
    }
}
