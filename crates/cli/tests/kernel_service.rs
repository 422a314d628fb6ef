//! `baton service` with a program's connection, and the commands that users send to it.

use baton_client::{Place, Service};
use baton_testkit::{Netns, Running, need_program, need_root, veth};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BATON: &str = env!("CARGO_BIN_EXE_baton");

#[track_caller]
fn ask(socket: &Path, words: &[&str]) -> String {
    let output = Command::new(BATON).args(words).arg("--socket").arg(socket).stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn place(socket: &Path) -> String {
    let rows: serde_json::Value = serde_json::from_str(&ask(socket, &["ps", "--json"])).unwrap();
    rows[0]["place"].as_str().unwrap_or("nowhere").to_owned()
}

#[test]
fn a_service_is_listed_told_and_stopped() {
    need_root!();
    need_program!("clang");
    let (ours, peer) = (Netns::new("service"), Netns::new("peer"));
    veth(&ours, "wire", &peer, "wire");
    ours.run("ip addr add 10.67.0.1/24 dev wire");
    peer.run("ip addr add 10.67.0.2/24 dev wire");
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("baton.sock");
    let mut running = ours.enter(|| {
        let mut command = Command::new(BATON);
        command.args(["service", "--interface", "wire", "--steer", "tc", "--socket"]).arg(&socket);
        Running::start(command.stdin(Stdio::null()))
    });
    let begun = Instant::now();
    let service = loop {
        match Service::connect(&socket) {
            Ok(service) => break service,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let listener = peer.enter(|| TcpListener::bind("10.67.0.2:0").unwrap());
    let kernel = ours.enter(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (mut far, _) = listener.accept().unwrap();
    let mut stream = service.adopt(kernel.into()).unwrap();
    let mut echo = |stream: &mut dyn Write| {
        stream.write_all(b"through").unwrap();
        let mut read = [0; 7];
        far.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"through");
    };
    echo(&mut stream);
    assert_eq!(place(&socket), "engine");
    assert!(ask(&socket, &["ps"]).contains("10.67.0.2:"));
    let port = listener.local_addr().unwrap().port().to_string();
    assert!(ask(&socket, &["restore", &port]).starts_with("1 moved to the kernel, 0 failed"));
    assert_eq!((place(&socket), stream.place()), ("kernel".to_owned(), Place::Kernel));
    echo(&mut stream);
    assert!(ask(&socket, &["handoff", "all"]).starts_with("1 moved out of the kernel, 0 failed"));
    echo(&mut stream);
    assert!(ask(&socket, &["upgrade"]).starts_with("1 moved to the new engine, 0 failed"));
    assert_eq!(stream.place(), Place::Engine);
    echo(&mut stream);
    running.signal(Signal::TERM);
    let begun = Instant::now();
    while running.child().try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(running.child().wait().unwrap().success());
    echo(&mut stream);
    assert_eq!(stream.place(), Place::Kernel);
    assert!(!socket.exists());
}
