//! CPU time of the receiver by routine (RA Fig. 3, 8 and 9).
//!
//! RA is *Optimizing TCP Receive Performance*. The system's `perf` samples that CPU 2,000 times per
//! second by a timer. Each sample goes into one of RA's groups by the names of the functions on its
//! stack, the innermost first. Work with interrupts off is attributed to the place where they are
//! enabled again.

use super::Contender;
use crate::world::find_program;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

/// Samples per second.
const RATE: u32 = 2_000;
/// Payload of a full segment, with timestamps, in bytes.
const MSS: f64 = 1448.0;

/// A group of routines, with RA's name (§2.2, §5.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// TCP and IP, on the way in.
    Rx,
    /// TCP and IP, sending acknowledgments.
    Tx,
    /// Packets' memory.
    Buffer,
    /// Other work of the kernel on each packet.
    NonProto,
    /// The wire's two ways: here the receive path up to the bump's ring, and its sending.
    Driver,
    /// The TAP device, which no driver of the paper has.
    Tap,
    /// The bump itself.
    Aggr,
    /// Copying.
    PerByte,
    /// Scheduling, the receiving program, and everything else.
    Misc,
}

impl Group {
    /// All, in the order of the paper's figures.
    pub const ALL: [Group; 9] = [
        Group::PerByte,
        Group::Rx,
        Group::Tx,
        Group::Buffer,
        Group::NonProto,
        Group::Driver,
        Group::Tap,
        Group::Aggr,
        Group::Misc,
    ];

    /// The routine's name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Group::Rx => "rx",
            Group::Tx => "tx",
            Group::Buffer => "buffer",
            Group::NonProto => "non-proto",
            Group::Driver => "driver",
            Group::Tap => "tap",
            Group::Aggr => "aggr",
            Group::PerByte => "per-byte",
            Group::Misc => "misc",
        }
    }

    /// The groups of the stack whose cost is per packet.
    pub fn is_stack(self) -> bool {
        matches!(self, Group::Rx | Group::Tx | Group::Buffer | Group::NonProto)
    }
}

/// CPU time of the receiver by group, in nanoseconds a segment.
pub type Costs = BTreeMap<Group, f64>;

/// Samples by group.
pub type Looks = BTreeMap<Group, u32>;

/// A running `perf record`.
pub struct Looking {
    child: std::process::Child,
    file: tempfile::NamedTempFile,
}

impl Looking {
    /// Starts to sample this CPU. Returns `None` if there is no `perf`.
    pub fn start(cpu: usize) -> anyhow::Result<Option<Looking>> {
        if find_program("perf").is_none() {
            return Ok(None);
        }
        let file = tempfile::NamedTempFile::new().context("no temporary file")?;
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-g", "-e", "cpu-clock", "-F", &RATE.to_string(), "-C", &cpu.to_string(), "-o"]);
        command.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Some(Looking { child: command.spawn().context("cannot start perf")?, file }))
    }

    /// Ends it, and returns its samples by group. `bump` is the process id of the bump.
    pub fn end(mut self, bump: u32) -> anyhow::Result<Looks> {
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        self.child.wait()?;
        let mut command = Command::new("perf");
        command.args(["script", "-F", "pid,ip,sym", "-i"]).arg(self.file.path()).stderr(Stdio::null());
        let output = command.output().context("cannot run perf")?;
        if !output.status.success() {
            bail!("perf record failed; run 'perf record -e cpu-clock -a sleep 1' to see why");
        }
        Ok(looks(&String::from_utf8_lossy(&output.stdout), bump))
    }
}

/// Counts the samples in the output of `perf script`. Each sample has a line with the process, a line for
/// each function, the innermost first, and an empty line.
fn looks(text: &str, bump: u32) -> Looks {
    let mut looks = Looks::new();
    for sample in text.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some(pid) = lines.next().and_then(|line| line.trim().parse::<u32>().ok()) else { continue };
        let frames: Vec<(bool, &str)> = lines
            .filter_map(|line| line.trim().split_once(' '))
            .map(|(address, name)| (address.starts_with("ffff"), name))
            .collect();
        if let Some(group) = group(&frames, pid == bump) {
            *looks.entry(group).or_default() += 1;
        }
    }
    looks
}

