//! A recorded capture as a port: its frames are received in order, all at once; sent frames are
//! discarded.
//!
//! Reads pcap and pcapng. Bounded: a block longer than [`BLOCK_MAX`] ends the
//! capture with an error. Only frames of the first interface's link type count.

use std::fs::File;
use std::io::{self, Cursor, Read};

use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta};
use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, create_reader};

use crate::error::OpenError;
use crate::wait::{WaitSet, Waitable};

/// Longest block, in bytes.
pub const BLOCK_MAX: usize = 1 << 20;
/// Shortest block of pcapng: its type, and its length twice.
const BLOCK_MIN: u32 = 12;
/// The first four bytes of a pcapng file.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The message for an invalid block.
const DAMAGED: &str = "a damaged block";
/// The longest frame that can be sent (and is discarded), in bytes.
const FRAME_MAX: usize = 14 + 65_535;

/// A capture file as a port.
pub struct PcapFile {
    name: String,
    reader: Box<dyn PcapReaderIterator + Send>,
    /// It is pcapng: made of blocks that begin with type and length.
    blocks: bool,
    link: Linktype,
    /// Link type of each interface of the section.
    interfaces: Vec<Linktype>,
    done: bool,
    tx: Box<[u8]>,
    counters: PcapFileCounters,
}

/// Frames of a capture file that were not received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PcapFileCounters {
    /// Of another link type than the first interface's, or of no interface.
    pub other_link: u64,
    /// Shorter in the file than on the wire.
    pub truncated: u64,
}

/// The meaning of a block of a capture.
enum Item<'a> {
    Frame { link: Option<Linktype>, data: &'a [u8], whole: bool },
    Interface(Linktype),
    Section,
    Other,
}

impl PcapFile {
    /// Opens a capture of Ethernet frames or bare IP packets.
    ///
    /// # Errors
    /// The file cannot be read, or is no such capture.
    pub fn open(path: &str) -> Result<Self, OpenError> {
        let device = format!("pcap:{path}");
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                OpenError::Missing { device: device.clone(), remedy: "name a capture that is there".into() }
            }
            _ => OpenError::System { device, what: "opening the file", source },
        })?;
        Self::read(path, file)
    }

    /// Reads a capture from any source; `name` is used in messages.
    ///
    /// # Errors
    /// It is no such capture.
    pub fn read(name: &str, mut capture: impl Read + Send + 'static) -> Result<Self, OpenError> {
        let device = format!("pcap:{name}");
        let unsuitable = |what: String| OpenError::Unsuitable {
            device: device.clone(),
            what,
            remedy: "use a pcap or pcapng file of Ethernet or raw IP (editcap converts others)".into(),
        };
        let start = beginning(&mut capture).map_err(|_| unsuitable(describe::<()>(&PcapError::ReadError)))?;
        let blocks = start.starts_with(&SECTION_HEADER);
        let reader =
            create_reader(BLOCK_MAX, Cursor::new(start).chain(capture)).map_err(|e| unsuitable(describe(&e)))?;
        let mut port = Self {
            name: name.to_owned(),
            reader,
            blocks,
            link: Linktype::NULL,
            interfaces: Vec::new(),
            done: false,
            tx: vec![0; FRAME_MAX].into_boxed_slice(),
            counters: PcapFileCounters::default(),
        };
        while port.interfaces.is_empty() {
            // A frame before any interface is damage, and is reported below.
            match port.step(&mut |_| {}) {
                Ok(true) => {}
                Ok(false) => return Err(unsuitable("no interface in it".into())),
                Err(e) => return Err(unsuitable(e.to_string())),
            }
        }
        port.link = port.interfaces[0];
        if ![Linktype::ETHERNET, Linktype::RAW].contains(&port.link) {
            return Err(unsuitable(format!("link type {}", port.link.0)));
        }
        Ok(port)
    }

    /// Frames not received so far, by reason.
    pub fn counters(&self) -> PcapFileCounters {
        self.counters
    }

    /// Reads one block and hands its frame, if it is one to receive, to `take`;
    /// false at the end.
    fn step(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        loop {
            if self.blocks && is_runt(self.reader.data()) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, DAMAGED));
            }
            let (len, block) = match self.reader.next().map_err(|e| stop(&e)) {
                Ok(next) => next,
                Err(Stop::End) => return Ok(false),
                Err(Stop::Incomplete) => {
                    if self.reader.reader_exhausted() {
                        return Err(damaged::<()>(&PcapError::UnexpectedEof));
                    }
                    self.reader.refill().map_err(|e| damaged(&e))?;
                    continue;
                }
                Err(Stop::Damaged(error)) => return Err(error),
            };
            match understand(&block, &self.interfaces) {
                Item::Frame { link, .. } if link != Some(self.link) => self.counters.other_link += 1,
                Item::Frame { whole: false, .. } => self.counters.truncated += 1,
                Item::Frame { data, .. } => take(data),
                Item::Interface(link) => self.interfaces.push(link),
                Item::Section => self.interfaces.clear(),
                Item::Other => {}
            }
            self.reader.consume(len);
            return Ok(true);
        }
    }
}

