//! Moves that fail, and connections whose route changes while they are away.

use crate::world::{At, Line, Load, World};
use baton_engine::streamer::AdoptError;
use baton_kernel::handoff::{Outcome, Phase, Step};
use baton_kernel::kernel_side::KernelError;
use baton_kernel::steer::{Kind, Options, SteerError};
use baton_mover::{MoveError, MoverConfig, MoverEvent};
use baton_policy::Refusal;
use baton_port::link;
use baton_testkit::{need_program, need_root, wait_for};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn config() -> MoverConfig {
    let mut config = MoverConfig::default();
    config.tcp.time_wait = baton_tcp::time::Duration::from_millis(10);
    config
}

/// Hands a connection over, which is refused. Returns the error, and puts the socket back.
#[track_caller]
fn stays(line: &mut Line, world: &mut World<'_>) -> (Step, MoveError) {
    let At::Kernel(stream) = std::mem::replace(&mut line.at, At::Moving) else { panic!("it is away") };
    let stayed = world.mover.handoff(stream.into()).expect_err("it moved");
    assert!(matches!(stayed.error.outcome, Outcome::InKernel), "{stayed:?}");
    line.at = At::Kernel(stayed.fd.into());
    (stayed.error.step, stayed.error.cause)
}

#[test]
fn an_engine_without_room_leaves_connections_in_the_kernel() {
    need_root!();
    need_program!("clang");
    let mut config = config();
    config.consumer.connections = 1;
    World::enter_with(Kind::Tc, config, None, |world| {
        for ipv6 in [false, true] {
            let mut first = world.line(Load::Both, ipv6);
            let mut second = world.line(Load::Both, ipv6);
            first.handoff(world);
            for _ in 0..20 {
                second.go_on(world, 10_000);
                // The socket is a husk by then, and is restored.
                let (step, cause) = stays(&mut second, world);
                assert_eq!(step, Step::Start);
                assert!(matches!(cause, MoveError::Adopt(AdoptError::NoQueuePair)), "{cause}");
                first.go_on(world, 10_000);
            }
            second.go_on(world, 100_000);
            first.finish(world);
            second.handoff(world);
            second.go_on(world, 100_000);
            second.finish(world);
        }
        assert_eq!(world.resets(), 0);
    });
}

#[test]
fn a_full_map_leaves_connections_in_the_kernel() {
    need_root!();
    need_program!("clang");
    let config = MoverConfig { steer: Options { tuples_max: 1, ..Options::default() }, ..config() };
    World::enter_with(Kind::Tc, config, None, |world| {
        let (mut first, mut second) = (world.line(Load::In, false), world.line(Load::In, false));
        first.handoff(world);
        let (step, cause) = stays(&mut second, world);
        assert_eq!(step, Step::Steer);
        assert!(matches!(cause, MoveError::Kernel(KernelError::Steer(SteerError::Full))), "{cause}");
        first.go_on(world, 10_000);
        second.go_on(world, 10_000);
        first.finish(world);
        second.finish(world);
    });
}

#[test]
fn what_cannot_move_is_refused_and_counted() {
    need_root!();
    need_program!("clang");
    let mut config = config();
    config.consumer.stream_buffer = 4096;
    config.consumer.large_buffers = 0;
    World::enter_with(Kind::Tc, config, None, |world| {
        // A connection over an interface that is not steered.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stayed = world.mover.handoff(ours.into()).expect_err("it moved");
        assert_eq!(stayed.error.cause.refusal(), Some(Refusal::NotSteerable));
        assert!(TcpStream::from(stayed.fd).peer_addr().is_ok());
        let stayed = world.mover.handoff(listener.into()).expect_err("it moved");
        assert_eq!(stayed.error.cause.refusal(), Some(Refusal::NotConnected));
        // More data than the engine's buffers hold.
        let mut line = world.line(Load::Unread, false);
        line.turns(world, 20);
        let deadline = Instant::now() + Duration::from_secs(5);
        let cause = loop {
            let (step, cause) = stays(&mut line, world);
            assert_eq!(step, Step::Capture);
            if cause.refusal() == Some(Refusal::TooMuchQueued) {
                break cause;
            }
            assert!(Instant::now() < deadline, "{cause}");
        };
        assert!(cause.to_string().contains("buffers"), "{cause}");
        line.finish(world);
        let counts: Vec<_> = world.mover.kernel().refusals().iter().filter(|(_, count)| *count > 0).collect();
        let all = [Refusal::NotConnected, Refusal::NotSteerable, Refusal::TooMuchQueued].map(|refusal| (refusal, 1));
        assert_eq!(counts, all);
        assert_eq!(world.resets(), 0);
    });
}

#[test]
fn a_restore_without_a_route_leaves_the_connection_in_the_engine() {
    need_root!();
    need_program!("clang");
    World::enter_with(Kind::Tc, config(), None, |world| {
        let mut line = world.line(Load::Both, true);
        line.handoff(world);
        line.go_on(world, 50_000);
        let At::Engine(name) = line.at else { panic!("it is in the kernel") };
        world.wire.ours.run("ip route del fd66::/64 dev wire");
        for _ in 0..3 {
            let aborted = world.mover.restore(name).expect_err("there is no route");
            assert_eq!(aborted.step, Step::Rebuild, "{aborted}");
            assert!(matches!(aborted.outcome, Outcome::InEngine), "{aborted}");
            assert_eq!(world.mover.phase(name), Some(Phase::Engine));
            // As in the kernel, nothing leaves.
            line.turns(world, 100);
        }
        world.wire.ours.run("ip route add fd66::/64 dev wire");
        line.go_on(world, 50_000);
        line.restore(world);
        line.go_on(world, 50_000);
        line.finish(world);
        assert_eq!(world.resets(), 0);
    });
}

