//! The service's configuration: the default file explains every key, errors name their line and a
//! remedy, and no file can crash the parser.

use baton_cli::config::{Access, Config, DEFAULT, Id, Level};
use baton_kernel::Rules;
use baton_kernel::steer::Kind;
use baton_policy::conditions::Condition;
use baton_policy::rules::{Entry, Rule};
use baton_tcp::config::{Acks, Congestion};
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

fn read(text: &str) -> Result<Config, String> {
    Config::read(Path::new("baton.toml"), text).map_err(|error| error.to_string())
}

/// The keys of a section, as the parser lists them when it meets an unknown one.
fn keys(section: &str) -> Vec<String> {
    let error = read(&format!("{section}\nunknown-key-of-nobody = 1\n")).unwrap_err();
    let known = error.split_once("known here: ").unwrap_or_else(|| panic!("{error}")).1;
    known.split(';').next().unwrap().split(", ").map(str::to_owned).collect()
}

/// The default file's lines, by section. Lines in a comment that say `key = ` count too.
fn written(section: &str) -> Vec<(String, bool)> {
    let mut at = String::new();
    let mut found = Vec::new();
    let mut explained = false;
    for line in DEFAULT.lines() {
        let bare = line.trim_start_matches("# ");
        if bare.starts_with('[') && bare.ends_with(']') {
            at = bare.to_owned();
        } else if let Some((key, _)) = bare.split_once(" = ").filter(|(key, _)| !key.contains([' ', '`', '('])) {
            if at == section {
                found.push((key.to_owned(), explained));
            }
            continue;
        }
        explained = line.starts_with('#');
    }
    found
}

#[test]
fn the_printed_default_is_the_default() {
    assert_eq!(read(DEFAULT).unwrap(), Config::default());
    assert_eq!(read("").unwrap(), Config::default());
}

#[test]
fn every_key_is_in_the_default_file_behind_a_comment() {
    let sections: Vec<String> =
        keys("").into_iter().filter(|key| key != "log").map(|section| format!("[{section}]")).collect();
    let known = ["[steer]", "[socket]", "[access]", "[policy]", "[firewall]", "[pair]", "[engine]", "[memory]"];
    assert_eq!(sections, known);
    let mut looked_at = 0;
    for section in sections.iter().map(String::as_str).chain(["", "[[policy.for]]"]) {
        let written = written(section);
        for key in keys(section).iter().filter(|key| section != "[policy]" || *key != "for") {
            if section.is_empty() && key != "log" || section == "[[policy.for]]" {
                continue;
            }
            let explained = written.iter().find(|(name, _)| name == key);
            assert_eq!(explained.map(|(_, explained)| *explained), Some(true), "{key} of '{section}'");
            looked_at += 1;
        }
    }
    assert_eq!(looked_at, 24);
}

#[test]
fn the_examples_in_it_are_right() {
    let examples = ["interfaces = [", "[[policy.for]]", "local-port = ", "rule = \"after"];
    let is_example = |line: &&str| examples.iter().any(|example| line.starts_with(&format!("# {example}")));
    assert_eq!(DEFAULT.lines().filter(is_example).count(), examples.len());
    let text: Vec<&str> = DEFAULT
        .lines()
        .filter(|line| *line != "interfaces = []")
        .map(|line| if is_example(&line) { line.trim_start_matches("# ") } else { line })
        .collect();
    let config = read(&text.join("\n")).unwrap();
    assert_eq!(config.steer.interfaces, ["eth0", "eth1"]);
    assert_eq!(config.policy.entries.len(), 1);
}

#[test]
fn a_whole_file() {
    let config = read(
        r#"
        log = "debug"
        [steer]
        interfaces = ["eth0"]
        kind = "tc"
        [socket]
        path = "/run/b.sock"
        mode = "0666"
        [access]
        users = ["web", 1000]
        groups = ["33"]
        descendants-of = 5
        [policy]
        rule = "never"
        [[policy.for]]
        local-port = 22
        rule = "never"
        [[policy.for]]
        remote-port = "5432-5433"
        rule = "after 20 sends"
        [firewall]
        rules = "strict"
        [engine]
        user = 65534
        connections = 10
        congestion = "reno"
        coalesce = 1
        acks = "every-second"
        drain = "0"
        patience = "2500 ms"
        [memory]
        programs = 1
        connections = 3
        stream-buffer = 4096
        large-buffer = "64 KiB"
        large-buffers = 0
        "#,
    )
    .unwrap();
    assert_eq!(config.log, Level::Debug);
    assert_eq!((config.steer.interfaces, config.steer.kind), (vec!["eth0".to_owned()], Kind::Tc));
    assert_eq!((config.socket.path.as_path(), config.socket.mode), (Path::new("/run/b.sock"), 0o666));
    let users = vec![Id::Name("web".to_owned()), Id::Number(1000)];
    assert_eq!(config.access, Access { users, groups: vec![Id::Number(33)], descendants_of: Some(5) });
    assert_eq!(config.policy.otherwise, Rule::Never);
    let after_20 = Rule::AfterSends(NonZeroU64::new(20).unwrap());
    let entry = |key, text, rule| Entry { conditions: vec![Condition::parse(key, text).unwrap()], rule };
    let entries = [entry("local-port", "22", Rule::Never), entry("remote-port", "5432-5433", after_20)];
    assert_eq!(config.policy.entries, entries);
    assert_eq!(config.firewall.rules, Rules::Strict);
    assert_eq!(config.engine.user, Id::Number(65534));
    assert_eq!(
        (config.engine.connections, config.engine.congestion, config.engine.drain),
        (10, Congestion::Reno, Duration::ZERO)
    );
    assert_eq!((config.engine.coalesce, config.engine.acks), (1, Acks::EverySecond));
    assert_eq!(config.engine.patience, Duration::from_millis(2500));
    let consumer = config.memory.consumer();
    assert_eq!((consumer.stream_buffer, consumer.stream_buffers, consumer.connections), (4096, 6, 3));
    assert_eq!((consumer.large_buffer, consumer.large_buffers), (64 << 10, 0));
}

