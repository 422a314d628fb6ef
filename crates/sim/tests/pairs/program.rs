//! A program with its library: where its end is, and the bytes that the library holds. It does what
//! `baton_client` does with its connections in pairs and in the kernel.

use crate::kernel::Kernel;
use crate::stream::{byte, bytes};
use baton_pair::{End, Ending, WriteError};
use std::collections::VecDeque;

/// Where the program's end is.
pub enum Place {
    Kernel,
    Pair(End),
    /// The connection has ended: by a reset, or in order.
    Ended {
        reset: bool,
    },
    /// The program was killed.
    Dead,
}

pub struct Program {
    pub at: usize,
    pub place: Place,
    /// Bytes of a connection that has ended.
    pub unread: VecDeque<u8>,
    /// Bytes to be written before any others.
    pub unsent: VecDeque<u8>,
    /// Bytes that the kernel delivers once more.
    pub skip: u64,
    /// Bytes that the program wants to write, has written, and has read.
    pub total: u64,
    pub written: u64,
    pub read: u64,
    pub finished: bool,
    /// It has seen the end of the stream, or a reset.
    pub end: Option<Ending>,
}

impl Program {
    pub fn new(at: usize, total: u64) -> Program {
        Program {
            at,
            place: Place::Kernel,
            unread: VecDeque::new(),
            unsent: VecDeque::new(),
            skip: 0,
            total,
            written: 0,
            read: 0,
            finished: false,
            end: None,
        }
    }

    /// True if the program does nothing more.
    pub fn is_over(&self) -> bool {
        matches!(self.place, Place::Dead) || self.end.is_some() && (self.finished || self.end != Some(Ending::Finished))
    }

    /// Writes up to `most` of the bytes that are left, and finishes after the last.
    pub fn write(&mut self, kernel: &mut Kernel, most: usize) {
        self.flush(kernel);
        if self.finished || !self.unsent.is_empty() {
            return;
        }
        let piece = bytes(self.at, self.written, most.min((self.total - self.written) as usize));
        let count = match &mut self.place {
            Place::Kernel => kernel.send(self.at, &piece),
            Place::Pair(end) => match end.write(&piece) {
                Ok((count, _)) => count,
                // A segment would have met a reset.
                Err(WriteError::Reset) => return self.reset(),
                Err(error) => panic!("end {}: {error}", self.at),
            },
            Place::Ended { .. } | Place::Dead => return,
        };
        self.written += count as u64;
        if self.written == self.total {
            self.finished = true;
            match &mut self.place {
                Place::Kernel => kernel.shutdown(self.at),
                Place::Pair(end) => {
                    let _ = end.finish();
                }
                Place::Ended { .. } | Place::Dead => {}
            }
        }
    }

    /// Writes what waits, and then finishes if the program has.
    fn flush(&mut self, kernel: &mut Kernel) {
        if self.unsent.is_empty() {
            return;
        }
        let waiting = self.unsent.make_contiguous();
        let count = match &mut self.place {
            Place::Kernel => kernel.send(self.at, waiting),
            Place::Pair(end) => end.write(waiting).map_or(waiting.len(), |(count, _)| count),
            Place::Ended { .. } | Place::Dead => 0,
        };
        self.unsent.drain(..count);
        if self.unsent.is_empty() && self.finished {
            match &mut self.place {
                Place::Kernel => kernel.shutdown(self.at),
                Place::Pair(end) => {
                    let _ = end.finish();
                }
                Place::Ended { .. } | Place::Dead => {}
            }
        }
    }

    /// Reads up to `most` bytes, and checks each.
    pub fn read(&mut self, kernel: &mut Kernel, most: usize) {
        if self.end.is_some() || matches!(self.place, Place::Dead) {
            return;
        }
        let got: Vec<u8> = if !self.unread.is_empty() {
            self.unread.drain(..most.min(self.unread.len())).collect()
        } else {
            let Some(got) = self.read_there(kernel, most) else { return };
            got
        };
        for (place, got) in (self.read..).zip(&got) {
            assert_eq!(*got, byte(1 - self.at, place), "end {} reads another byte at {place}", self.at);
        }
        self.read += got.len() as u64;
    }

    fn read_there(&mut self, kernel: &mut Kernel, most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; most];
        match &mut self.place {
            Place::Kernel => {
                while self.skip > 0 {
                    let known = kernel.receive(self.at, self.skip as usize)?;
                    assert!(!known.is_empty(), "the end came before bytes that were read already");
                    self.skip -= known.len() as u64;
                }
                bytes = kernel.receive(self.at, most)?;
                if bytes.is_empty() {
                    self.end = Some(Ending::Finished);
                }
            }
            Place::Pair(end) => {
                let (count, _) = end.read(&mut bytes).unwrap();
                bytes.truncate(count);
                if count == 0 && end.readable() == Ok(0) {
                    match end.peer_end() {
                        Ending::Open => {}
                        Ending::Finished | Ending::Closed => self.end = Some(Ending::Finished),
                        Ending::Reset => self.reset(),
                    }
                }
            }
            Place::Ended { reset } => {
                self.end = Some(if *reset { Ending::Reset } else { Ending::Finished });
                bytes.clear();
            }
            Place::Dead => bytes.clear(),
        }
        Some(bytes)
    }

    fn reset(&mut self) {
        self.end = Some(Ending::Reset);
        self.place = Place::Ended { reset: true };
    }

    /// The end has come home: the kernel has the bytes from `rcv_pos` on, and none beyond `tail_pos`.
    pub fn come_home(&mut self, kernel: &mut Kernel, (rcv_pos, tail_pos): (u64, u64)) {
        let Place::Pair(end) = std::mem::replace(&mut self.place, Place::Kernel) else { panic!("it is in no pair") };
        self.skip = end.read_total().saturating_sub(rcv_pos);
        let younger = std::mem::replace(&mut self.unsent, end.written_since(tail_pos).into());
        self.unsent.extend(younger);
        if self.unsent.is_empty() && self.finished {
            kernel.shutdown(self.at);
        }
        self.flush(kernel);
    }

    /// The connection is over: what is in the link can be read.
    pub fn part(&mut self, reset: bool) {
        if let Place::Pair(mut end) = std::mem::replace(&mut self.place, Place::Ended { reset }) {
            self.unread.extend(end.unread().unwrap());
        }
    }
}
