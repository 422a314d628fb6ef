//! Traffic other than bulk data between the two ends: many requests on one connection,
//! half-close, refusals, resets, ICMP echo, neighbour discovery.

use crate::transfer::connect;
use crate::wire::{BATON, DEVICE, HOST, Ip, KERNEL, Kind, Serve, Wire, counter};
use baton_socket::stack::{Stack, Threads};
use baton_testkit::{need_program, need_root};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const IPS: [Ip; 2] = [Ip::V4, Ip::V6];

fn echo_server(wire: &Wire) -> Serve {
    Serve::with(&mut wire.baton("serve", None))
}

fn echo_addr(ip: Ip) -> SocketAddr {
    SocketAddr::new(ip.addr(HOST), 7)
}

fn client(wire: &Wire, ip: Ip) -> TcpStream {
    let stream = connect(&wire.far, echo_addr(ip)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A kernel listener on the far side, and its address.
fn kernel_listener(wire: &Wire, ip: Ip) -> (TcpListener, SocketAddr) {
    let listener = wire.far.enter(|| TcpListener::bind(SocketAddr::new(ip.addr(KERNEL), 0)).unwrap());
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn says_hello_back(mut stream: TcpStream) {
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

#[test]
fn a_thousand_requests_share_a_connection() {
    need_root!();
    need_program!("curl");
    let wire = Wire::new(Kind::TapVnet, 1500);
    let site = tempfile::tempdir().unwrap();
    std::fs::write(site.path().join("page"), "hello").unwrap();
    let _serve = Serve::start(&wire, site.path(), None, 1);
    for ip in IPS {
        let url = format!("http://{}/page?[1-1000]", ip.url_host(HOST));
        let said = wire
            .far
            .run(&format!("curl -sS -o /dev/null -w %{{http_code}}/%{{size_download}}/%{{num_connects}}\\n {url}"));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((lines.len(), lines[0]), (1000, "200/5/1"));
        assert!(lines[1..].iter().all(|line| *line == "200/5/0"), "{said}");
    }
}

#[test]
fn a_side_that_has_finished_still_receives() {
    need_root!();
    let wire = Wire::new(Kind::Tap, 1500);
    {
        let _serve = echo_server(&wire);
        for ip in IPS {
            let mut stream = client(&wire, ip);
            stream.write_all(b"the last words").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "the last words");
        }
    }
    let stack = wire.stack(None, Threads::One);
    for ip in IPS {
        let (listener, addr) = kernel_listener(&wire, ip);
        let kernel = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = String::new();
            stream.read_to_string(&mut question).unwrap();
            stream.write_all(&vec![b'a'; 1_000_000]).unwrap();
            question
        });
        let mut stream = stack.connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE));
        stream.write_all(b"a question").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!((answer.len(), answer.iter().all(|byte| *byte == b'a')), (1_000_000, true));
        assert_eq!(kernel.join().unwrap(), "a question");
    }
}

