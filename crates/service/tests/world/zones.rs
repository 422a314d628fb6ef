//! Entries in zones, and untracked connections next to tracked ones.

use crate::common::World;
use crate::common::kernels::firewall::{entries, entry, invalid, stateful};
use crate::common::kernels::wait_for;
use baton_testkit::{need_program, need_root};

/// Adds rules before conntrack's hooks, in both directions.
fn raw(world: &World<'_>, rule: &str) {
    world.wire.ours.run("nft add table inet raw");
    for hook in ["prerouting", "output"] {
        world.wire.ours.run(&format!("nft add chain inet raw {hook} {{ type filter hook {hook} priority -310 ; }}"));
        world.wire.ours.run(&format!("nft add rule inet raw {hook} {rule}"));
    }
}

/// Moves connections back and forth, with more bytes than conntrack lets a window deviate.
fn moves(world: &World<'_>, zone: &str) {
    let service = world.service();
    for ipv6 in [false, true] {
        let mut line = world.line(ipv6);
        let port = line.peer.local_addr().unwrap().port();
        line.go_on(10_000);
        line.adopt(&service);
        let found = entry(world.wire, port).expect("the connection is tracked");
        assert!(found.line.contains(zone), "{found:?}");
        line.go_on(4 << 20);
        line.restore();
        line.go_on(100_000);
        line.adopt(&service);
        line.go_on(100_000);
        line.finish();
    }
    // The broker announces ends at its next tick.
    wait_for("TIME_WAIT", || entries(world.wire).iter().all(|entry| entry.state == "TIME_WAIT"));
    assert_eq!(invalid(world.wire), 0);
}

#[test]
fn an_entry_in_a_zone_is_told() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        raw(world, "ct zone set 5");
        moves(world, "zone=5");
    });
}

#[test]
fn an_entry_with_a_zone_in_one_direction_is_told() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        raw(world, "ct original zone set 6");
        moves(world, "zone-orig=6");
    });
}

#[test]
fn what_is_not_tracked_moves_beside_what_is() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        stateful(world.wire);
        let service = world.service();
        let mut tracked = world.line(false);
        tracked.go_on(10_000);
        raw(world, "meta l4proto tcp notrack");
        for hook in ["input", "output"] {
            world.wire.ours.run(&format!("nft add rule inet fw {hook} ct state untracked accept"));
        }
        for ipv6 in [false, true] {
            let mut line = world.line(ipv6);
            line.adopt(&service);
            line.go_on(4 << 20);
            line.restore();
            line.go_on(100_000);
            line.finish();
        }
        assert_eq!(entries(world.wire).len(), 1, "{:?}", entries(world.wire));
        tracked.adopt(&service);
        tracked.go_on(100_000);
        tracked.finish();
        assert_eq!(invalid(world.wire), 0);
    });
}
