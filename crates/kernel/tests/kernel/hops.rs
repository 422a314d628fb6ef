//! Routes and neighbours of the kernel are queried and followed.

use crate::common::{Wire, wait_for};
use baton_kernel::hops::{Change, Hops, Query, Way};
use baton_policy::Refusal;
use baton_testkit::bpf::Object;
use baton_testkit::{need_program, need_root, run};
use baton_wire::addr::{Addr, Tuple};
use std::net::{IpAddr, SocketAddr};

fn addr(text: &str) -> Addr {
    text.parse::<IpAddr>().unwrap().into()
}

fn query(local: &str, remote: &str) -> Query {
    let end = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
    Query { tuple: Tuple::new(end(local, 1000), end(remote, 7)), mark: 0, device: 0, uid: 0, tos: 0 }
}

fn index(wire: &Wire, device: &str) -> u32 {
    wire.ours.run(&format!("cat /sys/class/net/{device}/ifindex")).trim().parse().unwrap()
}

#[test]
fn ways_are_those_that_the_kernel_would_take() {
    need_root!();
    let wire = Wire::new(&[]);
    let interface = index(&wire, "wire");
    wire.ours.run("ip route add 192.0.2.0/24 via 10.66.0.9");
    wire.ours.run("ip route add 2001:db8::/32 via fd66::9");
    wire.ours.run("ip route add unreachable 198.51.100.0/24");
    wire.ours.run("ip route add 203.0.113.0/24 via 10.66.0.8 table 7");
    wire.ours.run("ip rule add fwmark 5 table 7");
    wire.ours.run("ip rule add uidrange 7777-7777 table 7");
    wire.ours.run("ip rule add tos 0x10 table 7");
    let mut hops = wire.ours.enter(Hops::open).unwrap();
    let on = |via: &str| Ok(Way { interface, via: addr(via) });
    let no = Err(Refusal::NotSteerable);
    for (local, remote, mark, way) in [
        ("10.66.0.1", "10.66.0.2", 0, on("10.66.0.2")),
        ("10.66.0.1", "192.0.2.77", 0, on("10.66.0.9")),
        ("fd66::1", "fd66::2", 0, on("fd66::2")),
        ("fd66::1", "2001:db8::77", 0, on("fd66::9")),
        ("10.66.0.1", "203.0.113.7", 5, on("10.66.0.8")),
        ("10.66.0.1", "203.0.113.7", 0, no),
        ("10.66.0.1", "198.51.100.7", 0, no),
        // An address of another host.
        ("10.99.0.1", "10.66.0.2", 0, no),
        ("fd66::77", "fd66::2", 0, no),
        // Our own address.
        ("10.66.0.1", "10.66.0.1", 0, no),
    ] {
        let found = hops.way(&Query { mark, ..query(local, remote) }).unwrap();
        assert_eq!(found, way, "{local} to {remote}, mark {mark}");
    }
    let query = query("10.66.0.1", "203.0.113.7");
    assert_eq!(hops.way(&Query { uid: 7777, ..query }).unwrap(), on("10.66.0.8"), "by its user");
    assert_eq!(hops.way(&Query { tos: 0x12, ..query }).unwrap(), on("10.66.0.8"), "by its type of service");
    let link = hops.link(interface).unwrap();
    assert_eq!((link.index, link.mtu, link.up), (interface, 1500, true));
    assert!(hops.link(interface + 1000).is_err());
}

#[test]
fn a_neighbour_is_asked_for_kept_alive_and_followed() {
    need_root!();
    let wire = Wire::new(&[]);
    let interface = index(&wire, "wire");
    let mut hops = wire.ours.enter(Hops::open).unwrap();
    for peer in ["10.66.0.2", "fd66::2"] {
        let mut told = Vec::new();
        // Over a veth the kernel's own request may be answered before ours.
        hops.neighbour(interface, addr(peer)).unwrap();
        wait_for("the kernel's answer", || {
            hops.poll(|change| told.push(change)).unwrap();
            told.iter().any(|change| {
                matches!(change, Change::Neighbour { neighbour, mac: Some(_), .. } if *neighbour == addr(peer))
            })
        });
        let mac = hops.neighbour(interface, addr(peer)).unwrap().expect("the neighbour is known by now");
        // A neighbour that is no longer certain is probed, because somebody needs it.
        let state = || run(wire.ours.command("ip").args(["neigh", "show", peer]));
        let mac_text = mac.map(|byte| format!("{byte:02x}")).join(":");
        wire.ours.run(&format!("ip neigh replace {peer} lladdr {mac_text} dev wire nud stale"));
        assert!(state().contains("STALE"), "{}", state());
        assert_eq!(hops.neighbour(interface, addr(peer)).unwrap(), Some(mac));
        assert!(!state().contains("STALE"), "{}", state());
        // The neighbour gets another link address.
        wire.ours.run(&format!("ip neigh replace {peer} lladdr 02:00:00:00:00:99 dev wire nud reachable"));
        let moved = Change::Neighbour { interface, neighbour: addr(peer), mac: Some([2, 0, 0, 0, 0, 0x99]) };
        told.clear();
        wait_for("the change", || {
            hops.poll(|change| told.push(change)).unwrap();
            told.contains(&moved)
        });
    }
    assert_eq!(hops.neighbour(interface + 1000, addr("10.66.0.2")).unwrap(), None, "no such interface");
}

