//! A program that writes anything anywhere into its side of a link, while the other program goes on.
//!
//! [`fuzz_ring`] takes its steps from arbitrary bytes; the fuzz target and the tests of `baton_pair` call
//! it. Slot 0 is the hostile program's playground; slot 1 carries an honest connection of the same link,
//! which must not suffer. Followers read along both: the honest one's bytes are what was written. The unsafe code here does what a hostile process could do through its mapping: it
//! stores to any word of a side's memory, as atomics, so that this process stays within Rust's rules. It
//! also guards the memory before and after each side.

use baton_pair::{End, Follower, Layout, LayoutError, Link, Side, SlotError, WriteError};
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a slot's area: the fewest, so that random steps go round it.
pub const AREA: usize = 4096;
/// Slots of the link.
pub const SLOTS: u32 = 3;
/// Words before the control blocks: sizes, sleeps, news, seen.
pub const BLOCKS: usize = 4 * WORDS;
/// First word of the areas.
pub const AREAS: usize = AREA / 8;
const WORDS: usize = 16;
const GUARD: u64 = 0x6a72_6475_6172_6421;

/// The sizes of both sides.
pub fn layout() -> Layout {
    Layout::new(SLOTS, AREA as u32).expect("a layout that can be")
}

/// A cache line pair, as aligned as a side has to be.
#[repr(C, align(128))]
struct Lines([AtomicU64; WORDS]);

/// A side in memory of our own, with a guard before and after it.
pub struct Hostage {
    lines: Arc<Vec<Lines>>,
    /// The side that the lines make up.
    pub side: Arc<Side>,
    /// Words of the side.
    pub words: usize,
}

impl Hostage {
    /// A fresh side.
    pub fn fresh() -> Hostage {
        let len = layout().bytes();
        let inside = len / size_of::<Lines>();
        let line = |at: usize| {
            let guard = if at == 0 || at > inside { GUARD } else { 0 };
            Lines(std::array::from_fn(|_| AtomicU64::new(guard)))
        };
        let lines: Arc<Vec<Lines>> = Arc::new((0..inside + 2).map(line).collect());
        // Exposed through UnsafeCells, so that it may be written from a shared reference.
        let base = NonNull::from(&lines[..]).cast::<Lines>();
        // SAFETY: the first of `inside + 2` lines is followed by another.
        let base = unsafe { base.add(1) }.cast::<u8>();
        // SAFETY: `len` bytes from the second line on are all but the last line; the vector is never
        // resized and lives as long as the owner given here; all other accesses in this file are atomic.
        let side = unsafe { Side::from_raw_parts(base, len, layout(), Box::new(Arc::clone(&lines))) };
        Hostage { side: side.expect("memory of the right size"), lines, words: len / 8 }
    }

    /// A store of `value` to any word, which the owner's process could do.
    pub fn scribble(&self, word: usize, value: u64) {
        self.word(word).store(value, Ordering::Relaxed);
    }

    /// A word as it is now.
    pub fn read(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Relaxed)
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        &self.lines[1 + word / WORDS].0[word % WORDS]
    }

    /// A second side over the first `len` bytes, by what the header says now.
    ///
    /// # Errors
    /// [`LayoutError`] as [`Side::open_raw_parts`] gives it.
    pub fn open(&self, len: usize) -> Result<Arc<Side>, LayoutError> {
        assert!(len <= self.words * 8);
        let base = NonNull::from(&self.lines[1..]).cast::<u8>();
        // SAFETY: as in `fresh`, and no longer than that.
        unsafe { Side::open_raw_parts(base, len, Box::new(Arc::clone(&self.lines))) }
    }

    /// True if nothing was written before or after the side.
    pub fn guards_hold(&self) -> bool {
        let guards = [&self.lines[0], &self.lines[self.lines.len() - 1]];
        guards.iter().all(|line| line.0.iter().all(|word| word.load(Ordering::Relaxed) == GUARD))
    }
}

