//! Trials of this machine: everything that a port needs is tried, and each *no* comes with
//! advice.
//!
//! Trials run in a network namespace of their own, which is gone afterwards. Existing
//! interfaces are only asked what they can do.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::thread;

use aya::programs::{SchedClassifier, TcAttachType};

use crate::error::OpenError;
use crate::tap::{Tap, TapOptions};
use crate::xdp::{CopyMode, Program, XdpOptions, XdpPort, driver_features};
use crate::{FrameIo, link};

/// One thing that a port may need.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Subject of the check.
    pub name: String,
    /// Whether this machine allows it.
    pub ok: bool,
    /// Without it connections cannot be moved.
    pub needed: bool,
    /// Result of the check, in words.
    pub detail: String,
    /// Advice about a *no*; empty for a *yes*.
    pub remedy: String,
}

impl Finding {
    /// A check that succeeded.
    pub fn yes(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), ok: true, needed: false, detail: detail.into(), remedy: String::new() }
    }

    /// A check that failed.
    pub fn no(name: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), ok: false, needed: false, detail: detail.into(), remedy: remedy.into() }
    }

    /// Without it connections cannot be moved.
    pub fn needed(self, needed: bool) -> Self {
        Self { needed, ..self }
    }

    /// A check from an attempt to open a port.
    fn opened(name: &str, result: Result<String, OpenError>) -> Self {
        match result {
            Ok(detail) => Self::yes(name, detail),
            Err(error) => {
                let (detail, remedy) = split(error);
                Self::no(name, detail, remedy)
            }
        }
    }
}

/// An opening error as what was found and what to do.
fn split(error: OpenError) -> (String, String) {
    match error {
        OpenError::NotPermitted { remedy, .. } => ("not permitted".into(), remedy),
        OpenError::Busy { remedy, .. } => ("in use".into(), remedy),
        OpenError::Missing { remedy, .. } => ("not there".into(), remedy),
        OpenError::Unsuitable { what, remedy, .. } => (what, remedy),
        OpenError::System { what, source, .. } => {
            (format!("{what}: {source}"), "look into the kernel's log: dmesg".into())
        }
    }
}

/// Looks at everything. Takes a few tenths of a second.
pub fn examine() -> Vec<Finding> {
    let mut findings = capabilities();
    findings.extend(thread::scope(|scope| {
        // A thread of its own: the namespace ends with it.
        scope
            .spawn(in_namespace)
            .join()
            .unwrap_or_else(|_| vec![Finding::no("probes", "a probe panicked", "report the message above")])
    }));
    findings.push(bpf().needed(true));
    findings.push(steering(&findings));
    findings.extend(interfaces());
    findings
}

/// Capabilities, their bit numbers (linux/capability.h), what they are for, and whether
/// moves need them.
const CAPABILITIES: [(&str, u32, &str, bool); 6] = [
    ("CAP_NET_ADMIN", 12, "moves connections, makes network devices, leads packets to an engine", true),
    ("CAP_NET_RAW", 13, "moves half-closed connections, and lets the xdp kind open its sockets", true),
    ("CAP_IPC_LOCK", 14, "keeps packet memory from being swapped out, beyond what ulimit -l allows", false),
    ("CAP_SYS_ADMIN", 21, "makes network namespaces, in which the checks below are tried", false),
    ("CAP_PERFMON", 38, "loads BPF programs that look into packets", true),
    ("CAP_BPF", 39, "loads BPF programs, which lead packets to an engine", true),
];

/// The capabilities that this thread has in effect.
fn capabilities() -> Vec<Finding> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:")).unwrap_or("0");
    let effective = u64::from_str_radix(effective.trim(), 16).unwrap_or(0);
    CAPABILITIES
        .iter()
        .map(|&(name, bit, purpose, needed)| {
            let found = if effective & 1 << bit != 0 {
                Finding::yes(name, purpose)
            } else {
                let remedy = format!("run as root, or: setcap {}=ep PROGRAM", name.to_lowercase());
                Finding::no(name, format!("not held; {purpose}"), remedy)
            };
            found.needed(needed)
        })
        .collect()
}

/// The features that the kinds of steering need.
const STEERED_TAP: &str = "TAP with virtio header";
const TC: &str = "tc programs";
const XDP: [&str; 2] = ["AF_XDP, driver", "AF_XDP, generic"];

/// Whether connections can be steered to an engine: one kind is enough.
fn steering(findings: &[Finding]) -> Finding {
    let ok = |name: &str| findings.iter().any(|finding| finding.name == name && finding.ok);
    let kinds = [("tc", ok(STEERED_TAP) && ok(TC)), ("xdp", XDP.into_iter().any(ok))];
    let there: Vec<_> = kinds.into_iter().filter(|(_, there)| *there).map(|(kind, _)| kind).collect();
    let found = if there.is_empty() {
        Finding::no(
            "steering",
            "packets can be led to an engine neither by tc nor by xdp",
            "see to tc programs and TAP with virtio header",
        )
    } else {
        Finding::yes("steering", format!("packets can be led to an engine by {}", there.join(" and by ")))
    };
    found.needed(true)
}

/// Trials that need a namespace, or at least do no harm in one.
fn in_namespace() -> Vec<Finding> {
    let namespace = link::unshare_namespace();
    let private = namespace.is_ok();
    let mut findings = vec![match namespace {
        Ok(()) => Finding::yes("network namespaces", "can be made"),
        Err(e) => Finding::no("network namespaces", e.to_string(), "run as root, or in a container with CAP_SYS_ADMIN"),
    }];
    findings.push(tap("TAP", TapOptions { vnet_hdr: false, merge: true }));
    findings.push(tap(STEERED_TAP, TapOptions { vnet_hdr: true, merge: true }));
    if private {
        findings.extend(on_scratch_wire());
    }
    findings
}

