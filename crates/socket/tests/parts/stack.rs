//! Stacks on their own threads, joined by an in-memory wire: blocking and async sockets, one driver
//! thread and two.

use crate::ramp_from;
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::HostConfig;
use baton_socket::stack::{Stack, Threads};
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

fn pair(threads: Threads) -> (Stack, Stack) {
    let (a, b) = MemoryPort::wakeable_pair(MemoryOptions::default()).unwrap();
    let stack = |address: &str, port| Stack::spawn(&HostConfig::new(address.parse().unwrap()), port, threads).unwrap();
    (stack("10.0.0.1/24", a), stack("10.0.0.2/24", b))
}

fn server_addr() -> SocketAddr {
    "10.0.0.2:7".parse().unwrap()
}

fn echo_in_threads(threads: Threads) {
    use std::io::{Read, Write};
    let (a, b) = pair(threads);
    let listener = b.listen(server_addr()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                let (mut stream, _) = listener.accept().unwrap();
                scope.spawn(move || {
                    let mut buf = [0; 5000];
                    loop {
                        match stream.read(&mut buf).unwrap() {
                            0 => return,
                            count => stream.write_all(&buf[..count]).unwrap(),
                        }
                    }
                });
            }
        });
        for _ in 0..4 {
            let stream = a.connect(server_addr()).unwrap();
            scope.spawn(move || {
                let data = ramp_from(0, 1_000_000);
                let mut reader = stream.clone();
                let expected = data.clone();
                let reading = std::thread::spawn(move || {
                    let mut got = Vec::new();
                    reader.read_to_end(&mut got).unwrap();
                    assert!(got == expected, "got {} bytes", got.len());
                });
                (&stream).write_all(&data).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                reading.join().unwrap();
            });
        }
    });
}

#[test]
fn threads_echo_with_one_driver_thread() {
    echo_in_threads(Threads::One);
}

#[test]
fn threads_echo_with_streamer_and_tce_on_threads_of_their_own() {
    echo_in_threads(Threads::Two);
}

#[test]
fn tasks_echo_under_tokio() {
    use futures_util::{AsyncReadExt, AsyncWriteExt};
    let (a, b) = pair(Threads::One);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let listener = b.listen(server_addr()).unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept_async().await.unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            stream.write_all(&got).await.unwrap();
            stream.close().await.unwrap();
        });
        let mut stream = a.connect_async(server_addr()).await.unwrap();
        let data = ramp_from(0, 300_000);
        stream.write_all(&data).await.unwrap();
        stream.close().await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got == data, "got {} bytes", got.len());
        server.await.unwrap();
    });
}

#[test]
fn a_refused_connection_says_so() {
    let (a, _b) = pair(Threads::One);
    let error = a.connect(server_addr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_address_in_use_says_so() {
    let (_a, b) = pair(Threads::One);
    let _listener = b.listen(server_addr()).unwrap();
    assert_eq!(b.listen(server_addr()).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn reads_wait_no_longer_than_asked() {
    use std::io::Read;
    let (a, b) = pair(Threads::One);
    let listener = b.listen(server_addr()).unwrap();
    let mut stream = a.connect(server_addr()).unwrap();
    let _peer = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(20)));
    assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(true);
    assert_eq!(stream.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn the_end_of_a_stack_ends_waiting() {
    use std::io::Read;
    let (a, b) = pair(Threads::One);
    let listener = b.listen(server_addr()).unwrap();
    let mut stream = a.connect(server_addr()).unwrap();
    let _peer = listener.accept().unwrap();
    let reading = std::thread::spawn(move || stream.read(&mut [0; 8]).unwrap_err().kind());
    std::thread::sleep(Duration::from_millis(20));
    drop(a);
    assert_eq!(reading.join().unwrap(), ErrorKind::NotConnected);
}

#[test]
fn two_threads_may_wait_for_the_same_stream() {
    use std::io::{Read, Write};
    let (a, b) = pair(Threads::One);
    let listener = b.listen(server_addr()).unwrap();
    let mut ours = a.connect(server_addr()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    let (tell, hear) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut stream, tell) = (theirs.clone(), tell.clone());
            scope.spawn(move || {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                tell.send(byte[0]).unwrap();
            });
        }
        for byte in [1, 2] {
            // Gives both threads time to start waiting.
            std::thread::sleep(Duration::from_millis(20));
            ours.write_all(&[byte]).unwrap();
            assert_eq!(hear.recv_timeout(Duration::from_secs(30)), Ok(byte));
        }
    });
}
