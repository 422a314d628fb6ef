//! Bulk transfers between the kernel and Baton, each way, checked byte by byte.

use crate::wire::{BATON, HOST, Ip, KERNEL, Serve, Wire, kernel_retransmissions, retransmitted};
use baton_apps::services::ramp;
use baton_port::Faults;
use baton_socket::stack::{Stack, Threads};
use baton_testkit::{Netns, Running};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Bytes per check or write.
const PIECE: usize = 200 * ramp::PERIOD;

/// A directory with one file of the ramp in it.
pub struct Site {
    dir: tempfile::TempDir,
    pub bytes: u64,
    sha256: String,
}

impl Site {
    pub fn new(bytes: u64) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let mut file = File::create(dir.path().join("ramp")).unwrap();
        let mut digest = Sha256::new();
        pieces(bytes, |piece| {
            digest.update(piece);
            file.write_all(piece)
        })
        .unwrap();
        let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Site { dir, bytes, sha256 }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Time that a transfer may take: 30 s, and 1 s for each MB.
    fn patience(&self) -> Duration {
        Duration::from_secs(30 + self.bytes / 1_000_000)
    }
}

/// The ramp, piece by piece.
fn pieces(bytes: u64, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut at = 0;
    while at < bytes {
        let len = PIECE.min(usize::try_from(bytes - at).unwrap_or(PIECE));
        take(&ramp::from(at)[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Reads the ramp to its end and no further.
fn read_ramp(stream: &mut impl Read, bytes: u64) -> Result<(), String> {
    let (mut at, mut buf) = (0, vec![0; PIECE]);
    loop {
        match stream.read(&mut buf) {
            Ok(0) if at == bytes => return Ok(()),
            Ok(0) => return Err(format!("ended after {at} of {bytes} bytes")),
            Ok(len) if !ramp::matches(at, &buf[..len]) => {
                return Err(format!("a wrong byte within {len} from {at} on"));
            }
            Ok(len) => at += len as u64,
            // A signal to the process interrupts a read on a socket with a timeout.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("after {at} bytes: {error}")),
        }
    }
}

/// Retransmissions of a transfer: payload bytes by Baton, segments by the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub seconds: f64,
    pub baton_bytes: u64,
    pub kernel_segments: u64,
}

/// One transfer over a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// `curl` on the kernel's side fetches from Baton's HTTP server: Baton sends.
    Curl,
    /// A kernel socket sends to Baton's echo server and reads everything back: both directions at
    /// once, with half-close.
    Echo,
    /// `baton get` fetches from nginx: Baton receives.
    Get,
    /// Baton's stack connects and puts a file to nginx: Baton sends.
    Put,
}

/// Runs one transfer. `serve` is Baton's server, for the transfers that need it.
pub fn run(
    transfer: Transfer,
    wire: &Wire,
    ip: Ip,
    site: &Site,
    serve: Option<&mut Serve>,
    faults: Option<Faults>,
) -> Result<Cost, String> {
    let (start, kernel) = (Instant::now(), kernel_retransmissions(&wire.far));
    let baton_bytes = match (transfer, serve) {
        (Transfer::Curl | Transfer::Echo, Some(serve)) => {
            let before = retransmitted(&serve.stats());
            if transfer == Transfer::Curl {
                curl(&wire.far, ip, site)?
            } else {
                echo(&wire.far, ip, site)?
            }
            retransmitted(&serve.stats()) - before
        }
        (Transfer::Get, _) => get(wire, ip, site, faults)?,
        (Transfer::Put, _) => put(wire, ip, site, faults)?,
        _ => return Err("needs a server".into()),
    };
    let kernel_segments = kernel_retransmissions(&wire.far) - kernel;
    Ok(Cost { seconds: start.elapsed().as_secs_f64(), baton_bytes, kernel_segments })
}

/// Fetches a site's file from Baton with the `curl` of this namespace.
pub fn curl(netns: &Netns, ip: Ip, site: &Site) -> Result<(), String> {
    let script = format!(
        "set -o pipefail; curl -sS --max-time {} http://{}/ramp | sha256sum",
        site.patience().as_secs(),
        ip.url_host(HOST)
    );
    let output = netns.command("bash").args(["-c", &script]).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    same_digest(site, String::from_utf8_lossy(&output.stdout).split_whitespace().next().unwrap_or(""))
}

/// Compares the digest of what arrived.
pub fn same_digest(site: &Site, sha256: &str) -> Result<(), String> {
    if sha256 == site.sha256 { Ok(()) } else { Err(format!("the digest is {sha256}, not {}", site.sha256)) }
}

/// Sends the ramp to Baton's echo server from this namespace, and reads it all back.
pub fn echo(netns: &Netns, ip: Ip, site: &Site) -> Result<(), String> {
    let stream = connect(netns, SocketAddr::new(ip.addr(HOST), 7)).map_err(|error| format!("connect: {error}"))?;
    stream.set_read_timeout(Some(site.patience())).unwrap();
    stream.set_write_timeout(Some(site.patience())).unwrap();
    let (mut reader, mut writer) = (&stream, &stream);
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            pieces(site.bytes, |piece| writer.write_all(piece))?;
            writer.shutdown(Shutdown::Write)
        });
        let read = read_ramp(&mut reader, site.bytes);
        if read.is_err() {
            // Otherwise the writer might wait forever.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let written = writing.join().unwrap();
        read.and(written.map_err(|error| format!("writing: {error}")))
    })
}

