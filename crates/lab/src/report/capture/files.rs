//! The captures of a report: the facts of one, or a line for each of several.

use super::percent;
use crate::report::short;
use crate::report::wrap::{row, wrap};
use baton_analyse::link_type;
use baton_analyse::per_file::Figures;
use baton_analyse::read::Facts;
use baton_analyse::report::FileLine;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

/// Columns for the name of a fact.
const NAME: usize = 20;

/// The captures for a terminal.
pub fn text(files: &[FileLine]) -> String {
    match files {
        [] => String::new(),
        [one] => facts(one),
        several => lines(several),
    }
}

/// The facts of one capture, one a line.
fn facts(file: &FileLine) -> String {
    let mut out = String::from("\n");
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(out, "{}", wrap(&format!("{name:<NAME$} {value}"), NAME + 1));
    };
    fact("capture", file.path.clone());
    if let Some(trouble) = &file.trouble {
        fact("not read to its end", trouble.clone());
    }
    if let Some(Facts { format, version: (major, minor), big_endian, link_types, snap_length }) = &file.facts {
        fact("format", format!("{format} {major}.{minor}, {} endian", if *big_endian { "big" } else { "little" }));
        fact("link type", link_types.iter().map(|link| link_name(*link)).collect::<Vec<_>>().join(", "));
        fact("snap length", snap_length.map_or("no bound".to_owned(), |bytes| format!("{bytes} bytes")));
    }
    if let Some(figures) = &file.figures {
        fact("start", moment(figures.start_ns));
        fact("duration", format!("{} s", short(figures.seconds)));
        fact("records", figures.frames_in.to_string());
    }
    if let Some(bytes) = file.bytes {
        fact("size", format!("{bytes} bytes"));
    }
    out
}

/// The first moment of all captures, and the last, in words. A capture ends when the time has passed that its stamps
/// tell, steps back left out.
pub fn extent(files: &[FileLine]) -> [String; 2] {
    let figures = || files.iter().filter_map(|file| file.figures.as_ref());
    let end = |one: &Figures| Some(one.start_ns?.saturating_add((one.seconds * 1e9).round() as u64));
    [moment(figures().filter_map(|one| one.start_ns).min()), moment(figures().filter_map(end).max())]
}

fn moment(stamp_ns: Option<u64>) -> String {
    stamp_ns.map_or("no frame".to_owned(), utc)
}

fn link_name(link: u16) -> String {
    link_type::name(link).map_or(format!("type {link}"), |name| format!("{name} ({link})"))
}

/// A stamp as a date and time, to the second.
fn utc(ns: u64) -> String {
    let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_nanos(ns));
    date.replace("GMT", "UTC")
}

/// A line for each capture. Those that were not read to their end are among the notes.
fn lines(files: &[FileLine]) -> String {
    let mut out = format!("\n{:<44} {:>12} {:>8}  {}\n", "captures", "frames", "joined", "verdict");
    for file in files {
        let figures = file.figures.as_ref().map_or(String::new(), |figures| {
            let (share, word) = (percent(figures.eliminated_share), figures.answer.word());
            format!(" {:>12} {share:>8}  {word:<11}", figures.frames_in)
        });
        row(&mut out, &file.path, &figures);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_analyse::verdict::Answer;

    #[test]
    fn a_stamp_is_a_date_of_utc() {
        assert_eq!(utc(0), "Thu, 01 Jan 1970 00:00:00 UTC");
        assert_eq!(utc(1_700_000_000_999_999_999), "Tue, 14 Nov 2023 22:13:20 UTC");
        assert!(utc(u64::MAX).contains("2554"));
    }

    #[test]
    fn captures_extend_from_the_earliest_start_to_the_latest_end() {
        let file = |start_ns, seconds| {
            let (frames_in, eliminated, eliminated_share, answer) = (0, 0, 0.0, Answer::CannotTell);
            let figures = Figures { frames_in, eliminated, eliminated_share, answer, start_ns, seconds };
            FileLine { figures: Some(figures), ..FileLine::default() }
        };
        let second = 1_000_000_000;
        let unread = FileLine::default();
        let files = [file(Some(60 * second), 30.0), unread, file(Some(20 * second), 65.5), file(None, 0.0)];
        assert_eq!(extent(&files), ["Thu, 01 Jan 1970 00:00:20 UTC", "Thu, 01 Jan 1970 00:01:30 UTC"]);
        assert_eq!(extent(&files[3..]), ["no frame", "no frame"]);
        // A record may state anything.
        assert!(extent(&[file(Some(second), f64::INFINITY)])[1].contains("2554"));
        assert_eq!(extent(&[file(Some(0), -1.0)])[1], utc(0));
    }
}
