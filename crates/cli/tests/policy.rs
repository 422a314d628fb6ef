//! `baton policy check`: good files, and bad ones with the place and the remedy. `baton policy explain`, of
//! live connections.

use baton_testkit::{Netns, need_root, output};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

fn check(text: &str, options: &[&str]) -> Output {
    let file = std::env::temp_dir().join(format!("baton-policy-{}-{:p}.toml", std::process::id(), &text));
    fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_baton")).args(["policy", "check"]).arg(&file).args(options).output();
    fs::remove_file(&file).unwrap();
    output.unwrap()
}

#[test]
fn a_good_file_is_shown() {
    let output = check(
        "[policy]\nrule = \"never\"\n[[policy.for]]\nlocal-port = [80, 443]\nuser = \"root\"\nrule = \"after 4 sends\"\n",
        &[],
    );
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "rule 1: local-port = \"80, 443\", user = \"0\": after 4 sends\nall other connections: never\n");
}

#[test]
fn findings_are_named_with_their_line() {
    let text = "[policy]\n[[policy.for]]\nremote = \"10.0.0.0/8\"\nrule = \"never\"\n\n[[policy.for]]\n\
                remote = \"10.1.0.0/16\"\nlocal-port = 80\nrule = \"fcfs\"\n\n[[policy.for]]\n\
                cgroup = \"/no/such.slice\"\ninterface = \"nosuch0\"\nrule = \"small\"\n";
    let output = check(text, &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    let findings = [
        ":6: rule 2 never decides: rule 1 is for all its connections; move it before that rule",
        ":11: there is no cgroup /no/such.slice; `systemd-cgls` lists them",
        ":11: there is no interface nosuch0; `ip link` lists them",
    ];
    assert!(findings.iter().all(|finding| said.contains(finding)), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&check(text, &["--json"]).stdout).unwrap();
    assert_eq!(json["findings"].as_array().unwrap().len(), 3);
    assert_eq!(json["rules"][1]["line"], 6);
}

#[test]
fn a_bad_file_is_refused_with_line_column_and_remedy() {
    let table = [
        ("[policy]\nrulle = \"fcfs\"", ":2:1: unknown key 'rulle'", "did you mean 'rule'?"),
        ("[policy]\n[[policy.for]]\nports = 80\nrule = \"fcfs\"", ":3:1: unknown key 'ports'", "local-port"),
        (
            "[[policy.for]]\nlocal-port = \"80, 70-90\"\nrule = \"fcfs\"",
            ":2:14: 80 and 70-90 overlap",
            "name each port once",
        ),
        ("[[policy.for]]\nage = \"5\"\nrule = \"fcfs\"", ":2:7: '5' are no bounds for age", "write them as"),
        ("[[policy.for]]\nrule = \"fast\"", ":2:8: 'fast' is not a rule", "write fcfs"),
        ("[policy", ":1:", "--print-config"),
    ];
    for (text, fault, remedy) in table {
        let output = check(text, &["--json"]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(fault) && said.contains(remedy), "{text}\n  gives {said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(json["error"]["line"].is_u64() && json["error"]["column"].is_u64(), "{json}");
    }
}

/// `baton policy explain FILE` about connections in a namespace, by what their sockets tell.
#[test]
fn each_live_connection_has_its_rule_explained() {
    need_root!();
    let netns = Netns::new("explain");
    netns.run("ip addr add 10.9.8.7/32 dev lo");
    let open = || {
        let listener = TcpListener::bind("10.9.8.7:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (listener, client, server)
    };
    let (_listener, mut client, _server) = netns.enter(open);
    client.write_all(b"four times").unwrap();
    let (ours, port) = (client.local_addr().unwrap(), client.peer_addr().unwrap().port());
    let file = std::env::temp_dir().join(format!("baton-explain-{}.toml", std::process::id()));
    let text = format!(
        "[policy]\nrule = \"never\"\n\n[[policy.for]]\nlocal-port = {port}\nrule = \"fcfs\"\n\n[[policy.for]]\n\
         remote-port = {port}\nbytes = \">= 1 KiB\"\nrule = \"fcfs\"\n"
    );
    fs::write(&file, text).unwrap();
    let explain = |words: &[&str]| {
        let mut command = netns.command(env!("CARGO_BIN_EXE_baton"));
        command.args(["policy", "explain", "--policy-file"]).arg(&file).args(words);
        output(command.stdin(Stdio::null()))
    };

    let tuple = format!("{ours},10.9.8.7:{port}");
    let explained = explain(&[&tuple]);
    assert!(explained.status.success(), "{explained:?}");
    let said = String::from_utf8(explained.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with(&tuple) && lines[0].ends_with("in the kernel"), "{said}");
    assert_eq!(lines[1].trim(), "the rule for all others: it moves once the conditions of a rule hold");
    let later =
        format!("rule 2 (bytes = \">= 1 KiB\", remote-port = \"{port}\") decides instead once its conditions hold");
    assert_eq!(lines[2].trim(), later);

    // Enough bytes make the second rule decide.
    client.write_all(&[7; 2000]).unwrap();
    let pid = std::process::id().to_string();
    let json: serde_json::Value = serde_json::from_slice(&explain(&["--pid", &pid, "--json"]).stdout).unwrap();
    let rule_of =
        |local: &str| json.as_array().unwrap().iter().find(|row| row["local"] == local).unwrap()["rule"].clone();
    assert_eq!(rule_of(&ours.to_string()), 2, "{json}");
    assert_eq!(rule_of(&format!("10.9.8.7:{port}")), 1, "the listener's side: {json}");

    drop(client);
    let gone = explain(&["10.9.8.7:1,10.9.8.7:2"]);
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    fs::remove_file(&file).unwrap();
}
