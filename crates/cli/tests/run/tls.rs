//! Programs that encrypt.

use crate::programs::start_nginx;
use crate::world::{Account, World, content, curl_with, digest, listens, times};
use baton_testkit::{Running, run, wait_for};
use std::process::{Command, Stdio};

/// A key and a certificate, in the world's directory.
fn make_certificate(world: &World) {
    let words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=baton"];
    let mut command = Command::new("openssl");
    command.args(words).args(["-keyout", "key.pem", "-out", "certificate.pem"]);
    run(command.current_dir(world.home.path()));
}

pub fn nginx_encrypts_and_passes_on(world: &World) {
    make_certificate(world);
    let sum = content(&world.file("file"), 2_000_000 * times());
    let mut behind = world.peer.command("python3");
    behind.args(["-m", "http.server", "8001"]).current_dir(world.home.path());
    let _behind = Running::start(behind.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("who listens", || listens(&world.peer, 8001));
    let servers = "server { listen 8443 ssl; root HOME; ssl_certificate HOME/certificate.pem;\n\
                   ssl_certificate_key HOME/key.pem; location /behind/ { proxy_pass http://10.67.0.2:8001/; } }";
    let nginx = start_nginx(world, servers);
    world.listens(8443);
    world.load(|| {
        for path in ["file", "behind/file", "file", "behind/file"] {
            let url = format!("https://10.67.0.1:8443/{path}");
            assert_eq!(curl_with(&world.peer, &["--insecure"], &url), sum, "{path}");
        }
    });
    // Four that it accepted, two that it made.
    world.all_moved(&world.end(nginx), 6);
}

fn serve(address: &str) -> Vec<&str> {
    vec!["openssl", "s_server", "-accept", address, "-cert", "certificate.pem", "-key", "key.pem", "-WWW"]
}

pub fn openssl_serves(world: &World) {
    make_certificate(world);
    let sum = content(&world.file("file"), 1_000_000 * times());
    let server = world.start(&serve("10.67.0.1:8443"));
    world.listens(8443);
    world.load(|| {
        for _ in 0..2 {
            assert_eq!(curl_with(&world.peer, &["--insecure"], "https://10.67.0.1:8443/file"), sum);
        }
    });
    world.all_moved(&world.end(server), 2);
}

pub fn openssl_asks(world: &World) {
    make_certificate(world);
    let sum = content(&world.file("file"), 1_000_000 * times());
    let mut theirs = world.peer.command("openssl");
    theirs.args(&serve("10.67.0.2:8444")[1..]).current_dir(world.home.path());
    let _server = Running::start(theirs.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("who listens", || listens(&world.peer, 8444));
    world.load(|| {
        let line = "printf 'GET /file HTTP/1.0\\r\\n\\r\\n' | \
                    openssl s_client -quiet -connect 10.67.0.2:8444 2>/dev/null";
        let out = world.run(&["sh", "-c", line]);
        let end = out.stdout.windows(4).position(|some| some == b"\r\n\r\n").expect("an answer's head");
        assert_eq!(digest(&out.stdout[end + 4..]), sum);
        world.all_moved(&Account::of(&String::from_utf8_lossy(&out.stderr)), 1);
    });
}
