//! Going without checksums (LA §4.2) on real devices: never towards the kernel, and between two engines.

use crate::transfer::{self, Nginx, Site, Transfer};
use crate::wire::{BATON, HOST, Ip, Kind, Serve, Wire, counter};
use baton_testkit::{Netns, need_program, need_root};
use serde_json::Value;
use std::process::{Command, Stdio};

const BYTES: u64 = 8 << 20;
const CHOICE: [&str; 2] = ["--integrity", "link"];

/// Segments whose checksum the kernel of this namespace found wrong.
fn wrong_sums(netns: &Netns) -> u64 {
    let text = netns.run("cat /proc/net/snmp");
    let mut rows = text.lines().filter(|line| line.starts_with("Tcp:")).map(|line| line.split_whitespace());
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let pair = names.zip(values).find(|(name, _)| *name == "InCsumErrors");
    pair.and_then(|(_, value)| value.parse().ok()).expect("the kernel counts wrong checksums")
}

/// Whichever opens: the kernel does not ask for it, and does not answer the option.
#[test]
fn the_kernel_always_gets_checksums() {
    need_root!();
    for program in ["curl", "nginx"] {
        need_program!(program);
    }
    for kind in [Kind::Tap, Kind::TapVnet, Kind::Xdp] {
        let (wire, site) = (Wire::new(kind, 1500), Site::new(BYTES));
        let mut command = wire.baton("serve", None);
        command.args(CHOICE).args(["--service", &format!("http={}", site.path().display())]);
        let mut serve = Serve::with(&mut command);
        for ip in [Ip::V4, Ip::V6] {
            for transfer in [Transfer::Curl, Transfer::Echo] {
                transfer::run(transfer, &wire, ip, &site, Some(&mut serve), None)
                    .unwrap_or_else(|why| panic!("{kind} {ip:?} {transfer:?}: {why}"));
            }
        }
        assert_eq!(counter(&serve.stats(), "streamer.rx_unsummed"), 0, "{kind}");
        drop(serve);
        let _nginx = Nginx::start(&wire, &site);
        for ip in [Ip::V4, Ip::V6] {
            transfer::get_with(&wire, ip, &site, &CHOICE).unwrap_or_else(|why| panic!("{kind} {ip:?}: {why}"));
        }
        assert_eq!(wrong_sums(&wire.far), 0, "{kind}");
    }
}

/// Two TAP devices and a bridge between them, in a namespace of their own.
struct Bridge {
    netns: Netns,
}

impl Bridge {
    fn new() -> Bridge {
        let netns = Netns::new("unsummed");
        netns.run("ip link add br0 type bridge mcast_snooping 0");
        netns.run("ip link set br0 up");
        for tap in ["bt0", "bt1"] {
            netns.run(&format!("ip tuntap add dev {tap} mode tap"));
            netns.run(&format!("ip link set {tap} master br0 up"));
        }
        Bridge { netns }
    }

    /// One of Baton's commands on one of the devices.
    fn baton(&self, subcommand: &str, tap: usize, host: u8, args: &[&str]) -> Command {
        let mut command = self.netns.command(BATON);
        command.args([subcommand, "--port", &format!("tap:bt{tap},novnet"), "--json"]).args(args);
        for (ip, len) in [(Ip::V4, 24), (Ip::V6, 64)] {
            command.args(["--addr", &format!("{}/{len}", ip.addr(host))]);
        }
        command
    }
}

#[test]
fn two_engines_on_a_bridge_agree_and_every_byte_arrives() {
    need_root!();
    let site = Site::new(BYTES);
    for (server, client) in [(true, true), (true, false), (false, true)] {
        let bridge = Bridge::new();
        let choice = |wants: bool| if wants { &CHOICE[..] } else { &[] };
        let mut command = bridge.baton("serve", 0, HOST, choice(server));
        command.args(["--service", &format!("http={}", site.path().display())]);
        let mut serve = Serve::with(&mut command);
        for ip in [Ip::V4, Ip::V6] {
            let mut command = bridge.baton("get", 1, 9, choice(client));
            command.args(["-o", "-", &format!("http://{}/ramp", ip.url_host(HOST))]);
            let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let outcome: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
            transfer::same_digest(&site, outcome["sha256"].as_str().unwrap_or("")).unwrap();
            let (taken, refused) = (
                counter(&outcome["stats"], "streamer.rx_unsummed"),
                counter(&outcome["stats"], "streamer.drop_unsummed"),
            );
            let agreed = server && client;
            assert_eq!((taken > BYTES / 1500, refused), (agreed, 0), "{ip:?}: {taken} segments without a checksum");
        }
        assert_eq!(counter(&serve.stats(), "streamer.rx_unsummed") > 0, server && client);
    }
}
