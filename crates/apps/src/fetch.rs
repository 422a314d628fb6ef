//! An HTTP/1.1 client for one file: the application of `baton get`.
//!
//! It sends one request and reads one response, whose body ends by its length, by chunks
//! (RFC 9112 §7.1) or by the end of the connection. Redirects are not followed but reported with
//! their target.

use crate::net::{Flow, Handler, StreamIo};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// Largest response head, and largest chunk line, in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// Bytes per read.
const READ: usize = 256 * 1024;

/// Bytes read before the caller gets its turn.
const SHARE: usize = 4 << 20;

/// Receives the body as it arrives.
pub trait Body {
    /// Called after the head, with the body's length in bytes if the head gives it.
    fn on_head(&mut self, len: Option<u64>);
    /// Called with the next bytes of the body.
    ///
    /// # Errors
    /// An error ends the fetch.
    fn on_data(&mut self, data: &[u8]) -> io::Result<()>;
}

/// The state of a fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It has not ended yet.
    Running,
    /// The whole body was received.
    Complete,
    /// The server's status was not 200.
    Refused {
        /// Status code and phrase.
        status: String,
        /// Target of a redirect.
        location: Option<String>,
    },
    /// It failed; holds the reason.
    Failed(String),
}

/// How the end of the body is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Framing {
    /// By length: this many bytes remain.
    Length(u64),
    /// By the end of the connection.
    UntilClose,
    /// By chunks: this many bytes of the current chunk remain; 0 before a chunk line.
    Chunked(u64),
}

/// One fetch on one connection.
pub struct Fetch<B> {
    request: Vec<u8>,
    sent: usize,
    /// An incomplete head or chunk line.
    held: Vec<u8>,
    buf: Vec<u8>,
    framing: Option<Framing>,
    /// True if the line end after a chunk's data has not been read yet.
    chunk_end: bool,
    body: B,
    progress: Rc<RefCell<Progress>>,
}

impl<B: Body> Fetch<B> {
    /// Makes a fetch of `path` from `host`, which is also the value of the Host field.
    pub fn new(host: &str, path: &str, body: B) -> (Fetch<B>, Rc<RefCell<Progress>>) {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: baton\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        let progress = Rc::new(RefCell::new(Progress::Running));
        let fetch = Fetch {
            request: request.into_bytes(),
            sent: 0,
            held: Vec::new(),
            buf: vec![0; READ],
            framing: None,
            chunk_end: false,
            body,
            progress: progress.clone(),
        };
        (fetch, progress)
    }

    fn finish(&self, progress: Progress) {
        *self.progress.borrow_mut() = progress;
    }

    /// Processes received bytes. Returns true once the fetch has ended.
    fn take(&mut self, data: &[u8]) -> io::Result<bool> {
        if self.framing.is_none() {
            self.held.extend_from_slice(data);
            let Some(used) = self.take_head()? else { return Ok(false) };
            if *self.progress.borrow() != Progress::Running {
                return Ok(true);
            }
            let held = std::mem::take(&mut self.held);
            return self.take_body(&held[used..]);
        }
        if !self.held.is_empty() {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(data);
            return self.take_body(&held);
        }
        self.take_body(data)
    }

