//! The engine runs the congestion control that the service was started with.

use crate::common::kernels::wait_for;
use crate::common::{At, World};
use baton_service::broker::Config;
use baton_tcp::config::Congestion;
use baton_testkit::{need_program, need_root};
use std::io::Write;
use std::time::Duration;

/// The number of segments in flight that are lost.
const FLIGHT: u32 = 20;

/// `ssthresh` in segments after a whole flight is lost, which distinguishes the algorithms (RFC
/// 5681 §3.1 (4) halves the flight, RFC 9438 §4.6 leaves 0.7 of it).
fn ssthresh_after_loss(congestion: Congestion) -> u32 {
    let mut found = 0;
    World::enter_with(
        |config: &mut Config| config.tuning.congestion = congestion,
        |world| {
            let service = world.service();
            let mut line = world.line(false);
            line.adopt(&service);
            line.go_on(300_000);
            wait_for("the rest", || {
                line.read();
                line.out.read == line.out.written && line.back.read == line.back.written
            });
            let At::Service(stream) = &mut line.at else { unreachable!("it was adopted") };
            let word = |at: usize| u32::from_ne_bytes(stream.tcp_info().unwrap()[at..at + 4].try_into().unwrap());
            const SND_MSS: usize = 16;
            const SSTHRESH: usize = 76;
            let before = word(SSTHRESH);
            let bytes = vec![0; (FLIGHT * word(SND_MSS)) as usize];
            world.wire.peer.run("nft add table inet lose");
            world.wire.peer.run("nft add chain inet lose in { type filter hook prerouting priority -300 ; }");
            world.wire.peer.run("nft add rule inet lose in meta l4proto tcp drop");
            assert_eq!((&mut &*stream).write(&bytes).unwrap(), bytes.len());
            wait_for("a timeout", || {
                std::thread::sleep(Duration::from_millis(10));
                word(SSTHRESH) != before
            });
            found = word(SSTHRESH);
        },
    );
    found
}

#[test]
fn the_engine_runs_the_congestion_control_of_its_configuration() {
    need_root!();
    need_program!("clang");
    let reno = ssthresh_after_loss(Congestion::Reno);
    let cubic = ssthresh_after_loss(Congestion::Cubic);
    assert_eq!((reno, cubic), (FLIGHT / 2, FLIGHT * 7 / 10));
}
