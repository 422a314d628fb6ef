//! Firewall rules on our side, and what conntrack reports there.

use super::Wire;

/// The usual stateful rules in both directions: invalid packets are dropped; packets of known
/// connections and SYNs pass.
pub fn stateful(wire: &Wire) {
    wire.ours.run("nft add table inet fw");
    for hook in ["input", "output"] {
        wire.ours
            .run(&format!("nft add chain inet fw {hook} {{ type filter hook {hook} priority 0 ; policy drop ; }}"));
        wire.ours.run(&format!("nft add rule inet fw {hook} meta l4proto ipv6-icmp accept"));
        wire.ours.run(&format!("nft add rule inet fw {hook} ct state invalid counter drop"));
        wire.ours.run(&format!("nft add rule inet fw {hook} ct state established,related accept"));
        wire.ours.run(&format!("nft add rule inet fw {hook} tcp flags & (syn|ack) == syn ct state new accept"));
    }
}

/// The number of packets that those rules dropped as invalid.
pub fn invalid(wire: &Wire) -> u64 {
    let rules = wire.ours.run("nft list table inet fw");
    let counted = rules.lines().filter_map(|line| line.split("ct state invalid counter packets ").nth(1));
    counted.map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// A TCP entry: its state, the seconds until it expires, and its line.
#[derive(Clone, Debug)]
pub struct Entry {
    pub state: String,
    pub left_s: u32,
    pub line: String,
}

/// Conntrack's TCP entries on our side.
pub fn entries(wire: &Wire) -> Vec<Entry> {
    let text = wire.ours.enter(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap());
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (left_s, state) = (words[4].parse().unwrap(), words[5].to_owned());
        Entry { state, left_s, line: line.to_owned() }
    };
    text.lines().filter(|line| line.split_whitespace().nth(2) == Some("tcp")).map(entry).collect()
}

/// The entry of the connection that has this port on either side.
pub fn entry(wire: &Wire, port: u16) -> Option<Entry> {
    let port = format!("port={port} ");
    entries(wire).into_iter().find(|entry| entry.line.contains(&port))
}