fn starts(name: &str, with: &[&str]) -> bool {
    with.iter().any(|start| name.starts_with(start))
}

/// Functions of an idle CPU.
const IDLE: &[&str] = &["pv_native_safe_halt", "native_safe_halt", "default_idle", "acpi_", "poll_idle", "intel_idle"];
const COPY: &[&str] = &["_copy_", "copy_", "__pi_memcpy", "memcpy", "rep_movs", "__memcpy", "csum_", "skb_copy_"];
/// Functions that belong to the wire, with everything that they call: its queue, and the packet socket.
const WIRE: &[&str] = &["process_backlog", "packet_", "tpacket_", "veth_", "__sys_sendmmsg"];
const TAP: &[&str] = &["tun_", "__tun_"];
const BUFFER: &[&str] = &[
    "kmem_",
    "__kmalloc",
    "kmalloc",
    "kfree",
    "__kfree",
    "__alloc_skb",
    "alloc_skb",
    "skb_release",
    "slab_",
    "__slab_",
    "___slab",
    "build_skb",
    "__build_skb",
    "napi_alloc",
    "__napi_alloc",
    "page_frag",
    "__free_",
    "free_",
    "alloc_pages",
    "__alloc_pages",
    "get_page",
    "consume_skb",
    "sk_skb_reason_drop",
    "napi_consume",
    "skb_free",
    "skb_attempt_defer",
];
const TX: &[&str] = &[
    "tcp_send",
    "__tcp_send",
    "__tcp_transmit",
    "tcp_transmit",
    "tcp_write_xmit",
    "tcp_wfree",
    "__ip_queue_xmit",
    "ip_queue_xmit",
    "ip_output",
    "ip_finish",
    "__ip_finish",
    "ip_local_out",
    "__ip_local_out",
    "__dev_queue_xmit",
    "dev_hard_start",
    "sch_direct",
    "__qdisc",
    "validate_xmit",
    "__tcp_ack_snd",
    "neigh_",
];
const RX: &[&str] =
    &["tcp_", "__tcp", "ip_", "ipv4_", "inet_", "__inet", "raw_local", "inet6_", "ipv6_", "ip6_", "sk_"];
const NON_PROTO: &[&str] =
    &["netif_", "__netif", "napi_", "net_rx", "__skb_flow", "skb_get_hash", "__skb_get_hash", "eth_", "get_rps", "nf_"];
const SLEEP: &[&str] =
    &["schedule", "__schedule", "try_to_wake_up", "ep_", "do_epoll", "__wake_up", "wake_up", "sock_def"];

/// The group of a sample, given for each function whether it is the kernel's, and its name. `None` if the
/// CPU was idle.
fn group(frames: &[(bool, &str)], bump: bool) -> Option<Group> {
    let (kernel, innermost) = *frames.first()?;
    if !kernel {
        return Some(if bump { Group::Aggr } else { Group::Misc });
    }
    if starts(innermost, IDLE) {
        return None;
    }
    if starts(innermost, COPY) {
        return Some(Group::PerByte);
    }
    let mut found = None;
    for (_, name) in frames.iter().take_while(|(kernel, _)| *kernel) {
        let group = match name {
            name if starts(name, WIRE) => return Some(Group::Driver),
            name if starts(name, TAP) => return Some(found.unwrap_or(Group::Tap)),
            name if starts(name, BUFFER) => Group::Buffer,
            name if starts(name, TX) => Group::Tx,
            name if starts(name, SLEEP) => Group::Misc,
            name if starts(name, RX) => Group::Rx,
            name if starts(name, NON_PROTO) => Group::NonProto,
            _ => continue,
        };
        found = found.or(Some(group));
    }
    Some(found.unwrap_or(Group::Misc))
}

/// The cost of a segment, from `busy` seconds of CPU time and the bytes of payload.
pub fn costs(looks: &Looks, busy: f64, bytes: u64) -> Costs {
    let all: u32 = looks.values().sum();
    let a_segment = busy * 1e9 / (bytes as f64 / MSS);
    looks.iter().map(|(group, count)| (*group, a_segment * f64::from(*count) / f64::from(all.max(1)))).collect()
}

