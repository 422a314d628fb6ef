//! Options that a program sets on a stream apply wherever the connection is.

use crate::common::kernels::{Ramp, wait_for};
use crate::common::{At, Line, World};
use baton_client::{Place, Probing};
use baton_engine::tce::TCP_INFO_BYTES;
use baton_ipc::message::Selector;
use baton_testkit::{need_program, need_root};
use rustix::net::sockopt;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

const PROBING: Probing = Probing { idle: Duration::from_secs(33), interval: Duration::from_secs(7), probes: 5 };
const TIMEOUT: Option<Duration> = Some(Duration::from_millis(12_345));
/// Expedited forwarding.
const CLASS: u8 = 0xb8;

fn stream(line: &Line) -> &baton_client::Stream {
    let At::Service(stream) = &line.at else { panic!("the connection is not a stream") };
    stream
}

/// The number of packets of the class that have reached the peer.
fn of_the_class(world: &World<'_>) -> u64 {
    let list = world.wire.peer.run("nft list chain inet class in");
    list.split_whitespace().skip_while(|word| *word != "packets").nth(1).unwrap().parse().unwrap()
}

fn count_the_class(world: &World<'_>) {
    world.wire.peer.run("nft add table inet class");
    world.wire.peer.run("nft add chain inet class in { type filter hook prerouting priority -300 ; }");
    world.wire.peer.run("nft add rule inet class in ip dscp ef counter");
}

#[test]
fn what_is_set_in_the_engine_comes_home() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        count_the_class(world);
        for ipv6 in [true, false] {
            let mut line = world.line(ipv6);
            line.adopt(&service);
            let stream = stream(&line);
            stream.set_keepalive(Some(PROBING)).unwrap();
            stream.set_user_timeout(TIMEOUT).unwrap();
            stream.set_linger(Some(Duration::from_secs(3))).unwrap();
            stream.set_traffic_class(CLASS).unwrap();
            stream.set_congestion("reno").unwrap();
            stream.set_send_buffer(30_000).unwrap();
            assert!(stream.nodelay().unwrap(), "as it was on the socket");
            stream.set_nodelay(false).unwrap();
            assert_eq!((stream.nodelay().unwrap(), stream.congestion().unwrap()), (false, "reno".to_owned()));
            assert_eq!(stream.set_congestion("nobody's").unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(
                stream.set_keepalive(Some(Probing { probes: 0, ..PROBING })).unwrap_err().kind(),
                ErrorKind::InvalidInput
            );
            assert!(stream.take_error().unwrap().is_none());
            line.go_on(100_000);
            line.restore();
            let At::Kernel(fd) = &line.at else { unreachable!("it was restored") };
            assert!(sockopt::socket_keepalive(fd).unwrap());
            assert_eq!(sockopt::tcp_keepidle(fd).unwrap(), PROBING.idle);
            assert_eq!(sockopt::tcp_keepintvl(fd).unwrap(), PROBING.interval);
            assert_eq!(sockopt::tcp_keepcnt(fd).unwrap(), PROBING.probes);
            assert_eq!(sockopt::tcp_user_timeout(fd).unwrap(), 12_345);
            assert_eq!(sockopt::socket_linger(fd).unwrap(), Some(Duration::from_secs(3)));
            assert_eq!(sockopt::tcp_congestion(fd).unwrap(), "reno");
            assert_eq!(sockopt::socket_send_buffer_size(fd).unwrap(), 60_000);
            assert!(!sockopt::tcp_nodelay(fd).unwrap());
            let class = if ipv6 { sockopt::ipv6_tclass(fd).unwrap() as u8 } else { sockopt::ip_tos(fd).unwrap() };
            assert_eq!(class, CLASS);
            line.go_on(10_000);
            line.finish();
        }
        assert!(of_the_class(world) > 10, "{}", of_the_class(world));
    });
}

/// The library holds back corked data, so the engine must not do so as well.
#[test]
fn what_was_corked_in_the_kernel_is_let_go_in_the_engine() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut line = world.line(false);
        let At::Kernel(fd) = &line.at else { unreachable!("the connection is a socket") };
        sockopt::set_tcp_cork(fd, true).unwrap();
        line.adopt(&service);
        assert!(stream(&line).cork().unwrap());
        line.restore();
        let At::Kernel(fd) = &line.at else { unreachable!("it was restored") };
        assert!(sockopt::tcp_cork(fd).unwrap());
        line.adopt(&service);
        stream(&line).set_cork(false).unwrap();
        line.go_on(100);
        line.restore();
        let At::Kernel(fd) = &line.at else { unreachable!("it was restored") };
        assert!(!sockopt::tcp_cork(fd).unwrap());
        line.finish();
    });
}

/// tcp(7), `TCP_NODELAY`: it flushes pending data, including what a cork holds. Otherwise each
/// piece would wait for 150 ms or more.
#[test]
fn nodelay_flushes_what_is_corked_in_the_engine() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut line = world.line(false);
        line.adopt(&service);
        line.go_on(10_000);
        line.come_to_rest();
        stream(&line).set_cork(true).unwrap();
        let begun = std::time::Instant::now();
        for _ in 0..20 {
            let piece = Ramp::bytes(line.out.written, 5);
            assert_eq!(stream(&line).write(&piece).unwrap(), 5);
            line.out.written += 5;
            stream(&line).set_nodelay(true).unwrap();
            line.come_to_rest();
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        line.finish();
    });
}

