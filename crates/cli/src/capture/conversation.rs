//! A pair that is read along, and the segments that this makes.
//!
//! A segment is what an end has written between two looks. Its ACK says how far its sender has read, which
//! is also what a lone ACK tells of. Bytes that were written over are a gap in the numbers, and a comment. Time is
//! that of the look.

use super::segment::{MOST, Numbers, Segment};
use super::sink::Sink;
use baton_client::Followed;
use baton_pair::{Ending, Fault, Follower, Sight, Stage};
use baton_policy::Reason;
use baton_wire::seq::{Seq, Window, WindowScale};
use baton_wire::tcp::Flags;
use std::time::{Duration, Instant};

/// The most bytes of each end that one step takes.
const A_STEP: u64 = 1 << 20;
/// How long the service may take to say why a pair has ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something was captured.
    News,
    /// Nothing was.
    Quiet,
    /// The conversation is over.
    Over,
}

/// How a pair has left its memory, as the service tells it.
struct End {
    written: [u64; 2],
    home: Option<String>,
}

/// A pair that is read along.
pub struct Conversation {
    follower: Follower,
    numbers: Numbers,
    /// How far each end's last segment said that it has read.
    acked: [u64; 2],
    /// Each end's FIN was shown.
    ended: [bool; 2],
    /// A reset was shown.
    reset: bool,
    /// The end that sent last.
    last: usize,
    /// Said at the next segment.
    comment: String,
    end: Option<End>,
    /// Since when the pair is known to go no further, though the service has not said why.
    stopped: Option<Instant>,
    buffer: Vec<u8>,
}

impl Conversation {
    /// Begins with a comment for the first segment.
    pub fn new(followed: Followed, comment: String) -> Conversation {
        let Followed { pair, follower } = followed;
        let windows = [1, 0].map(|other| Window(follower.area_bytes(other)));
        let numbers = Numbers {
            tuple: pair.tuple,
            seqs: <[u32; 2]>::from(pair.seqs).map(Seq),
            scales: <[u8; 2]>::from(pair.scales).map(WindowScale::new),
            windows,
        };
        Conversation {
            follower,
            numbers,
            acked: [0; 2],
            ended: [false; 2],
            reset: false,
            last: 1,
            comment,
            end: None,
            stopped: None,
            buffer: vec![0; MOST],
        }
    }

    /// Room in bytes that a step may need.
    pub const ROOM: usize = 3 * A_STEP as usize;

    /// The service says that the pair has left its memory: what counts of it, and why the kernel goes on with it.
    pub fn end(&mut self, written: [u64; 2], home: Option<String>) {
        self.end = Some(End { written, home });
    }

    /// Captures what is new.
    pub fn step(&mut self, sink: &mut Sink) -> Step {
        match self.try_step(sink) {
            Ok(step) => step,
            Err(fault) => {
                let text = format!("the capture of this connection ends: {fault}");
                self.lone(sink, self.last, Flags::NONE, [0; 2], &text);
                Step::Over
            }
        }
    }

    fn try_step(&mut self, sink: &mut Sink) -> Result<Step, Fault> {
        let Sight { course, stage } = self.follower.look()?;
        let before = sink.sums();
        let limit = self.limit(course.written, stage);
        let all = [0, 1].map(|at| limit[at].min(self.follower.passed(at).saturating_add(A_STEP)));
        let first = self.first(all, course.read);
        for at in [first, 1 - first] {
            self.pass(sink, at, all[at], course.read)?;
        }
        let is_whole = [0, 1].map(|at| self.follower.passed(at) >= limit[at] && limit[at] >= course.written[at]);
        for at in [first, 1 - first] {
            match course.ends[at] {
                Ending::Finished | Ending::Closed if is_whole[at] && !self.ended[at] => {
                    self.lone(sink, at, Flags::FIN, course.read, "");
                    self.ended[at] = true;
                }
                Ending::Reset if is_whole[at] && !self.reset => {
                    self.lone(sink, at, Flags::RST, course.read, "");
                    self.reset = true;
                }
                _ => {}
            }
        }
        for at in [0, 1] {
            if self.read(at, course.read) > self.acked[at] && course.ends[at] < Ending::Closed && !self.reset {
                self.lone(sink, at, Flags::NONE, course.read, "");
            }
        }
        if self.is_over(sink, course.read, &course.ends, limit) {
            return Ok(Step::Over);
        }
        Ok(if sink.sums() == before { Step::Quiet } else { Step::News })
    }

    /// Up to where bytes may be shown.
    fn limit(&mut self, written: [u64; 2], stage: Stage) -> [u64; 2] {
        match &self.end {
            Some(End { written: counts, .. }) => [0, 1].map(|at| written[at].min(counts[at])),
            None if stage == Stage::Goes => written,
            // The service is about to say what counts. The kernel also gets all that is written later.
            None => {
                self.stopped.get_or_insert_with(Instant::now);
                [0, 1].map(|at| self.follower.passed(at))
            }
        }
    }

