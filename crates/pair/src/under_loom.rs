//! Every interleaving of short lives of a link, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p baton-pair --lib under_loom`.
//!
//! A program that sleeps parks its thread, and its bell unparks it. Loom fails a model in which a thread
//! sleeps for good, and one in which a byte is read while it is written. It runs threads to their end
//! without a join, which would take a bell that rings late for the end of the thread that it waits for.

use crate::{Bell, End, Ending, Follower, Layout, Link, Side};
use core::num::NonZeroU64;
use loom::thread::{self, Thread};
use std::sync::Arc;

const NUMBER: NonZeroU64 = NonZeroU64::MIN;

fn sides() -> (Arc<Side>, Arc<Side>) {
    let layout = Layout::new(1, 2).unwrap();
    (Side::heap(layout), Side::heap(layout))
}

/// A program with one connection, and the thread that the other program's bell wakes.
struct Program {
    link: Link,
    end: End,
    other: Option<Thread>,
}

impl Program {
    fn new(ours: &Arc<Side>, theirs: &Arc<Side>, other: Option<Thread>) -> Program {
        let link = Link::new(ours.clone(), theirs.clone()).unwrap();
        let end = link.begin(0, NUMBER).unwrap();
        Program { link, end, other }
    }

    fn ring(&self, bell: Bell) {
        if bell.is_wanted() {
            self.other.as_ref().expect("only a program whose bell is known sleeps").unpark();
        }
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let (count, bell) = self.end.write(bytes).unwrap();
        self.ring(bell);
        count
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        let (count, bell) = self.end.read(into).unwrap();
        self.ring(bell);
        count
    }

    /// Sleeps until there is news, then takes it.
    fn sleep(&mut self) {
        if self.link.prepare_sleep() {
            thread::park();
        }
        self.link.news(|slot| assert_eq!(slot, 0));
    }

    fn sleep_for_data(&mut self) {
        while !self.end.ask_for_data(1).unwrap() {
            self.sleep();
        }
    }
}

/// Reads and sleeps until the peer has ended.
fn read_to_end(program: &mut Program) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let mut bytes = [0; 2];
        let count = program.read(&mut bytes);
        all.extend_from_slice(&bytes[..count]);
        if count == 0 {
            if program.end.peer_end() != Ending::Open && program.end.readable().unwrap() == 0 {
                return all;
            }
            program.sleep_for_data();
        }
    }
}

/// Checks all interleavings with up to `switches` that no thread waits for: all take too long where
/// threads do more.
fn model(switches: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(run);
}

#[test]
fn a_reader_that_sleeps_gets_a_byte_and_the_end() {
    model(4, || {
        let (x, y) = sides();
        let mut reader = Program::new(&y, &x, None);
        let here = thread::current();
        thread::spawn(move || {
            let mut writer = Program::new(&x, &y, Some(here));
            assert_eq!(writer.write(&[1]), 1);
            let bell = writer.end.finish();
            writer.ring(bell);
        });
        assert_eq!(read_to_end(&mut reader), [1]);
    });
}

#[test]
fn a_reader_that_sleeps_gets_each_byte_and_the_end() {
    model(3, || {
        let (x, y) = sides();
        let mut reader = Program::new(&y, &x, None);
        let here = thread::current();
        thread::spawn(move || {
            let mut writer = Program::new(&x, &y, Some(here));
            assert_eq!(writer.write(&[1]), 1);
            assert_eq!(writer.write(&[2]), 1);
            let bell = writer.end.finish();
            writer.ring(bell);
        });
        assert_eq!(read_to_end(&mut reader), [1, 2]);
    });
}

#[test]
fn a_reader_that_begins_late_gets_what_was_written_before() {
    loom::model(|| {
        let (x, y) = sides();
        let mut writer = Program::new(&x, &y, None);
        let other = thread::spawn(move || {
            let mut reader = Program::new(&y, &x, None);
            while !reader.end.ask_for_data(2).unwrap() {
                thread::yield_now();
            }
            let mut bytes = [0; 2];
            assert_eq!((reader.read(&mut bytes), bytes), (2, [1, 2]));
            assert!(!reader.end.reset().is_wanted(), "the writer never sleeps");
        });
        assert_eq!(writer.write(&[1, 2]), 2);
        other.join().unwrap();
        assert_eq!(writer.end.readable(), Ok(0));
        assert_eq!(writer.end.peer_end(), Ending::Reset);
    });
}

#[test]
fn a_writer_that_sleeps_is_told_of_room() {
    loom::model(|| {
        let (x, y) = sides();
        let mut writer = Program::new(&x, &y, None);
        assert_eq!(writer.write(&[1, 2, 3]), 2);
        let here = thread::current();
        thread::spawn(move || {
            let mut reader = Program::new(&y, &x, Some(here));
            let mut bytes = [0; 1];
            assert_eq!((reader.read(&mut bytes), bytes), (1, [1]));
            assert_eq!((reader.read(&mut bytes), bytes), (1, [2]));
        });
        while !writer.end.ask_for_room(2).unwrap() {
            writer.sleep();
        }
        assert_eq!(writer.write(&[3, 4, 5]), 2);
    });
}

