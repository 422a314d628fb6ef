//! Findings in rules of the kernel, which the usual tools have loaded.

use super::{Connection, Firewall, Hit, Rules};
use baton_testkit::{Netns, need_program, need_root};
use baton_wire::addr::Tuple;
use std::io::Write;
use std::process::Stdio;

/// A namespace with an interface called `wire`.
fn namespace() -> Netns {
    let namespace = Netns::new("rules");
    namespace.run("ip link add wire type veth peer name other");
    namespace.run("ip link set wire up");
    namespace
}

fn connection(namespace: &Netns, ipv6: bool) -> Connection {
    let [local, remote] = if ipv6 { ["[fd00::1]:80", "[fd00::2]:4000"] } else { ["10.0.0.1:80", "10.0.0.2:4000"] };
    let interface = namespace.enter(|| baton_port::link::index("wire").unwrap());
    let tuple = Tuple::new(local.parse().unwrap(), remote.parse().unwrap());
    Connection { tuple, interface, interface_name: "wire".to_owned(), mark: 0, tracked: false }
}

/// Lets a program read `script`.
#[track_caller]
fn load(namespace: &Netns, program: &str, words: &[&str], script: &str) {
    let mut command = namespace.command(program);
    let mut child = command.args(words).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}: {script}");
}

/// The rule that keeps the connection in the kernel: its chain and what it does.
fn hit(namespace: &Netns, rules: Rules, connection: &Connection) -> Option<(String, String)> {
    let check = || Firewall::open().unwrap().check(rules, connection).unwrap();
    namespace.enter(check).map(|Hit { chain, what, .. }| (chain, what))
}

/// The hook of a chain, its rules, and what is found in the mode `refuse`; an empty string means
/// nothing.
const RULES: &[(&str, &str, &str)] = &[
    ("input", "", ""),
    ("input", "counter", ""),
    ("input", "log prefix \"x\"", ""),
    ("input", "ct state established,related accept; limit rate 1/second accept; drop", ""),
    ("input", "ct state vmap { established : accept, related : accept, invalid : drop }; drop", ""),
    ("input", "ct state vmap { new : accept, invalid : drop }; limit rate 1/second accept", "limit"),
    ("input", "ct state invalid drop", ""),
    ("input", "ct state new limit rate 1/second accept", ""),
    ("input", "ct state != { established, related } drop", ""),
    ("input", "ct state { established, related } accept; drop", ""),
    ("input", "tcp flags & (fin|syn|rst|ack) == syn drop", ""),
    ("input", "tcp flags & (syn|rst) == (syn|rst) drop; tcp flags & (fin|syn|rst|psh|ack|urg) == 0 drop", ""),
    ("input", "ip saddr 10.0.0.2 drop", "drop"),
    ("input", "ip saddr 10.0.0.3 drop", ""),
    ("input", "ip saddr 10.0.0.0/30 tcp dport 80 drop", "drop"),
    ("input", "ip daddr { 10.0.0.5-10.0.0.9 } drop", ""),
    ("input", "tcp dport 1-1000 limit rate 1/second", "limit"),
    ("input", "tcp dport { 22, 443 } limit rate 1/second accept", ""),
    ("input", "tcp dport { 22, 80 } limit rate 1/second accept", "limit"),
    ("input", "ip saddr . tcp dport { 10.0.0.2 . 80 } quota 100 bytes accept", "quota"),
    ("input", "ip saddr . tcp dport { 10.0.0.2 . 81 } quota 100 bytes accept", ""),
    ("input", "iifname \"wire\" accept; drop", ""),
    ("input", "iifname \"w*\" accept; drop", ""),
    ("input", "iifname \"eth0\" accept; drop", "drop"),
    ("input", "iif lo accept; meta l4proto udp drop; ip protocol icmp drop", ""),
    ("input", "iifname vmap { \"lo\" : accept, \"wire\" : drop }", "drop"),
    ("input", "tcp dport vmap { 80 : accept }; drop", ""),
    ("input", "meta mark 7 drop", ""),
    ("output", "meta mark set 7", "meta mark set"),
    ("output", "tcp sport 80 ip dscp set cs1", "payload set"),
    ("output", "tcp sport 81 ip dscp set cs1", ""),
    ("output", "oifname \"wire\" meta priority set none", "meta priority set"),
    ("output", "ct mark set 1", "ct set"),
    ("prerouting", "ct zone set 3", ""),
    ("postrouting", "tcp flags syn tcp option maxseg size set rt mtu", ""),
    ("postrouting", "tcp option maxseg size set 1000", ""),
    ("prerouting", "fib saddr . iif oif missing drop", ""),
    ("prerouting", "fib daddr type local accept; drop", ""),
    ("prerouting", "notrack", ""),
    ("prerouting", "notrack; ct state established accept; drop", "drop"),
    ("prerouting", "notrack; ct state untracked accept; drop", ""),
    ("prerouting", "meta length 1000 drop", "drop"),
    ("prerouting", "socket transparent 1 meta mark set 1", "meta mark set"),
    ("prerouting", "dup to 10.0.0.9 device wire", "dup"),
    ("input", "ct count over 3 drop", "connlimit"),
    ("input", "numgen random mod 2 0 drop", "drop"),
    ("input", "add @seen { ip saddr }", "dynset"),
    ("input", "ip saddr @seen drop", "drop"),
    ("input", "ip saddr @banned drop", "drop"),
    ("input", "ip saddr @others drop", ""),
    ("input", "ip saddr @expiring drop", "drop"),
    ("input", "jump bad", "drop"),
    ("input", "goto good; drop", ""),
    ("input", "ip saddr 10.0.0.9 jump bad", ""),
    ("input", "meta length 1000 goto good; drop", "drop"),
    ("input", "meta length 1000 return; accept; drop", ""),
    ("input", "jump back; accept; limit rate 1/second", ""),
];

