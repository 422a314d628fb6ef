//! Maps the path of a request to a file, a listing or a refusal.
//!
//! Nothing outside the root is served: the path is split into components before it is decoded, a
//! component that decodes to `..` or contains a slash is refused, and the file's real path, with
//! links resolved, must lie below the root's.

use crate::html_text::escape;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Characters that are not percent-encoded in a link: unreserved characters (RFC 3986 §2.3).
const LINK: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Most entries of a listing.
const MAX_LISTED: usize = 10_000;

/// A directory whose files are served.
pub struct Site {
    root: PathBuf,
}

/// The resource that a path names.
pub enum Found {
    /// A regular file.
    File {
        /// Open at its start.
        file: File,
        /// Its length in bytes.
        len: u64,
        /// Time of its last change.
        modified: Option<SystemTime>,
        /// Its content type.
        kind: &'static str,
    },
    /// The listing of a directory, as an HTML page.
    Listing(String),
    /// A directory whose path lacks the final slash; holds the path with the slash.
    Elsewhere(String),
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Not HTTP, or an invalid path.
    BadRequest,
    /// The file does not exist, or must not be shown.
    NotFound,
    /// The method is neither GET nor HEAD.
    Method,
    /// The head has more than 16 KiB or more than 64 fields.
    HeadTooLarge,
}

impl Refusal {
    /// Code and phrase (RFC 9110 §15).
    pub fn status(self) -> &'static str {
        match self {
            Refusal::BadRequest => "400 Bad Request",
            Refusal::NotFound => "404 Not Found",
            Refusal::Method => "405 Method Not Allowed",
            Refusal::HeadTooLarge => "431 Request Header Fields Too Large",
        }
    }

    /// Header fields that the status requires.
    pub fn fields(self) -> &'static str {
        match self {
            Refusal::Method => "Allow: GET, HEAD\r\n",
            _ => "",
        }
    }
}

impl Site {
    /// Serves the files below `root`.
    ///
    /// # Errors
    /// If `root` cannot be resolved.
    pub fn new(root: &Path) -> io::Result<Site> {
        Ok(Site { root: root.canonicalize()? })
    }

    /// Finds the resource that a request's path names.
    ///
    /// # Errors
    /// A refusal, which does not reveal whether a hidden file exists.
    pub fn find(&self, path: &str) -> Result<Found, Refusal> {
        let relative = relative(path)?;
        let full = self.root.join(&relative).canonicalize().map_err(|_| Refusal::NotFound)?;
        if !full.starts_with(&self.root) {
            return Err(Refusal::NotFound);
        }
        let about = fs::metadata(&full).map_err(|_| Refusal::NotFound)?;
        if about.is_dir() {
            if !path.ends_with('/') {
                return Ok(Found::Elsewhere(format!("{}/", absolute(&relative))));
            }
            return match open(&full.join("index.html"), &self.root) {
                Some(found) => Ok(found),
                None => listing(&full, &relative).map(Found::Listing).map_err(|_| Refusal::NotFound),
            };
        }
        open(&full, &self.root).ok_or(Refusal::NotFound)
    }
}

/// Opens a regular file below `root`. Other kinds are refused, since a pipe could block.
fn open(path: &Path, root: &Path) -> Option<Found> {
    let path = path.canonicalize().ok().filter(|path| path.starts_with(root))?;
    let about = fs::metadata(&path).ok().filter(|about| about.is_file())?;
    let file = File::open(&path).ok()?;
    Some(Found::File { file, len: about.len(), modified: about.modified().ok(), kind: content_type(&path) })
}

/// The path below the root that a target names.
fn relative(path: &str) -> Result<PathBuf, Refusal> {
    let mut relative = PathBuf::new();
    if !path.starts_with('/') {
        return Err(Refusal::BadRequest);
    }
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let part = percent_decode_str(part).decode_utf8().map_err(|_| Refusal::BadRequest)?;
        match part.as_ref() {
            "." => {}
            ".." => return Err(Refusal::BadRequest),
            part if part.contains(['/', '\0']) => return Err(Refusal::BadRequest),
            part => relative.push(part),
        }
    }
    Ok(relative)
}

/// Returns `/a/b` for the relative path `a/b`, percent-encoded.
fn absolute(relative: &Path) -> String {
    relative.iter().fold(String::new(), |path, part| {
        let part = part.to_string_lossy();
        format!("{path}/{}", utf8_percent_encode(&part, &LINK))
    })
}

fn listing(dir: &Path, relative: &Path) -> io::Result<String> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)?.take(MAX_LISTED).flatten() {
        let Ok(about) = fs::metadata(entry.path()) else { continue };
        entries.push((!about.is_dir(), entry.file_name().to_string_lossy().into_owned(), about.len()));
    }
    entries.sort();
    let title = escape(&format!("/{}", relative.display()));
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>:root{{color-scheme:light dark;font:1rem/1.6 \
         system-ui}}body{{max-width:44rem;margin:2rem auto;padding:0 1rem}}td{{padding-right:2rem}}</style>\
         <h1>{title}</h1><table>"
    );
    if relative != Path::new("") {
        page.push_str("<tr><td><a href=\"../\">../</a><td>");
    }
    for (is_file, name, len) in entries {
        let (slash, size) = if is_file { ("", format!("{len}")) } else { ("/", String::new()) };
        let (link, name) = (utf8_percent_encode(&name, &LINK), escape(&name));
        let _ = write!(page, "<tr><td><a href=\"{link}{slash}\">{name}{slash}</a><td>{size}");
    }
    page.push_str("</table></html>\n");
    Ok(page)
}

fn content_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    match extension.as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "txt" | "md" | "log" | "toml" | "rs" | "c" | "h" => "text/plain; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "xml" => "application/xml",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}
