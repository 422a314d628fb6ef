//! Findings of `baton doctor` about the machine around Baton: connection tracking, address
//! translation, io_uring, and what a killed service left behind.

use baton_kernel::steer::Steering;
use baton_port::doctor::Finding;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Parameters of connection tracking in this network namespace
/// (`Documentation/networking/nf_conntrack-sysctl.rst`).
const CONNTRACK: &str = "/proc/sys/net/netfilter";

/// Examines everything in this file's scope.
pub fn findings() -> Vec<Finding> {
    let mut findings = tracking(Path::new(CONNTRACK));
    findings.push(translation());
    findings.push(io_uring(fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok().as_deref()));
    findings.push(left_over());
    findings
}

/// Reports how the firewall's connection tracking is set up, from its files in `directory`.
fn tracking(directory: &Path) -> Vec<Finding> {
    let name = "connection tracking";
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let Some(count) = number("nf_conntrack_count") else {
        return vec![Finding::yes(
            name,
            "is off in this network namespace: no firewall rule uses the state of connections",
        )];
    };
    let most = number("nf_conntrack_max").unwrap_or(u64::MAX);
    let strict = number("nf_conntrack_tcp_be_liberal") == Some(0);
    let checks = if strict { "checks sequence numbers" } else { "does not check sequence numbers" };
    let room = if count > most / 10 * 9 {
        Finding::no(
            "room in connection tracking",
            format!("{count} of {most} entries are used; once all are, new connections are refused"),
            format!("sysctl -w net.netfilter.nf_conntrack_max={}", most.saturating_mul(2)),
        )
    } else {
        Finding::yes("room in connection tracking", format!("{count} of {most} entries are used"))
    };
    vec![Finding::yes(name, format!("is on, and {checks}")), room]
}

/// Reports whether rules of this network namespace translate addresses or ports, if they can be listed.
fn translation() -> Finding {
    let tables = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let legacy = [tables("/proc/self/net/ip_tables_names"), tables("/proc/self/net/ip6_tables_names")].concat();
    let nft = Command::new("nft").args(["list", "ruleset"]).stdin(Stdio::null()).output();
    let rules =
        nft.ok().filter(|out| out.status.success()).map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    translated(&legacy, rules.as_deref())
}

/// The finding for the names of iptables' tables and, if they could be listed, nftables' rules.
fn translated(legacy: &str, rules: Option<&str>) -> Finding {
    let name = "address translation (NAT)";
    let of_nft = rules.is_some_and(|rules| rules.lines().any(|line| line.trim().starts_with("type nat hook")));
    if of_nft || legacy.lines().any(|table| table == "nat") {
        let there = "rules translate addresses or ports here; the connections that they change stay in the kernel";
        return Finding::yes(name, there);
    }
    match rules {
        Some(_) => Finding::yes(name, "no rule translates addresses or ports here"),
        None => Finding::no(
            name,
            "nftables' rules cannot be listed, so it is unknown whether any of them translates",
            "apt-get install nftables, then run baton doctor as root",
        ),
    }
}

/// The finding for the sysctl that restricts io_uring (`Documentation/admin-guide/sysctl/kernel.rst`).
fn io_uring(disabled: Option<&str>) -> Finding {
    let name = "io_uring";
    match disabled.map(str::trim) {
        Some("0") | None => Finding::yes(
            name,
            "programs may use it; connections of a program that does stay in the kernel, \
             except with baton run --no-io-uring",
        ),
        Some("1") => Finding::yes(name, "only privileged programs may use it; their connections stay in the kernel"),
        Some(_) => Finding::yes(name, "no program may use it, so it keeps no connection in the kernel"),
    }
}

fn left_over() -> Finding {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let left: Vec<&str> = names.filter(|name| Steering::is_left(name)).collect();
    let name = "left by a killed service";
    if left.is_empty() {
        return Finding::yes(name, "nothing");
    }
    let what = format!("on {}: connections whose packets no process receives", left.join(", "));
    Finding::no(name, what, "start baton service or baton run on that interface; it resets them at both ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracking_is_read_from_its_files() {
        let directory = tempfile::tempdir().unwrap();
        assert!(tracking(directory.path())[0].detail.contains("is off"));
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("nf_conntrack_count", "12\n");
        write("nf_conntrack_max", "1000\n");
        write("nf_conntrack_tcp_be_liberal", "0\n");
        let found = tracking(directory.path());
        assert_eq!(found[0].detail, "is on, and checks sequence numbers");
        assert!(found[1].ok && found[1].detail.starts_with("12 of 1000"));
        write("nf_conntrack_count", "990\n");
        write("nf_conntrack_tcp_be_liberal", "1\n");
        let found = tracking(directory.path());
        assert_eq!(found[0].detail, "is on, and does not check sequence numbers");
        assert!(!found[1].ok && found[1].remedy.ends_with("nf_conntrack_max=2000"));
    }

    #[test]
    fn translation_is_seen_in_either_kind_of_rules() {
        let nat = "table ip t {\n\tchain c {\n\t\ttype nat hook prerouting priority dstnat;\n";
        assert!(translated("", Some(nat)).detail.starts_with("rules translate"));
        assert!(translated("filter\nnat\n", None).detail.starts_with("rules translate"));
        assert!(translated("filter\n", Some("table ip t {\n")).detail.starts_with("no rule"));
        assert!(!translated("", None).ok);
    }

    #[test]
    fn io_uring_follows_the_kernels_sysctl() {
        assert!(io_uring(Some("0\n")).detail.starts_with("programs may"));
        assert!(io_uring(Some("2\n")).detail.starts_with("no program"));
        assert!(io_uring(None).ok);
    }
}
