//! Request heads (RFC 9112 §2–3), parsed by `httparse` and reduced to the parts that a file server
//! needs.

use super::resource::Refusal;

/// Most header fields in one request.
const MAX_FIELDS: usize = 64;

/// The result of parsing the start of the input.
pub enum Head {
    /// The head is not complete yet.
    Partial,
    /// The input must be answered with this refusal, and the connection closed.
    Bad(Refusal),
    /// A request, and the length of its head in bytes.
    Whole(usize, Wanted),
}

/// The parts of a request that the server needs.
pub struct Wanted {
    /// True for HEAD: the response has no body.
    pub head_only: bool,
    /// Target without query, still percent-encoded.
    pub path: String,
    /// The byte range asked for, if it is a single one.
    pub range: Option<Range>,
    /// Date of the If-Range field (RFC 9110 §13.1.5).
    pub if_range: Option<String>,
    /// The connection stays open afterwards.
    pub keep_alive: bool,
    /// The client speaks HTTP/1.0.
    pub http_1_0: bool,
}

impl Wanted {
    /// A placeholder for a request that could not be parsed.
    pub fn unreadable() -> Wanted {
        Wanted {
            head_only: false,
            path: String::new(),
            range: None,
            if_range: None,
            keep_alive: false,
            http_1_0: false,
        }
    }
}

/// A byte range as written (RFC 9110 §14.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// `first-` or `first-last`.
    From(u64, Option<u64>),
    /// `-length`: the last bytes.
    Last(u64),
}

impl Range {
    /// The range as `[start, end)` within a file of `len` bytes, or `None` if it lies outside.
    pub fn within(self, len: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Range::From(first, None) => (first, len),
            Range::From(first, Some(last)) => (first, last.saturating_add(1).min(len)),
            Range::Last(bytes) => (len.saturating_sub(bytes), len),
        };
        (start < end).then_some((start, end))
    }

    /// Parses a `Range` field. Returns `None` for a list of ranges, another unit, or invalid text:
    /// a server may ignore the field (RFC 9110 §14.2).
    pub fn parse(field: &str) -> Option<Range> {
        let (unit, spec) = field.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = spec.trim().split_once('-')?;
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
        match (first, last) {
            ("", last) => Some(Range::Last(number(last)?)),
            (first, "") => Some(Range::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Range::From(first, Some(last)))
            }
        }
    }
}

/// Parses a request at the start of `input`.
pub fn parse(input: &[u8]) -> Head {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(input) {
        Ok(httparse::Status::Partial) => Head::Partial,
        Ok(httparse::Status::Complete(used)) => reduce(&request, used),
        Err(httparse::Error::TooManyHeaders) => Head::Bad(Refusal::HeadTooLarge),
        Err(_) => Head::Bad(Refusal::BadRequest),
    }
}

fn reduce(request: &httparse::Request<'_, '_>, used: usize) -> Head {
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Head::Bad(Refusal::BadRequest);
    };
    let field = |name: &str| {
        let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok().map(str::trim)
    };
    let http_1_0 = version == 0;
    // RFC 9112 §3.2: a request without Host is answered with 400.
    if !http_1_0 && field("host").is_none() {
        return Head::Bad(Refusal::BadRequest);
    }
    if method != "GET" && method != "HEAD" {
        return Head::Bad(Refusal::Method);
    }
    let connection = field("connection").unwrap_or("").to_ascii_lowercase();
    let says = |word: &str| connection.split(',').any(|token| token.trim() == word);
    // GET and HEAD need no body. Close the connection instead of finding the end of one.
    let body = field("transfer-encoding").is_some() || field("content-length").is_some_and(|len| len != "0");
    let keep_alive = !body && !says("close") && (!http_1_0 || says("keep-alive"));
    let path = target.split(['?', '#']).next().unwrap_or("");
    let wanted = Wanted {
        head_only: method == "HEAD",
        path: absolute_form(path).to_owned(),
        range: field("range").and_then(Range::parse).filter(|_| method == "GET"),
        if_range: field("if-range").map(str::to_owned),
        keep_alive,
        http_1_0,
    };
    Head::Whole(used, wanted)
}

/// The path of a target in absolute form (RFC 9112 §3.2.2), or the target itself.
fn absolute_form(target: &str) -> &str {
    match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file_or_refused() {
        let within = |field: &str| Range::parse(field).map(|range| range.within(100));
        assert_eq!(within("bytes=0-0"), Some(Some((0, 1))));
        assert_eq!(within("Bytes=90-"), Some(Some((90, 100))));
        assert_eq!(within("bytes=-10"), Some(Some((90, 100))));
        assert_eq!(within("bytes=-1000"), Some(Some((0, 100))));
        assert_eq!(within("bytes=50-18446744073709551615"), Some(Some((50, 100))));
        for outside in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert_eq!(within(outside), Some(None), "{outside}");
        }
        for ignored in ["bytes=5-4", "bytes=0-1,3-4", "lines=1-2", "bytes=a-b", "bytes=-", "bytes", "bytes=+1-2"] {
            assert_eq!(within(ignored), None, "{ignored}");
        }
    }

    #[test]
    fn persistence_follows_version_and_connection_field() {
        let keep_alive = |head: &str| match parse(head.as_bytes()) {
            Head::Whole(used, wanted) => {
                assert_eq!(used, head.len());
                wanted.keep_alive
            }
            _ => panic!("{head}"),
        };
        assert!(keep_alive("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(!keep_alive("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keep_alive("GET / HTTP/1.0\r\n\r\n"));
        assert!(keep_alive("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert!(!keep_alive("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"));
        assert!(matches!(parse(b"GET / HTTP/1.1\r\n\r\n"), Head::Bad(Refusal::BadRequest)));
        assert!(matches!(parse(b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n"), Head::Bad(Refusal::Method)));
        assert!(matches!(parse(b"GET / HT"), Head::Partial));
        assert!(matches!(parse(b"\0\0\0\0"), Head::Bad(Refusal::BadRequest)));
    }
}