/// Steps out of arbitrary bytes.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<usize> {
        self.take().map(|[byte]| byte.into())
    }

    fn short(&mut self) -> Option<usize> {
        self.take().map(|bytes| u16::from_le_bytes(bytes).into())
    }

    /// A number that is likelier than chance to be of interest, some of them near `now`.
    fn number(&mut self, now: u64) -> Option<u64> {
        let [kind] = self.take()?;
        let small = u64::from(kind >> 3);
        Some(match kind % 8 {
            0 => u64::MAX - small,
            1 => small,
            2 => now.wrapping_add(AREA as u64).wrapping_sub(small),
            3 => 1 << (2 * small),
            4 => now.wrapping_add(small),
            5 => now.wrapping_sub(small),
            6 => now.wrapping_add(u64::from(u16::from_le_bytes(self.take()?))),
            _ => u64::from_le_bytes(self.take()?),
        })
    }
}

/// One direction of the honest connection: what is under way.
struct Honest {
    from: End,
    to: End,
    under_way: VecDeque<u8>,
    next: u8,
}

impl Honest {
    fn write(&mut self, count: usize) {
        let bytes: Vec<u8> = (0..count).map(|at| self.next.wrapping_add(at as u8)).collect();
        let (written, _) = self.from.write(&bytes).expect("an honest connection");
        assert_eq!(written, count.min(AREA - self.under_way.len()));
        self.under_way.extend(&bytes[..written]);
        self.next = self.next.wrapping_add(written as u8);
    }

    fn read(&mut self, count: usize) {
        let mut bytes = vec![0; count];
        let (read, _) = self.to.read(&mut bytes).expect("an honest connection");
        assert_eq!(read, count.min(self.under_way.len()));
        let expected: Vec<u8> = self.under_way.drain(..read).collect();
        assert!(bytes[..read] == expected, "every byte once, in order");
    }
}

struct World {
    ours: Hostage,
    theirs: Hostage,
    link: Link,
    number: NonZeroU64,
    victim: Option<End>,
    honest: Honest,
    followers: [Follower; 2],
}

/// Runs one script; panics if the honest program does what it must not.
pub fn fuzz_ring(data: &[u8]) {
    let (ours, theirs) = (Hostage::fresh(), Hostage::fresh());
    let link = Link::new(ours.side.clone(), theirs.side.clone()).expect("sides of one layout");
    let back = Link::new(theirs.side.clone(), ours.side.clone()).expect("sides of one layout");
    let number = NonZeroU64::MIN;
    let begin = |link: &Link, slot| link.begin(slot, number).expect("a free slot");
    let honest = Honest { from: begin(&link, 1), to: begin(&back, 1), under_way: VecDeque::new(), next: 0 };
    let victim = Some(begin(&link, 0));
    drop(begin(&back, 0));
    let followers = [0, 1].map(|slot| follower(&ours, &theirs, slot, number));
    let mut world = World { ours, theirs, link, number, victim, honest, followers };
    let mut script = Script(data);
    while step(&mut world, &mut script).is_some() {
        // Not after each step, so that followers lag behind.
        if script.0.len() % 5 == 0 {
            follow(&mut world);
        }
    }
    assert!(world.ours.guards_hold() && world.theirs.guards_hold(), "something was written outside a side");
}

fn follower(ours: &Hostage, theirs: &Hostage, slot: u32, number: NonZeroU64) -> Follower {
    Follower::new([ours.side.clone(), theirs.side.clone()], slot, number).expect("there is such a slot")
}

/// Reads along. Nobody may know what a hostile program's words make of its own bytes.
fn follow(world: &mut World) {
    let World { ours, theirs, number, followers, .. } = world;
    let mut bytes = [0; 700];
    for at in [0, 1] {
        let [hostile, honest] = followers;
        if hostile.look().is_ok() {
            let before = hostile.passed(at);
            if let Ok(passed) = hostile.read(at, u64::MAX, &mut bytes) {
                assert!(passed.count <= bytes.len() && passed.from >= before);
                assert_eq!(passed.from + passed.count as u64, hostile.passed(at));
            }
        } else {
            *hostile = follower(ours, theirs, 0, *number);
        }
        let written = honest.look().expect("an honest connection").course.written[at];
        let before = honest.passed(at);
        let passed = honest.read(at, written, &mut bytes).expect("an honest connection");
        assert_eq!((passed.from, passed.from + passed.count as u64), (before + passed.lost, honest.passed(at)));
        let expected = (0..passed.count as u64).map(|ahead| (passed.from + ahead) as u8);
        assert!(expected.eq(bytes[..passed.count].iter().copied()), "what was written there");
    }
}

