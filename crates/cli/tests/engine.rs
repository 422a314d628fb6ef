//! `serve` and `get` on a TAP device, against programs on the kernel's TCP.

use baton_apps::services::ramp;
use baton_testkit::{Netns, need_program, need_root};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Starts `baton serve` in a namespace and waits until it is ready.
fn serve(netns: &Netns, args: &[&str]) -> Child {
    let mut command = netns.command(env!("CARGO_BIN_EXE_baton"));
    command.arg("serve").args(args).args(["--json", "--control"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.contains("ready"), "{ready}");
    child
}

#[test]
fn nginx_serves_to_baton_over_both_ip_versions_and_a_capture_shows_it() {
    need_root!();
    need_program!("nginx");
    let netns = Netns::new("get");
    netns.run("ip tuntap add dev tap0 mode tap");
    netns.run("ip addr add 10.77.0.1/24 dev tap0");
    netns.run("ip addr add fd77::1/64 dev tap0 nodad");
    netns.run("ip link set tap0 up");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let content: Vec<u8> = ramp::from(9).iter().copied().cycle().take(10_000_000).collect();
    std::fs::write(path("file"), &content).unwrap();
    let config = format!(
        "daemon off; pid {0}/pid; error_log stderr; user root; events {{}} http {{ access_log off; \
         client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path {0}; scgi_temp_path {0}; \
         server {{ listen 80; listen [::]:80; root {0}; location /old {{ return 301 /file; }} }} }}",
        dir.path().display()
    );
    std::fs::write(path("nginx.conf"), config).unwrap();
    let _nginx = netns.start(&format!("nginx -c {}", path("nginx.conf")));
    let deadline = Instant::now() + Duration::from_secs(10);
    while netns.enter(|| std::net::TcpStream::connect("10.77.0.1:80")).is_err() {
        assert!(Instant::now() < deadline, "nginx does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (out, capture) = (path("out"), path("capture.pcapng"));
    for (port, host) in [("tap:tap0", "10.77.0.1"), ("tap:tap0,novnet", "[fd77::1]")] {
        let get = |file: &str| {
            let mut command = netns.command(env!("CARGO_BIN_EXE_baton"));
            command.args([
                "get",
                "--port",
                port,
                "--addr",
                "10.77.0.2/24",
                "--addr",
                "fd77::2/64",
                "-o",
                &out,
                "--json",
            ]);
            command.args(["--pcap", &capture]).arg(format!("http://{host}/{file}")).output().unwrap()
        };
        let output = get("file");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(std::fs::read(&out).unwrap() == content, "{port}");
        assert!(std::fs::metadata(&capture).unwrap().len() > content.len() as u64);
        let moved = get("old");
        assert_eq!(moved.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&moved.stderr).contains("redirects are not followed"));
    }
}

#[test]
fn one_thread_or_two_serve_the_kernel_over_tap() {
    need_root!();
    need_program!("curl");
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = ramp::from(3).iter().copied().cycle().take(20_000_000).collect();
    std::fs::write(dir.path().join("file"), &content).unwrap();
    for (threads, cc) in [("1", "reno"), ("2", "cubic")] {
        let netns = Netns::new("serve");
        let site = format!("http={}", dir.path().display());
        let args = ["--port", "tap:tap0", "--addr", "10.77.0.2/24", "--threads", threads, "--cc", cc];
        let mut child = serve(&netns, &[&args[..], &["--service", &site, "--service", "echo@7000"]].concat());
        netns.run("ip addr add 10.77.0.1/24 dev tap0");
        netns.run("ip link set tap0 up");
        let got = netns.command("curl").args(["-sSf", "--noproxy", "*", "http://10.77.0.2/file"]).output().unwrap();
        assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
        assert!(got.stdout == content, "{} bytes with {threads} threads", got.stdout.len());
        let refused = netns.command("curl").args(["-sS", "--noproxy", "*", "http://10.77.0.2:81/"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(7), "a port that nobody listens on is refused");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