    /// Parses the head from the held bytes. Returns its length once it is complete.
    fn take_head(&mut self) -> io::Result<Option<usize>> {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; 100];
            let mut response = httparse::Response::new(&mut fields);
            let used = match response.parse(&self.held).map_err(|error| bad(&error.to_string()))? {
                httparse::Status::Partial if self.held.len() > MAX_HEAD => return Err(bad("a head that is too long")),
                httparse::Status::Partial => return Ok(None),
                httparse::Status::Complete(used) => used,
            };
            let code = response.code.unwrap_or(0);
            if (100..200).contains(&code) && code != 101 {
                self.held.drain(..used);
                continue;
            }
            let field = |name: &str| {
                let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
                std::str::from_utf8(found.value).ok().map(|value| value.trim().to_owned())
            };
            if code != 200 {
                let status = format!("{code} {}", response.reason.unwrap_or(""));
                self.finish(Progress::Refused { status: status.trim().to_owned(), location: field("location") });
                return Ok(Some(used));
            }
            let framing = framing(field("transfer-encoding"), field("content-length"))?;
            self.framing = Some(framing);
            self.body.on_head(match framing {
                Framing::Length(len) => Some(len),
                _ => None,
            });
            return Ok(Some(used));
        }
    }

    fn take_body(&mut self, mut data: &[u8]) -> io::Result<bool> {
        loop {
            match self.framing {
                None => return Ok(false),
                Some(Framing::UntilClose) => {
                    self.body.on_data(data)?;
                    return Ok(false);
                }
                Some(Framing::Length(rest)) => {
                    let len = usize::try_from(rest).unwrap_or(usize::MAX).min(data.len());
                    self.body.on_data(&data[..len])?;
                    self.framing = Some(Framing::Length(rest - len as u64));
                    return Ok(self.complete_if(rest == len as u64));
                }
                Some(Framing::Chunked(0)) => match self.chunk_line(data)? {
                    None => return Ok(*self.progress.borrow() == Progress::Complete),
                    Some(used) => data = &data[used..],
                },
                Some(Framing::Chunked(rest)) => {
                    let len = usize::try_from(rest).unwrap_or(usize::MAX).min(data.len());
                    self.body.on_data(&data[..len])?;
                    self.framing = Some(Framing::Chunked(rest - len as u64));
                    self.chunk_end = rest == len as u64;
                    data = &data[len..];
                    if data.is_empty() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Parses the line between two chunks, and returns its length in bytes. Returns `None` if it is
    /// incomplete (it is held then), or if it was the last.
    fn chunk_line(&mut self, data: &[u8]) -> io::Result<Option<usize>> {
        let skip = if self.chunk_end { 2 } else { 0 };
        let whole = match data.get(..skip) {
            Some(end) if self.chunk_end && end != b"\r\n" => return Err(bad("a chunk without a line end")),
            Some(_) => httparse::parse_chunk_size(&data[skip..]).map_err(|_| bad("a chunk size that is none"))?,
            None => httparse::Status::Partial,
        };
        match whole {
            httparse::Status::Partial if data.len() > MAX_HEAD => Err(bad("a chunk line that is too long")),
            httparse::Status::Partial => {
                self.held = data.to_vec();
                Ok(None)
            }
            // Trailer fields after the last chunk are not needed.
            httparse::Status::Complete((_, 0)) => {
                self.complete_if(true);
                Ok(None)
            }
            httparse::Status::Complete((used, len)) => {
                self.chunk_end = false;
                self.framing = Some(Framing::Chunked(len));
                Ok(Some(skip + used))
            }
        }
    }

    fn complete_if(&self, complete: bool) -> bool {
        if complete {
            self.finish(Progress::Complete);
        }
        complete
    }

    fn peer_finished(&self) -> io::Result<Flow> {
        match self.framing {
            Some(Framing::UntilClose) => {
                self.finish(Progress::Complete);
                Ok(Flow::Done)
            }
            _ => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection before the end of the file",
            )),
        }
    }
}

/// How a body ends (RFC 9112 §6.3).
fn framing(transfer_encoding: Option<String>, content_length: Option<String>) -> io::Result<Framing> {
    match (transfer_encoding, content_length) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked(0)),
        (Some(coding), _) => Err(bad(&format!("the transfer coding {coding}"))),
        (None, Some(len)) => len.parse().map(Framing::Length).map_err(|_| bad("a length that is none")),
        (None, None) => Ok(Framing::UntilClose),
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the response has {what}"))
}

impl<B: Body> Handler for Fetch<B> {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        while self.sent < self.request.len() {
            self.sent += io.write(&self.request[self.sent..])?;
        }
        let mut moved = 0;
        while moved < SHARE {
            let mut buf = std::mem::take(&mut self.buf);
            let read = io.read(&mut buf);
            let over = match &read {
                Ok(0) | Err(_) => Ok(false),
                Ok(len) => self.take(&buf[..*len]),
            };
            self.buf = buf;
            match read? {
                0 => return self.peer_finished(),
                len => moved += len,
            }
            if over? {
                return Ok(Flow::Done);
            }
        }
        Ok(Flow::Again)
    }

    fn on_end(&mut self, error: Option<&io::Error>) {
        let running = *self.progress.borrow() == Progress::Running;
        if let (Some(error), true) = (error, running) {
            self.finish(Progress::Failed(error.to_string()));
        }
    }
}