#[test]
fn rules_of_nftables_are_found_to_act_or_not() {
    need_root!();
    need_program!("nft");
    let namespace = namespace();
    let connection = connection(&namespace, false);
    for (hook, rules, expected) in RULES {
        let script = format!(
            "flush ruleset; table ip t {{
                set seen {{ type ipv4_addr; size 100; flags dynamic; }}
                set banned {{ type ipv4_addr; flags interval; elements = {{ 10.0.0.0/28 }}; }}
                set others {{ type ipv4_addr; flags interval; elements = {{ 10.0.1.0/28 }}; }}
                set expiring {{ type ipv4_addr; flags timeout; elements = {{ 10.0.0.2 timeout 1h }}; }}
                chain bad {{ tcp dport 80 drop; }}
                chain good {{ accept; }}
                chain back {{ return; drop; }}
                chain base {{ type filter hook {hook} priority 0; {rules}; }}
            }}"
        );
        load(&namespace, "nft", &["-f", "-"], &script.replace("; ; }", "; }"));
        let found = hit(&namespace, Rules::Refuse, &connection).map_or(String::new(), |(_, what)| what);
        assert_eq!(found, *expected, "{hook} {rules}");
    }
}

#[test]
fn what_each_setting_refuses() {
    need_root!();
    need_program!("nft");
    let namespace = namespace();
    let connection = connection(&namespace, true);
    let all = [Rules::Follow, Rules::Refuse, Rules::Strict];
    let cases = [
        ("counter", [None, None, Some("counter")]),
        ("rt type 0 drop; exthdr hbh exists drop; frag more-fragments 1 drop", [None; 3]),
        ("log", [None, None, Some("log")]),
        ("limit rate 5/second accept", [None, Some("limit"), Some("limit")]),
        ("meta length 9 drop", [None, Some("drop"), Some("drop")]),
        ("limit rate 5/second counter; drop", [Some("drop"); 3]),
        ("policy drop; tcp dport 22 accept", [Some("policy drop"); 3]),
        ("policy drop; ct state established accept", [None; 3]),
    ];
    for (rules, expected) in cases {
        let script =
            format!("flush ruleset; table inet t {{ chain c {{ type filter hook input priority 0; {rules}; }}; }}");
        load(&namespace, "nft", &["-f", "-"], &script);
        let found = all.map(|setting| hit(&namespace, setting, &connection).map(|(_, what)| what));
        assert_eq!(found.each_ref().map(|what| what.as_deref()), expected, "{rules}");
    }
    let script = "flush ruleset; table netdev t { \
        chain c { type filter hook ingress device wire priority 0; limit rate 1/second accept; }; }";
    load(&namespace, "nft", &["-f", "-"], script);
    assert_eq!(hit(&namespace, Rules::Refuse, &connection), Some(("c".into(), "limit".into())));
    load(&namespace, "nft", &["-f", "-"], &script.replace("wire", "other"));
    assert_eq!(hit(&namespace, Rules::Refuse, &connection), None);
}

