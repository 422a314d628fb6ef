//! `baton trace -i` in namespaces of its own.

use super::json;
use baton_testkit::{Netns, veth};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Stdio};

/// Starts to listen in a namespace, and waits until frames count.
fn listen(space: &Netns, interface: &str) -> Child {
    let mut child = space
        .command(env!("CARGO_BIN_EXE_baton"))
        .args(["trace", "-i", interface, "--seconds", "60", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Frames count from the moment its socket is bound: columns 4 to 6 of `/proc/net/packet` are the protocol (3: all),
    // the interface's index (0: all), and whether the socket receives.
    let (any, pid) = (interface == "any", child.id());
    let listens = || {
        let sockets = std::fs::read_to_string(format!("/proc/{pid}/net/packet")).unwrap_or_default();
        sockets.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[3] == "0003" && (fields[4] == "0") == any && fields[5] == "1"
        })
    };
    while !listens() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child
}

/// Ends the listening, for its report.
fn report_of_listening(child: Child) -> Value {
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    json(&output)
}

/// Sends 100,000 bytes from one namespace to an address in the other.
fn transfer(from: &Netns, to: &Netns, address: &str) {
    let listener = to.enter(|| std::net::TcpListener::bind(address).unwrap());
    let mut stream = from.enter(|| std::net::TcpStream::connect(address).unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    stream.write_all(&[7; 100_000]).unwrap();
    // A segment with data and FIN would go on alone, and its bytes would not count.
    peer.read_exact(&mut vec![0; 100_000]).unwrap();
    drop(stream);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

#[test]
fn live_traffic_is_analysed_as_it_is_received() {
    baton_testkit::need_root!();
    let (a, b) = (Netns::new("left"), Netns::new("right"));
    veth(&a, "wire", &b, "wire");
    a.run("ip addr add 10.77.0.1/24 dev wire");
    b.run("ip addr add 10.77.0.2/24 dev wire");
    let child = listen(&b, "wire");
    transfer(&a, &b, "10.77.0.2:7");
    let report = report_of_listening(child);
    let flow = &report["flows"][0];
    assert_eq!(flow["destination"].as_str(), Some("10.77.0.2:7"), "{report}");
    assert!(report["flows"].as_array().unwrap().iter().all(|flow| flow["source"] != "10.77.0.2:7"), "{report}");
}

#[test]
fn all_interfaces_are_heard_whatever_their_links() {
    baton_testkit::need_root!();
    let (a, b) = (Netns::new("left"), Netns::new("right"));
    for wire in [1, 2] {
        veth(&a, &format!("wire{wire}"), &b, &format!("wire{wire}"));
        for (space, host) in [(&a, 1), (&b, 2)] {
            space.run(&format!("ip addr add 10.77.{wire}.{host}/24 dev wire{wire}"));
        }
    }
    b.run("ip link set lo up");
    let tunnels = [(&a, 1, 2), (&b, 2, 1)].map(|(space, host, peer)| {
        let tunnel = format!("link add tunnel type vxlan id 5 remote 10.77.1.{peer} dstport 4789 dev wire1");
        let made = space.command("ip").args(tunnel.split(' ')).status().unwrap().success();
        if made {
            space.run("ip link set tunnel up");
            space.run(&format!("ip addr add 10.77.3.{host}/24 dev tunnel"));
        }
        made
    });
    let child = listen(&b, "any");
    transfer(&a, &b, "10.77.1.2:7");
    transfer(&a, &b, "10.77.2.2:8");
    transfer(&b, &b, "127.0.0.1:9");
    let mut heard = vec!["10.77.1.2:7", "10.77.2.2:8", "127.0.0.1:9"];
    if tunnels == [true; 2] {
        transfer(&a, &b, "10.77.3.2:10");
        heard.push("10.77.3.2:10");
    } else {
        baton_testkit::note_skip!("this kernel has no VXLAN devices");
    }
    let report = report_of_listening(child);
    let flows = report["flows"].as_array().unwrap();
    for address in heard {
        // Each byte once, also on the loopback device; a few may have been sent again.
        let received: Vec<_> = flows.iter().filter(|flow| flow["destination"] == address).collect();
        assert_eq!(received.len(), 1, "{address}: {report}");
        let bytes = received[0]["payload_bytes"].as_u64().unwrap();
        assert!((100_000..150_000).contains(&bytes), "{address}: {report}");
        // In the tunnel a segment passes the wire as well, where it is seen in its tunnel.
        let within = report["tunnels"]["vxlan"].as_u64();
        assert_eq!(within.is_some(), tunnels == [true; 2], "{report}");
    }
    assert!(flows.iter().all(|flow| flow["source"] != "10.77.1.2:7"), "{report}");
    assert!(report["unknown_links"].as_object().unwrap().is_empty());
}