#[test]
fn what_is_set_in_the_kernel_holds_in_the_engine() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        count_the_class(world);
        let mut line = world.line(false);
        let At::Kernel(fd) = &line.at else { unreachable!("the connection is a socket") };
        sockopt::set_socket_keepalive(fd, true).unwrap();
        sockopt::set_tcp_keepidle(fd, PROBING.idle).unwrap();
        sockopt::set_tcp_user_timeout(fd, 9_000).unwrap();
        line.adopt(&service);
        assert_eq!(stream(&line).keepalive().unwrap().unwrap().idle, PROBING.idle);
        assert_eq!(stream(&line).user_timeout().unwrap(), Some(Duration::from_secs(9)));
        line.go_on(10_000);
        service.bring_home(Selector::All).unwrap();
        wait_for("the way home", || line.place() == Place::Kernel);
        stream(&line).set_traffic_class(CLASS).unwrap();
        stream(&line).set_linger(Some(Duration::ZERO)).unwrap();
        line.go_on(10_000);
        let tally = service.handoff(Selector::All).unwrap();
        assert_eq!((tally.count, tally.failed), (1, 0));
        wait_for("the engine", || line.place() == Place::Engine);
        let before = of_the_class(world);
        // A frame has at most 64 KB.
        line.go_on(1_000_000);
        assert!(of_the_class(world) > before + 10, "{before} before, {} now", of_the_class(world));
        // As on the socket, although the connection was away twice.
        service.bring_home(Selector::All).unwrap();
        wait_for("the way home", || line.place() == Place::Kernel);
        assert_eq!(stream(&line).keepalive().unwrap().unwrap().idle, PROBING.idle);
        service.handoff(Selector::All).unwrap();
        wait_for("the engine", || line.place() == Place::Engine);
        // Lingering for no time means a reset.
        let Line { at, peer, .. } = line;
        drop(at);
        peer.set_nonblocking(false).unwrap();
        let error = std::io::copy(&mut &peer, &mut std::io::sink()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn tcp_info_is_of_whoever_has_the_connection() {
    need_root!();
    need_program!("clang");
    World::with_line(|world, _, mut line| {
        line.go_on(200_000);
        let there = stream(&line).tcp_info().unwrap();
        let word = |info: &[u8], at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
        // Established; the size of a segment; a round-trip time was measured.
        assert_eq!((there[0], there.len()), (1, TCP_INFO_BYTES));
        assert!((500..=1460).contains(&word(&there, 16)) && word(&there, 68) > 0, "{there:?}");
        kill_process(Pid::from_raw(world.engine as i32).unwrap(), Signal::KILL).unwrap();
        let here = stream(&line).tcp_info().unwrap();
        assert_eq!(here[0], 1);
        assert_eq!(here.len(), there.len());
        assert_eq!(line.place(), Place::Kernel);
        line.finish();
    });
}

#[test]
fn the_round_trip_is_known_when_it_comes_back() {
    need_root!();
    need_program!("clang");
    World::with_line(|_, service, mut line| {
        let word = |line: &Line, at: usize| {
            u32::from_ne_bytes(stream(line).tcp_info().unwrap()[at..at + 4].try_into().unwrap())
        };
        let (unacked, rtt) = (24, 68);
        line.go_on(200_000);
        line.come_to_rest();
        wait_for("the last acknowledgment", || word(&line, unacked) == 0);
        let measured = word(&line, rtt);
        assert!(measured > 0);
        for _ in 0..2 {
            service.bring_home(Selector::All).unwrap();
            wait_for("the way home", || line.place() == Place::Kernel);
            // The kernel has measured nothing, and nothing is sent that it could measure.
            service.handoff(Selector::All).unwrap();
            wait_for("the engine", || line.place() == Place::Engine);
            assert_eq!(word(&line, rtt), measured, "as the engine measured it last");
        }
        line.finish();
    });
}

#[test]
fn reads_end_in_time_and_when_nothing_more_is_wanted() {
    need_root!();
    need_program!("clang");
    World::with_line(|_, service, line| {
        let mut own = stream(&line);
        own.set_nonblocking(false);
        for home in [false, true] {
            if home {
                service.bring_home(Selector::All).unwrap();
                wait_for("the way home", || own.place() == Place::Kernel);
            }
            own.set_read_timeout(Some(Duration::from_millis(50)));
            assert_eq!(own.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
            own.set_write_timeout(Some(Duration::from_millis(50)));
            // Nobody reads it.
            let error = own.write_all(&vec![7; 64 << 20]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        service.handoff(Selector::All).unwrap();
        wait_for("the engine", || own.place() == Place::Engine);
        own.set_read_timeout(None);
        (&line.peer).write_all(b"last").unwrap();
        let mut last = [0; 4];
        own.read_exact(&mut last).unwrap();
        own.shut(Shutdown::Read).unwrap();
        assert_eq!(own.read(&mut [0; 9]).unwrap(), 0);
        service.bring_home(Selector::All).unwrap();
        wait_for("the way home", || own.place() == Place::Kernel);
        assert_eq!(own.read(&mut [0; 9]).unwrap(), 0);
    });
}
