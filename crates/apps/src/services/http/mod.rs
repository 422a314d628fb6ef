//! HTTP/1.1 for the files of a directory (RFC 9110, RFC 9112): GET and HEAD,
//! one byte range, keep-alive and pipelining, listings.
//!
//! A connection is a loop over four steps. Each step may block on the stream, and continues there
//! later:
//!
//! ```text
//!   send what is queued -> refill it from the file -> parse a request -> read
//! ```
//!
//! Limits per connection: 16 KiB of request head, 256 KiB of response in memory.

mod request;
mod resource;

pub use resource::Site;

use crate::net::{Flow, Handler, StreamIo};
use request::{Head, Wanted};
use resource::{Found, Refusal};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// Largest accepted request head in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Most bytes of a file in memory at once.
const CHUNK: usize = 256 * 1024;

/// Bytes sent before other connections run.
const SHARE: usize = 4 << 20;

/// One HTTP connection.
pub struct Http {
    site: Rc<Site>,
    /// Received bytes that are not parsed yet.
    input: Vec<u8>,
    /// Bytes to send; those before `sent` have been sent.
    output: Vec<u8>,
    sent: usize,
    /// The file being sent, and how many bytes of it remain.
    body: Option<(File, u64)>,
    ending: Ending,
}

/// Stages of closing a connection.
#[derive(PartialEq, Eq)]
enum Ending {
    /// Requests are accepted.
    Open,
    /// The current response is the last.
    AfterResponse,
    /// Our side has finished. Bytes of the peer are dropped until it finishes too, so that no reset
    /// overtakes the response.
    Draining,
}

impl Http {
    /// A new connection to `site`.
    pub fn new(site: Rc<Site>) -> Http {
        Http { site, input: Vec::new(), output: Vec::new(), sent: 0, body: None, ending: Ending::Open }
    }

    /// Sends what is queued, including the rest of the file. Returns true if its share of the turn
    /// ended before that.
    fn send(&mut self, io: &mut dyn StreamIo) -> io::Result<bool> {
        let mut moved = 0;
        loop {
            while self.sent < self.output.len() {
                let len = io.write(&self.output[self.sent..])?;
                self.sent += len;
                moved += len;
            }
            self.output.clear();
            self.sent = 0;
            if self.body.is_none() {
                // Free the buffer, so that an idle connection holds none.
                self.output.shrink_to(MAX_HEAD);
                return Ok(false);
            }
            self.refill()?;
            if moved >= SHARE {
                return Ok(true);
            }
        }
    }

    /// Adds the next chunk of the file to the output.
    fn refill(&mut self) -> io::Result<()> {
        let Some((file, rest)) = &mut self.body else { return Ok(()) };
        let start = self.output.len();
        let room = CHUNK.saturating_sub(start).max(1);
        let len = usize::try_from(*rest).unwrap_or(room).min(room);
        self.output.resize(start + len, 0);
        // If the file has shrunk since its length was announced, the connection must end.
        file.read_exact(&mut self.output[start..])?;
        *rest -= len as u64;
        if *rest == 0 {
            self.body = None;
        }
        Ok(())
    }

    /// Answers one request from the input, if it is complete.
    fn answer(&mut self) -> io::Result<bool> {
        let (used, wanted) = match request::parse(&self.input) {
            Head::Partial if self.input.len() < MAX_HEAD => return Ok(false),
            Head::Partial => return self.refuse_and_end(Refusal::HeadTooLarge),
            Head::Bad(refusal) => return self.refuse_and_end(refusal),
            Head::Whole(used, wanted) => (used, wanted),
        };
        self.input.drain(..used);
        if !wanted.keep_alive {
            self.ending = Ending::AfterResponse;
        }
        match self.site.find(&wanted.path) {
            Ok(Found::File { file, len, modified, kind }) => self.send_file(&wanted, file, len, modified, kind)?,
            Ok(Found::Listing(page)) => {
                self.respond(&wanted, "200 OK", "Content-Type: text/html; charset=utf-8\r\n", page)
            }
            Ok(Found::Elsewhere(path)) => {
                self.respond(&wanted, "301 Moved Permanently", &format!("Location: {path}\r\n"), String::new());
            }
            Err(refusal) => self.refuse(&wanted, refusal),
        }
        Ok(true)
    }

