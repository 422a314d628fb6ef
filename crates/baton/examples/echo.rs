//! An echo server and its client: two stacks in one program, joined by a wire in memory.

use baton::port::{MemoryOptions, MemoryPort};
use baton::{Stack, StackConfig, Threads};
use std::io::{self, Read, Write};
use std::net::Shutdown;

pub(crate) fn main() -> io::Result<()> {
    let (server_port, client_port) = MemoryPort::wakeable_pair(MemoryOptions::default())?;
    let address = |text: &str| StackConfig::new(text.parse().expect("an address with its prefix"));
    let server = Stack::spawn(&address("10.0.0.1/24"), server_port, Threads::One)?;
    let client = Stack::spawn(&address("10.0.0.2/24"), client_port, Threads::One)?;

    let echo = "10.0.0.1:7".parse().expect("an address with its port");
    let listener = server.listen(echo)?;
    let serving = std::thread::spawn(move || -> io::Result<()> {
        let (mut stream, peer) = listener.accept()?;
        println!("{peer} is connected");
        let mut buffer = [0; 4096];
        loop {
            match stream.read(&mut buffer)? {
                0 => return stream.shutdown(Shutdown::Write),
                count => stream.write_all(&buffer[..count])?,
            }
        }
    });

    let mut stream = client.connect(echo)?;
    stream.write_all(b"hello")?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    println!("the answer is {answer}");
    assert_eq!(answer, "hello");
    serving.join().expect("the server does not panic")
}
