//! The bytes of a capture, a window at a time.
//!
//! ```text
//!   buffer   | consumed |     window     | room |
//!            0        start             end
//! ```
//!
//! `fill` moves the rest of the window to the front and reads behind it, a piece that
//! the second-level cache holds. So the window can grow to [`WINDOW_MIN`] before
//! anything is consumed, which is more than the longest record that is looked into.
//!
//! A regular file is mapped instead, where that is possible, and moved over in pieces.

use super::{pcapng, zstd};
use crate::sys::mapped::Mapped;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The window can be at least as long as this, in bytes.
pub const WINDOW_MIN: usize = pcapng::BLOCK_MAX + (4 << 10);
/// Bytes read at once.
const READ: usize = 256 << 10;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A capture could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open {}: {source}", path.display())]
pub struct OpenError {
    /// The capture file.
    pub path: PathBuf,
    /// The operating system's answer.
    pub source: io::Error,
}

/// A file was cut while it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it was cut while it was read: it had {had} bytes and now has {has}")]
pub struct Cut {
    /// Its length when it was opened, in bytes.
    pub had: u64,
    /// Its length now, in bytes.
    pub has: u64,
}

/// The bytes of a capture.
pub struct Input {
    bytes: Bytes,
    /// The regular file that they are from, and its length when it was opened.
    file: Option<(File, u64)>,
    /// Offset of the window in the capture.
    offset: u64,
}

enum Bytes {
    Read(Stream),
    Mapped(Mapped),
    Held(Held),
}

/// A capture that is in memory as a whole.
struct Held {
    bytes: Box<dyn AsRef<[u8]> + Send>,
    start: usize,
}

impl Held {
    fn window(&self) -> &[u8] {
        let bytes: &[u8] = (*self.bytes).as_ref();
        &bytes[self.start..]
    }
}

/// The source, and a buffer of its bytes.
struct Stream {
    source: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// Opens a file, or standard input if `path` is `-`. The number of bytes read from the
    /// file, as it is on disk, is added to `progress`.
    ///
    /// # Errors
    /// It cannot be opened, or cannot be read at all.
    pub fn open(path: &Path, progress: &Arc<AtomicU64>) -> Result<Input, OpenError> {
        let fail = |source| OpenError { path: path.to_owned(), source };
        if path == Path::new("-") {
            return Input::read(Counted { source: io::stdin(), count: progress.clone() }).map_err(fail);
        }
        let file = File::open(path).map_err(fail)?;
        let facts = file.metadata().map_err(fail)?;
        let input = match Mapped::new(&file, progress).map_err(fail)? {
            Some(mapped) if compression(mapped.window()) == Compression::None => {
                Input { bytes: Bytes::Mapped(mapped), file: None, offset: 0 }
            }
            _ => {
                let source = file.try_clone().map_err(fail)?;
                Input::read(Counted { source, count: progress.clone() }).map_err(fail)?
            }
        };
        Ok(Input { file: facts.is_file().then_some((file, facts.len())), ..input })
    }

    /// Reads from anything; gzip and zstd are recognized by their first bytes.
    ///
    /// # Errors
    /// Nothing can be read.
    pub fn read(mut source: impl Read + Send + 'static) -> io::Result<Input> {
        let mut first = Vec::new();
        source.by_ref().take(4).read_to_end(&mut first)?;
        let compression = compression(&first);
        let source = Cursor::new(first).chain(source);
        let source: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(source),
            Compression::Gzip => Box::new(MultiGzDecoder::new(Even::new(source))),
            Compression::Zstd => Box::new(zstd::Frames::new(Even::new(source))?),
        };
        let buffer = vec![0; WINDOW_MIN + READ].into_boxed_slice();
        Ok(Input { bytes: Bytes::Read(Stream { source, buffer, start: 0, end: 0 }), file: None, offset: 0 })
    }

    /// Reads bytes that are in memory, where they are unless they are compressed.
    ///
    /// # Errors
    /// The decoder cannot be made.
    pub fn held(bytes: impl AsRef<[u8]> + Send + 'static) -> io::Result<Input> {
        match compression(bytes.as_ref()) {
            Compression::None => {
                let bytes = Bytes::Held(Held { bytes: Box::new(bytes), start: 0 });
                Ok(Input { bytes, file: None, offset: 0 })
            }
            Compression::Gzip | Compression::Zstd => Input::read(Cursor::new(bytes)),
        }
    }

    /// The current window.
    #[inline]
    pub fn window(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Read(stream) => &stream.buffer[stream.start..stream.end],
            Bytes::Mapped(mapped) => mapped.window(),
            Bytes::Held(held) => held.window(),
        }
    }

    /// Takes the first `len` bytes of the window off it.
    ///
    /// # Panics
    /// If the window is shorter.
    pub fn consume(&mut self, len: usize) {
        match &mut self.bytes {
            Bytes::Read(stream) => {
                assert!(len <= stream.end - stream.start, "more consumed than there is");
                stream.start += len;
            }
            Bytes::Mapped(mapped) => mapped.consume(len),
            Bytes::Held(held) => {
                assert!(len <= held.window().len(), "more consumed than there is");
                held.start += len;
            }
        }
        self.offset += len as u64;
    }

    /// Lengthens the window; false at the end of the capture.
    ///
    /// # Errors
    /// The operating system's answer, or that the compressed stream is damaged.
    pub fn fill(&mut self) -> io::Result<bool> {
        match &mut self.bytes {
            Bytes::Read(stream) => stream.fill(),
            Bytes::Mapped(mapped) => mapped.fill(),
            Bytes::Held(_) => Ok(false),
        }
    }

    /// Looks whether the file was cut since it was opened.
    pub fn cut(&self) -> Option<Cut> {
        let (file, had) = self.file.as_ref()?;
        let (had, has) = (*had, file.metadata().ok()?.len());
        let seen = matches!(&self.bytes, Bytes::Mapped(mapped) if mapped.was_cut());
        (has < had || seen).then_some(Cut { had, has })
    }

    /// Offset of the window in the capture, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl Stream {
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = self.end..self.buffer.len().min(self.end + READ);
        loop {
            match self.source.read(&mut self.buffer[room.clone()]) {
                Ok(len) => {
                    self.end += len;
                    return Ok(len > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

fn compression(first: &[u8]) -> Compression {
    match first {
        _ if first.starts_with(&GZIP) => Compression::Gzip,
        _ if zstd::is_magic(first) => Compression::Zstd,
        _ => Compression::None,
    }
}

/// Bytes that a decoder is given at once.
const PIECE: usize = 512;

/// Gives a decoder pieces of a fixed size, however the input arrives, so that damage is found
/// at the same place each time. They are small, because the output from the piece in which the
/// decoder finds the damage is lost.
struct Even<R>(BufReader<R>);

impl<R: Read> Even<R> {
    fn new(source: R) -> Even<R> {
        Even(BufReader::with_capacity(READ, source))
    }
}

impl<R: Read> Read for Even<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let room = buf.len().min(PIECE);
        let mut got = 0;
        while got < room {
            match self.0.read(&mut buf[got..room]) {
                Ok(0) => break,
                Ok(len) => got += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if got == 0 => return Err(error),
                // The error is reported again.
                Err(_) => break,
            }
        }
        Ok(got)
    }
}

/// Counts what is read.
struct Counted<R> {
    source: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.source.read(buf)?;
        self.count.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}