#[test]
fn a_neighbour_that_is_forgotten_is_told_and_a_bridges_port_that_leaves_is_not_gone() {
    need_root!();
    let wire = Wire::new(&[]);
    let interface = index(&wire, "wire");
    let mut hops = wire.ours.enter(Hops::open).unwrap();
    let mut told = Vec::new();
    let mac = "02:00:00:00:00:99";
    wire.ours.run(&format!("ip neigh add 10.66.0.7 lladdr {mac} dev wire nud reachable"));
    wire.ours.run("ip neigh del 10.66.0.7 dev wire");
    let forgotten = Change::Neighbour { interface, neighbour: addr("10.66.0.7"), mac: None };
    wait_for("the end of the neighbour", || {
        hops.poll(|change| told.push(change)).unwrap();
        told.last() == Some(&forgotten)
    });
    wire.ours.run("ip link add bridge type bridge");
    wire.ours.run("ip link set wire master bridge");
    wire.ours.run("ip link set wire nomaster");
    let bridge = index(&wire, "bridge");
    wire.ours.run("ip link del bridge");
    told.clear();
    wait_for("the end of the bridge", || {
        hops.poll(|change| told.push(change)).unwrap();
        told.contains(&Change::LinkGone(bridge))
    });
    assert!(!told.contains(&Change::LinkGone(interface)), "{told:?}");
}

#[test]
fn a_followed_way_that_changes_is_told_once() {
    need_root!();
    let wire = Wire::new(&[]);
    let interface = index(&wire, "wire");
    let mut hops = wire.ours.enter(Hops::open).unwrap();
    let query = query("10.66.0.1", "192.0.2.77");
    let tuple = query.tuple;
    wire.ours.run("ip route add 192.0.2.0/24 via 10.66.0.9");
    let way = hops.way(&query).unwrap().unwrap();
    hops.follow(query, way);
    let of_ways = |hops: &mut Hops| {
        let mut told = Vec::new();
        for _ in 0..3 {
            hops.poll(|change| told.push(change)).unwrap();
        }
        told.retain(|change| matches!(change, Change::Way { .. } | Change::Refused { .. }));
        told
    };
    assert_eq!(of_ways(&mut hops), [], "nothing has changed for it");
    wire.ours.run("ip route replace 192.0.2.0/24 via 10.66.0.8");
    let way = Way { interface, via: addr("10.66.0.8") };
    assert_eq!(of_ways(&mut hops), [Change::Way { tuple, way }]);
    wire.ours.run("ip link set wire down");
    assert_eq!(of_ways(&mut hops), [Change::Refused { tuple, why: Refusal::NotSteerable }]);
    wire.ours.run("ip link set wire up");
    wire.ours.run("ip route replace 192.0.2.0/24 via 10.66.0.8");
    assert_eq!(of_ways(&mut hops), [Change::Way { tuple, way }]);
    hops.forget(&tuple);
    wire.ours.run("ip route del 192.0.2.0/24");
    assert_eq!(of_ways(&mut hops), []);
}

#[test]
fn a_route_that_adds_headers_is_told_from_others() {
    need_root!();
    need_program!("clang");
    let wire = Wire::new(&[]);
    let mut hops = wire.ours.enter(Hops::open).unwrap();
    let of = |hops: &mut Hops, local: &str, remote: &str| hops.way(&query(local, remote)).unwrap();
    assert!(of(&mut hops, "fd66::1", "fd66::2").is_ok());
    wire.ours.run("ip route add fd66::2 encap seg6 mode encap segs fd66::7 dev wire");
    assert_eq!(of(&mut hops, "fd66::1", "fd66::2"), Err(Refusal::Encapsulated), "SRv6");
    wire.ours.run("ip route replace fd66::2 encap seg6 mode inline segs fd66::7 dev wire");
    assert_eq!(of(&mut hops, "fd66::1", "fd66::2"), Err(Refusal::Encapsulated), "SRv6, inline");
    wire.ours.run("ip route add 10.66.0.2 encap seg6 mode encap segs fd66::7 dev wire");
    assert_eq!(of(&mut hops, "10.66.0.1", "10.66.0.2"), Err(Refusal::Encapsulated), "SRv6 of IPv4");
    wire.ours.run("ip route add 10.66.0.3 encap ip id 5 dst 10.66.0.9 dev wire");
    assert_eq!(of(&mut hops, "10.66.0.1", "10.66.0.3"), Err(Refusal::Encapsulated), "a tunnel's key");
    let program = Object::for_routes();
    wire.ours.run(&format!(
        "ip route add 10.66.0.4 encap bpf out obj {} section lwt_xmit dev wire",
        program.path().display()
    ));
    assert_eq!(of(&mut hops, "10.66.0.1", "10.66.0.4"), Err(Refusal::Encapsulated), "a BPF program");
    wire.ours.run("ip route add 10.66.1.0/24 via inet6 fd66::2 dev wire");
    assert_eq!(of(&mut hops, "10.66.0.1", "10.66.1.1"), Err(Refusal::NotSteerable), "a gateway of the other version");
    // A route that replaces it while a connection is away is reported.
    let query = query("fd66::1", "fd66::8");
    let way = hops.way(&query).unwrap().unwrap();
    hops.follow(query, way);
    wire.ours.run("ip route add fd66::8 encap seg6 mode encap segs fd66::7 dev wire");
    let mut told = Vec::new();
    hops.poll(|change| told.push(change)).unwrap();
    let refused = Change::Refused { tuple: query.tuple, why: Refusal::Encapsulated };
    assert!(told.contains(&refused), "{told:?}");
}
