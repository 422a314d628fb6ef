//! Connections that this namespace translates, or that a helper reads, stay in the kernel.

use crate::common::World;
use crate::common::kernels::Wire;
use baton_client::Service;
use baton_testkit::{need_program, need_root};
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket, sockopt};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;

/// A connection between the two namespaces. `ours` was handed over and is refused for this reason;
/// then bytes go in both directions.
#[track_caller]
fn stays(service: &Service, what: &str, (ours, mut peer): (OwnedFd, TcpStream), reason: &str) {
    let refused = service.adopt(ours).err().unwrap_or_else(|| panic!("{what}: the connection moves"));
    assert_eq!(refused.code, reason, "{what}: {}", refused.text);
    let mut ours = TcpStream::from(refused.fd.expect("the socket comes back"));
    for _ in 0..20 {
        ours.write_all(&[1; 50_000]).unwrap();
        peer.read_exact(&mut [0; 50_000]).unwrap();
        peer.write_all(&[2; 50_000]).unwrap();
        ours.read_exact(&mut [0; 50_000]).unwrap();
    }
}

/// The peer connects to `to`, and our side listens at `at`.
fn accepted(wire: &Wire, at: SocketAddr, to: SocketAddr) -> (OwnedFd, TcpStream) {
    let listener = wire.ours.enter(|| TcpListener::bind(at).unwrap());
    let peer = wire.peer.enter(|| TcpStream::connect(to).unwrap());
    (listener.accept().unwrap().0.into(), peer)
}

/// Our side connects from `from` to `to`, and the peer listens at `at`.
fn connected(wire: &Wire, from: IpAddr, at: SocketAddr, to: SocketAddr) -> (OwnedFd, TcpStream) {
    let listener = wire.peer.enter(|| TcpListener::bind(at).unwrap());
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let ours = wire.ours.enter(|| socket(family, SocketType::STREAM, None).unwrap());
    bind(&ours, &SocketAddr::new(from, 0)).unwrap();
    connect(&ours, &to).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Adds NAT chains, which have nothing to do yet, and a second address on our side.
fn prepare(wire: &Wire) {
    for (address, length) in [("10.66.0.5", 24), ("fd66::5", 64)] {
        let dad = if length == 64 { "nodad" } else { "" };
        // Masquerading uses the other address.
        wire.ours.run(&format!("ip addr add {address}/{length} dev wire preferred_lft 0 {dad}"));
    }
    wire.ours.run("nft add table inet nat");
    for (hook, priority) in [("prerouting", -100), ("output", -100), ("postrouting", 100)] {
        let chain = format!("{{ type nat hook {hook} priority {priority} ; }}");
        wire.ours.run(&format!("nft add chain inet nat {hook} {chain}"));
    }
}

fn rule(wire: &Wire, words: &str) {
    wire.ours.run(&format!("nft add rule inet nat {words}"));
}

/// The addresses of an IP version: ours, our second, the peer's.
fn addresses(ipv6: bool) -> [IpAddr; 3] {
    let [ours, peer] = Wire::addresses(ipv6);
    let second = if ipv6 { "fd66::5" } else { "10.66.0.5" };
    [ours, second.parse().unwrap(), peer]
}

#[test]
fn what_nat_translates_here_stays() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let (wire, service) = (world.wire, world.service());
        prepare(wire);
        for ipv6 in [false, true] {
            let [ours, second, peer] = addresses(ipv6);
            let ip = if ipv6 { "ip6" } else { "ip" };
            let at = SocketAddr::new;

            rule(wire, "prerouting tcp dport 80 redirect to :9000");
            // The kernel chooses the address to which it redirects.
            let any = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            stays(&service, "redirected", accepted(wire, at(any, 9000), at(ours, 80)), "translated");

            rule(wire, &format!("prerouting {ip} daddr {second} tcp dport 81 dnat {ip} to {ours}"));
            stays(&service, "DNAT", accepted(wire, at(ours, 81), at(second, 81)), "translated");

            let bracketed = if ipv6 { format!("[{peer}]") } else { peer.to_string() };
            rule(wire, &format!("output {ip} daddr {peer} tcp dport 82 dnat {ip} to {bracketed}:9002"));
            stays(&service, "DNAT of ours", connected(wire, ours, at(peer, 9002), at(peer, 82)), "translated");

            rule(wire, &format!("postrouting {ip} daddr {peer} tcp dport 83 snat {ip} to {second}"));
            stays(&service, "SNAT", connected(wire, ours, at(peer, 83), at(peer, 83)), "translated");

            rule(wire, &format!("postrouting {ip} daddr {peer} tcp dport 84 masquerade"));
            stays(&service, "masqueraded", connected(wire, second, at(peer, 84), at(peer, 84)), "translated");
            wire.ours.run("nft flush table inet nat");

            // NAT examines this connection and has nothing to change.
            let (fd, _peer) = connected(wire, ours, at(peer, 85), at(peer, 85));
            drop(service.adopt(fd).unwrap_or_else(|refused| panic!("{refused}")));
        }
    });
}

