//! Capture files, as frames: pcap and pcapng, plain or compressed, from a file or a pipe.
//!
//! ```text
//!   file, pipe, gzip, zstd --Input--> window of bytes --pcap | pcapng--> Frame --> Sink
//! ```
//!
//! A window is a piece of the capture that is in memory exactly as in the file; a frame is a
//! view into it. Nothing is copied on the way but the rest of a record that a window cuts, and
//! nothing is allocated for a length that a file claims: a block that does not fit the window
//! is stepped over, or is damage.
//!
//! Reading ends at the first damage, which is named by its offset in the (uncompressed)
//! capture. Everything before it has been handed out.

mod facts;
pub mod foreign;
mod input;
mod live;
mod passing;
mod pcap;
mod pcapng;
mod zstd;

pub use facts::Facts;
use foreign::Foreign;
pub use input::{Cut, Input, OpenError};
pub use live::{ANY, Live};
pub use passing::{Passing, PassingPacket};

/// Longest frame in a capture, in bytes: the largest snapshot length that libpcap allows.
pub const FRAME_MAX: usize = 262_144;

/// A frame of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The captured bytes.
    pub data: &'a [u8],
    /// Its length on the wire, in bytes; never less than the captured bytes.
    pub wire_len: u32,
    /// When it was captured, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Link type, as the tcpdump group numbers them.
    pub link: u16,
}

/// Takes frames in the order of the capture.
pub trait Sink {
    /// Takes one frame.
    fn frame(&mut self, frame: &Frame<'_>);

    /// Hears that the header of the capture, or of an interface in it, has bits set above the link type that its
    /// format reserves. They are not read.
    fn reserved_bits(&mut self, _bits: u32) {}
}

impl<F: FnMut(&Frame<'_>)> Sink for F {
    fn frame(&mut self, frame: &Frame<'_>) {
        self(frame);
    }
}

/// Where a capture becomes invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("damaged at byte {offset}: {what}")]
pub struct Damage {
    /// Offset of the record or block in the capture, behind decompression, in bytes.
    pub offset: u64,
    /// The fault, in words.
    pub what: String,
}

/// The cause that stopped a format's parser within a window.
enum Stop {
    /// The window ends before the record does.
    More,
    /// A block of `len` bytes that is skipped and too long for the window; its last four bytes
    /// have to be `trailer`.
    Skip { len: u64, trailer: [u8; 4] },
    /// The record is invalid.
    Damage(&'static str),
}

enum Format {
    /// Nothing was read yet.
    Unknown,
    Pcap(pcap::Layout),
    PcapNg(pcapng::Section),
    /// Past the end, or past damage.
    Over,
}

/// A block too long for the window, which is stepped over.
struct LongBlock {
    /// Where it begins in the capture.
    start: u64,
    /// Bytes of it that are still to come, but for the last four.
    rest: u64,
    /// The value that the last four must have.
    trailer: [u8; 4],
}

/// Reads the frames of a capture.
pub struct Reader {
    input: Input,
    format: Format,
    long: Option<LongBlock>,
    /// The facts of a capture that is over.
    facts: Option<Facts>,
}

/// Tells whether the input begins as a capture does, behind compression, by its first four bytes.
pub fn is_capture(mut input: Input) -> bool {
    while input.window().len() < pcapng::SECTION_HEADER.len() && input.fill().unwrap_or(false) {}
    let window = input.window();
    window.starts_with(&pcapng::SECTION_HEADER) || window.first_chunk().is_some_and(|magic| pcap::is_magic(*magic))
}

/// The message for a capture that ends early.
const CUT: &str = "it ends in the middle of a record";

impl Reader {
    /// Reads from `input`: pcap or pcapng, by its first bytes.
    pub fn new(input: Input) -> Reader {
        Reader { input, format: Format::Unknown, long: None, facts: None }
    }

