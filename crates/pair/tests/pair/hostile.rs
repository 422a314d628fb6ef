//! Peers whose memory holds anything; the steps are those of the fuzz target `pair_ring`.

use crate::fuzz::TARGETS;
use crate::fuzz::ring_unsafe::{AREA, AREAS, BLOCKS, Hostage, SLOTS, fuzz_ring, layout};
use baton_pair::{End, Ending, Fault, LayoutError, Link, Side, SlotError, WriteError};
use proptest::prelude::*;
use std::num::NonZeroU64;

const NUMBER: NonZeroU64 = NonZeroU64::MIN;
/// Words of slot 0's block.
const HEAD: usize = BLOCKS + 1;
const ORIGIN: usize = BLOCKS + 2;
const ROOM_AT: usize = BLOCKS + 3;
const END: usize = BLOCKS + 4;
const TAIL: usize = BLOCKS + 8;
const DATA_AT: usize = BLOCKS + 9;
/// The word of the owner's sleep, and those of its news and of what it saw.
const SLEEPS: usize = 16;
const NEWS: usize = 32;
const SEEN: usize = 48;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 2000 }))]

    #[test]
    fn nothing_that_memory_holds_harms_the_other_program(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz_ring(&data);
    }
}

#[test]
fn the_fuzzing_corpora_run_clean() {
    baton_testkit::corpus::replay(TARGETS);
}

/// An end whose peer has written 10 bytes, read 5 of 10, and is at the test's mercy.
struct Victim {
    theirs: Hostage,
    link: Link,
    end: End,
}

fn victim() -> Victim {
    let (ours, theirs) = (Side::heap(layout()), Hostage::fresh());
    let link = Link::new(ours.clone(), theirs.side.clone()).unwrap();
    let back = Link::new(theirs.side.clone(), ours).unwrap();
    let (mut end, mut peer) = (link.begin(0, NUMBER).unwrap(), back.begin(0, NUMBER).unwrap());
    assert_eq!((end.write(&[1; 10]).unwrap().0, peer.read(&mut [0; 5]).unwrap().0), (10, 5));
    assert_eq!((peer.write(&[2; 10]).unwrap().0, end.readable(), end.unread_by_peer()), (10, Ok(10), Ok(5)));
    Victim { theirs, link, end }
}

#[test]
fn each_word_that_cannot_be_ends_the_connection() {
    let far = AREA as u64 + 1;
    for (word, value, fault) in [
        (HEAD, 9, Fault::HeadBack(10, 9)),
        (HEAD, far, Fault::HeadAhead(far)),
        (HEAD, u64::MAX, Fault::HeadAhead(u64::MAX)),
        (TAIL, 4, Fault::TailBack(5, 4)),
        (TAIL, 11, Fault::TailAhead(11, 10)),
        (TAIL, u64::MAX, Fault::TailAhead(u64::MAX, 10)),
        (END, 4, Fault::NoSuchEnd(4)),
        (END, u64::MAX, Fault::NoSuchEnd(u32::MAX)),
    ] {
        let Victim { theirs, mut end, .. } = victim();
        theirs.scribble(word, value);
        assert_eq!(end.positions(), Err(fault), "{word}: {value}");
        theirs.scribble(word, if word == HEAD { 10 } else { 0 });
        // It stays, though the word is as it should be again.
        assert_eq!((end.read(&mut [0; 4]), end.peek(&mut [0; 4])), (Err(fault), Err(fault)));
        assert_eq!(end.write(&[0; 4]), Err(WriteError::Fault(fault)));
        assert_eq!((end.ask_for_data(1), end.ask_for_room(1)), (Err(fault), Err(fault)));
        assert_eq!((end.room(), end.unread_by_peer()), (Err(fault), Err(fault)));
        assert!(!end.reset().is_wanted(), "nobody sleeps");
    }
}

#[test]
fn bytes_after_the_end_are_a_fault() {
    for ending in [Ending::Finished, Ending::Closed, Ending::Reset] {
        let Victim { theirs, mut end, .. } = victim();
        theirs.scribble(END, ending as u64);
        assert_eq!((end.readable(), end.peer_end()), (Ok(10), ending));
        theirs.scribble(HEAD, 11);
        assert_eq!(end.readable(), Err(Fault::AfterEnd(1)));
    }
    let Victim { theirs, mut end, .. } = victim();
    theirs.scribble(END, 3);
    end.readable().unwrap();
    theirs.scribble(END, 1);
    assert_eq!(end.readable(), Err(Fault::EndBack(Ending::Reset, Ending::Finished)));
}

#[test]
fn an_origin_of_any_value_gives_bytes_of_the_slots_area_alone() {
    let Victim { theirs, mut end, .. } = victim();
    for slot in 0..SLOTS as usize {
        for word in 0..AREA / 8 {
            theirs.scribble(AREAS + slot * AREA / 8 + word, 0x0101_0101_0101_0101 * (slot as u64 + 1));
        }
    }
    theirs.scribble(HEAD, AREA as u64);
    for origin in [0, 1, 4095, 4096, u64::MAX, 1 << 63, 0x1234_5678_9abc_def1] {
        theirs.scribble(ORIGIN, origin);
        let mut bytes = vec![0; 2 * AREA];
        assert_eq!(end.peek(&mut bytes), Ok(AREA));
        assert!(bytes[..AREA].iter().all(|byte| *byte == 1), "{origin}");
    }
}

