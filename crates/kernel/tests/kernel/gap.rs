//! Data beyond a gap is detected.

use crate::common::Wire;
use baton_kernel::steer::Gaps;
use baton_testkit::{need_program, need_root, wait_for};
use baton_wire::addr::Tuple;
use std::io::{Read, Write};

#[test]
fn what_lies_beyond_a_gap_is_seen_until_the_gap_is_filled() {
    need_root!();
    need_program!("clang");
    let wire = Wire::new(&[]);
    let gaps = Gaps::open().unwrap();
    for ipv6 in [false, true] {
        let (mut ours, mut peer) = wire.connect(ipv6);
        let tuple = Tuple::new(ours.local_addr().unwrap(), ours.peer_addr().unwrap());
        let has = |tuple: &Tuple| wire.ours.enter(|| gaps.has(tuple, wire.index()).unwrap());
        assert!(!has(&tuple));
        wire.lose_single_bytes(ipv6);
        peer.write_all(b"a").unwrap();
        peer.write_all(b"bc").unwrap();
        wait_for("a gap", || has(&tuple));
        // Another connection's ports, which nobody has.
        assert!(!has(&Tuple { local_port: tuple.local_port ^ 1, ..tuple }));
        wire.lose_nothing();
        wait_for("the gap is filled", || !has(&tuple));
        // Data that waits to be read is not a gap.
        let mut bytes = [0; 3];
        ours.set_nonblocking(false).unwrap();
        ours.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
        assert!(!has(&tuple));
    }
}
