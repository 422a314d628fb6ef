//! `baton get`: fetches one file over HTTP, with a progress bar, and prints its digest.

use super::stack::{StackArgs, StackSpec};
use crate::whole_file::WholeFile;
use anyhow::{Context, bail};
use baton_apps::fail::usage;
use baton_apps::fetch::{Body, Fetch, Progress};
use baton_apps::signal::Stop;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Arguments of `baton get`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  baton get --port tap:baton0 --addr 10.77.0.2/24 http://10.77.0.1/file\n  baton get --port kernel http://127.0.0.1:8080/file -o file"
)]
pub struct Args {
    #[command(flatten)]
    stack: StackArgs,

    /// URL to fetch: http://HOST[:PORT]/PATH
    url: String,

    /// File to write; '-' for standard output [default: the last part of the URL]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Time without progress after which a fetch is abandoned.
const PATIENCE: Duration = Duration::from_secs(30);

/// The parts of an http URL.
#[derive(PartialEq, Eq, Debug)]
struct Url {
    /// Host and port, as sent in the Host field.
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Url {
    fn parse(text: &str) -> anyhow::Result<Url> {
        let bad = |what: &str| usage(format!("{what} in '{text}'"), "write http://HOST[:PORT]/PATH");
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
                return Err(usage("baton get does not speak TLS", "fetch an http:// URL"));
            }
            Some(_) => return Err(bad("a scheme other than http")),
            None => return Err(bad("no scheme")),
        };
        let rest = rest.split('#').next().unwrap_or("");
        let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if path.chars().chain(authority.chars()).any(|c| c.is_ascii_control() || c == ' ') {
            return Err(bad("a space or control character"));
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains('@') {
            return Err(bad("no host"));
        }
        let port = port.map_or(Ok(80), |port| port.parse().map_err(|_| bad("no port number")))?;
        Ok(Url { authority: authority.to_owned(), host: host.to_owned(), port, path })
    }

    fn resolve(&self) -> anyhow::Result<SocketAddr> {
        let found = (self.host.as_str(), self.port).to_socket_addrs().ok().and_then(|mut addrs| addrs.next());
        found.ok_or_else(|| {
            usage(format!("cannot find an address of '{}'", self.host), "give the host's IP address instead")
        })
    }

    fn file_name(&self) -> Option<&str> {
        let path = self.path.split('?').next()?;
        path.rsplit('/').next().filter(|name| !name.is_empty() && *name != "." && *name != "..")
    }
}

/// Where the body is written.
enum Place {
    Stdout,
    File { file: WholeFile, path: PathBuf },
}

impl Place {
    fn open(args: &Args, url: &Url) -> anyhow::Result<Place> {
        let path = match &args.output {
            Some(path) if path == Path::new("-") => return Ok(Place::Stdout),
            Some(path) => path.clone(),
            None => PathBuf::from(
                url.file_name().ok_or_else(|| usage("the URL does not end in a file name", "add -o FILE"))?,
            ),
        };
        let file = WholeFile::create(&path).map_err(|error| {
            usage(format!("cannot write to {}: {error}", path.display()), "name another place with -o FILE")
        })?;
        Ok(Place::File { file, path })
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Place::Stdout => io::stdout().lock().write_all(data),
            Place::File { file, .. } => file.write_all(data),
        }
    }

    /// Gives the complete file its final name.
    fn keep(self) -> anyhow::Result<String> {
        match self {
            Place::Stdout => {
                io::stdout().lock().flush()?;
                Ok("-".to_owned())
            }
            Place::File { file, path } => {
                file.keep()?;
                Ok(path.display().to_string())
            }
        }
    }
}

/// Writes, digests and counts the body.
struct Sink {
    place: Place,
    digest: Sha256,
    bytes: u64,
    bar: ProgressBar,
}

struct Shared(Rc<RefCell<Sink>>);

impl Body for Shared {
    fn on_head(&mut self, len: Option<u64>) {
        if let Some(len) = len {
            self.0.borrow().bar.set_length(len);
        }
    }

    fn on_data(&mut self, data: &[u8]) -> io::Result<()> {
        let sink = &mut *self.0.borrow_mut();
        sink.place.write(data)?;
        sink.digest.update(data);
        sink.bytes += data.len() as u64;
        sink.bar.set_position(sink.bytes);
        Ok(())
    }
}