/// Connects a kernel socket of this namespace.
pub fn connect(netns: &Netns, addr: SocketAddr) -> io::Result<TcpStream> {
    netns.enter(|| TcpStream::connect_timeout(&addr, Duration::from_secs(20)))
}

fn get(wire: &Wire, ip: Ip, site: &Site, faults: Option<Faults>) -> Result<u64, String> {
    get_by(wire.baton("get", faults), ip, site)
}

/// Fetches a site's file from nginx with further arguments.
pub fn get_with(wire: &Wire, ip: Ip, site: &Site, args: &[&str]) -> Result<u64, String> {
    let mut command = wire.baton("get", None);
    command.args(args);
    get_by(command, ip, site)
}

fn get_by(mut command: std::process::Command, ip: Ip, site: &Site) -> Result<u64, String> {
    command.args(["-o", "-", &format!("http://{}/ramp", ip.url_host(KERNEL))]).stdout(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let outcome: Value = serde_json::from_str(&said).map_err(|_| format!("{BATON} get: {}", said.trim()))?;
    same_digest(site, outcome["sha256"].as_str().unwrap_or(""))?;
    Ok(retransmitted(&outcome["stats"]))
}

fn put(wire: &Wire, ip: Ip, site: &Site, faults: Option<Faults>) -> Result<u64, String> {
    // `baton get` drives its engine on one thread; this test uses two.
    let stack = wire.stack(faults, Threads::Two);
    let target = SocketAddr::new(ip.addr(KERNEL), 80);
    put_file(&stack, target, site).map_err(|error| format!("{error}"))?;
    let path = site.path().join("put");
    let file = File::open(&path).map_err(|error| format!("nothing was put: {error}"))?;
    let read = read_ramp(&mut io::BufReader::new(file), site.bytes);
    std::fs::remove_file(path).unwrap();
    read?;
    Ok(stack.stats().streamer.tx_retransmitted_bytes)
}

fn put_file(stack: &Stack, target: SocketAddr, site: &Site) -> io::Result<()> {
    let mut stream = stack.connect(target)?;
    stream.set_read_timeout(Some(site.patience()));
    stream.set_write_timeout(Some(site.patience()));
    let head =
        format!("PUT /put HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", site.bytes);
    stream.write_all(head.as_bytes())?;
    pieces(site.bytes, |piece| stream.write_all(piece))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.lines().next().unwrap_or("");
    if status.contains(" 201 ") { Ok(()) } else { Err(io::Error::other(format!("nginx answered '{status}'"))) }
}

/// nginx on the kernel's side of a wire, with a site to serve and to put files into.
pub struct Nginx {
    _process: Running,
    _dir: tempfile::TempDir,
}

impl Nginx {
    pub fn start(wire: &Wire, site: &Site) -> Nginx {
        let dir = tempfile::tempdir().unwrap();
        let conf = dir.path().join("nginx.conf");
        std::fs::write(&conf, nginx_conf(dir.path(), site.path())).unwrap();
        let mut command = wire.far.command("nginx");
        command.arg("-c").arg(&conf).arg("-e").arg(dir.path().join("error.log"));
        let process = Running::start(command.stdout(Stdio::null()).stderr(Stdio::inherit()));
        let pid: PathBuf = dir.path().join("nginx.pid");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !pid.exists() {
            assert!(Instant::now() < deadline, "nginx did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Nginx { _process: process, _dir: dir }
    }
}

fn nginx_conf(dir: &Path, root: &Path) -> String {
    let (dir, root) = (dir.display(), root.display());
    format!(
        "user root; daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/error.log;
         events {{ worker_connections 1024; }}
         http {{
           access_log off; client_max_body_size 0; sendfile on; keepalive_requests 100000;
           client_body_temp_path {root}/.body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
           uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
           server {{ listen 80; listen [::]:80; root {root}; dav_methods PUT; }}
         }}"
    )
}
