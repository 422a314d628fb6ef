//! The common and the combined log format: a request a line.
//!
//! ```text
//!   client ident user [10/Jul/1998:22:45:01 +0200] "GET /index.html HTTP/1.0" 200 1234 "referer" "agent"
//! ```

use super::{Damage, Item, Record, Why};
use std::io::{self, BufRead};

/// The longest line that is kept, in bytes.
pub const LONGEST_LINE: usize = 16 * 1024;

/// Reads lines.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    offset: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads from the input's position on.
    pub fn new(input: R) -> Reader<R> {
        Reader { input, line: Vec::new(), number: 0, offset: 0 }
    }

    /// Reads a line without its end, and returns its whole length; `self.line` has at most one byte more
    /// than the longest line.
    fn read_line(&mut self) -> io::Result<u64> {
        self.line.clear();
        let mut length = 0;
        loop {
            let part = self.input.fill_buf()?;
            if part.is_empty() {
                return Ok(length);
            }
            let end = part.iter().position(|&byte| byte == b'\n');
            let content = &part[..end.unwrap_or(part.len())];
            let room = LONGEST_LINE + 1 - self.line.len();
            self.line.extend_from_slice(&content[..content.len().min(room)]);
            let taken = end.map_or(part.len(), |end| end + 1);
            length += taken as u64;
            self.input.consume(taken);
            if end.is_some() {
                return Ok(length);
            }
        }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<io::Result<Item>> {
        loop {
            let offset = self.offset;
            match self.read_line() {
                Ok(0) => return None,
                Ok(length) => self.offset += length,
                Err(error) => return Some(Err(error)),
            }
            self.number += 1;
            let line = self.line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let parsed = if self.line.len() > LONGEST_LINE { Err(Why::TooLong) } else { parse(line) };
            return Some(Ok(match parsed {
                Ok(record) => Item::Record(record),
                Err(why) => Item::Damage(Damage { number: self.number, offset, why }),
            }));
        }
    }
}

/// Parses a line.
///
/// # Errors
/// With what the line lacks.
pub fn parse(line: &[u8]) -> Result<Record, Why> {
    let (client, rest) = split(line, b' ').filter(|(client, _)| !client.is_empty()).ok_or(Why::NoClient)?;
    let (_, rest) = split(rest, b'[').ok_or(Why::NoTime)?;
    let (time, rest) = split(rest, b']').ok_or(Why::NoTime)?;
    let seconds = seconds(time).ok_or(Why::NoTime)?;
    let (_, rest) = split(rest, b'"').ok_or(Why::NoRequest)?;
    let end = quoted(rest).ok_or(Why::NoRequest)?;
    let (request, rest) = (&rest[..end], &rest[end + 1..]);
    let mut fields = rest.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let status = fields.next().ok_or(Why::NoStatus)?;
    if status.len() != 3 || !status.iter().all(u8::is_ascii_digit) {
        return Err(Why::NoStatus);
    }
    let bytes = match fields.next().ok_or(Why::NoSize)? {
        b"-" => 0,
        size => number(size).ok_or(Why::NoSize)?,
    };
    let target = request.split(|&byte| byte == b' ').nth(1).unwrap_or(request);
    let file = hash(target) as u32;
    Ok(Record { seconds, client: hash(client), file, bytes: bytes.min(u32::MAX.into()) as u32 })
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let found = bytes.iter().position(|&byte| byte == at)?;
    Some((&bytes[..found], &bytes[found + 1..]))
}

/// The position of the quotation mark that ends a text; one behind a backslash is of the text.
fn quoted(bytes: &[u8]) -> Option<usize> {
    let mut escaped = false;
    bytes.iter().position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// `10/Jul/1998:22:45:01 +0200` in seconds since 1970.
fn seconds(time: &[u8]) -> Option<u64> {
    let (stamp, zone) = split(time, b' ').unwrap_or((time, b"+0000"));
    let mut parts = stamp.split(|&byte| byte == b'/' || byte == b':');
    let day = number(parts.next()?).filter(|day| (1..=31).contains(day))?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let year = number(parts.next()?).filter(|year| (1970..10_000).contains(year))?;
    let hour = number(parts.next()?).filter(|&hour| hour < 24)?;
    let minute = number(parts.next()?).filter(|&minute| minute < 60)?;
    let second = number(parts.next()?).filter(|&second| second <= 60)?;
    let (sign, zone) = zone.split_first()?;
    let offset = number(zone).filter(|_| zone.len() == 4)?;
    let offset = (offset / 100 * 60 + offset % 100) as i64 * 60 * if *sign == b'-' { -1 } else { 1 };
    let local = (days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second) as i64;
    u64::try_from(local - offset).ok()
}

/// Days from 1970 to a date of the Gregorian calendar; years begin in March here.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719_469
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