    /// Hands the frames of one window to `sink`; false once there are no more.
    ///
    /// # Errors
    /// The capture is damaged, or could not be read any further. No frame follows.
    pub fn read(&mut self, sink: &mut impl Sink) -> Result<bool, Damage> {
        let outcome = self.step(sink);
        if !matches!(outcome, Ok(true)) {
            self.facts = self.facts();
            self.format = Format::Over;
        }
        let offset = self.long.take_if(|_| outcome.is_err()).map_or(self.input.offset(), |long| long.start);
        outcome.map_err(|what| Damage { offset, what })
    }

    /// Looks whether the file was cut since it was opened: then that is the cause of damage.
    pub fn cut(&self) -> Option<Cut> {
        self.input.cut()
    }

    /// The facts that the capture states about itself, as far as it was read; `None` until its format is known.
    pub fn facts(&self) -> Option<Facts> {
        match &self.format {
            Format::Pcap(layout) => Some(layout.facts()),
            Format::PcapNg(section) => section.facts(),
            Format::Unknown | Format::Over => self.facts.clone(),
        }
    }

    fn step(&mut self, sink: &mut impl Sink) -> Result<bool, String> {
        if self.long.is_some() {
            return self.step_over();
        }
        let (used, stop) = match &mut self.format {
            Format::Over => return Ok(false),
            Format::Unknown => return self.recognize(sink),
            Format::Pcap(layout) => layout.records(self.input.window(), sink),
            Format::PcapNg(section) => section.blocks(self.input.window(), sink),
        };
        self.input.consume(used);
        match stop {
            Stop::More => self.more(),
            Stop::Damage(what) => Err(what.to_owned()),
            Stop::Skip { len, trailer } => {
                self.long = Some(LongBlock { start: self.input.offset(), rest: len - 4, trailer });
                Ok(true)
            }
        }
    }

    /// Finds out which format it is.
    fn recognize(&mut self, sink: &mut impl Sink) -> Result<bool, String> {
        while self.input.window().len() < pcap::HEADER_LEN && self.input.fill().map_err(unreadable)? {}
        let window = self.input.window();
        if window.starts_with(&pcapng::SECTION_HEADER) {
            self.format = Format::PcapNg(pcapng::Section::default());
            return Ok(true);
        }
        let Some(magic) = window.first_chunk() else { return Err("it is empty".into()) };
        let header = window.first_chunk();
        match header.map(pcap::Layout::of) {
            Some(Some(layout)) if layout.version.0 != pcap::VERSION => {
                let (major, minor) = layout.version;
                Err(format!("pcap of version {major}.{minor}; only version 2 can be read"))
            }
            Some(Some(layout)) => {
                if layout.reserved != 0 {
                    sink.reserved_bits(layout.reserved);
                }
                self.format = Format::Pcap(layout);
                self.input.consume(pcap::HEADER_LEN);
                Ok(true)
            }
            None if pcap::is_magic(*magic) => Err("it ends in the middle of its header".into()),
            _ => Err(match foreign::recognize(window) {
                Some(Foreign { what, remedy }) => format!("{what}, not a capture that can be read; {remedy}"),
                None => "neither pcap nor pcapng".into(),
            }),
        }
    }

    /// Gets more of the capture into the window; false at its end, if that is where a
    /// record may end.
    fn more(&mut self) -> Result<bool, String> {
        match self.input.fill().map_err(unreadable)? {
            true => Ok(true),
            false if self.input.window().is_empty() => Ok(false),
            false => Err(CUT.to_owned()),
        }
    }

    /// Leaves out a windowful of a long block.
    fn step_over(&mut self) -> Result<bool, String> {
        let Some(long) = &mut self.long else { return Ok(true) };
        let window = self.input.window();
        if long.rest == 0
            && let Some(trailer) = window.first_chunk::<4>()
        {
            if *trailer != long.trailer {
                return Err(pcapng::LENGTHS_DIFFER.to_owned());
            }
            self.input.consume(4);
            self.long = None;
            return Ok(true);
        }
        let len = (window.len() as u64).min(long.rest);
        long.rest -= len;
        self.input.consume(len as usize);
        if len == 0 && !self.input.fill().map_err(unreadable)? { Err(CUT.to_owned()) } else { Ok(true) }
    }
}

fn unreadable(error: std::io::Error) -> String {
    format!("it cannot be read: {error}")
}
