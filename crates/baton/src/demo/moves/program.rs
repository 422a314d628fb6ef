//! A program that serves downloads over connections that the kernel accepted, and that
//! it hands to Baton's service if there is one.
//!
//! It speaks as much HTTP as `curl` needs for one download: the request is read to its
//! blank line, and the body, a ramp, lasts until it is told to end. After that a program
//! with a service and one without do the same.

use crate::demo::world::Namespace;
use crate::service::ramp;
use crate::signal::Stop;
use anyhow::{Context, bail, ensure};
use baton_socket::service::{Service, Stream};
use sha2::{Digest, Sha256};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes in a write.
const MESSAGE: usize = 128 << 10;

/// Bytes in a write of a live source.
const LIVE_MESSAGE: usize = 32 << 10;

/// Bytes of a request at most.
const REQUEST: usize = 8 << 10;

/// Time that a client may take to connect and to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);

/// What goes before the body: it ends with the connection.
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n";

/// See the file's head.
pub struct Program {
    listener: TcpListener,
}

/// What one client got.
pub struct Served {
    /// Bytes of the body.
    pub bytes: u64,
    /// Their digest, if the source was live.
    pub sha256: Option<[u8; 32]>,
}

/// How a client is served.
pub struct Order<'a> {
    /// Whom its connection is handed to; nobody: it stays the kernel's.
    pub service: Option<&'a Service>,
    /// Bytes a second of a live source, whose body is digested; else as fast as it goes.
    pub live: Option<f64>,
    /// Told of the stream that stands for an adopted connection.
    pub on_adopted: &'a (dyn Fn(&Arc<Stream>) + Sync),
    /// Whether the body is to end.
    pub is_enough: &'a (dyn Fn(Instant) -> bool + Sync),
}

impl Program {
    /// A program that listens at `addr` in `namespace`.
    ///
    /// # Errors
    /// As `bind(2)`'s.
    pub fn listen(namespace: &Namespace, addr: SocketAddr) -> anyhow::Result<Program> {
        let listener = namespace.enter(|| Ok(TcpListener::bind(addr)?))?;
        listener.set_nonblocking(true)?;
        Ok(Program { listener })
    }

    /// Serves the next client.
    ///
    /// # Errors
    /// If none comes, its connection cannot be handed over, or it goes away.
    pub fn serve(&self, order: &Order<'_>, stop: &Stop) -> anyhow::Result<Served> {
        let mut kernel = self.accept(stop)?;
        kernel.set_nodelay(true)?;
        read_request(&mut kernel)?;
        let Some(service) = order.service else {
            let served = write_answer(&mut kernel, order)?;
            kernel.shutdown(Shutdown::Write)?;
            wait_for_end(&mut kernel)?;
            return Ok(served);
        };
        kernel.set_read_timeout(None)?;
        let stream = Arc::new(service.adopt(kernel.into()).context("adopt")?);
        (order.on_adopted)(&stream);
        let served = write_answer(&mut &*stream, order)?;
        stream.shutdown()?;
        wait_for_end(&mut &*stream)?;
        Ok(served)
    }

    fn accept(&self, stop: &Stop) -> anyhow::Result<TcpStream> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("accept"),
            }
            ensure!(!stop.requested(), "interrupted");
            ensure!(Instant::now() < deadline, "no client came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn read_request(stream: &mut TcpStream) -> anyhow::Result<()> {
    let (mut request, mut buf) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buf)? {
            0 => bail!("the client went away"),
            len => request.extend_from_slice(&buf[..len]),
        }
        ensure!(request.len() <= REQUEST, "a request without end");
    }
    ensure!(request.starts_with(b"GET "), "a request that is no GET");
    Ok(())
}

fn write_answer(out: &mut dyn Write, order: &Order<'_>) -> io::Result<Served> {
    out.write_all(HEAD)?;
    let (begun, mut bytes) = (Instant::now(), 0);
    let Some(rate) = order.live else {
        while !(order.is_enough)(begun) {
            out.write_all(&ramp::from(bytes)[..MESSAGE])?;
            bytes += MESSAGE as u64;
        }
        return Ok(Served { bytes, sha256: None });
    };
    let mut digest = Sha256::new();
    while !(order.is_enough)(begun) {
        let data = &ramp::from(bytes)[..LIVE_MESSAGE];
        out.write_all(data)?;
        digest.update(data);
        bytes += LIVE_MESSAGE as u64;
        let due = begun + Duration::from_secs_f64(bytes as f64 / rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(Served { bytes, sha256: Some(digest.finalize().into()) })
}

/// The client closes once it has all.
fn wait_for_end(stream: &mut dyn Read) -> io::Result<()> {
    while stream.read(&mut [0; 64])? > 0 {}
    Ok(())
}
