//! Remains of steering when its process ends, in an orderly way or by `kill -9`.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{Pair, Wire, wait_for};
use aya::programs::{SchedClassifier, TcAttachType};
use baton_kernel::steer::{Kind, Options, SteerError, Steering};
use baton_testkit::{Running, need_program, need_root};
use baton_wire::addr::Tuple;
use rustix::process::Signal;

/// Set for a process that steers until it is killed: the kind, whether steering outlives it, and
/// both ends.
const HOLDER: &str = "BATON_TEST_STEERING";

/// Not a test, but the process that the tests kill.
#[test]
fn holder() {
    let Ok(words) = std::env::var(HOLDER) else { return };
    let words: Vec<&str> = words.split(' ').collect();
    let kind = if words[0] == "tc" { Kind::Tc } else { Kind::Xdp };
    let options = Options { outlive: words[1] == "outlive", ..Options::default() };
    let mut steering = Steering::attach("wire", kind, options).unwrap();
    let _port = steering.open_port().unwrap();
    steering.set_engine(true).unwrap();
    steering.insert(Tuple::new(words[2].parse().unwrap(), words[3].parse().unwrap())).unwrap();
    println!("steering");
    thread::sleep(Duration::from_secs(60));
}

/// Starts a process that steers `ours`. The steering is in place when this returns.
fn hold(wire: &Wire, kind: &str, outlive: bool, ours: &TcpStream) -> Running {
    let outlive = if outlive { "outlive" } else { "end" };
    let words = format!("{kind} {outlive} {} {}", ours.local_addr().unwrap(), ours.peer_addr().unwrap());
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", wire.ours.name())).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "steer_left::holder", "--nocapture"]).env(HOLDER, words).stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let out = running.child().stdout.take().unwrap();
    let ready = BufReader::new(out).lines().map_while(Result::ok).any(|line| line.contains("steering"));
    assert!(ready, "the process steers");
    running
}

fn kill(mut running: Running) {
    running.signal(Signal::KILL);
    running.child().wait().unwrap();
}

fn attach(wire: &Wire, kind: &str, outlive: bool) -> Result<Steering, SteerError> {
    let kind = if kind == "tc" { Kind::Tc } else { Kind::Xdp };
    wire.ours.enter(|| Steering::attach("wire", kind, Options { outlive, ..Options::default() }))
}

fn clean(wire: &Wire) -> Result<bool, SteerError> {
    wire.ours.enter(|| Steering::clean("wire"))
}

/// Returns true if a program of either kind is on the wire's ingress.
fn is_steered(wire: &Wire) -> bool {
    let xdp = wire.ours.run("ip -o link show wire").contains("prog/xdp");
    let query = || SchedClassifier::query_tcx("wire", TcAttachType::Ingress).unwrap().1.len();
    xdp || wire.ours.enter(query) != 0
}

/// Checks that no device, program or pin remains that did not exist at first.
fn is_tidy(wire: &Wire) {
    let devices = wire.ours.run("cat /proc/net/dev");
    assert!(!devices.contains("baton"), "{devices}");
    assert!(!is_steered(wire));
    has_no_pins(wire);
}

/// Checks that no pins of a wire exist.
fn has_no_pins(wire: &Wire) {
    let pins = std::fs::read_dir("/sys/fs/bpf/baton").into_iter().flatten().flatten();
    let namespace = wire.ours.enter(|| std::fs::metadata("/proc/thread-self/ns/net").unwrap());
    let ours = format!("{}-wire", std::os::unix::fs::MetadataExt::ino(&namespace));
    assert!(pins.into_iter().all(|entry| entry.file_name().to_string_lossy() != ours));
}

fn is_silent(mut ours: &TcpStream) -> bool {
    thread::sleep(Duration::from_millis(300));
    ours.read(&mut [0]).is_err()
}

/// Skips the test unless another process can steer, and its steering can outlive it.
macro_rules! need_pins {
    () => {
        need_root!();
        need_program!("clang");
        need_program!("nsenter");
    };
}

#[test]
fn a_killed_process_leaves_nothing_unless_it_was_asked_to() {
    need_pins!();
    for kind in ["tc", "xdp"] {
        let wire = Wire::new(&[]);
        let mut pair = Pair::new(&wire, false);
        let holder = hold(&wire, kind, false, &pair.ours);
        pair.back.write(&pair.peer, 100);
        assert!(is_silent(&pair.ours), "{kind}: the kernel got data");
        kill(holder);
        wait_for("what the peer sends again", || pair.back.read(&pair.ours).is_some() && pair.back.read == 100);
        assert!(!clean(&wire).unwrap());
        is_tidy(&wire);
        pair.close();
    }
}

#[test]
fn what_outlives_its_process_goes_on_dropping_until_it_is_removed() {
    need_pins!();
    for kind in ["tc", "xdp"] {
        let wire = Wire::new(&[]);
        let mut pair = Pair::new(&wire, false);
        let holder = hold(&wire, kind, true, &pair.ours);
        // While the process lives, nobody can remove its steering.
        assert!(matches!(clean(&wire), Err(SteerError::Occupied { .. })));
        assert!(matches!(attach(&wire, kind, true), Err(SteerError::Occupied { .. })));
        kill(holder);
        pair.back.write(&pair.peer, 100);
        assert!(is_silent(&pair.ours), "{kind}: the husk got data");
        let left = attach(&wire, kind, false).err().expect("left-overs exist");
        assert!(matches!(&left, SteerError::LeftOver { .. }), "{left}");
        let other = if kind == "tc" { "xdp" } else { "tc" };
        assert!(matches!(attach(&wire, other, true), Err(SteerError::LeftOver { .. })));
        assert!(is_silent(&pair.ours), "{kind}: a refusal changed something");
        assert!(clean(&wire).unwrap());
        assert!(!clean(&wire).unwrap());
        wait_for("what the peer sends again", || pair.back.read(&pair.ours).is_some() && pair.back.read == 100);
        is_tidy(&wire);
        pair.close();
    }
}

