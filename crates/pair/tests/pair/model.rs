//! Random calls on two ends, against queues that cannot be wrong.

use crate::ends::{AREA, Two, two};
use baton_pair::{End, Ending, Link, WriteError};
use proptest::prelude::*;
use std::collections::VecDeque;

/// One direction: what is under way from an end, and what its calls have said.
#[derive(Default)]
struct Flow {
    under_way: VecDeque<u8>,
    written: u64,
    read: u64,
    limit: usize,
    ended: bool,
    /// News that the reader, or the writer, has asked for and that came about since it looked last.
    due: [bool; 2],
    data_at: Option<u64>,
    room_of: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize),
    Read(usize),
    Peek(usize),
    Limit(usize),
    AskForData(usize),
    AskForRoom(usize),
    News,
    GiveBack,
    Finish,
}

fn steps() -> impl Strategy<Value = Vec<(bool, Step)>> {
    let size = || prop_oneof![0..20usize, 0..2 * AREA, Just(4096), Just(AREA)];
    let step = prop_oneof![
        8 => size().prop_map(Step::Write),
        8 => size().prop_map(Step::Read),
        2 => size().prop_map(Step::Peek),
        1 => size().prop_map(Step::Limit),
        3 => size().prop_map(Step::AskForData),
        3 => size().prop_map(Step::AskForRoom),
        3 => Just(Step::News),
        1 => Just(Step::GiveBack),
    ];
    let step = prop_oneof![200 => step, 1 => Just(Step::Finish)];
    prop::collection::vec((any::<bool>(), step), 0..if cfg!(miri) { 30 } else { 200 })
}

/// The byte at a stream position: a ramp of prime length.
fn ramp(position: u64) -> u8 {
    (position % 251) as u8
}

fn write(end: &mut End, flow: &mut Flow, count: usize) {
    let bytes: Vec<u8> = (0..count as u64).map(|at| ramp(flow.written + at)).collect();
    if flow.ended {
        return assert_eq!(end.write(&bytes), Err(WriteError::Closed));
    }
    let room = flow.limit.saturating_sub(flow.under_way.len());
    let (written, _) = end.write(&bytes).unwrap();
    assert_eq!(written, count.min(room));
    flow.under_way.extend(&bytes[..written]);
    flow.written += written as u64;
    flow.due[0] |= written > 0 && flow.data_at.is_some_and(|at| flow.written >= at);
}

fn read(end: &mut End, flow: &mut Flow, count: usize, stay: bool) {
    let mut bytes = vec![0; count];
    let read = if stay { end.peek(&mut bytes) } else { end.read(&mut bytes).map(|(count, _)| count) };
    let read = read.unwrap();
    assert_eq!(read, count.min(flow.under_way.len()));
    assert!(flow.under_way.iter().zip(&bytes).take(read).all(|(expected, byte)| expected == byte));
    if !stay {
        flow.under_way.drain(..read);
        flow.read += read as u64;
        let room = flow.limit.saturating_sub(flow.under_way.len());
        flow.due[1] |= read > 0 && flow.room_of.is_some_and(|least| room >= least);
    }
}

fn news(link: &mut Link, [incoming, outgoing]: [&mut Flow; 2]) {
    let due = incoming.due[0] | outgoing.due[1];
    (incoming.due[0], outgoing.due[1]) = (false, false);
    assert_eq!(link.has_news(), due);
    assert_eq!(link.prepare_sleep(), !due);
    let mut told = 0;
    link.news(|_| told += 1);
    assert_eq!(told, u32::from(due));
}

fn run(script: Vec<(bool, Step)>) {
    let Two { mut links, mut x, mut y } = two();
    let flow = || Flow { limit: AREA, ..Flow::default() };
    let (mut from_x, mut from_y) = (flow(), flow());
    for (is_x, step) in script {
        let (end, link, out, incoming) = if is_x {
            (&mut x, &mut links[0], &mut from_x, &mut from_y)
        } else {
            (&mut y, &mut links[1], &mut from_y, &mut from_x)
        };
        match step {
            Step::Write(count) => write(end, out, count),
            Step::Read(count) => read(end, incoming, count, false),
            Step::Peek(count) => read(end, incoming, count, true),
            Step::Limit(bytes) => {
                end.limit_outgoing(bytes);
                out.limit = bytes.clamp(1, AREA);
                end.stop_asking_for_room();
                out.room_of = None;
            }
            Step::AskForData(least) => {
                let least = least.clamp(1, AREA);
                let there = incoming.under_way.len() >= least || incoming.ended;
                assert_eq!(end.ask_for_data(least), Ok(there));
                incoming.data_at = Some(incoming.read + least as u64);
            }
            Step::AskForRoom(least) => {
                let least = least.clamp(1, out.limit);
                let room = out.limit.saturating_sub(out.under_way.len());
                assert_eq!(end.ask_for_room(least), Ok(room >= least));
                // The model asks again after every write, as callers do.
                out.room_of = Some(least);
            }
            Step::News => news(link, [incoming, out]),
            Step::GiveBack => assert!(end.unused_memory(4096).unwrap().is_none() || out.under_way.is_empty()),
            Step::Finish => {
                let _ = end.finish();
                out.ended = true;
                out.due[0] = true;
            }
        }
        if let (Step::Write(_), Some(least)) = (step, out.room_of) {
            end.ask_for_room(least).unwrap();
        }
        assert_eq!(end.readable().unwrap(), incoming.under_way.len());
        assert_eq!(end.unread_by_peer().unwrap(), out.under_way.len());
        assert_eq!(end.peer_end() == Ending::Finished, incoming.ended);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 5 } else { 1000 }))]

    #[test]
    fn ends_do_as_queues_would(script in steps()) {
        run(script);
    }
}