#[test]
fn what_its_peer_has_reset_has_ended() {
    need_root!();
    need_program!("clang");
    for (kind, ipv6) in [(Kind::Tc, false), (Kind::Xdp, true)] {
        World::enter_with(kind, config(), None, |world| {
            let (ours, peer) = world.wire.connect(ipv6);
            let name = world.mover.handoff(ours.into()).unwrap();
            assert_eq!(world.mover.write(name, b"unread").unwrap(), 6);
            wait_for("what is not read", || {
                world.mover.poll().unwrap();
                rustix::io::ioctl_fionread(&peer).unwrap() == 6
            });
            let wire = link::index("wire").unwrap();
            let mut frames = || world.mover.kernel().steering(wire).unwrap().counters().unwrap().hit;
            wait_for("its acknowledgement", || frames() > 0);
            let before = frames();
            drop(peer);
            wait_for("the reset", || frames() > before);
            let aborted = world.mover.restore(name).expect_err("it was reset");
            assert_eq!(aborted.step, Step::Stop, "{aborted}");
            assert!(matches!(aborted.cause, MoveError::Ended), "{aborted}");
            world.mover.close(name);
            wait_for("its end", || {
                world.mover.poll().unwrap();
                !world.mover.has(name)
            });
        });
    }
}

#[test]
fn link_addresses_may_change_on_both_ends() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        World::enter(kind, |world| {
            let mut line = world.line(Load::Both, false);
            line.handoff(world);
            line.go_on(world, 50_000);
            world.wire.peer.run("ip link set wire address 02:00:00:00:66:02");
            world.wire.ours.run("ip neigh replace 10.66.0.2 lladdr 02:00:00:00:66:02 dev wire nud reachable");
            line.go_on(world, 50_000);
            world.wire.ours.run("ip link set wire address 02:00:00:00:66:01");
            world.wire.peer.run("ip neigh replace 10.66.0.1 lladdr 02:00:00:00:66:01 dev wire nud reachable");
            line.go_on(world, 50_000);
            line.restore(world);
            line.go_on(world, 50_000);
            line.finish(world);
        });
    }
}

#[test]
fn a_connection_whose_route_changes_follows_it_or_is_homeless() {
    need_root!();
    need_program!("clang");
    for ipv6 in [false, true] {
        let [there, gateway, other] =
            if ipv6 { ["fd66::2", "fd66::3", "fd66::3/64 nodad"] } else { ["10.66.0.2", "10.66.0.3", "10.66.0.3/24"] };
        World::enter(Kind::Tc, |world| {
            let mut line = world.line(Load::Both, ipv6);
            line.handoff(world);
            line.go_on(world, 50_000);
            // Through a gateway, which is another address of the peer.
            world.wire.peer.run(&format!("ip addr add {other} dev wire"));
            world.wire.ours.run(&format!("ip route add {there} via {gateway} dev wire"));
            let deadline = Instant::now() + Duration::from_secs(5);
            while world.mover.engine(0).unwrap().streamer().endpoint().neighbours() < 2 {
                line.turns(world, 1);
                assert!(Instant::now() < deadline, "the gateway is not used");
            }
            line.go_on(world, 50_000);
            // Over another interface.
            world.wire.ours.run("ip link add other type veth peer name end");
            world.wire.ours.run("ip link set end up");
            world.wire.ours.run("ip link set other up");
            world.wire.ours.run(&format!("ip route add {there} dev other metric 1"));
            world.wire.ours.run(&format!("ip route del {there} via {gateway} dev wire"));
            let At::Engine(name) = line.at else { panic!("it is in the kernel") };
            loop {
                line.turns(world, 1);
                if std::iter::from_fn(|| world.mover.next_event()).any(|event| event == MoverEvent::Homeless(name)) {
                    break;
                }
                assert!(Instant::now() < deadline, "nobody says that it is homeless");
            }
            line.restore(world);
            world.wire.ours.run(&format!("ip route del {there} dev other"));
            line.go_on(world, 50_000);
            line.finish(world);
            assert_eq!(world.resets(), 0);
        });
    }
}

#[test]
fn many_connections_move_at_random() {
    need_root!();
    need_program!("clang");
    for kind in [Kind::Tc, Kind::Xdp] {
        World::enter(kind, |world| {
            let mut lines: Vec<Line> = (0..40).map(|n| world.line(Load::Both, n % 2 == 0)).collect();
            // A linear congruence is enough for a walk that visits everything.
            let mut at = 0;
            for step in 0..800 {
                at = (at * 21 + 17 + step / 40) % lines.len();
                let line = &mut lines[at];
                match line.at {
                    At::Kernel(_) => line.handoff(world),
                    _ => line.restore(world),
                }
                for line in &mut lines {
                    line.turns(world, u32::from(step % 4 == 0));
                }
            }
            for line in &mut lines {
                line.go_on(world, 30_000);
            }
            for line in lines {
                line.finish(world);
            }
            assert_eq!(world.resets(), 0);
        });
    }
}
