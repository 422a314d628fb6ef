//! Connections between programs of one machine whose addresses or ports conntrack translates on the way.

use crate::common::World;
use crate::pairs::{cross, ends as within, enter, home, join, talk};
use crate::pairs_between::{ends, go_there_and_back, route, wired};
use baton_client::{Place, Stream};
use baton_ipc::message::Selector;
use baton_testkit::{Netns, need_program, need_root, wait_for};

/// Gives a namespace an address that it translates to a server's, and hides clients behind its own. Packets that
/// conntrack takes for strangers' are dropped.
fn publish(router: &Netns, server: &str) {
    router.run("nft add table ip nat");
    router.run("nft add chain ip nat in { type nat hook prerouting priority -100 ; }");
    router.run("nft add chain ip nat here { type nat hook output priority -100 ; }");
    router.run("nft add chain ip nat out { type nat hook postrouting priority 100 ; }");
    for chain in ["in", "here"] {
        router.run(&format!("nft add rule ip nat {chain} ip daddr 10.72.1.1 tcp dport 80 dnat to {server}"));
    }
    router.run("nft add rule ip nat out oifname right masquerade");
    router.run("nft add table ip filter");
    router.run("nft add chain ip filter strangers { type filter hook forward priority 0 ; }");
    router.run("nft add rule ip filter strangers ct state invalid drop");
}

/// Two namespaces behind the service's, which routes between them.
fn routed(world: &World<'_>) -> [Netns; 2] {
    let sides = [Netns::new("left"), Netns::new("right")];
    route([&sides[0], &world.wire.ours, &sides[1]]);
    sides
}

#[test]
fn ends_on_both_sides_of_a_translating_router_are_joined() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let (host, [left, right]) = (&world.wire.ours, routed(world));
        publish(host, "10.72.2.2:8080");
        let connect = || {
            let ends = ends([&left, &right], "10.72.2.2:8080", Some("10.72.1.1:80"));
            assert_ne!(ends[0].local_addr().unwrap(), ends[1].peer_addr().unwrap(), "the client is hidden");
            ends
        };
        go_there_and_back([&one, &other], connect());
        // The server's end comes first.
        let [client, server] = connect();
        go_there_and_back([&one, &other], [server, client]);
        cross(&one, join([&one, &other], connect()), 32 << 20);
    });
}

#[test]
fn a_router_that_translates_nothing_forgets_no_connection() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [left, right] = routed(world);
        world.wire.ours.run("nft add table ip filter");
        world.wire.ours.run("nft add chain ip filter strangers { type filter hook forward priority 0 ; }");
        world.wire.ours.run("nft add rule ip filter strangers ct state invalid drop");
        go_there_and_back([&one, &other], ends([&left, &right], "10.72.2.2:0", None));
    });
}

#[test]
fn ends_are_joined_if_the_servers_namespace_or_the_clients_translates() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [left, right] = wired();
        right.run("nft add table ip nat");
        right.run("nft add chain ip nat in { type nat hook prerouting priority -100 ; }");
        right.run("nft add rule ip nat in tcp dport 80 redirect to :9000");
        go_there_and_back([&one, &other], ends([&left, &right], "10.70.0.3:9000", Some("10.70.0.3:80")));
        left.run("ip route add 10.75.0.0/16 via 10.70.0.3");
        left.run("nft add table ip nat");
        left.run("nft add chain ip nat here { type nat hook output priority -100 ; }");
        left.run("nft add rule ip nat here ip daddr 10.75.0.9 tcp dport 81 dnat to 10.70.0.3:9001");
        go_there_and_back([&one, &other], ends([&left, &right], "10.70.0.3:9001", Some("10.75.0.9:81")));
        // As a proxy beside its program has it.
        left.run("nft add rule ip nat here tcp dport 82 redirect to :15001");
        go_there_and_back([&one, &other], ends([&left, &left], "0.0.0.0:15001", Some("10.70.0.3:82")));
    });
}

#[test]
fn a_half_closed_end_behind_translation_is_not_forgotten() {
    use std::io::{Read, Write};
    need_root!();
    need_program!("clang");
    need_program!("nft");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [left, right] = routed(world);
        publish(&world.wire.ours, "10.72.2.2:8080");
        let [mut first, mut second] =
            join([&one, &other], ends([&left, &right], "10.72.2.2:8080", Some("10.72.1.1:80")));
        first.write_all(b"last").unwrap();
        first.shutdown().unwrap();
        let mut got = Vec::new();
        second.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"last");
        assert_eq!(one.bring_home(Selector::All).unwrap().failed, 0);
        let is_home = |stream: &Stream| stream.place() == Place::Kernel;
        wait_for("both are home", || is_home(&first) && is_home(&second));
        second.write_all(b"rest").unwrap();
        drop(second);
        got.clear();
        first.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"rest");
    });
}

#[test]
fn new_rules_on_the_way_bring_home_what_passes_them() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [left, right] = routed(world);
        publish(&world.wire.ours, "10.72.2.2:8080");
        let mut streams = join([&one, &other], ends([&left, &right], "10.72.2.2:8080", Some("10.72.1.1:80")));
        let mut here = join([&one, &other], within(world, "127.0.0.1:0"));
        talk(&mut streams);
        world.wire.ours.run("nft add table inet another");
        let all = |streams: &[Stream; 2], place| streams.iter().all(|stream| stream.place() == place);
        wait_for("all come home", || all(&streams, Place::Kernel) && all(&here, Place::Kernel));
        talk(&mut streams);
        talk(&mut here);
        wait_for("both are joined again", || {
            let _ = one.handoff(Selector::All);
            all(&streams, Place::Pair)
        });
        home(&one, &streams);
        talk(&mut streams);
    });
}