#[test]
fn bytes_that_go_round_the_area_are_read_before_they_are_written_over() {
    model(3, || {
        let (x, y) = sides();
        let mut reader = Program::new(&y, &x, None);
        let writer = thread::spawn(move || {
            let mut writer = Program::new(&x, &y, None);
            let mut next = 1;
            while next <= 4 {
                let bytes = [next, next + 1];
                let count = writer.write(&bytes[..2.min(5 - usize::from(next))]);
                next += count as u8;
                if count == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 1;
        while expected <= 4 {
            let mut byte = [0];
            match reader.read(&mut byte) {
                0 => thread::yield_now(),
                _ => {
                    assert_eq!(byte[0], expected);
                    expected += 1;
                }
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn both_ask_and_answer_and_sleep() {
    loom::model(|| {
        let (x, y) = sides();
        let mut asker = Program::new(&x, &y, None);
        let here = thread::current();
        let other = thread::spawn(move || {
            let mut answerer = Program::new(&y, &x, Some(here));
            let mut byte = [0];
            while answerer.read(&mut byte) == 0 {
                answerer.sleep_for_data();
            }
            assert_eq!(answerer.write(&[byte[0] + 1]), 1);
        });
        asker.other = Some(other.thread().clone());
        assert_eq!(asker.write(&[7]), 1);
        let mut byte = [0];
        while asker.read(&mut byte) == 0 {
            asker.sleep_for_data();
        }
        assert_eq!(byte, [8]);
    });
}

#[test]
fn a_reset_wakes_a_writer_that_waits_for_room() {
    loom::model(|| {
        let (x, y) = sides();
        let mut writer = Program::new(&x, &y, None);
        assert_eq!(writer.write(&[1, 2]), 2);
        let here = thread::current();
        thread::spawn(move || {
            let mut reader = Program::new(&y, &x, Some(here));
            let bell = reader.end.reset();
            reader.ring(bell);
        });
        while !writer.end.ask_for_room(1).unwrap() {
            writer.sleep();
        }
        assert_eq!(writer.end.peer_end(), Ending::Reset);
    });
}

#[test]
fn two_connections_of_a_link_tell_from_two_threads() {
    model(2, || {
        let layout = Layout::new(2, 2).unwrap();
        let (x, y) = (Side::heap(layout), Side::heap(layout));
        let theirs = Link::new(x.clone(), y.clone()).unwrap();
        let mut ours = Link::new(y, x).unwrap();
        let here = thread::current();
        for slot in [0, 1] {
            let (mut end, here) = (theirs.begin(slot, NUMBER).unwrap(), here.clone());
            thread::spawn(move || {
                if end.write(&[slot as u8]).unwrap().1.is_wanted() {
                    here.unpark();
                }
            });
        }
        let mut ends = [0, 1].map(|slot| ours.begin(slot, NUMBER).unwrap());
        let mut ready = [false; 2];
        for (ready, end) in ready.iter_mut().zip(&mut ends) {
            *ready = end.ask_for_data(1).unwrap();
        }
        while ready != [true, true] {
            if ours.prepare_sleep() {
                thread::park();
            }
            ours.news(|slot| ready[slot as usize] |= ends[slot as usize].ask_for_data(1).unwrap());
        }
    });
}

/// A connection in one thread, whose writes and reads a script says, and its follower in another.
fn follow(script: &'static [(&'static [u8], usize)]) {
    model(2, move || {
        let layout = Layout::new(1, 2).unwrap();
        let (x, y) = (Side::followed(layout), Side::heap(layout));
        let mut follower = Follower::new([x.clone(), y.clone()], 0, NUMBER).unwrap();
        let (mut writer, mut reader) = (Program::new(&x, &y, None), Program::new(&y, &x, None));
        let ends = thread::spawn(move || {
            for (bytes, read) in script {
                assert_eq!(writer.write(bytes), bytes.len());
                assert_eq!(reader.read(&mut [0; 2][..*read]), *read);
            }
        });
        let mut follow = || {
            let until = follower.look().unwrap().course.written[0];
            while follower.passed(0) < until {
                let mut bytes = [0; 2];
                let passed = follower.read(0, until, &mut bytes).unwrap();
                // The byte at a position is one more than the position.
                let expected = (passed.from as u8 + 1..).take(passed.count);
                assert!(expected.eq(bytes[..passed.count].iter().copied()), "{passed:?} {bytes:?}");
            }
        };
        follow();
        follow();
        ends.join().unwrap();
        follow();
    });
}

#[test]
fn a_follower_meets_writes_that_go_round_the_area() {
    follow(&[(&[1, 2], 1), (&[3], 1), (&[4], 1)]);
}

#[test]
fn a_follower_meets_writes_that_begin_again() {
    follow(&[(&[1], 1), (&[2], 1), (&[3], 1)]);
}
