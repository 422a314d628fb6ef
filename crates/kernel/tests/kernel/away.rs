//! A connection whose address or route is absent is rebuilt all the same. It stands still, as a
//! connection of the kernel would, and continues once address and route are back.

use crate::common::{Pair, Wire};
use baton_kernel::{capture, make_husk, rebuild, resume};
use baton_testkit::need_root;
use std::time::Duration;

/// Moves a connection out, makes its address or route disappear with `gone`, moves it home, checks
/// that it carries nothing, and that it continues after `back`.
#[track_caller]
fn stands_still(ipv6: bool, gone: &[&str], back: &[&str]) {
    let wire = Wire::new(&[]);
    let mut pair = Pair::new(&wire, ipv6);
    pair.exchange(5_000);
    wire.hold();
    let captured = wire.ours.enter(|| {
        let captured = capture(&pair.ours).unwrap();
        make_husk(&pair.ours, &captured).unwrap();
        captured
    });
    gone.iter().for_each(|line| drop(wire.ours.run(&format!("ip {line}"))));
    wire.ours.enter(|| {
        rebuild(&pair.ours, &captured).unwrap();
        // It may be away for longer, and be a husk meanwhile.
        make_husk(&pair.ours, &captured).unwrap();
        rebuild(&pair.ours, &captured).unwrap();
        resume(&pair.ours, &captured).unwrap();
    });
    wire.let_go();
    assert_eq!(pair.out.write(&pair.ours, 100), 100);
    if ipv6 {
        pair.back.write(&pair.peer, 100);
    }
    std::thread::sleep(Duration::from_millis(400));
    // With IPv6 the kernel sends from any address, but no answer arrives.
    let sent = pair.out.read(&pair.peer);
    assert!(ipv6 || sent == Some(0), "it sends from an absent address");
    assert_eq!(pair.back.read(&pair.ours), Some(0), "it receives at an absent address");
    back.iter().for_each(|line| drop(wire.ours.run(&format!("ip {line}"))));
    pair.exchange(5_000);
    pair.close();
    assert_eq!(wire.resets(), 0);
}

#[test]
fn an_address_may_be_away() {
    need_root!();
    stands_still(false, &["addr del 10.66.0.1/24 dev wire"], &["addr add 10.66.0.1/24 dev wire"]);
    let route = "route replace fd66::2 dev wire";
    stands_still(true, &[route, "addr del fd66::1/64 dev wire"], &["addr add fd66::1/64 dev wire nodad"]);
}

#[test]
fn an_interface_may_be_down() {
    need_root!();
    stands_still(false, &["link set wire down"], &["link set wire up"]);
}

#[test]
fn a_route_may_be_away() {
    need_root!();
    stands_still(false, &["route del 10.66.0.0/24 dev wire"], &["route add 10.66.0.0/24 dev wire"]);
    for what in ["unreachable", "prohibit", "blackhole"] {
        stands_still(false, &[&format!("route add {what} 10.66.0.2")], &[&format!("route del {what} 10.66.0.2")]);
    }
}

#[test]
fn ipsec_may_forbid_all() {
    need_root!();
    for (ipv6, here, there) in [(false, "10.66.0.1", "10.66.0.2"), (true, "fd66::1", "fd66::2")] {
        let out = format!("xfrm policy add dir out src {here} dst {there} proto tcp");
        let coming = format!("xfrm policy add dir in src {there} dst {here} proto tcp action block");
        for what in ["action block", "tmpl proto esp mode transport"] {
            stands_still(ipv6, &[&format!("{out} {what}"), &coming], &["xfrm policy flush"]);
        }
    }
}
