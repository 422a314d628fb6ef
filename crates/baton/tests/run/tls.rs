//! Programs that encrypt.

use crate::programs::start_nginx;
use crate::world::{Account, World, content, curl_with, digest, listens, wait};
use baton_testkit::{Running, need_program, need_root, run};
use std::process::{Command, Stdio};

/// A key and a certificate, in the world's directory.
fn make_certificate(world: &World) {
    let words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=baton"];
    let mut command = Command::new("openssl");
    command.args(words).args(["-keyout", "key.pem", "-out", "certificate.pem"]);
    run(command.current_dir(world.home.path()));
}

#[test]
fn nginx_encrypts_and_passes_on() {
    need_root!();
    for program in ["clang", "nginx", "curl", "openssl", "python3"] {
        need_program!(program);
    }
    let world = World::new();
    make_certificate(&world);
    let sum = content(&world.file("file"), 2_000_000);
    let mut behind = world.peer.command("python3");
    behind.args(["-m", "http.server", "8001"]).current_dir(world.home.path());
    let _behind = Running::start(behind.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    wait("who listens", || listens(&world.peer, 8001));
    let servers = "server { listen 8443 ssl; root HOME; ssl_certificate HOME/certificate.pem;\n\
                   ssl_certificate_key HOME/key.pem; location /behind/ { proxy_pass http://10.67.0.2:8001/; } }";
    let nginx = start_nginx(&world, servers);
    world.listens(8443);
    for path in ["file", "behind/file", "file", "behind/file"] {
        assert_eq!(curl_with(&world.peer, &["--insecure"], &format!("https://10.67.0.1:8443/{path}")), sum, "{path}");
    }
    // Four that it accepted, two that it made.
    world.end(nginx).all_moved(6);
}

#[test]
fn openssl_serves_and_asks() {
    need_root!();
    for program in ["clang", "curl", "openssl"] {
        need_program!(program);
    }
    let world = World::new();
    make_certificate(&world);
    let sum = content(&world.file("file"), 1_000_000);
    let serve = |address: &str| {
        let words = ["openssl", "s_server", "-accept", address, "-cert", "certificate.pem", "-key", "key.pem", "-WWW"];
        words.map(str::to_owned)
    };
    let ours = serve("10.67.0.1:8443");
    let server = world.start(&ours.each_ref().map(String::as_str));
    world.listens(8443);
    for _ in 0..2 {
        assert_eq!(curl_with(&world.peer, &["--insecure"], "https://10.67.0.1:8443/file"), sum);
    }
    world.end(server).all_moved(2);
    let mut theirs = world.peer.command("openssl");
    theirs.args(&serve("10.67.0.2:8444")[1..]).current_dir(world.home.path());
    let _server = Running::start(theirs.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    wait("who listens", || listens(&world.peer, 8444));
    let line = "printf 'GET /file HTTP/1.0\\r\\n\\r\\n' | openssl s_client -quiet -connect 10.67.0.2:8444 2>/dev/null";
    let out = world.run(&["sh", "-c", line]);
    let end = out.stdout.windows(4).position(|some| some == b"\r\n\r\n").expect("an answer's head");
    assert_eq!(digest(&out.stdout[end + 4..]), sum);
    Account::of(&String::from_utf8_lossy(&out.stderr)).all_moved(1);
}
