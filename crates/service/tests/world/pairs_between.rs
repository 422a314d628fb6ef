//! Connections between network namespaces of this machine, none of which need be the service's: joined, and home
//! again in the namespaces of their sockets.

use crate::common::kernels::{Ramp, wait_for};
use crate::common::{PAIRS, Role, World};
use crate::pairs::{cross, enter, home, join, talk};
use crate::programs::program;
use baton_client::{Place, Service, Stream};
use baton_ipc::message::Selector;
use baton_testkit::{Netns, Running, need_program, need_root, veth};
use rustix::net::{AddressFamily, SocketType, bind, socket};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;

/// The addresses of the right end of [`wired`].
const RIGHT: [&str; 2] = ["10.70.0.3", "fd70::3"];

/// Two namespaces and a wire between them.
pub fn wired() -> [Netns; 2] {
    let sides = [Netns::new("left"), Netns::new("right")];
    veth(&sides[0], "wire", &sides[1], "wire");
    for (side, last) in sides.iter().zip([2, 3]) {
        side.run(&format!("ip addr add 10.70.0.{last}/24 dev wire"));
        side.run(&format!("ip addr add fd70::{last}/64 dev wire nodad"));
    }
    sides
}

/// The same with a bridge between them, which is in another namespace.
fn bridged(host: &Netns) -> [Netns; 2] {
    let sides = [Netns::new("left"), Netns::new("right")];
    host.run("ip link add bridge type bridge");
    host.run("ip link set bridge up");
    host.run("ip addr add 10.70.0.1/24 dev bridge");
    host.run("ip addr add fd70::1/64 dev bridge nodad");
    for (side, (name, last)) in sides.iter().zip([("left", 2), ("right", 3)]) {
        veth(side, "wire", host, name);
        host.run(&format!("ip link set {name} master bridge"));
        side.run(&format!("ip addr add 10.70.0.{last}/24 dev wire"));
        side.run(&format!("ip addr add fd70::{last}/64 dev wire nodad"));
    }
    sides
}

/// Both ends of a connection from one namespace to a server in another one, which is asked at `asked` and listens
/// at `at`.
pub fn ends([client, server]: [&Netns; 2], at: &str, asked: Option<&str>) -> [TcpStream; 2] {
    let listener = server.enter(|| TcpListener::bind(at).unwrap());
    let to: SocketAddr = asked.map_or(listener.local_addr().unwrap(), |asked| asked.parse().unwrap());
    let ours = client.enter(|| TcpStream::connect(to).unwrap());
    [ours, listener.accept().unwrap().0]
}

fn at(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:0") } else { format!("{address}:0") }
}

/// Both ends are joined, come home with bytes in between, and are joined again; nothing is left afterwards.
pub fn go_there_and_back(services: [&Service; 2], ends: [TcpStream; 2]) {
    (&ends[0]).write_all(b"before").unwrap();
    let mut streams = join(services, ends);
    let mut got = [0; 6];
    streams[1].read_exact(&mut got).unwrap();
    assert_eq!(&got, b"before");
    for _ in 0..5 {
        talk(&mut streams);
        // More than any window: conntrack and the kernels have seen none of it.
        carry(&mut streams, 8 << 20);
        streams[0].write_all(b"unread").unwrap();
        home(services[0], &streams);
        streams[1].read_exact(&mut got).unwrap();
        assert_eq!(&got, b"unread");
        talk(&mut streams);
        carry(&mut streams, 1 << 20);
        let moved = services[0].handoff(Selector::All).unwrap();
        assert_eq!((moved.count, moved.failed), (2, 0));
        wait_for("both are joined again", || streams.iter().all(|stream| stream.place() == Place::Pair));
    }
    let [first, mut second] = streams;
    drop(first);
    assert_eq!(second.read(&mut got).unwrap(), 0);
    drop(second);
    wait_for("nothing is left", || services[0].list().unwrap().is_empty());
}

/// Carries so many bytes each way.
fn carry(streams: &mut [Stream; 2], bytes: usize) {
    let piece = vec![7; bytes];
    for _ in 0..2 {
        let [from, to] = &mut *streams;
        thread::scope(|scope| {
            scope.spawn(|| from.write_all(&piece).unwrap());
            let mut got = vec![0; bytes];
            to.read_exact(&mut got).unwrap();
            assert!(got == piece);
        });
        streams.swap(0, 1);
    }
}