#[derive(Serialize)]
struct Outcome {
    url: String,
    output: String,
    bytes: u64,
    seconds: f64,
    sha256: String,
    stats: baton_apps::net::Stats,
}

/// Fetches the file and prints its digest.
pub fn run(args: Args) -> anyhow::Result<()> {
    let url = Url::parse(&args.url)?;
    let target = url.resolve()?;
    if args.stack.port == StackSpec::Kernel && !args.stack.addrs.is_empty() {
        return Err(usage("--addr is an engine's address", "remove it, or choose a port other than kernel"));
    }
    let place = Place::open(&args, &url)?;
    let stop = Stop::install().context("cannot catch signals")?;
    let mut net = args.stack.open()?;
    let sink = Sink { place, digest: Sha256::new(), bytes: 0, bar: bar(args.json) };
    let sink = Rc::new(RefCell::new(sink));
    let (fetch, progress) = Fetch::new(&url.authority, &url.path, Shared(sink.clone()));
    let start = Instant::now();
    net.connect(target, Box::new(fetch)).with_context(|| format!("cannot connect to {target}"))?;
    let (mut moved, mut last_move) = (0, start);
    while *progress.borrow() == Progress::Running {
        net.turn(Duration::from_millis(100))?;
        let bytes = sink.borrow().bytes;
        if bytes != moved {
            (moved, last_move) = (bytes, Instant::now());
        }
        if stop.requested() {
            bail!("interrupted after {bytes} bytes");
        }
        if last_move.elapsed() > PATIENCE {
            bail!("{target} sent nothing for {} s", PATIENCE.as_secs());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let stats = net.stats();
    drop(net);
    let outcome = progress.borrow().clone();
    match outcome {
        Progress::Complete => {}
        Progress::Refused { status, location: Some(location) } => {
            bail!(
                "the server answered {status} with location {location}; redirects are not followed, fetch that URL instead"
            )
        }
        Progress::Refused { status, location: None } => bail!("the server answered {status}"),
        Progress::Failed(why) => bail!("{}: {why}", args.url),
        Progress::Running => bail!("the transfer did not finish"),
    }
    let Ok(sink) = Rc::try_unwrap(sink) else { bail!("the transfer did not finish") };
    report(&args, sink.into_inner(), seconds, stats)
}

fn report(args: &Args, sink: Sink, seconds: f64, stats: baton_apps::net::Stats) -> anyhow::Result<()> {
    sink.bar.finish_and_clear();
    let sha256 = sink.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let output = sink.place.keep()?;
    let rate = sink.bytes as f64 * 8e-9 / seconds;
    if args.json {
        let outcome = Outcome { url: args.url.clone(), output, bytes: sink.bytes, seconds, sha256, stats };
        eprint_or_print(args, &serde_json::to_string(&outcome)?);
    } else {
        eprint_or_print(args, &format!("{sha256}  {output}"));
        eprintln!("{} bytes in {seconds:.2} s, {rate:.2} Gb/s", sink.bytes);
    }
    Ok(())
}

/// Prints a line to standard output, or to standard error if the file went to standard output.
fn eprint_or_print(args: &Args, line: &str) {
    if args.output.as_deref() == Some(Path::new("-")) {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

fn bar(json: bool) -> ProgressBar {
    if json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = |text: &str| Url::parse(text).unwrap();
        let parts = |text: &str| {
            let url = url(text);
            (url.authority, url.host, url.port, url.path)
        };
        let owned = |a: &str, h: &str, p: u16, path: &str| (a.to_owned(), h.to_owned(), p, path.to_owned());
        assert_eq!(parts("http://a/b/c?d#e"), owned("a", "a", 80, "/b/c?d"));
        assert_eq!(parts("HTTP://[fd77::2]:8080"), owned("[fd77::2]:8080", "fd77::2", 8080, "/"));
        assert_eq!(parts("http://10.77.0.1:81?x"), owned("10.77.0.1:81", "10.77.0.1", 81, "/?x"));
        assert_eq!(url("http://a/b/c?d/e").file_name(), Some("c"));
        assert_eq!(url("http://a/b/").file_name(), None);
        for bad in
            ["a/b", "https://a/", "ftp://a/", "http://", "http://:80/", "http://a:b/", "http://a/b c", "http://a\r\n/"]
        {
            let error = Url::parse(bad).unwrap_err();
            assert_eq!(baton_apps::fail::exit_code(&error), 2, "{bad}");
        }
    }
}