    /// The end whose bytes come first, of what both have written since the last look.
    fn first(&self, until: [u64; 2], read: [u64; 2]) -> usize {
        let new = [0, 1].map(|at| until[at] > self.follower.passed(at));
        // The other end has read some of them: they came before it wrote.
        let seen = [0, 1].map(|at| new[at] && read[1 - at] > self.follower.passed(at));
        match (new, seen) {
            ([true, false], _) | ([true, true], [true, false]) => 0,
            ([false, true], _) | ([true, true], [false, true]) => 1,
            _ => 1 - self.last,
        }
    }

    /// How far an end's segments say that it has read: no further than what was passed of the other's.
    fn read(&self, at: usize, read: [u64; 2]) -> u64 {
        let passed = self.follower.passed(1 - at);
        let bytes = read[at].min(passed);
        bytes + u64::from(self.ended[1 - at] && bytes == passed)
    }

    /// Shows an end's bytes up to a position.
    fn pass(&mut self, sink: &mut Sink, at: usize, until: u64, read: [u64; 2]) -> Result<(), Fault> {
        let mut lost = 0;
        while self.follower.passed(at) < until {
            let mut buffer = std::mem::take(&mut self.buffer);
            let passed = self.follower.read(at, until, &mut buffer);
            self.buffer = buffer;
            let passed = passed?;
            lost += passed.lost;
            sink.lose(passed.lost);
            if passed.count == 0 {
                continue;
            }
            let mut comment = std::mem::take(&mut self.comment);
            if lost > 0 {
                let gap = format!("{lost} bytes before these were written over before they could be read");
                comment = if comment.is_empty() { gap } else { format!("{comment}; {gap}") };
            }
            let is_last = self.follower.passed(at) >= until;
            let flags = if is_last { Flags::PSH } else { Flags::NONE };
            let read = self.read(at, read);
            let segment = Segment { from: at, at: passed.from, read, flags };
            let missing = std::mem::take(&mut lost).div_ceil(MOST as u64);
            sink.segment(&self.numbers, &segment, &self.buffer[..passed.count], missing, &comment);
            (self.acked[at], self.last) = (self.acked[at].max(read), at);
        }
        if lost > 0 {
            let gap = format!("{lost} bytes were written over before they could be read");
            self.comment = if self.comment.is_empty() { gap } else { format!("{}; {gap}", self.comment) };
        }
        Ok(())
    }

    /// Shows a segment without bytes.
    fn lone(&mut self, sink: &mut Sink, at: usize, flags: Flags, read: [u64; 2], comment: &str) {
        let read = self.read(at, read).max(self.acked[at]);
        let before = std::mem::take(&mut self.comment);
        let both = [before.as_str(), comment].join("; ");
        let position = self.follower.passed(at) + u64::from(self.ended[at]);
        let segment = Segment { from: at, at: position, read, flags };
        sink.segment(&self.numbers, &segment, &[], 0, both.trim_matches(|c| c == ';' || c == ' '));
        (self.acked[at], self.last) = (read, at);
    }

    /// True once nothing more is to come. Says why, unless the segments do.
    fn is_over(&mut self, sink: &mut Sink, read: [u64; 2], ends: &[Ending; 2], limit: [u64; 2]) -> bool {
        if (0..2).any(|at| self.follower.passed(at) < limit[at]) {
            return false;
        }
        let has_all = |at: usize| ends[at] >= Ending::Closed || read[at] >= self.follower.passed(1 - at);
        if self.reset || self.ended == [true, true] && has_all(0) && has_all(1) {
            return true;
        }
        match &self.end {
            Some(End { home: Some(code), .. }) => {
                let why = Reason::from_code(code).map_or("", Reason::text);
                let text = format!("from here on the kernel carries this connection: {why} ({code})");
                self.lone(sink, 1 - self.last, Flags::NONE, read, &text);
                true
            }
            Some(End { home: None, written }) => {
                // Its memory was another pair's before all of it was read.
                let rest = |at: usize| match written[at] {
                    u64::MAX => 0,
                    written => written.saturating_sub(self.follower.passed(at)),
                };
                let lost = rest(0).saturating_add(rest(1));
                sink.lose(lost);
                if self.ended == [false, false] {
                    let gap = if lost > 0 { format!("; {lost} bytes are not here") } else { String::new() };
                    self.lone(sink, 1 - self.last, Flags::NONE, read, &format!("the connection has ended{gap}"));
                }
                true
            }
            None if self.stopped.is_some_and(|since| since.elapsed() > PATIENCE) => {
                let text = "the pair has ended; the service does not say how";
                self.lone(sink, 1 - self.last, Flags::NONE, read, text);
                true
            }
            None => false,
        }
    }
}