/// Rules for iptables, and what is found in the mode `refuse`.
const TABLES: &[(&str, &str)] = &[
    ("", ""),
    ("-A INPUT -j LOG", ""),
    ("-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT\n-A INPUT -m limit --limit 1/s -j ACCEPT", ""),
    ("-A INPUT -m state --state NEW -m limit --limit 1/s -j ACCEPT", ""),
    ("-A INPUT -m conntrack ! --ctstate ESTABLISHED -j DROP", ""),
    ("-A INPUT -m limit --limit 1/s -j ACCEPT", "limit"),
    ("-A INPUT -p udp -m limit --limit 1/s -j ACCEPT", ""),
    ("-A INPUT -p tcp --dport 80 -j DROP", "drop"),
    ("-A INPUT -p tcp --dport 81:90 -j DROP", ""),
    ("-A INPUT -p tcp ! --dport 80 -j DROP", ""),
    ("-A INPUT -p tcp -m multiport --dports 22,70:90 -j REJECT", "drop"),
    ("-A INPUT -p tcp -m multiport --dports 22,443 -j REJECT", ""),
    ("-A INPUT -p tcp --tcp-flags SYN,ACK SYN -j DROP", ""),
    ("-A INPUT -i eth+ -j DROP", ""),
    ("-A INPUT -i wi+ -j DROP", "drop"),
    ("-A INPUT ! -i wire -j DROP", ""),
    ("-A OUTPUT -o wire -j NFQUEUE --queue-num 3", "queue"),
    ("-A OUTPUT -m mark --mark 5 -j DROP", ""),
    ("-A OUTPUT -m addrtype --dst-type LOCAL -j DROP", ""),
    ("-A OUTPUT -m comment --comment hello -j DROP", "drop"),
    ("-A INPUT -m string --algo bm --string x -j DROP", "drop"),
    ("-N own\n-A INPUT -j own\n-A own -p tcp --dport 80 -j RETURN\n-A own -j DROP", ""),
    ("-N own\n-A INPUT -p tcp -g own\n-A INPUT -j DROP\n-A own -j ACCEPT", ""),
    ("-N own\n-A INPUT -p tcp -j own\n-A INPUT -j DROP\n-A own -j RETURN", "drop"),
];

#[test]
fn rules_of_iptables_are_found_to_act_or_not() {
    need_root!();
    need_program!("iptables-legacy");
    let namespace = namespace();
    for kind in ["nft", "legacy"] {
        for ipv6 in [false, true] {
            let connection = connection(&namespace, ipv6);
            let program = format!("ip{}tables-{kind}-restore", if ipv6 { "6" } else { "" });
            for (rules, expected) in TABLES {
                load(&namespace, &program, &[], &format!("*filter\n{rules}\nCOMMIT\n"));
                let found = hit(&namespace, Rules::Refuse, &connection).map_or(String::new(), |(_, what)| what);
                assert_eq!(found, *expected, "{program} {rules}");
            }
            let mangle = "*mangle\n-A POSTROUTING -p tcp -j TTL --ttl-set 9\nCOMMIT\n";
            let mangle = if ipv6 { mangle.replace("TTL --ttl", "HL --hl") } else { mangle.to_owned() };
            load(&namespace, &program, &[], &format!("{mangle}*filter\n:INPUT ACCEPT\nCOMMIT\n"));
            let (chain, what) = hit(&namespace, Rules::Refuse, &connection).expect("a rule acts");
            assert_eq!((&*chain, &*what), ("POSTROUTING", if ipv6 { "HL" } else { "TTL" }));
            load(&namespace, &program, &[], "*mangle\nCOMMIT\n*filter\n:INPUT DROP\nCOMMIT\n");
            assert!(hit(&namespace, Rules::Follow, &connection).is_some(), "the policy drops all packets");
            load(&namespace, &program, &[], "*filter\n:INPUT ACCEPT\nCOMMIT\n");
        }
    }
}

