//! The systemd unit: systemd understands it, it names exactly the capabilities that are needed, it
//! confines the rest, and connections move with what it leaves.

#[path = "../../kernel/tests/common/mod.rs"]
mod common;

use baton_kernel::steer::{Gaps, Kind};
use baton_mover::{Mover, MoverConfig};
use baton_port::{SteeredPort, link};
use baton_testkit::{need_program, need_root, note_skip, output};
use baton_wire::addr::Tuple;
use common::{Wire, wait_for};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::{env, fs};

const UNIT: &str = include_str!("../../../packaging/baton.service");

/// The capabilities that the broker needs, and for what.
const NEEDED: [&str; 9] = [
    // TCP_REPAIR, programs on interfaces, TAP devices, neighbours.
    "CAP_NET_ADMIN",
    // Programs and maps; and programs that compute with pointers.
    "CAP_BPF",
    "CAP_PERFMON",
    // AF_XDP sockets, and the raw one of half-closed connections.
    "CAP_NET_RAW",
    // To run before the programs whose connections wait.
    "CAP_SYS_NICE",
    // To start the engine as another user, end it, and give it its descriptors.
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_KILL",
    "CAP_CHOWN",
];

/// Parses the part of `systemd.syntax(7)` that the unit uses: section, key, value.
fn settings() -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut settings = Vec::new();
    for line in UNIT.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        assert!(!line.ends_with('\\'), "this parser does not support continued lines: {line}");
        if let Some(name) = line.strip_prefix('[') {
            section = name.strip_suffix(']').unwrap_or_else(|| panic!("{line}")).to_owned();
        } else {
            let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("no setting: {line}"));
            settings.push((section.clone(), key.to_owned(), value.to_owned()));
        }
    }
    settings
}

/// The words of a setting of the service, which occurs once.
fn words(key: &str) -> Vec<String> {
    let found: Vec<_> = settings().into_iter().filter(|(at, name, _)| at == "Service" && name == key).collect();
    assert_eq!(found.len(), 1, "{key}");
    found[0].2.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn it_names_what_is_needed_and_no_more() {
    let mut named = words("CapabilityBoundingSet");
    let mut needed = NEEDED.map(str::to_owned).to_vec();
    named.sort();
    needed.sort();
    assert_eq!(named, needed);
    for capability in NEEDED {
        assert!(UNIT.contains(&format!("{capability}:")) || UNIT.contains(&format!("{capability},")), "{capability}");
    }
    assert!(words("AmbientCapabilities").is_empty(), "the service's children inherit nothing");
}

#[test]
fn it_confines() {
    let table = [
        ("Type", "notify"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelTunables", "yes"),
        ("RestrictNamespaces", "yes"),
        ("MemoryDenyWriteExecute", "yes"),
        ("RuntimeDirectory", "baton"),
        ("DevicePolicy", "closed"),
    ];
    for (key, value) in table {
        assert_eq!(words(key), [value], "{key}");
    }
    for family in ["AF_UNIX", "AF_NETLINK", "AF_INET", "AF_INET6", "AF_XDP"] {
        assert!(words("RestrictAddressFamilies").contains(&family.to_owned()), "{family}");
    }
    assert_eq!(words("SystemCallFilter"), ["@system-service", "bpf"]);
    assert_eq!(words("DeviceAllow"), ["/dev/net/tun", "rw"]);
}

#[test]
fn systemd_understands_it() {
    need_program!("systemd-analyze");
    let directory = env::temp_dir().join(format!("baton-unit-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    let path = directory.join("baton.service");
    // The program exists whether Baton is installed or not.
    let text = UNIT.replace("ExecStart=/usr/bin/baton", "ExecStart=/bin/true");
    assert_ne!(text, UNIT);
    fs::write(&path, text).unwrap();
    let out = output(Command::new("systemd-analyze").arg("verify").arg(&path));
    fs::remove_dir_all(&directory).unwrap();
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    let ours: Vec<&str> = words.lines().filter(|line| line.contains("baton.service")).collect();
    if ours.is_empty() && !out.status.success() {
        return note_skip!("systemd-analyze does not verify here: {}", words.trim());
    }
    assert!(ours.is_empty(), "{words}");
}

/// The unit's capabilities without one of them.
fn without(left_out: Option<&str>) -> CapabilitySet {
    let names = words("CapabilityBoundingSet");
    let kept = names.iter().filter(|name| Some(name.as_str()) != left_out);
    kept.map(|name| CapabilitySet::from_name(&name["CAP_".len()..]).unwrap_or_else(|| panic!("{name}"))).collect()
}

/// Moves a half-closed connection there and back on a thread that has only these capabilities.
fn moves(kind: Kind, capabilities: CapabilitySet) -> Result<(), String> {
    let wire = Wire::new(&[]);
    if kind == Kind::Xdp {
        // AF_XDP cannot tell a checksum that a veth left out from damage.
        wire.peer.enter(|| link::set_tx_checksum_offload("wire", false).unwrap());
    }
    let [_, there] = Wire::addresses(false);
    let listener = wire.peer.enter(|| TcpListener::bind((there, 0)).unwrap());
    wire.ours.enter(|| {
        let sets =
            CapabilitySets { effective: capabilities, permitted: capabilities, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"request").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        // The FIN has arrived, so the kernel has to be made to receive it again.
        let mut bytes = [0; 8];
        wait_for("the end of the request", || ours.peek(&mut bytes).is_ok_and(|count| count == 7));
        std::thread::sleep(std::time::Duration::from_millis(10));
        let mut mover = Mover::<SteeredPort>::new(MoverConfig::default()).map_err(|e| e.to_string())?;
        mover.add_interface("wire", kind, |port| port).map_err(|e| e.to_string())?;
        let name = mover.handoff(ours.into()).map_err(|e| e.to_string())?;
        while mover.write(name, b"answer").is_err() {
            mover.poll().map_err(|e| e.to_string())?;
        }
        let mut ours: TcpStream = mover.restore(name).map_err(|e| e.to_string())?.into();
        assert_eq!(ours.read(&mut bytes).unwrap(), 7);
        assert_eq!(ours.read(&mut bytes).unwrap(), 0);
        drop(ours);
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
        let nobody = Tuple::new((there, 1).into(), (there, 2).into());
        let seen = Gaps::open().and_then(|gaps| gaps.has(&nobody, wire.index()));
        seen.map(|gap| assert!(!gap)).map_err(|e| e.to_string())
    })
}

#[test]
fn connections_move_within_it() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        moves(kind, without(None)).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

#[test]
fn none_of_the_networks_capabilities_can_be_spared() {
    need_root!();
    need_program!("clang");
    for left_out in &NEEDED[..4] {
        for kind in [Kind::Tc, Kind::Xdp] {
            moves(kind, without(Some(left_out))).expect_err(left_out);
        }
    }
}
