//! Two programs on two threads that sleep: nothing is lost, and nobody sleeps on.

use crate::ends::{AREA, begin};
use baton_pair::{Bell, End, Ending, Layout, Link, Side};
use std::thread::{self, Thread};

const BYTES: u64 = if cfg!(miri) { 30_000 } else { 20_000_000 };

struct Program {
    link: Link,
    end: End,
    other: Thread,
}

impl Program {
    fn ring(&self, bell: Bell) {
        if bell.is_wanted() {
            self.other.unpark();
        }
    }

    fn sleep(&mut self) {
        if self.link.prepare_sleep() {
            thread::park();
        }
        self.link.news(|slot| assert_eq!(slot, 0));
    }
}

fn ramp(position: u64) -> u8 {
    (position % 251) as u8
}

/// Sends back what comes, until the end.
fn echo(program: &mut Program) {
    let mut bytes = vec![0; 3000];
    loop {
        let (count, bell) = program.end.read(&mut bytes).unwrap();
        program.ring(bell);
        let mut left = &bytes[..count];
        while !left.is_empty() {
            let (count, bell) = program.end.write(left).unwrap();
            program.ring(bell);
            left = &left[count..];
            while !left.is_empty() && !program.end.ask_for_room(1).unwrap() {
                program.sleep();
            }
        }
        if count == 0 && program.end.ask_for_data(1).unwrap() {
            if program.end.peer_end() != Ending::Open && program.end.readable() == Ok(0) {
                break;
            }
        } else if count == 0 {
            program.sleep();
        }
    }
    let bell = program.end.finish();
    program.ring(bell);
}

/// Writes all bytes in pieces of many sizes, reads them back, and checks each.
fn ask(program: &mut Program) {
    let (mut sent, mut read, mut step) = (0, 0, 0u64);
    let mut bytes = vec![0; 5000];
    loop {
        step += 1;
        let count = (BYTES - sent).min(step * step % 4999 + 1) as usize;
        let piece: Vec<u8> = (sent..sent + count as u64).map(ramp).collect();
        if count > 0 {
            let (written, bell) = program.end.write(&piece).unwrap();
            program.ring(bell);
            sent += written as u64;
            if sent == BYTES {
                let bell = program.end.finish();
                program.ring(bell);
            }
        }
        let most = (step % 4000 + 1) as usize;
        let (count, bell) = program.end.read(&mut bytes[..most]).unwrap();
        program.ring(bell);
        assert!(bytes[..count].iter().zip(read..).all(|(byte, position)| *byte == ramp(position)));
        read += count as u64;
        if count == 0 && program.end.peer_end() == Ending::Finished && program.end.readable() == Ok(0) {
            break;
        }
        let ready = program.end.ask_for_data(1).unwrap() | (sent < BYTES && program.end.ask_for_room(1).unwrap());
        if !ready {
            program.sleep();
        }
    }
    assert_eq!((sent, read), (BYTES, BYTES));
}

#[test]
fn a_stream_between_two_threads_that_sleep() {
    let layout = Layout::new(1, AREA as u32).unwrap();
    let (x, y) = (Side::heap(layout), Side::heap(layout));
    let here = thread::current();
    let (their_side, our_side) = (y.clone(), x.clone());
    let other = thread::spawn(move || {
        let link = Link::new(their_side, our_side).unwrap();
        let end = begin(&link, 0, 1);
        echo(&mut Program { link, end, other: here });
    });
    let link = Link::new(x, y).unwrap();
    let end = begin(&link, 0, 1);
    ask(&mut Program { link, end, other: other.thread().clone() });
    other.join().unwrap();
}