/// The part of the cost that is the stack's and is spent per packet.
pub fn stack(costs: &Costs) -> f64 {
    costs.iter().filter(|(group, _)| group.is_stack()).map(|(_, ns)| ns).sum()
}

/// All of it as lines of a table.
pub fn table(out: &mut String, routines: &[(Contender, Costs)]) {
    let Some((_, base)) = routines.iter().find(|(who, _)| *who == Contender::Limit(1)) else {
        let _ = writeln!(
            out,
            "  by routine: not measured, for there is no perf (Debian: apt-get install linux-perf), or it sees \
             nothing (try 'perf record -e cpu-clock -a sleep 1')"
        );
        return;
    };
    let _ = write!(out, "  {:<28}", "ns a segment by routine");
    for group in Group::ALL {
        let _ = write!(out, "{:>10}", group.name());
    }
    let _ = writeln!(out, "{:>10}{:>14}", "stack", "divided by");
    for (who, costs) in routines {
        let _ = write!(out, "  {:<28}", who.name());
        for group in Group::ALL {
            let _ = write!(out, "{:>10.0}", costs.get(&group).copied().unwrap_or(0.0));
        }
        let _ = writeln!(out, "{:>10.0}{:>14.1}", stack(costs), stack(base) / stack(costs));
    }
    let _ = writeln!(
        out,
        "  stack: sum of rx, tx, buffer and non-proto, and how many times smaller it is than with coalescing off"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_put_where_its_functions_say() {
        let cases: [(&[&str], Group); 9] = [
            (&["_copy_to_iter", "tcp_recvmsg"], Group::PerByte),
            (&["tcp_v4_rcv", "ip_local_deliver", "netif_receive_skb", "tun_get_user"], Group::Rx),
            (&["kmem_cache_free", "tcp_ack", "tcp_v4_rcv", "tun_get_user"], Group::Buffer),
            (&["kmem_cache_free", "sk_skb_reason_drop", "tpacket_rcv", "process_backlog"], Group::Driver),
            (&["__netif_receive_skb_core", "process_backlog", "net_rx_action", "tun_get_user"], Group::Driver),
            (&["__netif_receive_skb_core", "netif_receive_skb", "tun_get_user"], Group::NonProto),
            (&["__tcp_transmit_skb", "tcp_send_ack", "tcp_v4_rcv", "tun_get_user"], Group::Tx),
            (&["tun_net_xmit", "dev_hard_start_xmit", "tcp_send_ack"], Group::Tap),
            (&["finish_task_switch", "__schedule", "ep_poll"], Group::Misc),
        ];
        for (names, expected) in cases {
            let frames: Vec<_> = names.iter().map(|name| (true, *name)).collect();
            assert_eq!(group(&frames, true), Some(expected), "{names:?}");
        }
        assert_eq!(group(&[(true, "pv_native_safe_halt"), (true, "do_idle")], false), None);
        assert_eq!(group(&[(false, "classify"), (false, "main")], true), Some(Group::Aggr));
        assert_eq!(group(&[(false, "main")], false), Some(Group::Misc));
    }

    #[test]
    fn without_looks_nothing_is_said_to_cost_nothing() {
        let mut out = String::new();
        table(&mut out, &[]);
        assert!(out.contains("not measured") && out.lines().count() == 1, "{out}");
    }

    #[test]
    fn looks_are_counted_and_shared_out() {
        let text = "  7 \n\tffffffff81 tcp_v4_rcv\n\tffffffff82 tun_get_user\n\n  7 \n\t55aa classify\n\n  8 \n\t55aa main\n\n";
        let looks = looks(text, 7);
        assert_eq!(looks, Looks::from([(Group::Rx, 1), (Group::Aggr, 1), (Group::Misc, 1)]));
        let costs = costs(&looks, 3e-6, 2896);
        assert_eq!(costs[&Group::Rx], 500.0);
        assert_eq!(stack(&costs), 500.0);
    }
}
