//! The two ends of a connection, and how each sees the other.

use baton_pair::{End, Ending, Layout, Link, LinkError, Positions, Side, SlotError, WriteError};
use std::num::NonZeroU64;

pub const AREA: usize = 8192;

/// Two programs on one link, their first connection begun in slot 0.
pub struct Two {
    pub links: [Link; 2],
    pub x: End,
    pub y: End,
}

pub fn two() -> Two {
    let layout = Layout::new(70, AREA as u32).unwrap();
    let (x, y) = (Side::heap(layout), Side::heap(layout));
    let links = [Link::new(x.clone(), y.clone()).unwrap(), Link::new(y, x).unwrap()];
    let [x, y] = [0, 1].map(|at| begin(&links[at], 0, 1));
    Two { links, x, y }
}

pub fn begin(link: &Link, slot: u32, number: u64) -> End {
    link.begin(slot, NonZeroU64::new(number).unwrap()).unwrap()
}

fn write(end: &mut End, bytes: &[u8]) -> usize {
    end.write(bytes).unwrap().0
}

fn read(end: &mut End, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let (count, _) = end.read(&mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

fn told(link: &mut Link) -> Vec<u32> {
    let mut slots = Vec::new();
    link.news(|slot| slots.push(slot));
    slots
}

#[test]
fn bytes_go_both_ways_once_and_in_order() {
    let Two { mut x, mut y, .. } = two();
    assert_eq!((write(&mut x, b"hello"), write(&mut y, b"good day")), (5, 8));
    assert_eq!((y.readable(), x.readable()), (Ok(5), Ok(8)));
    assert_eq!(read(&mut y, 3), b"hel");
    let mut bytes = [0; 9];
    assert_eq!((y.peek(&mut bytes), &bytes[..2]), (Ok(2), b"lo".as_slice()));
    assert_eq!(read(&mut y, 100), b"lo");
    assert_eq!(read(&mut y, 100), b"");
    assert_eq!(read(&mut x, 4), b"good");
    let positions = Positions { written: 5, read_by_peer: 5, written_by_peer: 8, read: 4 };
    assert_eq!(x.positions(), Ok(positions));
}

#[test]
fn a_full_area_takes_no_more_until_it_is_read() {
    let Two { mut x, mut y, .. } = two();
    assert_eq!(write(&mut x, &[1; AREA - 10]), AREA - 10);
    assert_eq!((x.room(), x.unread_by_peer()), (Ok(10), Ok(AREA - 10)));
    assert_eq!(write(&mut x, &[2; 20]), 10);
    assert_eq!(write(&mut x, &[3; 20]), 0);
    assert_eq!(x.ask_for_room(100), Ok(false));
    assert_eq!(read(&mut y, 99), [1; 99]);
    assert_eq!(x.ask_for_room(100), Ok(false));
    assert_eq!(read(&mut y, 1), [1]);
    assert_eq!((x.ask_for_room(100), x.room()), (Ok(true), Ok(100)));
    assert_eq!(write(&mut x, &[4; 200]), 100);
    assert_eq!(read(&mut y, 2 * AREA).len(), AREA);
}

#[test]
fn a_limit_holds_for_what_is_written_from_then_on() {
    let Two { mut x, mut y, .. } = two();
    assert_eq!(write(&mut x, &[1; 3000]), 3000);
    x.limit_outgoing(1000);
    assert_eq!((write(&mut x, &[2; 10]), x.room()), (0, Ok(0)));
    assert_eq!(x.ask_for_room(5000), Ok(false), "as much as the limit will have to do");
    read(&mut y, 2500);
    assert_eq!((x.room(), write(&mut x, &[2; 1000])), (Ok(500), 500));
    read(&mut y, 1000);
    assert_eq!(x.ask_for_room(5000), Ok(true));
    x.limit_outgoing(0);
    assert_eq!(x.room(), Ok(1));
    x.limit_outgoing(usize::MAX);
    assert_eq!(x.room(), Ok(AREA));
}

#[test]
fn an_end_is_half_closed_then_closed() {
    let Two { mut x, mut y, mut links } = two();
    write(&mut x, b"last");
    let _ = x.finish();
    assert_eq!(x.write(b"more"), Err(WriteError::Closed));
    assert_eq!(told(&mut links[1]), [0], "an end is told of without being asked for");
    assert_eq!((y.readable(), y.peer_end()), (Ok(4), Ending::Finished));
    assert_eq!((y.ask_for_data(100), read(&mut y, 100)), (Ok(true), b"last".to_vec()));
    assert_eq!((write(&mut y, b"answer"), read(&mut x, 100)), (6, b"answer".to_vec()));
    let _ = y.finish();
    assert_eq!((x.readable(), x.peer_end()), (Ok(0), Ending::Finished));
}

#[test]
fn a_reset_lets_what_was_written_be_read_and_nothing_be_written() {
    let Two { mut x, mut y, mut links } = two();
    write(&mut x, b"last");
    write(&mut y, &[0; AREA]);
    assert_eq!(y.ask_for_room(1), Ok(false));
    let _ = x.reset();
    assert_eq!(told(&mut links[1]), [0]);
    assert_eq!(y.ask_for_room(1), Ok(true));
    assert_eq!(y.write(b"x"), Err(WriteError::Reset));
    assert_eq!((read(&mut y, 100), y.readable(), y.peer_end()), (b"last".to_vec(), Ok(0), Ending::Reset));
    // A reset is not taken back by an end that comes later.
    let _ = x.finish();
    assert_eq!((y.readable(), y.peer_end()), (Ok(0), Ending::Reset));
}

#[test]
fn news_come_only_where_they_are_asked_for_and_once() {
    let Two { mut x, mut y, mut links } = two();
    write(&mut x, b"a");
    assert_eq!(told(&mut links[1]), []);
    assert_eq!(y.ask_for_data(3), Ok(false));
    write(&mut x, b"b");
    assert_eq!(told(&mut links[1]), [], "fewer bytes than were asked for");
    write(&mut x, b"c");
    write(&mut x, b"d");
    assert_eq!(told(&mut links[1]), [0]);
    assert_eq!(told(&mut links[1]), []);
    write(&mut x, b"e");
    assert_eq!(told(&mut links[1]), [0], "it is asked for until it is no more");
    y.stop_asking_for_data();
    write(&mut x, b"f");
    assert_eq!(told(&mut links[1]), []);
    read(&mut y, 10);
    assert_eq!(told(&mut links[0]), []);
    write(&mut x, &[0; AREA]);
    assert_eq!(x.ask_for_room(10), Ok(false));
    read(&mut y, 9);
    assert_eq!(told(&mut links[0]), []);
    read(&mut y, 1);
    assert_eq!(told(&mut links[0]), [0]);
    x.stop_asking_for_room();
    read(&mut y, 10);
    assert_eq!(told(&mut links[0]), []);
}

#[test]
fn a_bell_is_wanted_by_a_program_that_sleeps_and_once() {
    let Two { mut x, mut y, links: [_, mut link] } = two();
    let mut other = begin(&link, 69, 1);
    y.ask_for_data(1).unwrap();
    assert!(!x.write(b"a").unwrap().1.is_wanted(), "it is awake");
    assert!(!link.prepare_sleep(), "there is news");
    assert_eq!(told(&mut link), [0]);
    assert!(link.prepare_sleep());
    assert!(x.write(b"b").unwrap().1.is_wanted());
    assert!(!x.write(b"c").unwrap().1.is_wanted(), "it has been woken");
    assert_eq!(told(&mut link), [0]);
    assert!(link.prepare_sleep());
    link.awake();
    assert!(!x.write(b"d").unwrap().1.is_wanted());
    assert_eq!(told(&mut link), [0]);
    assert!(link.prepare_sleep());
    y.stop_asking_for_data();
    assert!(!x.write(b"e").unwrap().1.is_wanted(), "it does not care");
    assert!(x.finish().is_wanted());
    assert_eq!((other.readable(), told(&mut link)), (Ok(0), vec![0]));
}

#[test]
fn slots_of_every_word_are_told() {
    let Two { links: [theirs, mut ours], .. } = two();
    let slots = [1, 31, 63, 64, 69];
    let ends: Vec<_> = slots.iter().map(|&slot| (begin(&theirs, slot, 5), begin(&ours, slot, 5))).collect();
    for (mut x, mut y) in ends {
        assert_eq!(y.ask_for_data(1), Ok(false));
        write(&mut x, b"x");
    }
    assert_eq!(told(&mut ours), slots);
}

#[test]
fn a_slot_is_used_again_from_the_start() {
    let Two { mut x, mut y, links } = two();
    write(&mut x, &[1; 5000]);
    read(&mut y, 4000);
    write(&mut y, b"unread");
    let _ = (x.reset(), y.reset());
    assert_eq!(links[0].begin(0, NonZeroU64::MIN).err(), Some(SlotError::Used(0)));
    assert_eq!(links[0].begin(70, NonZeroU64::MIN).err(), Some(SlotError::Range(70)));
    drop((x, y));
    // X begins, writes and asks before Y has begun: Y's words are about the last pair.
    let mut x = begin(&links[0], 0, 2);
    assert_eq!((x.readable(), x.peer_end(), x.room()), (Ok(0), Ending::Open, Ok(AREA)));
    assert_eq!((write(&mut x, b"first"), x.ask_for_data(1)), (5, Ok(false)));
    let mut y = begin(&links[1], 0, 2);
    assert_eq!((read(&mut y, 10), y.peer_end()), (b"first".to_vec(), Ending::Open));
    write(&mut y, b"second");
    assert_eq!((read(&mut x, 10), x.unread_by_peer()), (b"second".to_vec(), Ok(0)));
}

#[test]
fn a_connection_whose_messages_are_answered_keeps_to_one_page() {
    let Two { mut x, mut y, .. } = two();
    for _ in 0..1000 {
        assert_eq!((write(&mut x, &[7; 100]), read(&mut y, 100)), (100, vec![7; 100]));
    }
    assert_eq!(x.unused_memory(4096), Ok(None), "100,000 bytes touched the first page alone");
    write(&mut x, &[8; 5000]);
    assert_eq!(x.unused_memory(4096), Ok(None), "they are not read yet");
    assert_eq!(read(&mut y, 5000), [8; 5000]);
    let unused = x.unused_memory(4096).unwrap().unwrap();
    assert_eq!((unused.start % 4096, unused.len()), (0, 4096));
    assert_eq!(x.unused_memory(4096), Ok(None), "it was given back");
    assert_eq!((write(&mut x, &[9; 4096]), read(&mut y, 5000)), (4096, vec![9; 4096]));
    assert_eq!(x.unused_memory(1), Ok(None));
    assert_eq!(x.unused_memory(0), Ok(Some(unused.start - 4096..unused.start)), "an idle connection keeps none");
    assert_eq!((x.unused_memory(0), x.unused_memory(usize::MAX)), (Ok(None), Ok(None)));
    assert_eq!((write(&mut x, &[1; 10]), read(&mut y, 5000)), (10, vec![1; 10]));
}

#[test]
fn sides_of_a_link_have_as_many_slots() {
    let [one, two] = [1, 2].map(|slots| Side::heap(Layout::new(slots, 4096).unwrap()));
    assert_eq!(Link::new(one.clone(), two).err(), Some(LinkError { ours: 1, theirs: 2 }));
    // Their areas may differ.
    let large = Side::heap(Layout::new(1, 1 << 16).unwrap());
    let (x, y) = (Link::new(one.clone(), large.clone()).unwrap(), Link::new(large, one).unwrap());
    let (mut x, mut y) = (begin(&x, 0, 1), begin(&y, 0, 1));
    let bytes: Vec<u8> = (0..1 << 16).map(|at| (at % 251) as u8).collect();
    assert_eq!((write(&mut x, &bytes), write(&mut y, &bytes)), (4096, 1 << 16));
    assert!(read(&mut x, 1 << 17) == bytes && read(&mut y, 1 << 17) == bytes[..4096]);
}
