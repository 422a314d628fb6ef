//! A path whose narrowest link is in the middle, with routers that report it and routers that do not.
//!
//! ```text
//!   kernel ---1500--- left ---1300--- right ---1500--- Baton
//!   10.79.0.9     .1 10.78.0.1   10.78.0.2  10.77.0.1    10.77.0.2
//! ```

use crate::transfer::{self, Site};
use crate::wire::{Ip, KERNEL, Kind, Serve, Wire, counter};
use baton_testkit::{Netns, need_program, need_root, veth};

const NARROW: u32 = 1300;
const BYTES: u64 = 4 << 20;

/// The whole path. `wire.far` is the router on Baton's link.
struct Path {
    kernel: Netns,
    left: Netns,
    wire: Wire,
    site: Site,
    serve: Serve,
}

impl Path {
    fn new(kind: Kind) -> Path {
        let (kernel, left, wire) = (Netns::new("kernel"), Netns::new("left"), Wire::new(kind, 1500));
        veth(&kernel, "out", &left, "in");
        veth(&left, "out", &wire.far, "in");
        let right = &wire.far;
        for (netns, words) in [
            (&kernel, "addr add 10.79.0.9/24 dev out"),
            (&kernel, "addr add fd79::9/64 dev out nodad"),
            (&kernel, "route add default via 10.79.0.1"),
            (&kernel, "route add default via fd79::1"),
            (&left, "addr add 10.79.0.1/24 dev in"),
            (&left, "addr add fd79::1/64 dev in nodad"),
            (&left, "addr add 10.78.0.1/24 dev out"),
            (&left, "addr add fd78::1/64 dev out nodad"),
            (&left, "route add 10.77.0.0/24 via 10.78.0.2"),
            (&left, "route add fd77::/64 via fd78::2"),
            (right, "addr add 10.78.0.2/24 dev in"),
            (right, "addr add fd78::2/64 dev in nodad"),
            (right, "route add 10.79.0.0/24 via 10.78.0.1"),
            (right, "route add fd79::/64 via fd78::1"),
        ] {
            netns.run(&format!("ip {words}"));
        }
        left.run(&format!("ip link set out mtu {NARROW}"));
        right.run(&format!("ip link set in mtu {NARROW}"));
        for router in [&left, right] {
            router.run("sysctl -q net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        }
        let site = Site::new(BYTES);
        let mut command = wire.baton("serve", None);
        for ip in [Ip::V4, Ip::V6] {
            command.args(["--gateway", &ip.addr(KERNEL).to_string()]);
        }
        let serve = Serve::with(command.args(["--service", &format!("http={}", site.path().display())]));
        Path { kernel, left, wire, site, serve }
    }

    /// Number of ICMP errors that Baton has accepted so far.
    fn told(&mut self) -> u64 {
        counter(&self.serve.stats(), "streamer.icmp_errors")
    }
}

#[test]
fn a_packet_too_big_lowers_the_segment_size_and_the_transfer_completes() {
    need_root!();
    need_program!("curl");
    for kind in [Kind::Tap, Kind::TapVnet] {
        let mut path = Path::new(kind);
        for ip in [Ip::V4, Ip::V6] {
            let before = path.told();
            transfer::curl(&path.kernel, ip, &path.site).unwrap_or_else(|why| panic!("{kind} {ip:?}: {why}"));
            assert!(path.told() > before, "{kind} {ip:?}: no router reported it");
            // In both directions: at first the kernel's segments are too big, too.
            transfer::echo(&path.kernel, ip, &path.site).unwrap_or_else(|why| panic!("{kind} {ip:?}: {why}"));
        }
    }
}

#[test]
fn a_router_that_says_nothing_is_found_out() {
    need_root!();
    need_program!("curl");
    need_program!("nft");
    let mut path = Path::new(Kind::Tap);
    for router in [&path.left, &path.wire.far] {
        router.run("nft add table inet hole");
        router.run("nft add chain inet hole out { type filter hook output priority 0 ; }");
        router.run("nft add rule inet hole out icmp type destination-unreachable drop");
        router.run("nft add rule inet hole out icmpv6 type packet-too-big drop");
    }
    for ip in [Ip::V4, Ip::V6] {
        transfer::curl(&path.kernel, ip, &path.site).unwrap_or_else(|why| panic!("{ip:?}: {why}"));
    }
    assert_eq!(path.told(), 0);
}
