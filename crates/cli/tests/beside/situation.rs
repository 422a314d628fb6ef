//! The situations: the setup before the connection opens, the change while it is open, and the
//! behaviour to expect then, as on the kernel alone.

use crate::counting::Counting;
use crate::factors::{Cell, Engine, Family, Situation};
use crate::half::Report;
use crate::world::World;
use aya::programs::TcAttachType;
use baton_testkit::{Netns, output};
use std::collections::BTreeMap;
use std::time::Duration;

/// How the two ends find each other.
pub struct Meeting {
    /// True if our end listens and the peer connects; false for the reverse.
    pub we_listen: bool,
    /// The address to connect to.
    pub address: String,
    pub port: &'static str,
    /// The address to listen on.
    pub at: String,
}

/// Rates of the situations that limit it, in bytes per second.
const RATE: f64 = 1e6;
/// Bytes that may arrive in a burst beyond a rate: token buckets, and the buffers of a socket.
const BURST: f64 = 1.5e6;

impl Situation {
    /// Why this machine cannot set up the situation, or `None` if it can.
    pub fn lacks(self, scratch: &Netns) -> Option<&'static str> {
        match self {
            Situation::XfrmTransport => {
                let line = "ip xfrm state add src 10.1.1.1 dst 10.1.1.2 proto esp spi 1 mode transport \
                            aead rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 128";
                let mut words = line.split_whitespace();
                let out = output(scratch.command(words.next().expect("a program")).args(words));
                (!out.status.success()).then_some("this kernel has no ESP")
            }
            Situation::CgroupProgram => {
                (!crate::counting::Group::can_be()).then_some("this machine has no control groups of version 2")
            }
            _ => None,
        }
    }

    pub fn meeting(self, world: &World) -> Meeting {
        let (ours, peer) = (world.address(68, 1), world.address(68, 2));
        let port = crate::world::PORT;
        let from =
            |address: &str, port| Meeting { we_listen: true, address: address.to_owned(), port, at: ours.clone() };
        let to = |peer: String| Meeting { we_listen: false, address: peer.clone(), port, at: peer };
        match self {
            Situation::Redirect => from(&ours, "80"),
            Situation::DestinationNat => from(&world.address(70, 1), port),
            Situation::SourceNat => to(peer),
            Situation::Masquerade => to(world.address(69, 2)),
            _ => from(&ours, port),
        }
    }

    /// Returns whether bytes flow after the change on the kernel alone. A different outcome means
    /// that the situation was not set up correctly.
    pub fn kernel_goes_on(self) -> bool {
        use Situation::*;
        ![BanAdded, XfrmBlock, AddressRemoved, DownUp, MovedAway].contains(&self)
    }

    /// Returns true if something changes while the connection is open.
    pub fn changes(self) -> bool {
        use Situation::*;
        let changing = [BanAdded, BanRemoved, XfrmBlock, XfrmTransport, AddressRemoved, Renamed, DownUp, MovedAway];
        changing.contains(&self)
    }

    /// Sets the situation up, before the connection opens.
    pub fn prepare(self, world: &mut World) {
        let tcp = if world.cell.family == Family::V4 { "ip" } else { "ip6" };
        let ours = world.address(68, 1);
        match self {
            Situation::Stateful => world.rules(&world.ours, STATEFUL),
            Situation::Redirect => {
                let rules = chain("inet", "type nat hook prerouting priority -100", "tcp dport 80 redirect to :9000");
                world.rules(&world.ours, &rules);
            }
            Situation::DestinationNat => {
                let rule = format!("{tcp} daddr {} tcp dport 9000 dnat to {ours}", world.address(70, 1));
                world.rules(&world.ours, &chain(tcp, "type nat hook prerouting priority -100", &rule));
                world.peer.run(&format!("ip route add {} via {ours}", world.host(70, 1)));
            }
            Situation::SourceNat => {
                world.ours.run(&format!("ip address add {} dev wire", world.on_link(68, 3)));
                let rule = format!("tcp dport 9000 snat to {}", world.address(68, 3));
                world.rules(&world.ours, &chain(tcp, "type nat hook postrouting priority 100", &rule));
            }
            Situation::Masquerade => world.rules(world.router.as_ref().expect("there is one"), MASQUERADE),
            Situation::Limits => {
                let rule = "tcp dport 9000 limit rate over 1 mbytes/second burst 256 kbytes drop";
                world.rules(&world.ours, &chain("inet", "type filter hook input priority 0", rule));
            }
            Situation::Marks => {
                let rule = "tcp sport 9000 meta mark set 7";
                world.rules(&world.ours, &chain(tcp, "type route hook output priority -150", rule));
                let inet = if world.cell.family == Family::V4 { "-4" } else { "-6" };
                world.ours.run(&format!("ip {inet} rule add fwmark 7 lookup 7"));
                world.ours.run(&format!("ip {inet} route add default via {} dev other table 7", world.address(72, 2)));
            }
            Situation::Tbf => {
                drop(world.ours.run("tc qdisc add dev wire root tbf rate 8mbit burst 64kb latency 100ms"))
            }
            Situation::TcBefore | Situation::TcBehind => {
                let before = self == Situation::TcBefore;
                let ways = [TcAttachType::Ingress, TcAttachType::Egress];
                world.counting = world.ours.enter(|| ways.map(|way| Counting::frames("wire", way, before)).into());
            }
            Situation::CgroupProgram => {
                let group = world.group.as_ref().expect("there is one");
                world.counting = vec![Counting::packets(group.path())];
            }
            _ => {}
        }
    }

    /// Returns true if traffic is banned once bytes have flowed, and the end of the ban is the change.
    pub fn begins_with_ban(self) -> bool {
        self == Situation::BanRemoved
    }

    /// Returns true if the situation limits the rate.
    pub fn has_rate(self) -> bool {
        matches!(self, Situation::Tbf | Situation::Limits)
    }

    /// Makes the change.
    pub fn change(self, world: &World) {
        let (ours, peer) = (world.address(68, 1), world.address(68, 2));
        match self {
            Situation::BanAdded => ban(world),
            Situation::BanRemoved => drop(world.ours.run("nft delete table inet beside")),
            Situation::XfrmBlock => {
                world.ours.run(&format!("ip xfrm policy add src {ours} dst {peer} dir out action block"));
                world.ours.run(&format!("ip xfrm policy add src {peer} dst {ours} dir in action block"));
            }
            Situation::XfrmTransport => transport(world),
            Situation::AddressRemoved => {
                let address = world.on_link(68, 1);
                world.ours.run(&format!("ip address del {} dev wire", address.trim_end_matches(" nodad")));
            }
            Situation::Renamed => drop(world.ours.run("ip link set wire name cable")),
            Situation::DownUp => drop(world.ours.run("ip link set wire down")),
            Situation::MovedAway => {
                drop(world.ours.run(&format!("ip link set wire netns {} name away", world.peer.name())))
            }
            _ => {}
        }
    }

    /// Undoes the change. Returns false if the situation does not include that.
    pub fn undo(self, world: &World) -> bool {
        match self {
            Situation::XfrmBlock => drop(world.ours.run("ip xfrm policy deleteall")),
            Situation::AddressRemoved => {
                world.ours.run(&format!("ip address add {} dev wire", world.on_link(68, 1)));
            }
            Situation::Renamed => drop(world.ours.run("ip link set cable name wire")),
            Situation::DownUp => {
                world.ours.run("ip link set wire up");
                if world.cell.family == Family::V6 {
                    // The addresses were lost with the link.
                    world.ours.run(&format!("ip address replace {} dev wire", world.on_link(68, 1)));
                }
            }
            _ => return false,
        }
        true
    }

    /// Checks the other properties of the traffic: its rate, and which rules counted it.
    pub fn facts(self, world: &World, ours: &Report, peer: &Report, rates: &Rates) -> BTreeMap<&'static str, bool> {
        let counted = |at: usize| world.counting[at].bytes();
        match self {
            Situation::Tbf => BTreeMap::from([("the bucket shapes what leaves", rates.to_peer.within())]),
            Situation::Limits => BTreeMap::from([("the limit holds for what comes in", rates.to_us.within())]),
            Situation::TcBefore | Situation::TcBehind => BTreeMap::from([
                ("the program sees what comes in", counted(0) >= ours.received),
                ("the program sees what leaves", counted(1) >= peer.received),
            ]),
            Situation::CgroupProgram => BTreeMap::from([("the program sees what leaves", counted(0) >= peer.received)]),
            Situation::Marks => {
                let bytes = world.peer.run("cat /sys/class/net/other/statistics/rx_bytes");
                let bytes: u64 = bytes.trim().parse().expect("a number");
                BTreeMap::from([("the mark chooses the way out", bytes >= peer.received)])
            }
            _ => BTreeMap::new(),
        }
    }
}

