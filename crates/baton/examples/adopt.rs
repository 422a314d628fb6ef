//! A connection of the kernel moves to the engine of a running service, and comes back.
//!
//! ```sh
//! cargo run --example adopt -- /run/baton/baton.sock 192.0.2.1:7
//! ```

use baton::service::{Place, Service};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;

pub(crate) fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(socket), Some(echo)) = (args.next(), args.next()) else {
        println!("usage: adopt SERVICE-SOCKET ECHO-SERVER:PORT");
        return Ok(());
    };
    move_and_return(Path::new(&socket), &echo)
}

/// Talks to an echo server over the kernel, then over the engine, then over the kernel again.
pub fn move_and_return(service: &Path, echo: &str) -> io::Result<()> {
    let service = Service::connect(service)?;
    let mut socket = TcpStream::connect(echo)?;
    talk(&mut socket, "over the kernel")?;

    let mut stream = service.adopt(socket.into()).map_err(io::Error::other)?;
    assert_eq!(stream.place(), Place::Engine);
    talk(&mut stream, "over the engine")?;

    let mut socket = TcpStream::from(stream.restore().map_err(|(_, error)| error)?);
    talk(&mut socket, "over the kernel again")
}

fn talk(stream: &mut (impl Read + Write), text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer)?;
    println!("{}", String::from_utf8_lossy(&answer));
    Ok(())
}