/// Whether a word is one of the honest connection's.
fn is_honest(word: usize) -> bool {
    let block = BLOCKS + WORDS;
    let area = AREAS + AREA / 8;
    (block..block + WORDS).contains(&word) || (area..area + AREA / 8).contains(&word)
}

fn step(world: &mut World, script: &mut Script<'_>) -> Option<()> {
    let step = script.byte()?;
    let World { ours, theirs, link, number, victim, honest, .. } = world;
    match step % 14 {
        0 => {
            let word = script.short()? % theirs.words;
            let value = script.number(theirs.read(word))?;
            if !is_honest(word) {
                theirs.scribble(word, value);
            }
        }
        // The words before the areas, more often.
        1 | 2 => {
            let word = script.byte()? % (BLOCKS + WORDS);
            theirs.scribble(word, script.number(theirs.read(word))?);
        }
        // As an honest peer could: it has written so many more bytes, or read them.
        3 => {
            let head = BLOCKS + 1;
            theirs.scribble(head, theirs.read(head).wrapping_add(script.short()? as u64 % 128));
        }
        4 => {
            let tail = BLOCKS + WORDS / 2;
            theirs.scribble(tail, theirs.read(tail).wrapping_add(script.short()? as u64 % 128));
        }
        5 => honest.write(script.short()? % (2 * AREA)),
        6 => honest.read(script.short()? % (2 * AREA)),
        7 => {
            let mut told = 0;
            link.news(|slot| {
                assert!(slot < SLOTS);
                told += 1;
            });
            assert!(told <= SLOTS, "each slot is told once at most");
        }
        8 => {
            assert!(!(link.prepare_sleep() && link.has_news()));
            if step > 127 {
                link.awake();
            }
        }
        9 => {
            *victim = None;
            *number = number.saturating_add(1);
            *victim = Some(link.begin(0, *number).expect("the slot is free"));
        }
        10 => {
            *victim = None;
            // The program that is gone was hostile, too.
            for _ in 0..step >> 5 {
                let word = BLOCKS + script.byte()? % WORDS;
                ours.scribble(word, script.number(ours.read(word))?);
            }
            *victim = match link.resume(0, *number) {
                Ok(end) => Some(end),
                Err(SlotError::Other(0) | SlotError::Fault(_)) => None,
                Err(other) => panic!("{other}"),
            };
        }
        11 => {
            let len = script.short()? % (theirs.words * 8 + 1);
            if let Ok(side) = theirs.open(len) {
                assert!(side.layout().bytes() <= len);
            }
        }
        _ => attack(victim.as_mut()?, step, script)?,
    }
    Some(())
}

/// A call of the victim's end, whatever its peer's words are.
fn attack(end: &mut End, step: usize, script: &mut Script<'_>) -> Option<()> {
    let mut bytes = [0; 300];
    let some = script.byte()?;
    match step / 14 % 9 {
        0 | 1 => match end.write(&bytes[..some]) {
            Ok((count, _)) => assert!(count <= some),
            Err(WriteError::Closed | WriteError::Reset | WriteError::Fault(_)) => {}
            Err(other) => panic!("{other}"),
        },
        2 | 3 => assert!(end.read(&mut bytes[..some]).is_ok_and(|(count, _)| count <= some) || fails(end)),
        4 => assert!(end.peek(&mut bytes[..some]).is_ok_and(|count| count <= some) || fails(end)),
        5 => {
            let (room, unread) = (end.room(), end.unread_by_peer());
            assert!(room.is_ok_and(|room| room <= AREA && room + unread.unwrap_or(AREA) <= AREA) || fails(end));
            assert!(end.readable().is_ok_and(|readable| readable <= AREA) || fails(end));
            if let Ok(at) = end.positions() {
                assert!(at.read_by_peer <= at.written && at.read <= at.written_by_peer);
            }
        }
        6 => {
            let _ = (end.ask_for_data(some), end.ask_for_room(some));
            if some > 200 {
                end.stop_asking_for_data();
                end.stop_asking_for_room();
            }
        }
        7 => end.limit_outgoing(some * 16),
        _ => {
            let _ = if some > 200 { end.reset() } else { end.finish() };
            let _ = end.unused_memory(some);
        }
    }
    Some(())
}

/// True if the end has met a fault; then every call says so.
fn fails(end: &mut End) -> bool {
    let fault = end.readable().err();
    fault.is_some() && end.read(&mut [0]).err() == fault && end.room().err() == fault
}
