//! `baton latency`, of real connections in a namespace.

use baton_kernel::latency::{By, sights};
use baton_testkit::{Netns, Running, need_root, output, skip, wait_for};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Ends the test if this kernel does not let programs see both ways.
macro_rules! need_sight {
    () => {
        need_root!();
        let sights = sights().expect("the programs load");
        if let Some(dark) = sights.iter().find(|sight| sight.by == By::Nothing) {
            skip!("{}: {}", dark.way.name(), dark.note);
        }
    };
}

fn latency(netns: &Netns, words: &[&str]) -> Output {
    output(netns.command(env!("CARGO_BIN_EXE_baton")).arg("latency").args(words).stdin(Stdio::null()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Calls `f` with a connection's client end, on which an echo goes on meanwhile.
fn while_talking<T: Send>(netns: &Netns, f: impl FnOnce(&str, u16) -> T + Send) -> T {
    let (client, mut server) = netns.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    });
    let tuple = format!("{},{}", client.local_addr().unwrap(), client.peer_addr().unwrap());
    let port = client.peer_addr().unwrap().port();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut message = [0; 64];
            while server.read_exact(&mut message).is_ok() {
                server.write_all(&message).unwrap();
            }
        });
        scope.spawn(|| {
            let mut client = client;
            let mut message = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                client.write_all(&message).unwrap();
                client.read_exact(&mut message).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(&tuple, port)));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_connection_is_a_table_as_text_json_and_page() {
    need_sight!();
    let netns = Netns::new("latency");
    while_talking(&netns, |tuple, port| {
        let page = std::env::temp_dir().join(format!("baton-latency-{}.html", std::process::id()));
        let seen = latency(&netns, &[tuple, "--seconds", "0.5", "--html", page.to_str().unwrap()]);
        assert!(seen.status.success(), "{seen:?}");
        let said = text(&seen.stdout);
        assert!(said.starts_with(tuple) && said.contains("in the kernel"), "{said}");
        for row in ["transmit", "write", "output", "receive", "place", "wake-up", "read", "between", "whole"] {
            assert!(said.lines().any(|line| line.split_whitespace().next() == Some(row)), "{row} in\n{said}");
        }
        let html = fs::read_to_string(&page).unwrap();
        fs::remove_file(&page).unwrap();
        assert!(html.contains("wake-up") && html.contains(tuple));

        let seen = latency(&netns, &["--port", &port.to_string(), "--seconds", "0.5", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&seen.stdout).unwrap();
        assert_eq!(json["connections"].as_array().unwrap().len(), 2, "both ends");
        for way in 0..2 {
            let layers = json["together"][way]["layers"].as_array().unwrap();
            let (whole, parts) = layers.split_last().unwrap();
            assert_eq!(whole["layer"], "whole");
            assert!(whole["count"].as_u64().unwrap() > 50, "{whole}");
            let share: f64 = parts.iter().map(|part| part["share"].as_f64().unwrap()).sum();
            assert!((share - 1.0).abs() < 0.02, "{share}");
        }
        let pid = std::process::id().to_string();
        let seen = latency(&netns, &["--pid", &pid, "--seconds", "0.5"]);
        // Other tests' connections are this process's too.
        let said = text(&seen.stdout);
        assert!(said.contains("connections together") && said.contains(tuple), "{said}");
    });
}

/// The slowest messages are in the report, and at their frames in a capture that another reads.
#[test]
fn the_slowest_messages_are_shown_at_their_frames() {
    need_sight!();
    let netns = Netns::new("latency");
    while_talking(&netns, |tuple, _| {
        let capture = std::env::temp_dir().join(format!("baton-latency-{}.pcapng", std::process::id()));
        let seen =
            latency(&netns, &[tuple, "--seconds=0.5", "--slowest=2", "--json", "--pcap", capture.to_str().unwrap()]);
        assert!(seen.status.success(), "{seen:?}");
        let json: serde_json::Value = serde_json::from_slice(&seen.stdout).unwrap();
        let slowest = json["slowest"].as_array().unwrap();
        assert_eq!(slowest.len(), 4, "two of each way");
        for message in slowest {
            let direction = message["direction"].as_str().unwrap();
            let way = &json["connections"][0]["ways"][usize::from(direction == "receive")];
            let longest = way["layers"].as_array().unwrap().last().unwrap()["max_ns"].as_u64().unwrap();
            let whole = message["whole_ns"].as_u64().unwrap();
            assert!(whole <= longest, "{message}");
            let layers: u64 = message["layers"].as_array().unwrap().iter().map(|it| it["ns"].as_u64().unwrap()).sum();
            assert_eq!(layers + message["between_ns"].as_u64().unwrap(), whole, "{message}");
        }
        assert_eq!(
            slowest[0]["whole_ns"],
            json["connections"][0]["ways"][0]["layers"].as_array().unwrap().last().unwrap()["max_ns"]
        );

        let bytes = fs::read(&capture).unwrap();
        fs::remove_file(&capture).unwrap();
        let (mut frames, mut comments) = (0, Vec::new());
        let mut reader = pcap_parser::create_reader(1 << 20, bytes.as_slice()).unwrap();
        loop {
            match reader.next() {
                Ok((offset, block)) => {
                    if let pcap_parser::PcapBlockOwned::NG(pcap_parser::Block::EnhancedPacket(packet)) = block {
                        frames += 1;
                        let comment =
                            packet.options.iter().find(|option| option.code == pcap_parser::OptionCode::Comment);
                        comments.extend(comment.map(|option| text(&option.value[..usize::from(option.len)])));
                    }
                    reader.consume(offset);
                }
                Err(pcap_parser::PcapError::Incomplete(_)) => reader.refill().unwrap(),
                Err(pcap_parser::PcapError::Eof) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(frames > 100, "{frames}");
        let told: Vec<&str> = comments.iter().flat_map(|comment| comment.lines()).collect();
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(told.iter().filter(|line| line.starts_with("transmit took ")).count(), 2, "{told:?}");
    });
}

#[test]
fn watching_ends_with_a_signal_and_with_the_process() {
    need_sight!();
    let netns = Netns::new("latency");
    while_talking(&netns, |_, port| {
        // Without `ip netns exec`, which would get the signal: the shell becomes the command.
        let mut command = netns.command(env!("CARGO_BIN_EXE_baton"));
        command.args(["latency", "--port", &port.to_string(), "--watch", "--json"]);
        let mut watching = Running::start(command.stdout(Stdio::piped()));
        let mut lines = BufReader::new(watching.child().stdout.take().unwrap()).lines();
        for _ in 0..2 {
            let line = lines.next().unwrap().unwrap();
            let json: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(json["connections"].as_array().unwrap().len(), 2, "{line}");
        }
        watching.signal(Signal::INT);
        assert!(watching.child().wait().unwrap().success());
    });
    let mut sleeping = Running::start(Command::new("sleep").arg("1000"));
    let pid = sleeping.child().id().to_string();
    let mut command = netns.command(env!("CARGO_BIN_EXE_baton"));
    let mut watching = Running::start(command.args(["latency", "--watch", "--pid", &pid]).stdout(Stdio::null()));
    thread::sleep(Duration::from_millis(300));
    sleeping.signal(Signal::KILL);
    sleeping.child().wait().unwrap();
    let mut ended = None;
    wait_for("it ends with the process", || {
        ended = watching.child().try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
}

#[test]
fn faults_have_a_remedy_and_a_code() {
    need_sight!();
    let netns = Netns::new("latency");
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let gone = gone.id().to_string();
    let table: [(&[&str], i32, &[&str]); 6] = [
        (&["--pid", &gone], 2, &["there is no process", "ss -tnp"]),
        (&["127.0.0.1:1,127.0.0.1:2"], 1, &["no such connection", "ss -tnp"]),
        (&["--port", "9", "--seconds", "0.2"], 1, &["no call to send or to receive was seen", "--seconds"]),
        (&[], 2, &["required", "baton latency --help"]),
        (&["--all", "--port", "9"], 2, &["cannot be used with"]),
        (&["--all", "--seconds", "0"], 2, &["a run cannot take 0 s"]),
    ];
    for (words, code, parts) in table {
        let refused = latency(&netns, words);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)) && said.lines().count() == 1, "{words:?}: {said}");
    }
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_baton")]);
    let refused = output(nobody.args(["latency", "--all"]));
    let said = text(&refused.stderr);
    // Where the binary lies may be closed to others.
    if said.contains("Permission denied") {
        return baton_testkit::note_skip!("no privileges: {said}");
    }
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("run as root"), "{said}");
}
