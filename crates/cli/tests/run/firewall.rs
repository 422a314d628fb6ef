//! Programs behind the usual stateful rules, which drop what conntrack finds invalid.

use crate::programs::start_nginx;
use crate::world::{Account, World, content, curl};
use baton_testkit::{need_program, need_root};

/// More than conntrack lets a window be off by, several times.
const LARGE: usize = 40_000_000;

/// Adds rules that drop invalid packets, and pass SYNs and the packets of a connection.
fn add_rules(world: &World) {
    world.ours.run("nft add table inet fw");
    for hook in ["input", "output"] {
        let chain = format!("{{ type filter hook {hook} priority 0 ; policy drop ; }}");
        world.ours.run(&format!("nft add chain inet fw {hook} {chain}"));
        world.ours.run(&format!("nft add rule inet fw {hook} ct state invalid counter drop"));
        world.ours.run(&format!("nft add rule inet fw {hook} ct state established,related accept"));
        world.ours.run(&format!("nft add rule inet fw {hook} tcp flags & (syn|ack) == syn ct state new accept"));
    }
}

#[track_caller]
fn nothing_was_invalid(world: &World) {
    let rules = world.ours.run("nft list table inet fw");
    assert_eq!(rules.matches("ct state invalid counter packets 0 ").count(), 2, "{rules}");
}

fn serve_a_large_file(world: &World) -> Account {
    add_rules(world);
    let sum = content(&world.file("large"), LARGE);
    let nginx = start_nginx(world, "server { listen 8000; root HOME; }");
    world.listens(8000);
    world.load(|| assert_eq!(curl(&world.peer, "http://10.67.0.1:8000/large"), sum));
    let account = world.end(nginx);
    nothing_was_invalid(world);
    account
}

fn need_all() {
    need_root!();
    for program in ["clang", "nginx", "curl", "nft"] {
        need_program!(program);
    }
}

/// By the defaults it comes home in the midst.
#[test]
fn bulk_comes_home_through_stateful_rules() {
    need_all();
    let mut world = World::quiet();
    world.policy = Some("until bulk");
    let account = serve_a_large_file(&world);
    assert!(account.said.contains("1 came back to the kernel: bulk"), "{}", account.said);
    assert!(account.moved == 1 && (4_000_000..LARGE as u64).contains(&account.bytes), "{}", account.said);
}

#[test]
fn downloads_pass_stateful_rules_while_they_move() {
    need_all();
    for world in [World::restless(), World::restless().inside()] {
        let account = serve_a_large_file(&world);
        assert!(account.moved >= 1, "{}", account.said);
    }
}

/// A sidecar's rule: the program listens at another port than its clients connect to.
#[test]
fn what_is_redirected_is_served_by_the_kernel() {
    need_all();
    let world = World::quiet();
    world.ours.run("nft add table ip nat");
    world.ours.run("nft add chain ip nat pre { type nat hook prerouting priority -100 ; }");
    world.ours.run("nft add rule ip nat pre tcp dport 80 redirect to :8000");
    let sum = content(&world.file("large"), LARGE);
    let nginx = start_nginx(&world, "server { listen 8000; root HOME; }");
    world.listens(8000);
    for _ in 0..3 {
        assert_eq!(curl(&world.peer, "http://10.67.0.1/large"), sum);
    }
    let account = world.end(nginx);
    assert!(account.said.contains("3 stayed in the kernel: translated"), "{}", account.said);
    assert_eq!(account.moved, 0, "{}", account.said);
}
