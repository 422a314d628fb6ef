//! Cases in which conntrack cannot be told, each in a network namespace of its own.

use super::{Conntrack, Tracked, probe};
use crate::sys;
use baton_policy::Refusal;
use baton_wire::addr::Tuple;

/// Runs a test in a network namespace of its own.
fn apart(test: impl FnOnce() + Send) {
    let body = || {
        sys::enter_private_network().unwrap();
        test();
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
}

/// As in a kernel without ctnetlink, but with an entry.
fn mute() -> (Conntrack, Tuple) {
    let (mut conntrack, tuple) = probe::made().unwrap_or_else(|_| panic!("no entry can be made"));
    conntrack.socket = None;
    (conntrack, tuple)
}

#[test]
fn what_may_be_tracked_stays_where_nobody_can_be_asked() {
    baton_testkit::need_root!();
    apart(|| {
        let (mut conntrack, tuple) = mute();
        assert_eq!(conntrack.look(tuple), Err(Refusal::Conntrack));
    });
    apart(|| {
        let mut nothing = Conntrack { socket: None, ..Conntrack::open() };
        let tuple = Tuple::new(([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into());
        assert_eq!(nothing.look(tuple), Ok(None), "no connection is tracked here");
    });
}

#[test]
fn what_cannot_be_told_stays_unless_no_window_is_checked() {
    baton_testkit::need_root!();
    apart(|| {
        let (mut conntrack, tuple) = mute();
        let tracked = Tracked { zone: 0, left_s: 60, liberal: false };
        assert_eq!(conntrack.let_go(tuple, tracked), Err(Refusal::Conntrack));
        assert_eq!(conntrack.kept.zone(&tuple), None);
        assert_eq!(
            conntrack.let_go(tuple, Tracked { liberal: true, ..tracked }),
            Ok(()),
            "the entry was changed before"
        );
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal", "1").unwrap();
        assert_eq!(conntrack.let_go(tuple, tracked), Ok(()));
        assert_eq!(conntrack.kept.zone(&tuple), Some(0));
    });
}