impl Cell {
    /// Reasons for which Baton may leave the connection in the kernel here. If empty, it must move.
    pub fn may_refuse(&self) -> &'static [&'static str] {
        match self.situation {
            Situation::Redirect | Situation::DestinationNat | Situation::SourceNat => &["translated"],
            Situation::Limits => &["firewall-rule"],
            // Its packets leave through a different interface than they arrive on.
            Situation::Marks => &["firewall-rule", "not-steerable", "bypassed"],
            Situation::TcBefore | Situation::TcBehind => &["tc-program"],
            // Frames sent by AF_XDP bypass queueing disciplines.
            Situation::Tbf if self.engine == Engine::ServiceXdp => &["tc-program"],
            Situation::CgroupProgram => &["cgroup-program"],
            Situation::XfrmTransport => &["ipsec"],
            _ => &[],
        }
    }
}

/// The bytes that arrived in a time.
#[derive(Default)]
pub struct Rate {
    pub bytes: u64,
    pub time: Duration,
}

impl Rate {
    fn within(&self) -> bool {
        (self.bytes as f64) < BURST + 1.5 * RATE * self.time.as_secs_f64()
    }
}

#[derive(Default)]
pub struct Rates {
    pub to_us: Rate,
    pub to_peer: Rate,
}

const STATEFUL: &str = "table inet t {
  chain in {
    type filter hook input priority 0; policy drop;
    ct state invalid drop
    ct state established,related accept
    meta l4proto { icmp, ipv6-icmp } accept
    tcp dport 9000 ct state new accept
  }
  chain out {
    type filter hook output priority 0; policy drop;
    ct state invalid drop
    ct state established,related accept
    meta l4proto { icmp, ipv6-icmp } accept
  }
}
";

