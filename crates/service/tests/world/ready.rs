//! The readiness of a stream and its notifications, wherever the connection is.

use crate::common::kernels::wait_for;
use crate::common::{At, Line, World};
use baton_client::{Place, Stream};
use baton_ipc::message::Selector;
use baton_testkit::{need_program, need_root};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};

fn stream(line: &Line) -> &Stream {
    let At::Service(stream) = &line.at else { panic!("the connection is not a stream") };
    stream
}

/// Counts how often it was woken.
#[derive(Default)]
pub struct Count(pub AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Checks that something becomes true of a stream after its watch was woken.
#[track_caller]
fn told(count: &Count, before: u64, what: &str, is: impl Fn() -> bool) {
    wait_for(what, || count.0.load(Ordering::SeqCst) > before && is());
}

#[test]
fn whoever_watches_is_told_in_the_engine_and_in_the_kernel() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut line = world.line(false);
        line.adopt(&service);
        let count = Arc::<Count>::default();
        let watch = stream(&line).watch(Waker::from(count.clone()));
        for place in [Place::Engine, Place::Kernel, Place::Engine] {
            wait_for("the place", || line.place() == place);
            let stream = stream(&line);
            let idle = stream.readiness();
            assert!(!idle.readable && idle.writable && !idle.peer_finished && !idle.ended && !idle.failed, "{idle:?}");
            let before = count.0.load(Ordering::SeqCst);
            (&line.peer).write_all(b"seven b").unwrap();
            told(&count, before, "bytes", || stream.readiness().readable);
            assert_ne!(stream.readiness().arrivals, idle.arrivals);
            let mut some = [0; 10];
            wait_for("all bytes", || stream.queued().unwrap().0 == 7);
            assert_eq!((stream.peek(&mut some[..5]).unwrap(), &some[..5]), (5, &b"seven"[..]));
            assert_eq!((stream.peek(&mut some).unwrap(), &some[..7]), (7, &b"seven b"[..]));
            assert_eq!({ stream }.read(&mut some).unwrap(), 7);
            assert!(!stream.readiness().readable);
            let move_it =
                if place == Place::Engine { service.bring_home(Selector::All) } else { service.handoff(Selector::All) };
            move_it.unwrap();
        }
        wait_for("the kernel", || line.place() == Place::Kernel);
        let before = count.0.load(Ordering::SeqCst);
        line.peer.shutdown(std::net::Shutdown::Write).unwrap();
        told(&count, before, "the end", || stream(&line).readiness().peer_finished);
        stream(&line).shutdown().unwrap();
        let ended = stream(&line).readiness();
        assert!(ended.readable && ended.writable && ended.ended, "{ended:?}");
        stream(&line).unwatch(watch);
    });
}

#[test]
fn a_full_stream_is_told_of_room() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let mut line = world.line(false);
        line.adopt(&service);
        let count = Arc::<Count>::default();
        stream(&line).watch(Waker::from(count.clone()));
        let block = vec![0; 1 << 16];
        let mut written = 0;
        // The peer's kernel takes as much as it has room for.
        while stream(&line).readiness().writable || stream(&line).queued().unwrap().1 == 0 {
            written += { stream(&line) }.write(&block).unwrap_or(0);
        }
        let before = count.0.load(Ordering::SeqCst);
        line.peer.set_nonblocking(false).unwrap();
        let mut left = written;
        let mut some = vec![0; 1 << 16];
        while left > 0 {
            let len = line.peer.read(&mut some).unwrap();
            left -= len;
        }
        told(&count, before, "room", || stream(&line).readiness().writable);
        wait_for("acknowledgments", || stream(&line).queued().unwrap().1 == 0);
    });
}