/// The chains that `ufw enable` creates before it loads its files (`ufw-init-functions`).
fn ufw_skeleton(six: &str) -> String {
    let mut script = String::from("*filter\n:INPUT DROP\n:FORWARD DROP\n:OUTPUT ACCEPT\n");
    let parts = ["before-logging", "before", "after", "after-logging", "reject", "track"];
    let hooks = [("INPUT", "input"), ("FORWARD", "forward"), ("OUTPUT", "output")];
    let all = || hooks.iter().flat_map(|hook| parts.iter().map(move |part| (hook, part)));
    all().for_each(|((_, hook), part)| script += &format!(":ufw{six}-{part}-{hook} -\n"));
    for name in ["skip-to-policy-input", "logging-deny", "logging-allow"] {
        script += &format!(":ufw{six}-{name} -\n");
    }
    all().for_each(|((chain, hook), part)| script += &format!("-A {chain} -j ufw{six}-{part}-{hook}\n"));
    script + "COMMIT\n"
}

#[test]
fn ufws_own_rules_keep_no_connection() {
    need_root!();
    need_program!("ufw");
    for kind in ["nft", "legacy"] {
        for (ipv6, six) in [(false, ""), (true, "6")] {
            let namespace = namespace();
            let connection = connection(&namespace, ipv6);
            let program = format!("ip{six}tables-{kind}-restore");
            load(&namespace, &program, &[], &ufw_skeleton(six));
            for file in ["user", "before", "after"] {
                let rules = std::fs::read_to_string(format!("/etc/ufw/{file}{six}.rules")).unwrap();
                load(&namespace, &program, &["-n"], &rules);
            }
            assert_eq!(hit(&namespace, Rules::Refuse, &connection), None, "{program}");
            // A ban in front of all other rules.
            let source = if ipv6 { "fd00::2" } else { "10.0.0.2" };
            load(&namespace, &program, &["-n"], &format!("*filter\n-I INPUT -s {source} -j DROP\nCOMMIT\n"));
            assert!(hit(&namespace, Rules::Follow, &connection).is_some(), "{program}");
        }
    }
}

/// Rules like those of Docker and fail2ban, in both kinds of tables.
#[test]
fn usual_rules_of_containers_keep_no_connection() {
    need_root!();
    need_program!("iptables-legacy");
    let script = "*nat\n:DOCKER -\n-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\n\
        -A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER\n\
        -A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE\nCOMMIT\n\
        *filter\n:FORWARD DROP\n:DOCKER -\n:DOCKER-USER -\n:DOCKER-FORWARD -\n:f2b-sshd -\n\
        -A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd\n\
        -A FORWARD -j DOCKER-USER\n-A FORWARD -j DOCKER-FORWARD\n\
        -A DOCKER-FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n\
        -A DOCKER ! -i docker0 -o docker0 -j DROP\n-A DOCKER-USER -j RETURN\n\
        -A f2b-sshd -s 10.0.0.2 -j REJECT\n-A f2b-sshd -j RETURN\nCOMMIT\n";
    for kind in ["nft", "legacy"] {
        let namespace = namespace();
        let mut connection = connection(&namespace, false);
        load(&namespace, &format!("iptables-{kind}-restore"), &[], script);
        assert_eq!(hit(&namespace, Rules::Refuse, &connection), None, "{kind}");
        connection.tuple.local_port = 22;
        let banned = hit(&namespace, Rules::Follow, &connection);
        assert_eq!(banned, Some(("f2b-sshd".into(), "drop".into())), "{kind}");
    }
}

/// The CPU time that the thread has used, in nanoseconds (`/proc/PID/schedstat`).
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn ten_thousand_rules_are_read_and_walked() {
    need_root!();
    need_program!("nft");
    let namespace = namespace();
    let connection = connection(&namespace, false);
    let mut script = String::from("add table inet t\nadd chain inet t c { type filter hook input priority 0; }\n");
    for n in 0..10_000 {
        script += &format!("add rule inet t c ip saddr 192.0.{}.{} tcp dport 22 counter drop\n", n / 250, n % 250);
    }
    script += "add rule inet t c limit rate 1/second accept\n";
    load(&namespace, "nft", &["-f", "-"], &script);
    namespace.enter(|| {
        let mut firewall = Firewall::open().unwrap();
        for turn in 0..2 {
            let begun = cpu_time();
            let hit =
                firewall.check(Rules::Refuse, &connection).unwrap().expect("the last rule acts on the connection");
            println!("turn {turn}: {} µs", (cpu_time() - begun) / 1000);
            assert_eq!((&*hit.table, &*hit.what), ("inet t", "limit"));
        }
    });
}