const MASQUERADE: &str = "table inet t {
  chain nat {
    type nat hook postrouting priority 100
    oifname \"far\" masquerade
  }
  chain forward {
    type filter hook forward priority 0; policy drop;
    ct state invalid drop
    ct state established,related accept
    iifname \"wire\" accept
  }
}
";

/// A table with one chain of one rule, in the syntax of `nft`.
fn chain(family: &str, hook: &str, rule: &str) -> String {
    format!("table {family} beside {{\n  chain c {{\n    {hook};\n    {rule}\n  }}\n}}\n")
}

/// Rules that drop all traffic from and to the peer.
pub fn ban(world: &World) {
    let (tcp, peer) = (if world.cell.family == Family::V4 { "ip" } else { "ip6" }, world.address(68, 2));
    let rules = format!(
        "table inet beside {{
  chain in {{
    type filter hook input priority 0;
    {tcp} saddr {peer} drop
  }}
  chain out {{
    type filter hook output priority 0;
    {tcp} daddr {peer} drop
  }}
}}
"
    );
    world.rules(&world.ours, &rules);
}

fn transport(world: &World) {
    let (ours, peer) = (world.address(68, 1), world.address(68, 2));
    let key = "aead rfc4106(gcm(aes)) 0x0102030405060708090a0b0c0d0e0f1011121314 128";
    for (side, out) in [(&world.ours, (&ours, &peer)), (&world.peer, (&peer, &ours))] {
        for (from, to) in [(&ours, &peer), (&peer, &ours)] {
            let dir = if (from, to) == out { "out" } else { "in" };
            side.run(&format!("ip xfrm state add src {from} dst {to} proto esp spi 9 mode transport {key}"));
            side.run(&format!("ip xfrm policy add src {from} dst {to} dir {dir} tmpl proto esp mode transport"));
        }
    }
}