#[test]
fn ends_in_two_namespaces_are_joined_over_a_wire_and_over_a_bridge() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let host = &world.wire.ours;
        let direct = wired();
        for address in RIGHT {
            go_there_and_back([&one, &other], ends([&direct[0], &direct[1]], &at(address), None));
        }
        drop(direct);
        let [left, right] = bridged(host);
        for (to, address) in [(&right, RIGHT[0]), (&right, RIGHT[1]), (host, "10.70.0.1"), (host, "fd70::1")] {
            go_there_and_back([&one, &other], ends([&left, to], &at(address), None));
        }
        // The other way round: the service's own namespace has the client.
        go_there_and_back([&one, &other], ends([host, &right], &at(RIGHT[0]), None));
        // Within a namespace that is not the service's.
        go_there_and_back([&one, &other], ends([&right, &right], "127.0.0.1:0", None));
    });
}

#[test]
fn a_stream_between_namespaces_crosses_many_moves_whole() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [left, right] = wired();
        cross(&one, join([&one, &other], ends([&left, &right], &at(RIGHT[0]), None)), 64 << 20);
    });
}

#[test]
fn a_half_closed_end_goes_on_in_its_namespace() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [left, right] = wired();
        for address in RIGHT {
            let [mut first, mut second] = join([&one, &other], ends([&left, &right], &at(address), None));
            first.write_all(b"last").unwrap();
            first.shutdown().unwrap();
            let mut got = Vec::new();
            second.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"last");
            assert_eq!(one.bring_home(Selector::All).unwrap().failed, 0);
            wait_for("both are home", || first.place() == Place::Kernel && second.place() == Place::Kernel);
            second.write_all(b"rest").unwrap();
            drop(second);
            got.clear();
            first.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"rest");
            drop(first);
            wait_for("nothing is left", || one.list().unwrap().is_empty());
        }
    });
}

/// Two wires between two times two namespaces, with the same addresses and ports on each. Each end is
/// joined with the one that it talks to.
#[test]
fn equal_names_in_several_namespaces_are_told_apart() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let services = [(); 4].map(|()| world.service());
        let sites = [wired(), wired()];
        let server: SocketAddr = "10.70.0.3:7000".parse().unwrap();
        let connect = |[left, right]: &[Netns; 2]| {
            let listener = right.enter(|| TcpListener::bind(server).unwrap());
            let ours = left.enter(|| socket(AddressFamily::INET, SocketType::STREAM, None).unwrap());
            bind(&ours, &SocketAddr::from(([10, 70, 0, 2], 7001))).unwrap();
            rustix::net::connect(&ours, &server).unwrap();
            [TcpStream::from(ours), listener.accept().unwrap().0]
        };
        let [[first, first_end], [second, second_end]] = sites.each_ref().map(connect);
        assert_eq!(first.local_addr().unwrap(), second.local_addr().unwrap());
        // The two connections have carried as many bytes, so only their numbers differ.
        let adopt = |at: usize, end: TcpStream| services[at].adopt(end.into()).unwrap();
        let [first, second_end, first_end, second] =
            [adopt(0, first), adopt(1, second_end), adopt(2, first_end), adopt(3, second)];
        let mut pairs = [[first, first_end], [second, second_end]];
        wait_for("all are joined", || pairs.iter().flatten().all(|stream| stream.place() == Place::Pair));
        pairs.iter_mut().for_each(talk);
        assert_eq!(services[0].bring_home(Selector::All).unwrap().failed, 0);
        wait_for("all are home", || pairs.iter().flatten().all(|stream| stream.place() == Place::Kernel));
        pairs.iter_mut().for_each(talk);
    });
}

#[test]
fn a_killed_programs_other_end_in_another_namespace_sees_the_end() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let service = world.service();
        let [left, right] = wired();
        for len in [0, 200_000] {
            let [ours, theirs] = ends([&left, &right], &at(RIGHT[0]), None);
            let mut stream = service.adopt(ours.into()).unwrap();
            let (mut running, word) = program(world, theirs.into(), None, len);
            assert_eq!(word, "adopted");
            wait_for("both ends are joined", || stream.place() == Place::Pair);
            running.child().kill().unwrap();
            let mut read = Vec::new();
            stream.read_to_end(&mut read).unwrap();
            assert!(read == Ramp::bytes(0, len), "{} of {len} bytes", read.len());
            drop(stream);
            wait_for("nothing is left", || service.list().unwrap().is_empty());
        }
    });
}