#[test]
fn words_that_ask_can_be_anything() {
    for value in [0, 1, u64::MAX - 1, u64::MAX, 1 << 63] {
        let Victim { theirs, mut link, mut end } = victim();
        for word in [ROOM_AT, DATA_AT, SLEEPS, SEEN, SEEN + 1] {
            theirs.scribble(word, value);
        }
        assert_eq!(end.write(&[1; 3]).unwrap().0, 3);
        assert_eq!(end.read(&mut [0; 3]).unwrap().0, 3);
        theirs.scribble(NEWS, value);
        let mut told = Vec::new();
        link.news(|slot| told.push(slot));
        assert_eq!(told, (0..SLOTS).filter(|slot| value >> slot & 1 == 1).collect::<Vec<_>>());
        link.news(|slot| panic!("slot {slot} was told already"));
        // Bits that stand for no slot keep it awake once, and are told to nobody.
        theirs.scribble(NEWS, value ^ 1 << 63);
        assert!(!link.prepare_sleep());
        link.news(|slot| panic!("there is no news of slot {slot}"));
        assert!(link.prepare_sleep());
    }
}

#[test]
fn a_bell_rings_once_for_each_sleep() {
    let Victim { theirs, mut end, .. } = victim();
    theirs.scribble(DATA_AT, 0);
    let mut ring = |sleeps: u64, seen: u64| {
        theirs.scribble(SLEEPS, sleeps);
        theirs.scribble(SEEN, seen);
        end.write(&[1]).unwrap().1.is_wanted()
    };
    assert!(!ring(2, 0), "it is awake");
    assert!(!ring(3, 0), "the news stand already, since before it slept");
    assert!(ring(3, 1), "it took the news and sleeps");
    assert!(!ring(3, 0), "it has been woken");
    assert!(ring(5, 1));
    assert!(ring(7, 0), "it slept again");
}

#[test]
fn an_end_is_taken_over_where_its_program_left_it() {
    let (ours, theirs) = (Hostage::fresh(), Hostage::fresh());
    let link = Link::new(ours.side.clone(), theirs.side.clone()).unwrap();
    let back = Link::new(theirs.side.clone(), ours.side.clone()).unwrap();
    let (mut end, mut peer) = (link.begin(0, NUMBER).unwrap(), back.begin(0, NUMBER).unwrap());
    assert_eq!((end.write(&[7; 4000]).unwrap().0, peer.read(&mut [0; 3990]).unwrap().0), (4000, 3990));
    assert_eq!((end.write(&[8; 90]).unwrap().0, peer.write(&[9; 20]).unwrap().0), (90, 20));
    assert_eq!(end.read(&mut [0; 5]).unwrap().0, 5);
    let before = end.positions();
    drop((end, link));
    let link = Link::new(ours.side.clone(), theirs.side.clone()).unwrap();
    let other = NonZeroU64::new(9).unwrap();
    assert_eq!(link.resume(0, other).err(), Some(SlotError::Other(0)));
    let mut end = link.resume(0, NUMBER).unwrap();
    assert_eq!(link.resume(0, NUMBER).err(), Some(SlotError::Used(0)));
    assert_eq!(end.positions(), before);
    assert_eq!(end.write(&[1; 10]).unwrap().0, 10);
    let _ = end.reset();
    let mut bytes = [0; 200];
    assert_eq!(peer.read(&mut bytes).unwrap().0, 110);
    assert_eq!(bytes[..110], [[7; 10].as_slice(), &[8; 90], &[1; 10]].concat());
    assert_eq!((peer.read(&mut bytes).unwrap().0, peer.peer_end()), (0, Ending::Reset));
    drop(end);
    for (word, value, fault) in [
        (HEAD, u64::MAX, Fault::TooFar(u64::MAX)),
        (TAIL, 1 << 63, Fault::TooFar(1 << 63)),
        (HEAD, 100, Fault::TailAhead(4100, 100)),
        (HEAD, 1 << 20, Fault::Unread((1 << 20) - 4100)),
        (TAIL, 21, Fault::HeadBack(21, 20)),
        (END, 77, Fault::NoSuchEnd(77)),
    ] {
        let was = ours.read(word);
        ours.scribble(word, value);
        assert_eq!(link.resume(0, NUMBER).err(), Some(SlotError::Fault(fault)));
        ours.scribble(word, was);
    }
    assert!(link.resume(0, NUMBER).is_ok());
}

#[test]
fn a_side_is_opened_by_what_its_header_says() {
    let hostage = Hostage::fresh();
    let whole = hostage.words * 8;
    let open = |len| hostage.open(len).map(|side| side.layout());
    assert_eq!(open(whole), Ok(layout()));
    hostage.scribble(1, 1 | 1000 << 32);
    assert_eq!(open(whole), Err(LayoutError::Memory), "larger than its memory");
    assert_eq!(hostage.side.layout(), layout(), "one that is open does not look at its header again");
    hostage.scribble(1, 2 | 3 << 32);
    assert_eq!(open(whole), Err(LayoutError::Header), "another version");
}
