//! The frames of connections, as pcapng with a comment at each of the slowest messages.
//!
//! ```text
//!   packet socket --thread--> memory, bounded --the look ends--> frames of the report's connections --> file
//! ```

use crate::tuple::tuple;
use crate::whole_file::WholeFile;
use anyhow::{Context, anyhow};
use baton_analyse::read::{Passing, PassingPacket};
use baton_apps::fail::usage;
use baton_kernel::latency::Wanted;
use baton_lab::report::latency::{Report, Slow, told};
use baton_latency::{Direction, Exemplar};
use baton_port::pcapng::{self, About};
use baton_wire::addr::Tuple;
use baton_wire::packet::{Checks, Link, Packet};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The most bytes of frames that are kept, with what is known of each.
const MOST: usize = 256 << 20;
/// Time between two looks whether the capture ends.
const LOOK: Duration = Duration::from_millis(20);
/// The longest time for frames that wait to be read when the capture ends.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Headers must be whole. A device may have yet to compute the checksums of frames that are sent.
const CHECKS: Checks = Checks { ip_checksum: false, whole: false };

/// A frame that is kept.
struct Frame {
    at: usize,
    len: usize,
    time_ns: u64,
    outgoing: bool,
    /// Our end first.
    tuple: Tuple,
    /// The sequence number of its first byte.
    seq: u32,
    payload: u32,
    /// Frames before it that are missing.
    dropped: u64,
}

/// All frames that are kept.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    dropped: u64,
}

/// A capture that goes on.
pub struct Frames {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Kept>>,
}

impl Frames {
    /// Starts to capture the frames of connections that may be wanted.
    ///
    /// # Errors
    /// A usage error with the remedy if the process may not.
    pub fn start(wanted: &Wanted) -> anyhow::Result<Frames> {
        let refuse = |error| usage(format!("cannot capture frames: {error}"), "run as root, or leave out --pcap");
        let mut passing = Passing::open().map_err(refuse)?;
        let ends = Arc::new(AtomicBool::new(false));
        let (told, wanted) = (ends.clone(), *wanted);
        let capture = move || Kept::capture(&mut passing, &wanted, &told);
        let thread = thread::Builder::new().name("frames".into()).spawn(capture).context("cannot start a thread")?;
        Ok(Frames { ends, thread })
    }

    /// Ends the capture and writes what it has of the report's connections. Returns a sentence if the frames of some
    /// of an engine's slowest messages are not in it.
    ///
    /// # Errors
    /// If frames could not be read, or the file cannot be written.
    pub fn write(self, path: &Path, report: &Report) -> anyhow::Result<Option<String>> {
        self.ends.store(true, Ordering::Relaxed);
        let kept = self.thread.join().map_err(|_| anyhow!("the capture failed"))?.context("cannot read frames")?;
        let refuse = |error| usage(format!("cannot write {}: {error}", path.display()), "name another file");
        let mut file = WholeFile::create(path).map_err(refuse)?;
        kept.write(&mut file, report).with_context(|| format!("writing {}", path.display()))?;
        file.keep()?;
        let missing = kept.missing(report);
        Ok((missing > 0).then(|| {
            format!("engine: {missing} of the slowest messages are not marked in the capture, which lacks their frames")
        }))
    }
}

impl Kept {
    /// Keeps frames that may be wanted until the capture ends, with those that still wait to be read then.
    fn capture(passing: &mut Passing, wanted: &Wanted, ends: &AtomicBool) -> io::Result<Kept> {
        let mut kept = Kept::default();
        let mut read = |wait| {
            let count = passing.read(wait, |packet| kept.take(wanted, packet))?;
            kept.dropped += passing.dropped();
            io::Result::Ok(count)
        };
        while !ends.load(Ordering::Relaxed) {
            read(LOOK)?;
        }
        // New frames may come as fast as they are read.
        let ended = Instant::now();
        while read(Duration::ZERO)? > 0 && ended.elapsed() < CATCH_UP {}
        Ok(kept)
    }

