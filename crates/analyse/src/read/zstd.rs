//! A zstd file: frames one after another (RFC 8878 §3.1), some of which may be skippable.
//!
//! Memory is one frame's window. A frame that asks for more than 2 to the power of
//! [`WINDOW_LOG_MAX`] is an error with a remedy; `zstd` itself makes such frames only if
//! told to (`--long`, or levels from 20 on).

use std::io::{self, BufReader, Read};
use zstd::stream::read::Decoder;

const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// 8 MiB.
const WINDOW_LOG_MAX: u32 = 23;

/// True for the bytes that a zstd file begins with.
pub fn is_magic(first: &[u8]) -> bool {
    first.starts_with(&MAGIC)
        || first.first_chunk().is_some_and(|&magic| u32::from_le_bytes(magic) & 0xffff_fff0 == 0x184d_2a50)
}

/// The contents of all frames.
pub struct Frames<R: Read>(Decoder<'static, BufReader<R>>);

impl<R: Read> Frames<R> {
    /// Reads frames from `source`.
    ///
    /// # Errors
    /// There is no memory for a decoder.
    pub fn new(source: R) -> io::Result<Frames<R>> {
        let mut decoder = Decoder::new(source)?;
        decoder.window_log_max(WINDOW_LOG_MAX)?;
        Ok(Frames(decoder))
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(|error| match error.to_string() {
            // libzstd has no error code for this that the wrapper would keep.
            text if text.contains("too much memory") => {
                io::Error::other(format!("{text}; have it unpacked: zstd -dc --long=31 FILE | baton trace -"))
            }
            _ => error,
        })
    }
}