/// A listening socket that may have addresses which are not ours.
fn transparent(at: SocketAddr) -> OwnedFd {
    let family = if at.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let listener = socket(family, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&listener, true).unwrap();
    // `IP_TRANSPARENT` or `IPV6_TRANSPARENT`, for which no crate here has a call.
    let (level, name) = if at.is_ipv6() { (41, 75) } else { (0, 19) };
    let line = format!("import socket; socket.socket(fileno=0).setsockopt({level}, {name}, 1)");
    let stdin = listener.try_clone().unwrap();
    assert!(Command::new("python3").args(["-c", &line]).stdin(stdin).status().unwrap().success());
    bind(&listener, &at).unwrap();
    listen(&listener, 8).unwrap();
    listener
}

#[test]
fn what_tproxy_leads_here_stays() {
    need_root!();
    need_program!("python3");
    need_program!("clang");
    World::enter(|world| {
        let (wire, service) = (world.wire, world.service());
        wire.ours.run("nft add table inet divert");
        wire.ours.run("nft add chain inet divert pre { type filter hook prerouting priority -150 ; }");
        for (ipv6, ip, far) in [(false, "", "10.99.0.1"), (true, "-6 ", "fd99::1")] {
            let [ours, ..] = addresses(ipv6);
            let all = if ipv6 { "::/0" } else { "0.0.0.0/0" };
            wire.ours.run(&format!("ip {ip}rule add fwmark 1 lookup 100"));
            wire.ours.run(&format!("ip {ip}route add local {all} dev lo table 100"));
            wire.peer.run(&format!("ip {ip}route add {far} via {ours}"));
            let (family, word) = if ipv6 { ("ipv6", "ip6") } else { ("ipv4", "ip") };
            wire.ours.run(&format!(
                "nft add rule inet divert pre meta nfproto {family} tcp dport 86 tproxy {word} to :9006 meta mark set 1 accept"
            ));
            let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            let listener = TcpListener::from(wire.ours.enter(|| transparent((any, 9006).into())));
            let to = SocketAddr::new(far.parse().unwrap(), 86);
            let peer = wire.peer.enter(|| TcpStream::connect(to).unwrap());
            let (accepted, _) = listener.accept().unwrap();
            assert_eq!(accepted.local_addr().unwrap(), to);
            stays(&service, "TPROXY", (accepted.into(), peer), "translated");
        }
    });
}

#[test]
fn what_a_helper_reads_stays() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let (wire, service) = (world.wire, world.service());
        wire.ours.run("nft add table inet help");
        wire.ours.run("nft add ct helper inet help ftp-standard { type \"ftp\" protocol tcp ; }");
        wire.ours.run("nft add chain inet help pre { type filter hook prerouting priority 0 ; }");
        wire.ours.run("nft add rule inet help pre tcp dport 21 ct helper set \"ftp-standard\"");
        for ipv6 in [false, true] {
            let [ours, ..] = addresses(ipv6);
            let at = SocketAddr::new(ours, 21);
            stays(&service, "helped", accepted(wire, at, at), "conntrack-helper");
        }
    });
}
