//! A system call fails, at each place where one is made in turn: the step that it belongs to can be
//! undone, and the connection continues.

use crate::captured::Captured;
use crate::probe::bench::{Bench, set_loopback_up};
use crate::socket_options::IntOption;
use crate::sys::{self, fault};
use crate::{capture, make_husk, rebuild, recapture, release, restore, resume};
use baton_testkit::need_root;
use std::io::Write;
use std::net::Shutdown;
use std::thread;

/// Runs `f` in a network namespace that ends with the thread.
fn apart(f: impl FnOnce() + Send + 'static) {
    let work = || {
        sys::enter_private_network().unwrap();
        set_loopback_up().unwrap();
        f();
    };
    if let Err(panic) = thread::spawn(work).join() {
        std::panic::resume_unwind(panic);
    }
}

/// A connection with data in both queues, half closed by the peer if `half_closed`.
fn busy(half_closed: bool) -> Bench {
    let bench = Bench::new().unwrap();
    bench.exchange().unwrap();
    (&bench.peer).write_all(b"unread").unwrap();
    Bench::wait_unread(&bench.ours, 6).unwrap();
    if half_closed {
        bench.peer.shutdown(Shutdown::Write).unwrap();
        thread::sleep(std::time::Duration::from_millis(2));
    }
    IntOption::Cork.write(bench.fd(), 1).unwrap();
    (&bench.ours).write_all(b"unsent").unwrap();
    bench
}

/// Checks that both directions deliver what was in the queues.
fn goes_on(bench: &Bench, half_closed: bool) {
    assert_eq!(Bench::read(&bench.ours, 6).unwrap(), b"unread");
    IntOption::Cork.write(bench.fd(), 0).unwrap();
    assert_eq!(Bench::read(&bench.peer, 6).unwrap(), b"unsent");
    if half_closed {
        (&bench.ours).write_all(b"there").unwrap();
        assert_eq!(Bench::read(&bench.peer, 5).unwrap(), b"there");
    } else {
        bench.exchange().unwrap();
    }
}

/// Tries `step` on one connection after another, each with a later fault, until the fault is no
/// longer reached. Returns the number of places. `step` returns whether it reached the fault.
fn at_each_place(half_closed: bool, mut step: impl FnMut(&Bench, u32) -> bool) -> u32 {
    for place in 0.. {
        let bench = busy(half_closed);
        let met = step(&bench, place);
        goes_on(&bench, half_closed);
        if !met {
            return place;
        }
    }
    unreachable!("every step makes a finite number of calls")
}

#[test]
fn a_capture_that_fails_leaves_an_ordinary_socket() {
    need_root!();
    apart(|| {
        for half_closed in [false, true] {
            let places = at_each_place(half_closed, |bench, place| {
                fault::after(place);
                let captured = capture(&bench.ours);
                let met = !fault::disarm();
                // A few options may fail without harm.
                if let Ok(captured) = captured {
                    release(&bench.ours, &captured).unwrap();
                }
                met
            });
            assert!(places >= 30, "{places}");
        }
    });
}

#[test]
fn a_husk_that_fails_can_be_made_or_undone() {
    need_root!();
    apart(|| {
        for again in [false, true] {
            let places = at_each_place(again, |bench, place| {
                let captured = capture(&bench.ours).unwrap();
                fault::after(place);
                let made = make_husk(&bench.ours, &captured);
                let met = !fault::disarm();
                assert_eq!(made.is_err(), met, "{made:?}");
                if again {
                    make_husk(&bench.ours, &captured).unwrap();
                }
                restore(&bench.ours, &captured).unwrap();
                met
            });
            assert!(places >= 10, "{places}");
        }
    });
}

#[test]
fn a_rebuild_that_fails_can_be_undone_and_tried_again() {
    need_root!();
    apart(|| {
        for half_closed in [false, true] {
            let places = at_each_place(half_closed, |bench, place| {
                let captured = away(bench);
                fault::after(place);
                let rebuilt = rebuild(&bench.ours, &captured);
                let met = !fault::disarm();
                assert!(met || rebuilt.is_ok(), "{rebuilt:?}");
                make_husk(&bench.ours, &captured).unwrap();
                rebuild(&bench.ours, &captured).unwrap();
                let anew = recapture(&bench.ours, &captured).unwrap();
                assert!(anew.send_queue == captured.send_queue && anew.receive_queue == captured.receive_queue);
                assert_eq!(anew.protocol.snd_nxt, captured.protocol.snd_nxt);
                make_husk(&bench.ours, &anew).unwrap();
                restore(&bench.ours, &anew).unwrap();
                met
            });
            assert!(places >= 40, "{places}");
        }
    });
}

#[test]
fn leaving_repair_mode_fails_before_it_is_left_or_not_at_all() {
    need_root!();
    apart(|| {
        at_each_place(false, |bench, place| {
            let captured = away(bench);
            rebuild(&bench.ours, &captured).unwrap();
            fault::after(place);
            let resumed = resume(&bench.ours, &captured);
            let met = !fault::disarm();
            assert_eq!(resumed.is_err(), place == 0, "{resumed:?}");
            if resumed.is_err() {
                resume(&bench.ours, &captured).unwrap();
            }
            met
        });
    });
}

#[test]
fn unsent_data_leaves_though_the_answer_to_the_probe_is_lost() {
    need_root!();
    apart(|| {
        let bench = busy(false);
        let mut captured = capture(&bench.ours).unwrap();
        captured.options.set_int(IntOption::Cork, 0);
        make_husk(&bench.ours, &captured).unwrap();
        rebuild(&bench.ours, &captured).unwrap();
        sys::set_deaf(bench.fd(), true).unwrap();
        resume(&bench.ours, &captured).unwrap();
        assert_eq!(Bench::read(&bench.peer, 6).unwrap(), b"unsent");
    });
}

fn away(bench: &Bench) -> Captured {
    let captured = capture(&bench.ours).unwrap();
    make_husk(&bench.ours, &captured).unwrap();
    captured
}