/// A text, and what its error must contain, starting with the line number.
const REFUSED: [(&str, &[&str]); 33] = [
    ("lgo = \"info\"", &[":1: unknown key 'lgo'", "did you mean 'log'?"]),
    ("\n\n[sockets]\n", &[":3: unknown key 'sockets'", "did you mean 'socket'?"]),
    ("[socket]\npfad = \"/a\"", &[":2: unknown key 'pfad'", "known here: path, mode", "--print-config"]),
    ("[engine]\n\n\ndrian = \"1 s\"", &[":4: unknown key 'drian'", "did you mean 'drain'?"]),
    (
        "[[policy.for]]\nlocal-port = 1\nrule = \"never\"\nport = 5",
        &[":4: unknown key 'port'", "known here: local-port, remote-port"],
    ),
    ("log = \"loud\"", &[":1:", "loud", "`debug`"]),
    ("log = info", &[":1:"]),
    ("[steer]\ninterfaces = \"eth0\"", &[":2:", "sequence"]),
    ("[steer]\ninterfaces = [\"a b\"]", &[":2:", "'a b' is not an interface name"]),
    ("[steer]\ninterfaces = [\"averylonginterface\"]", &[":2:", "is not an interface name"]),
    ("[steer]\ninterfaces = [\"a\", \"a\"]", &[":2:", "twice"]),
    ("[steer]\nkind = \"dpdk\"", &[":2: 'dpdk' is not known; write auto, xdp, tc"]),
    ("[socket]\npath = \"baton.sock\"", &[":2:", "absolute path"]),
    ("[socket]\nmode = 600", &[":2: '600' is not a mode; write it in octal"]),
    ("[socket]\nmode = \"01777\"", &[":2:", "is not a mode"]),
    ("[access]\nusers = [\"-1\"]", &[":2:", "neither a name nor a number"]),
    (
        "[policy]\nrule = \"sometimes\"",
        &[
            ":2: 'sometimes' is not a rule; write fcfs, never, pairs, small, small N bytes, predict, until bulk, or after N sends",
        ],
    ),
    ("[policy]\nrule = \"after 0 sends\"", &[":2:", "at least 1"]),
    (
        "[[policy.for]]\nlocal-port = 70000\nrule = \"never\"",
        &[":2: '70000' is not a port or range; write a port as 443"],
    ),
    ("[[policy.for]]\nlocal-port = [80, \"79-81\"]\nrule = \"never\"", &[":2: 80 and 79-81 overlap"]),
    ("[[policy.for]]\nrule = \"never\"\nuser = \"nobody-here\"", &[":3: there is no user 'nobody-here'"]),
    ("[[policy.for]]\nlocal-port = 7", &[":1: a rule is missing"]),
    ("[firewall]\nrules = \"ignore\"", &[":2: 'ignore' is not known; write follow, refuse, strict"]),
    ("[engine]\nconnections = 0", &[":2: 0 is out of range; give a number from 1 to"]),
    ("[engine]\nconnections = -5", &[":2: -5 is out of range"]),
    ("[engine]\ncongestion = \"bbr\"", &[":2: 'bbr' is not known; write cubic, reno"]),
    ("[engine]\ncoalesce = 65", &[":2: 65 is out of range; give a number from 1 to 64"]),
    ("[engine]\nacks = \"all\"", &[":2: 'all' is not known; write per-run, every-second"]),
    ("[engine]\ndrain = 500", &[":2: '500' is not a time of at most 60 s; write it with its unit"]),
    ("[engine]\npatience = \"1 s\"", &[":2: '1 s' is not a time from 2 s to 3600 s; write it with its unit"]),
    ("[memory]\nstream-buffer = \"100 KiB\"", &[":2: '100 KiB' is not a buffer size; give a power of two from 4 KiB"]),
    (
        "[access]\nusers = [1]\n[socket]\n\nmode = \"0600\"",
        &[":5: [access] lists other users, but only the socket's owner may connect; set mode = \"0666\""],
    ),
    (
        "[memory]\nlarge-buffer = \"4 KiB\"",
        &[":2: large buffers are smaller than stream buffers; make large-buffer larger"],
    ),
];

#[test]
fn errors_name_their_line_and_a_remedy() {
    for (text, words) in REFUSED {
        let error = read(text).expect_err(text);
        for word in words {
            assert!(error.contains(word), "{text:?}\n  gives {error}\n  without {word}");
        }
        assert!(error.starts_with("baton.toml:") && !error.contains('\n') && error.contains("; "), "{error}");
    }
}

#[test]
fn a_missing_file_is_reported() {
    let error = Config::load(Path::new("/nowhere/baton.toml")).unwrap_err();
    assert_eq!(error.line(), None);
    assert!(error.to_string().contains("baton service --print-config"), "{error}");
}

/// Any prefix of a file, and any file with one byte changed, is accepted or refused without a panic.
#[test]
fn damaged_files_do_not_panic() {
    for end in (0..DEFAULT.len()).filter(|end| DEFAULT.is_char_boundary(*end)) {
        let _ = read(&DEFAULT[..end]);
    }
    for at in 0..DEFAULT.len() {
        for byte in [b'"', b'[', b'\n', b'9', b'='] {
            let mut text = DEFAULT.as_bytes().to_vec();
            text[at] = byte;
            if let Ok(text) = String::from_utf8(text) {
                let _ = read(&text);
            }
        }
    }
}