/// The first block, or what there is of it: the parser tells pcap from pcapng by what
/// its first read gives, which may be any part of it if a pipe is read.
fn beginning(capture: &mut impl Read) -> io::Result<Vec<u8>> {
    const FILE_HEADER: u64 = 24;
    const LITTLE_ENDIAN: [u8; 4] = 0x1a2b_3c4d_u32.to_le_bytes();
    let mut start = Vec::new();
    capture.take(FILE_HEADER).read_to_end(&mut start)?;
    if let [kind, len, order] = [0, 4, 8].map(|at| start.get(at..at + 4).and_then(|word| word.try_into().ok()))
        && kind == Some(SECTION_HEADER)
        && let Some(len) = len
    {
        let little = order == Some(LITTLE_ENDIAN);
        let len = if little { u32::from_le_bytes(len) } else { u32::from_be_bytes(len) };
        let rest = u64::from(len).min(BLOCK_MAX as u64).saturating_sub(FILE_HEADER);
        capture.take(rest).read_to_end(&mut start)?;
    }
    Ok(start)
}

/// True if the block that comes next says that it is shorter than any can be: the
/// parser takes the length at its word. No length from [`BLOCK_MIN`] to [`BLOCK_MAX`]
/// reads as less in the other byte order, so the order need not be known.
fn is_runt(data: &[u8]) -> bool {
    let len = data.get(4..8).and_then(|word| word.try_into().ok());
    len.is_some_and(|len| u32::from_le_bytes(len).min(u32::from_be_bytes(len)) < BLOCK_MIN)
}

fn understand<'a>(block: &'a PcapBlockOwned<'_>, interfaces: &[Linktype]) -> Item<'a> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => Item::Interface(header.network),
        PcapBlockOwned::Legacy(b) => Item::Frame {
            link: interfaces.first().copied(),
            data: &b.data[..b.data.len().min(b.caplen as usize)],
            whole: b.caplen >= b.origlen,
        },
        PcapBlockOwned::NG(Block::SectionHeader(_)) => Item::Section,
        PcapBlockOwned::NG(Block::InterfaceDescription(b)) => Item::Interface(b.linktype),
        PcapBlockOwned::NG(Block::EnhancedPacket(b)) => Item::Frame {
            link: interfaces.get(b.if_id as usize).copied(),
            data: b.packet_data(),
            whole: b.caplen >= b.origlen,
        },
        PcapBlockOwned::NG(Block::SimplePacket(b)) => Item::Frame {
            link: interfaces.first().copied(),
            data: b.packet_data(),
            whole: b.data.len() >= b.origlen as usize,
        },
        PcapBlockOwned::NG(_) => Item::Other,
    }
}

/// Why the parser gave no block.
enum Stop {
    End,
    Incomplete,
    Damaged(io::Error),
}

fn stop<I>(error: &PcapError<I>) -> Stop {
    match error {
        PcapError::Eof => Stop::End,
        PcapError::Incomplete(_) => Stop::Incomplete,
        other => Stop::Damaged(damaged(other)),
    }
}

fn damaged<I>(error: &PcapError<I>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, describe(error))
}

/// A parser's error in words.
fn describe<I>(error: &PcapError<I>) -> String {
    match error {
        PcapError::HeaderNotRecognized => "neither pcap nor pcapng".into(),
        PcapError::BufferTooSmall => format!("a block longer than {BLOCK_MAX} bytes"),
        PcapError::ReadError => "it cannot be read".into(),
        PcapError::Eof | PcapError::UnexpectedEof | PcapError::Incomplete(_) => {
            "it ends in the middle of a block".into()
        }
        PcapError::NomError(..) | PcapError::OwnedNomError(..) => DAMAGED.into(),
    }
}

impl FrameIo for PcapFile {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new(u16::MAX);
        capabilities.ethernet = self.link == Linktype::ETHERNET;
        capabilities
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let mut total = 0;
        while total < limit && !self.done {
            let mut take = |data: &[u8]| {
                sink.burst(&[RxFrame { data, meta: RxMeta::default() }]);
                total += 1;
            };
            match self.step(&mut take) {
                Ok(more) => self.done = !more,
                Err(source) => {
                    self.done = true;
                    return Err(PortError::new(format!("pcap:{}: reading", self.name), source));
                }
            }
        }
        Ok(total)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        Some(&mut self.tx[..len])
    }

    fn commit(&mut self, _len: usize, _meta: TxMeta) {}

    fn gather(&mut self, _header: &[u8], _payload: &[PayloadPart], _meta: TxMeta) -> bool {
        true
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }
}

impl Waitable for PcapFile {
    /// There is nothing to wait for: all remaining frames are available now.
    fn poll_fds(&self, _set: &mut WaitSet) {}

    fn prepare_wait(&mut self) -> bool {
        self.done
    }
}