#[test]
fn a_pair_between_namespaces_comes_home_after_the_death_of_its_broker() {
    need_root!();
    need_program!("clang");
    World::enter_guarded_at(PAIRS, |world| {
        let (one, other) = (world.service(), world.service());
        let [left, right] = wired();
        let mut streams = join([&one, &other], ends([&left, &right], &at(RIGHT[1]), None));
        for role in [Role::Broker, Role::Guardian] {
            let pid = world.process(role);
            kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
            talk(&mut streams);
            world.process_but(role, Some(pid));
            talk(&mut streams);
        }
        wait_for("the broker knows both ends", || one.list().is_ok_and(|entries| entries.len() == 2));
        home(&one, &streams);
        talk(&mut streams);
        assert_eq!(one.handoff(Selector::All).unwrap().failed, 0);
        wait_for("both are joined again", || streams.iter().all(|stream| stream.place() == Place::Pair));
        talk(&mut streams);
    });
}

#[test]
fn a_rule_in_one_of_the_namespaces_brings_a_pair_home_and_keeps_it_there() {
    need_root!();
    need_program!("clang");
    need_program!("nft");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let [left, right] = wired();
        let both = ends([&left, &right], &at(RIGHT[0]), None);
        let port = both[1].local_addr().unwrap().port();
        let mut streams = join([&one, &other], both);
        // A connection that is in neither of the two stays joined.
        let away = join([&one, &other], crate::pairs::ends(world, "127.0.0.1:0"));
        let rule = format!("tcp dport {port} limit rate 100000/second accept;");
        right.run(&format!("nft table inet t {{ chain c {{ type filter hook input priority 0; {rule} }}; }}"));
        wait_for("both are home", || streams.iter().all(|stream| stream.place() == Place::Kernel));
        talk(&mut streams);
        assert!(away.iter().all(|stream| stream.place() == Place::Pair));
        one.handoff(Selector::All).unwrap();
        talk(&mut streams);
        assert!(streams.iter().all(|stream| stream.place() == Place::Kernel));
        right.run("nft delete table inet t");
        wait_for("both are joined", || {
            let _ = one.handoff(Selector::All);
            streams.iter().all(|stream| stream.place() == Place::Pair)
        });
        talk(&mut streams);
    });
}

#[test]
fn ends_behind_a_router_that_the_service_cannot_see_stay_in_the_kernel() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let service = world.service();
        let sides = [Netns::new("left"), Netns::new("router"), Netns::new("right")];
        route([&sides[0], &sides[1], &sides[2]]);
        let [ours, theirs] = ends([&sides[0], &sides[2]], "10.72.2.2:0", None);
        for end in [ours, theirs] {
            let refused = service.adopt(end.into()).err().map(|refused| refused.code);
            assert_eq!(refused.as_deref(), Some("not-steerable"));
        }
    });
}

/// Joins two namespaces by a third one, a router, over 10.72.1.0/24 and 10.72.2.0/24, in which the sides are 2.
pub fn route([left, router, right]: [&Netns; 3]) {
    for (side, name, net) in [(left, "left", 1), (right, "right", 2)] {
        veth(side, "wire", router, name);
        side.run(&format!("ip addr add 10.72.{net}.2/24 dev wire"));
        router.run(&format!("ip addr add 10.72.{net}.1/24 dev {name}"));
        side.run(&format!("ip route add default via 10.72.{net}.1"));
    }
    router.run("sysctl -q -w net.ipv4.ip_forward=1");
}

#[test]
fn a_namespace_that_belongs_to_another_user_namespace_is_not_entered() {
    need_root!();
    need_program!("clang");
    need_program!("unshare");
    enter(|world| {
        let service = world.service();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c"]);
        command.arg("ip link set lo up && echo ready && exec sleep 100").stdout(Stdio::piped());
        let mut other = Running::start(&mut command);
        let mut ready = String::new();
        BufReader::new(other.child().stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let namespace = File::open(format!("/proc/{}/ns/net", other.child().id())).unwrap();
        let [ours, mut theirs] = thread::scope(|scope| {
            let connected = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                [ours, listener.accept().unwrap().0]
            });
            connected.join().unwrap()
        });
        let refused = service.adopt(ours.into()).err().unwrap();
        assert_eq!(refused.code, "permission", "{}", refused.text);
        let mut ours = TcpStream::from(refused.fd.unwrap());
        ours.write_all(b"there").unwrap();
        theirs.read_exact(&mut [0; 5]).unwrap();
    });
}