#[test]
fn a_port_that_nobody_listens_on_is_refused_at_once() {
    need_root!();
    let wire = Wire::new(Kind::Tap, 1500);
    let stack = wire.stack(None, Threads::One);
    for ip in IPS {
        let error = connect(&wire.far, echo_addr(ip)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "the kernel's {ip:?}: {error}");
        let error = stack.connect(SocketAddr::new(ip.addr(KERNEL), 9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "Baton's {ip:?}: {error}");
    }
}

/// Reads until there is an error and returns it.
fn read_until_error(stream: &mut impl Read) -> io::Error {
    loop {
        match stream.read(&mut [0; 100]) {
            Ok(0) => panic!("the connection ended in form"),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

#[test]
fn a_reset_of_the_kernel_ends_the_connection_and_nothing_else() {
    need_root!();
    let wire = Wire::new(Kind::Tap, 1500);
    {
        let mut serve = echo_server(&wire);
        for ip in IPS {
            let other = client(&wire, ip);
            for _ in 0..50 {
                let mut stream = client(&wire, ip);
                stream.write_all(&[7; 1000]).unwrap();
                stream.peek(&mut [0]).unwrap();
                // Unread bytes make the kernel's close a reset.
            }
            says_hello_back(other);
        }
        let stats = serve.stats();
        assert_eq!(stats["accepted"], 102);
        // Connections that were reset are released at once; the two others may be in TIME-WAIT.
        assert!(counter(&stats, "tce.released") >= 100, "{stats}");
    }
    let stack = wire.stack(None, Threads::One);
    for ip in IPS {
        let (listener, addr) = kernel_listener(&wire, ip);
        let mut stream = stack.connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE));
        let (theirs, _) = listener.accept().unwrap();
        stream.write_all(b"never read").unwrap();
        theirs.peek(&mut [0]).unwrap();
        drop(theirs);
        assert_eq!(read_until_error(&mut stream).kind(), ErrorKind::ConnectionReset, "{ip:?}");
    }
}

/// Accepts one connection on Baton's stack and hands it to `serve`.
fn accept_one(stack: &Stack, ip: Ip, serve: impl FnOnce(baton_socket::net::TcpStream) + Send, with: impl FnOnce()) {
    let listener = stack.listen(echo_addr(ip)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(listener.accept().unwrap().0));
        with();
    });
}

#[test]
fn a_reset_of_baton_ends_the_kernels_connection() {
    need_root!();
    let wire = Wire::new(Kind::Tap, 1500);
    let stack = wire.stack(None, Threads::One);
    for ip in IPS {
        let drop_unread = |mut stream: baton_socket::net::TcpStream| {
            stream.set_read_timeout(Some(PATIENCE));
            stream.read_exact(&mut [0]).unwrap();
        };
        accept_one(&stack, ip, drop_unread, || {
            let mut stream = client(&wire, ip);
            stream.write_all(&[7; 1000]).unwrap();
            assert_eq!(read_until_error(&mut stream).kind(), ErrorKind::ConnectionReset, "{ip:?}");
        });
    }
}

#[test]
fn the_kernel_pings_baton() {
    need_root!();
    need_program!("ping");
    for kind in [Kind::Tap, Kind::TapVnet, Kind::Xdp] {
        let wire = Wire::new(kind, 1500);
        let _serve = echo_server(&wire);
        for ip in IPS {
            for size in [0, 56, 1400] {
                let said = wire.far.run(&format!("ping -c 3 -i 0.05 -w 10 -s {size} {}", ip.addr(HOST)));
                assert!(said.contains("3 received"), "{kind} {ip:?} {size}: {said}");
            }
        }
    }
}

#[test]
fn neighbours_find_each_other_whoever_asks() {
    need_root!();
    for ip in IPS {
        // The kernel asks.
        let wire = Wire::new(Kind::Tap, 1500);
        let serve = echo_server(&wire);
        says_hello_back(client(&wire, ip));
        assert!(knows(&wire, ip));
        drop(serve);
        // Baton asks, on a wire without earlier traffic.
        let wire = Wire::new(Kind::Tap, 1500);
        let (listener, addr) = kernel_listener(&wire, ip);
        let stack = wire.stack(None, Threads::One);
        let mut stream = stack.connect(addr).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        // The second time the kernel has lost Baton's link address, and asks again in the middle
        // of the connection.
        for word in [b'x', b'y'] {
            stream.write_all(&[word]).unwrap();
            let mut heard = [0];
            theirs.read_exact(&mut heard).unwrap();
            theirs.write_all(&heard).unwrap();
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(heard, [word]);
            assert!(knows(&wire, ip));
            wire.far.run(&format!("ip neigh flush dev {DEVICE}"));
        }
    }
}

/// Returns true if the kernel knows Baton's link address.
fn knows(wire: &Wire, ip: Ip) -> bool {
    wire.far.run(&format!("ip neigh show {} dev {DEVICE}", ip.addr(HOST))).contains("lladdr")
}

#[test]
fn faults_are_for_an_engine_and_refused_with_a_remedy() {
    let output = std::process::Command::new(BATON)
        .args(["serve", "--port", "kernel", "echo", "--faults", "loss=0.1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("remove them"), "{output:?}");
}