    fn take(&mut self, wanted: &Wanted, packet: PassingPacket<'_>) {
        let Ok(facts) = Packet::parse_with(packet.data, Link::Ip, CHECKS) else { return };
        let from = (facts.src, facts.src_port);
        let to = (facts.dst, facts.dst_port);
        let (ours, peers) = if packet.outgoing { (from, to) } else { (to, from) };
        let tuple = Tuple { local: ours.0, remote: peers.0, local_port: ours.1, remote_port: peers.1 };
        let may_be = match wanted {
            Wanted::Tuple(wanted) => *wanted == tuple,
            Wanted::Port(port) => [ours.1, peers.1].contains(port),
            Wanted::Pid(_) | Wanted::All => true,
        };
        if !may_be {
            return;
        }
        let known = (self.frames.len() + 1) * size_of::<Frame>();
        if self.bytes.len() + packet.data.len() + known > MOST {
            self.dropped += 1;
            return;
        }
        let (at, len) = (self.bytes.len(), packet.data.len());
        self.bytes.extend_from_slice(packet.data);
        self.frames.push(Frame {
            at,
            len,
            time_ns: packet.time_ns,
            outgoing: packet.outgoing,
            tuple,
            seq: facts.seq.0,
            payload: facts.payload_len,
            dropped: std::mem::take(&mut self.dropped),
        });
    }

    fn write(&self, out: &mut impl Write, report: &Report) -> io::Result<()> {
        let ours: HashSet<Tuple> = report.entries.iter().filter_map(|entry| tuple(&entry.connection).ok()).collect();
        let comments = self.comments(report);
        let mut block = Vec::new();
        pcapng::start(&mut block, "any", false);
        out.write_all(&block)?;
        for (at, frame) in self.frames.iter().enumerate().filter(|(_, frame)| ours.contains(&frame.tuple)) {
            let about = About {
                time_ns: frame.time_ns,
                direction: if frame.outgoing { pcapng::Direction::Outbound } else { pcapng::Direction::Inbound },
                dropped: frame.dropped,
                comment: comments.get(&at).map_or("", String::as_str),
            };
            block.clear();
            let bytes = &self.bytes[frame.at..frame.at + frame.len];
            pcapng::packet(&mut block, &about, frame.len, |to| to.copy_from_slice(bytes));
            out.write_all(&block)?;
        }
        Ok(())
    }

    /// Comments by number of the frame.
    fn comments(&self, report: &Report) -> HashMap<usize, String> {
        let mut comments: HashMap<usize, String> = HashMap::new();
        for slow in report.slowest() {
            let Ok(tuple) = tuple(slow.connection) else { continue };
            if let Some(at) = self.frame_of(&tuple, slow.message, slow.unix_ns) {
                let comment = comments.entry(at).or_default();
                if !comment.is_empty() {
                    comment.push('\n');
                }
                comment.push_str(&told(slow.message));
            }
        }
        comments
    }

    /// How many of the slowest messages of engines have no frame.
    fn missing(&self, report: &Report) -> usize {
        let has_frame = |slow: &Slow<'_>| {
            tuple(slow.connection).is_ok_and(|tuple| self.frame_of(&tuple, slow.message, slow.unix_ns).is_some())
        };
        report.slowest().iter().filter(|slow| slow.place == "engine" && !has_frame(slow)).count()
    }

    /// The frame with a message's last byte: that which went when it was sent, or came when it was received.
    /// The bytes may have passed more than once.
    fn frame_of(&self, tuple: &Tuple, slow: &Exemplar, unix_ns: u64) -> Option<usize> {
        let outgoing = slow.direction == Direction::Transmit;
        let passed = unix_ns.saturating_add(if outgoing { slow.whole } else { 0 });
        let holds = |frame: &Frame| {
            let before_end = slow.end.wrapping_sub(1).wrapping_sub(frame.seq);
            frame.outgoing == outgoing && frame.tuple == *tuple && before_end < frame.payload
        };
        let candidates = self.frames.iter().enumerate().filter(|(_, frame)| holds(frame));
        candidates.min_by_key(|(_, frame)| frame.time_ns.abs_diff(passed)).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_testkit::{Netns, need_root};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn frames_that_wait_at_the_end_are_kept() {
        need_root!();
        // More than one reading takes.
        let sent = 500;
        let (mut passing, port) = Netns::new("frames").enter(|| {
            let passing = Passing::open().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut server = listener.accept().unwrap().0;
            for _ in 0..sent {
                client.write_all(b"ping").unwrap();
                server.read_exact(&mut [0; 4]).unwrap();
            }
            (passing, client.peer_addr().unwrap().port())
        });
        let kept = Kept::capture(&mut passing, &Wanted::Port(port), &AtomicBool::new(true)).unwrap();
        let outgoing = kept.frames.iter().filter(|frame| frame.outgoing && frame.payload == 4).count();
        assert_eq!((outgoing, kept.dropped), (sent, 0));
    }
}