fn tap(name: &str, options: TapOptions) -> Finding {
    let opened = Tap::open("baton%d", options).map(|tap| {
        let frames = match tap.capabilities().tx_gso_max {
            0 => "frames of one segment".to_owned(),
            max => format!("checksums left out, super-frames of up to {max} bytes"),
        };
        match tap.merging() {
            Ok(()) => format!("{frames}; the kernel merges bulk"),
            Err(why) => format!("{frames}; the kernel does not merge bulk: {why}"),
        }
    });
    Finding::opened(name, opened)
}

/// AF_XDP modes and links of tc programs, on a veth made for the purpose.
fn on_scratch_wire() -> Vec<Finding> {
    let made = run("ip", "link add near type veth peer name far")
        .and_then(|()| link::set_up("near"))
        .and_then(|()| link::set_up("far"));
    if let Err(e) = made {
        let remedy = "install iproute2; use a kernel with CONFIG_VETH";
        return vec![Finding::no("veth", e.to_string(), remedy)];
    }
    let xdp = |name: &str, generic| {
        let options = XdpOptions { generic, copy: CopyMode::Auto, queues: None };
        match XdpPort::open("near", options) {
            // Asked for the driver, it may have fallen back to the generic hook.
            Ok(port) if !generic && !port.mode().driver => {
                Finding::no(name, "only the generic hook", "use a kernel whose veth runs XDP programs (4.19 or later)")
            }
            opened => Finding::opened(name, opened.map(|_| "works; tried on a virtual wire".into())),
        }
    };
    let tc = match SchedClassifier::query_tcx("near", TcAttachType::Ingress) {
        Ok(_) => Finding::yes(TC, "works: packets can be led to an engine beside other programs of the interface"),
        Err(e) => Finding::no(TC, e.to_string(), "use Linux 6.6 or later with CONFIG_NET_XGRESS"),
    };
    vec![Finding::yes("veth", "can be made"), xdp(XDP[0], false), xdp(XDP[1], true), tc]
}

/// Runs a program with words for arguments; its error output if it fails.
fn run(program: &str, arguments: &str) -> io::Result<()> {
    let out = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output();
    let out = out.map_err(|e| io::Error::new(e.kind(), format!("{program} cannot be run: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&out.stderr);
    Err(io::Error::other(format!("{program} {arguments}: {}", complaint.trim().lines().next().unwrap_or("failed"))))
}

fn bpf() -> Finding {
    let name = "BPF";
    match Program::probe() {
        Ok(()) => Finding::yes(name, "the kernel loads Baton's programs"),
        Err(e) => {
            let remedy = match e.os_error() {
                None => "install clang and build again",
                Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_BPF and CAP_NET_ADMIN",
                Some(_) => "use a kernel with CONFIG_BPF_SYSCALL and CONFIG_XDP_SOCKETS, 6.6 or later",
            };
            Finding::no(name, e.to_string(), remedy)
        }
    }
}

/// One finding for each interface of this namespace: its abilities with AF_XDP.
fn interfaces() -> Vec<Finding> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    // Two lines of heading, then `name: numbers`.
    let names = table.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.filter(|name| *name != "lo").map(interface).collect()
}

fn interface(name: &str) -> Finding {
    let what = format!("AF_XDP on {name}");
    match link::index(name).and_then(driver_features) {
        Ok(f) if f.driver => {
            let copy = if f.zero_copy { "without copying packets" } else { "by copying packets" };
            let jumbo = if f.pieces { ", also those longer than a page" } else { "" };
            Finding::yes(what, format!("--steer xdp works in its driver, {copy}{jumbo}"))
        }
        Ok(_) => Finding::yes(
            what,
            "--steer xdp works, slower than in a driver that supports it; tc is used if none is named",
        ),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Finding::yes(what, "--steer xdp works, at least slowly (this kernel cannot tell more)")
        }
        Err(e) => Finding::no(what, e.to_string(), "use Linux 6.3 or later, which can tell"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_no_has_a_remedy_and_no_yes_has() {
        let findings = examine();
        assert!(findings.len() > CAPABILITIES.len());
        for f in &findings {
            assert!(!f.name.is_empty() && !f.detail.is_empty(), "{f:?}");
            assert_eq!(f.ok, f.remedy.is_empty(), "{f:?}");
            assert!(!f.detail.contains('\n'), "{f:?}");
        }
        let names: Vec<_> = findings.iter().map(|f| f.name.as_str()).collect();
        assert!(findings.iter().any(|f| f.name == "steering" && f.needed));
        for name in ["CAP_NET_ADMIN", "network namespaces", "TAP", "TAP with virtio header", "BPF"] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
    }

    #[test]
    fn one_kind_of_steering_is_enough() {
        let both = [STEERED_TAP, TC];
        for (there, detail) in [
            (&both[..], Some("packets can be led to an engine by tc")),
            (&XDP[1..], Some("packets can be led to an engine by xdp")),
            (&[STEERED_TAP, TC, XDP[0]][..], Some("packets can be led to an engine by tc and by xdp")),
            (&both[..1], None),
            (&both[1..], None),
            (&[], None),
        ] {
            let findings: Vec<_> = there.iter().map(|name| Finding::yes(*name, "x")).collect();
            let found = steering(&findings);
            assert_eq!((found.ok, found.needed), (detail.is_some(), true), "{there:?}");
            assert_eq!(found.ok.then_some(found.detail.as_str()), detail, "{there:?}");
        }
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        assert!(run("false", "x").is_err());
        let error = run("no-such-program-at-all", "x").unwrap_err();
        assert!(error.to_string().contains("no-such-program-at-all cannot be run"), "{error}");
    }
}