    fn send_file(
        &mut self,
        wanted: &Wanted,
        mut file: File,
        len: u64,
        modified: Option<SystemTime>,
        kind: &str,
    ) -> io::Result<()> {
        let stamp = modified.map(httpdate::fmt_http_date);
        let current = wanted.if_range.is_none() || wanted.if_range == stamp;
        let range = wanted.range.filter(|_| current).map(|range| range.within(len));
        let (status, start, end) = match range {
            None => ("200 OK", 0, len),
            Some(Some((start, end))) => ("206 Partial Content", start, end),
            Some(None) => {
                let fields = format!("Content-Range: bytes */{len}\r\n");
                self.respond(wanted, "416 Range Not Satisfiable", &fields, String::new());
                return Ok(());
            }
        };
        let mut fields = format!("Content-Type: {kind}\r\nAccept-Ranges: bytes\r\n");
        if let Some(stamp) = stamp {
            let _ = write!(fields, "Last-Modified: {stamp}\r\n");
        }
        if matches!(range, Some(Some(_))) {
            let _ = write!(fields, "Content-Range: bytes {start}-{}/{len}\r\n", end - 1);
        }
        self.head(wanted, status, &fields, end - start);
        if !wanted.head_only && end > start {
            file.seek(SeekFrom::Start(start))?;
            self.body = Some((file, end - start));
            self.refill()?;
        }
        Ok(())
    }

    fn refuse(&mut self, wanted: &Wanted, refusal: Refusal) {
        let text = format!("{}\n", refusal.status());
        let fields = format!("Content-Type: text/plain; charset=utf-8\r\n{}", refusal.fields());
        self.respond(wanted, refusal.status(), &fields, text);
    }

    /// Refuses input after which the start of the next request is unknown.
    fn refuse_and_end(&mut self, refusal: Refusal) -> io::Result<bool> {
        self.input.clear();
        self.ending = Ending::AfterResponse;
        self.refuse(&Wanted::unreadable(), refusal);
        Ok(true)
    }

    fn respond(&mut self, wanted: &Wanted, status: &str, fields: &str, body: String) {
        self.head(wanted, status, fields, body.len() as u64);
        if !wanted.head_only {
            self.output.extend_from_slice(body.as_bytes());
        }
    }

    fn head(&mut self, wanted: &Wanted, status: &str, fields: &str, len: u64) {
        let date = httpdate::fmt_http_date(SystemTime::now());
        let connection = match (wanted.keep_alive, wanted.http_1_0) {
            (false, _) => "Connection: close\r\n",
            (true, true) => "Connection: keep-alive\r\n",
            (true, false) => "",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nServer: baton\r\nDate: {date}\r\n{connection}{fields}Content-Length: {len}\r\n\r\n"
        );
        self.output.extend_from_slice(head.as_bytes());
    }

    /// Reads more of a request. Returns false once the peer has finished.
    fn receive(&mut self, io: &mut dyn StreamIo) -> io::Result<bool> {
        let mut buf = [0; 4096];
        let len = io.read(&mut buf)?;
        self.input.extend_from_slice(&buf[..len]);
        Ok(len > 0)
    }
}

impl Handler for Http {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        loop {
            if self.send(io)? {
                return Ok(Flow::Again);
            }
            match self.ending {
                Ending::Open => {}
                Ending::AfterResponse => {
                    io.finish()?;
                    self.ending = Ending::Draining;
                }
                Ending::Draining => match io.skip(CHUNK) {
                    Ok(0) => return Ok(Flow::Done),
                    Ok(_) => return Ok(Flow::Again),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flow::Wait),
                    Err(_) => return Ok(Flow::Done),
                },
            }
            if self.ending == Ending::Open && !self.answer()? && !self.receive(io)? {
                return Ok(Flow::Done);
            }
        }
    }

    fn idle_limit(&self) -> Option<Duration> {
        Some(Duration::from_secs(60))
    }
}