#[test]
fn what_was_left_is_taken_up_with_its_tuples() {
    need_pins!();
    for kind in ["tc", "xdp"] {
        let wire = Wire::new(&[]);
        let mut pair = Pair::new(&wire, false);
        let tuple = Tuple::new(pair.ours.local_addr().unwrap(), pair.ours.peer_addr().unwrap());
        kill(hold(&wire, kind, true, &pair.ours));
        pair.back.write(&pair.peer, 100);
        let mut steering = attach(&wire, kind, true).unwrap();
        assert_eq!(steering.tuples().unwrap(), [tuple.into()]);
        // A new port for a new engine, from which frames are read.
        let port = wire.ours.enter(|| steering.open_port()).unwrap();
        let before = steering.counters().unwrap();
        let mut toy = crate::common::toy::Toy::new(port);
        toy.answers = false;
        toy.run("the segment", |toy| !toy.sink.seen.is_empty() || toy.sink.wrong_checksums > 0);
        assert!(steering.counters().unwrap().hit > before.hit, "{before:?}");
        // After an orderly end nothing is left, and the kernel has the connection.
        drop(steering);
        wait_for("what the peer sends again", || pair.back.read(&pair.ours).is_some() && pair.back.read == 100);
        drop(toy);
        is_tidy(&wire);
        pair.close();
    }
}

/// A wire that a process steered before it died, and that was then replaced.
fn whose_pins_died(kind: &str) -> (Wire, Pair) {
    let wire = Wire::new(&[]);
    let pair = Pair::new(&wire, false);
    kill(hold(&wire, kind, true, &pair.ours));
    wire.ours.run("ip link del wire");
    baton_testkit::veth(&wire.ours, "wire", &wire.peer, "wire");
    (wire, pair)
}

#[test]
fn pins_of_an_interface_that_has_gone_are_not_taken_for_those_of_another() {
    need_pins!();
    for kind in ["tc", "xdp"] {
        let (wire, pair) = whose_pins_died(kind);
        let mut steering = attach(&wire, kind, true).unwrap();
        assert_eq!(steering.tuples().unwrap(), []);
        let tuple = Tuple::new(pair.ours.local_addr().unwrap(), pair.ours.peer_addr().unwrap());
        steering.insert(tuple).unwrap();
        assert!(is_steered(&wire), "{kind}");
        drop(steering);
        is_tidy(&wire);
    }
}

#[test]
fn pins_of_a_dead_interface_are_in_nobodys_way_and_go() {
    need_pins!();
    for kind in ["tc", "xdp"] {
        let (wire, _pair) = whose_pins_died(kind);
        // Steering of another kind, by a process that leaves nothing.
        let other = if kind == "tc" { "xdp" } else { "tc" };
        drop(attach(&wire, other, false).unwrap());
        is_tidy(&wire);
        // Steering by a process in another namespace, which makes pins of its own.
        let wire = Wire::new(&[]);
        let pair = Pair::new(&wire, false);
        kill(hold(&wire, kind, true, &pair.ours));
        wire.ours.run("ip link del wire");
        let elsewhere = Wire::new(&[]);
        drop(attach(&elsewhere, kind, true).unwrap());
        has_no_pins(&wire);
    }
}

/// Both ends learn of it, even if the connection continued after its socket became a husk.
#[test]
fn connections_that_nobody_can_bring_home_are_reset_at_both_ends() {
    need_pins!();
    for (kind, ipv6) in [("tc", false), ("tc", true), ("xdp", false)] {
        let wire = Wire::new(&[]);
        let pair = Pair::new(&wire, ipv6);
        let holder = hold(&wire, kind, true, &pair.ours);
        wire.ours.enter(|| {
            let mut captured = baton_kernel::capture(&pair.ours).unwrap();
            // As if an engine had continued: the husk and the peer have different numbers.
            captured.protocol.snd_nxt += 100_000;
            captured.protocol.snd_una = captured.protocol.snd_nxt;
            captured.protocol.write_seq = captured.protocol.snd_nxt;
            baton_kernel::make_husk(&pair.ours, &captured).unwrap();
        });
        let refused = wire.ours.enter(|| Steering::reap_all("wire").unwrap_err().to_string());
        assert!(refused.contains("steers it"), "{refused}");
        kill(holder);
        assert!(is_silent(&pair.peer), "{kind}: nobody has told the peer");
        let reaped = wire.ours.enter(|| Steering::reap_all("wire")).unwrap();
        assert_eq!((reaped.ended, reaped.left), (1, 0), "{kind}");
        pair.peer.set_nonblocking(true).unwrap();
        wait_for("the peer's end", || {
            let read = (&pair.peer).read(&mut [0]);
            matches!(read, Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
        });
        let error = pair.ours.take_error().unwrap().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted, "{kind}: {error}");
        is_tidy(&wire);
        assert_eq!(wire.ours.enter(|| Steering::reap_all("wire")).unwrap().ended, 0);
    }
}
