//! A program and a scripted broker of its service.

use crate::played::{Played, play_at};
use baton_client::{Place, Service};
use baton_consumer::consumer::ConsumerConfig;
use baton_engine::region::{Completion, Events, Request as EngineRequest};
use baton_ipc::message::{Loss, Reply, Request, Selector, Sizes};
use baton_testkit::wait_for;
use rustix::process::Pid;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// Sizes of a small consumer.
const SMALL: ConsumerConfig = ConsumerConfig::new(2, (4096, 4), (4096, 0));

/// Runs a program that is connected to a scripted broker.
fn play(run: impl FnOnce(&Service, &Played)) {
    play_with(|service, broker| run(&service, &broker));
}

/// The same, for tests that drop either of them.
fn play_with(run: impl FnOnce(Service, Played)) {
    play_at(|path, broker| run(Service::connect(path).unwrap(), broker));
}

/// The end of an answer about `count` connections.
fn done(ask: u64, count: u64) -> Reply {
    Reply::Done { ask, count, failed: 0, pause_us: 0 }
}

#[test]
fn an_adoption_whose_connection_is_lost_ends() {
    play(|service, broker| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        thread::scope(|scope| {
            let adopting = scope.spawn(|| service.adopt(socket.into()).map(drop));
            let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
            broker.say(Reply::Gone { seq, id: 7, loss: Loss(Some("the kernel kept it".into())) });
            let lost = adopting.join().unwrap().unwrap_err();
            assert!(lost.fd.is_none());
            assert_eq!((lost.code.as_str(), lost.text.as_str()), ("lost", "the kernel kept it"));
        });
    });
}

#[test]
fn an_answer_goes_to_its_own_question() {
    play(|service, broker| {
        thread::scope(|scope| {
            let asking = scope.spawn(|| service.handoff(Selector::All));
            let Request::Handoff { ask, .. } = broker.hear() else { panic!("expected Handoff") };
            // The broker dies. The next broker receives the question too, and answers it late.
            broker.say(Reply::Restarted {});
            assert_eq!(asking.join().unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
            let listing = scope.spawn(|| service.bring_home(Selector::All));
            let Request::Home { ask: next, .. } = broker.hear() else { panic!("expected Home") };
            assert_ne!(ask, next);
            broker.say(done(ask, 1));
            broker.say(done(next, 2));
            assert_eq!(listing.join().unwrap().unwrap().count, 2);
        });
    });
}

#[test]
fn two_threads_may_ask_at_once() {
    play(|service, broker| {
        thread::scope(|scope| {
            let ask = |port| scope.spawn(move || service.handoff(Selector::Port(port)).unwrap().count);
            let asking = [ask(1), ask(2)];
            for _ in 0..2 {
                let Request::Handoff { ask, which: Selector::Port(port) } = broker.hear() else { panic!() };
                broker.say(done(ask, u64::from(port) * 10));
            }
            assert_eq!(asking.map(|asking| asking.join().unwrap()), [10, 20]);
        });
    });
}

/// A socket to hand over, and its peer, which waits at most 10 seconds in a read.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, peer) = UnixStream::pair().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (ours, peer)
}

#[test]
fn memory_of_invalid_sizes_is_refused() {
    let none = ConsumerConfig::new(2, (0, 0), (0, 0));
    let odd = ConsumerConfig::new(2, (3000, 4), (4096, 0));
    let most = u32::MAX;
    let huge =
        Sizes { stream_buffer: most, stream_buffers: most, large_buffer: most, large_buffers: most, connections: 2 };
    for (sizes, config) in [(Sizes::of(&none), none), (Sizes::of(&odd), odd), (huge, SMALL)] {
        play(|service, broker| {
            thread::scope(|scope| {
                let adopting = scope.spawn(|| service.adopt(pair().0.into()).map(drop));
                let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
                broker.make_region(sizes, config.layout());
                assert!(!broker.bring(seq, 7), "{sizes:?}");
                broker.say(Reply::Stays { seq, id: 7, code: "no-buffers".into(), text: String::new() });
                assert_eq!(adopting.join().unwrap().unwrap_err().code, "no-buffers");
            });
        });
    }
}

#[test]
fn a_socket_is_left_alone_if_no_buffers_are_free_for_its_queues() {
    let one = ConsumerConfig::new(2, (4096, 4), (16_384, 1));
    let socket = |unread: usize| {
        let (ours, mut peer) = pair();
        peer.write_all(&vec![1; unread]).unwrap();
        (ours, peer)
    };
    play(|service, broker| {
        broker.make_region(Sizes::of(&one), one.layout());
        thread::scope(|scope| {
            let (first, _peer) = socket(5000);
            let adopting = scope.spawn(|| service.adopt(first.into()).map(drop));
            let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
            assert!(broker.bring_with(seq, 7, &[1; 5000]));
            // The only large buffer is in use.
            let (second, _peer) = socket(4097);
            let refused = service.adopt(second.into()).map(drop).unwrap_err();
            assert_eq!(refused.code, "no-buffers");
            assert!(refused.text.contains("4097 to be read"), "{}", refused.text);
            let (mut second, mut buf) =
                (UnixStream::from(refused.fd.expect("the socket is returned unchanged")), [0; 1]);
            second.read_exact(&mut buf).unwrap();
            // One adoption is pending and the second fits now, because the socket has fewer bytes.
            let again = scope.spawn(|| service.adopt(second.into()).map(drop));
            let Request::Offer { seq: next, .. } = broker.hear() else { panic!("expected Offer of the second socket") };
            for (seq, id, adopting) in [(next, 8, again), (seq, 7, adopting)] {
                broker.say(Reply::Stays { seq, id, code: "never".into(), text: String::new() });
                assert_eq!(adopting.join().unwrap().unwrap_err().code, "never");
            }
        });
    });
}

#[test]
fn an_abandoned_adoption_is_closed_on_arrival() {
    play(|service, broker| {
        broker.make_region(Sizes::of(&SMALL), SMALL.layout());
        for comes_home in [false, true] {
            let (ours, mut peer) = pair();
            {
                let mut adopting = pin!(service.adopt_async(ours.into()));
                assert!(adopting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
            if comes_home {
                assert!(broker.bring(seq, 9));
                broker.say(Reply::Home { id: 9, rcv_pos: 0, tail_pos: 0, whole: false });
                assert_eq!(broker.hear(), Request::Close { id: 9 });
            } else {
                broker.say(Reply::Stays { seq, id: 8, code: "never".into(), text: String::new() });
            }
            assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the connection must be closed");
        }
    });
}

#[test]
fn a_stream_dropped_after_the_service_has_gone_is_closed() {
    play_with(|service, broker| {
        let (ours, mut peer) = pair();
        let mut adopting = Box::pin(service.adopt_async(ours.into()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(adopting.as_mut().poll(&mut cx).is_pending());
        let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
        let (engine, completions) = broker.make_region(Sizes::of(&SMALL), SMALL.layout());
        assert!(broker.bring(seq, 7));
        assert!(engine.complete(Completion::Adopted { qp: 0, token: 7 }));
        rustix::io::write(&completions, &1u64.to_ne_bytes()).unwrap();
        let stream = loop {
            match adopting.as_mut().poll(&mut cx) {
                Poll::Ready(stream) => break stream.unwrap(),
                Poll::Pending => thread::sleep(Duration::from_millis(1)),
            }
        };
        drop(adopting);
        assert_eq!(stream.place(), Place::Engine);
        broker.end();
        assert_eq!(service.list().unwrap_err().kind(), ErrorKind::NotConnected);
        // The engine may still be alive and have the connection.
        assert_eq!(stream.place(), Place::Engine);
        drop((stream, service));
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the connection must be closed");
    });
}

/// A program that sleeps for long learns of the adoption and of the return to the kernel at once.
#[test]
fn a_connection_that_came_and_left_while_its_program_slept_leaves_its_engine() {
    play(|service, broker| {
        let (engine, completions) = broker.make_region(Sizes::of(&SMALL), SMALL.layout());
        let (ours, mut peer) = pair();
        thread::scope(|scope| {
            let adopting = scope.spawn(|| service.adopt(ours.into()));
            let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
            assert!(broker.bring_with(seq, 7, b"abc"));
            // The adoption does not wake the program.
            assert!(engine.complete(Completion::Adopted { qp: 0, token: 7 }));
            broker.say(Reply::Home { id: 7, rcv_pos: 3, tail_pos: 0, whole: false });
            let stream = adopting.join().unwrap().unwrap();
            assert_eq!(stream.place(), Place::Kernel);
            peer.write_all(b"def").unwrap();
            let mut bytes = [0; 6];
            (&stream).read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"abcdef");
            // The queue pair belongs to the engine until the engine releases it.
            assert_eq!(engine.pop_request(), None);
            engine.qp(0).raise(Events::MOVED);
            assert!(engine.complete(Completion::Ready { qp: 0, events: Events::MOVED }));
            rustix::io::write(&completions, &1u64.to_ne_bytes()).unwrap();
            let lets_go = |request| matches!(request, EngineRequest::Close { qp: 0 } | EngineRequest::Abort { qp: 0 });
            wait_for("the queue pair", || engine.pop_request().is_some_and(lets_go));
            // The next move is independent of this one.
            broker.say(Reply::Prepare { id: 7 });
            assert_eq!(broker.hear(), Request::Ready { id: 7, free: true });
        });
    });
}

/// The program writes more bytes than the kernel gets and closes, and the engine releases
/// everything before the program hears that the connection is in the kernel.
#[test]
fn bytes_written_and_closed_during_a_restore_are_sent_by_the_kernel() {
    play(|service, broker| {
        let (engine, completions) = broker.make_region(Sizes::of(&SMALL), SMALL.layout());
        let (ours, mut peer) = pair();
        let says = |events| {
            engine.qp(0).raise(events);
            assert!(engine.complete(Completion::Ready { qp: 0, events }));
            rustix::io::write(&completions, &1u64.to_ne_bytes()).unwrap();
        };
        thread::scope(|scope| {
            let adopting = scope.spawn(|| service.adopt(ours.into()));
            let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
            assert!(broker.bring(seq, 7));
            assert!(engine.complete(Completion::Adopted { qp: 0, token: 7 }));
            rustix::io::write(&completions, &1u64.to_ne_bytes()).unwrap();
            let stream = adopting.join().unwrap().unwrap();
            (&stream).write_all(b"abcdefg").unwrap();
            says(Events::MOVED);
            drop(stream);
            wait_for("the end", || engine.pop_request() == Some(EngineRequest::Close { qp: 0 }));
            says(Events::RELEASED);
            assert_eq!(broker.hear(), Request::Close { id: 7 });
            // The engine had seen the first three bytes, and the kernel has them.
            broker.say(Reply::Home { id: 7, rcv_pos: 0, tail_pos: 3, whole: false });
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, b"defg");
        });
    });
}

/// The engine has released a connection for its move, and its program has closed it. Then engine and
/// service are killed before the program hears of either. Nobody else will end the connection.
#[test]
fn a_stream_closed_during_a_restore_ends_with_engine_and_service() {
    play_with(|service, broker| {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let (engine, completions) = broker.make_region_of(Pid::from_child(&process), Sizes::of(&SMALL), SMALL.layout());
        let (ours, mut peer) = pair();
        let wakes = || rustix::io::write(&completions, &1u64.to_ne_bytes()).unwrap();
        let raises = |events| {
            engine.qp(0).raise(events);
            assert!(engine.complete(Completion::Ready { qp: 0, events }));
        };
        let stream = thread::scope(|scope| {
            let adopting = scope.spawn(|| service.adopt(ours.into()));
            let Request::Offer { seq, .. } = broker.hear() else { panic!("expected Offer") };
            assert!(broker.bring(seq, 7));
            assert!(engine.complete(Completion::Adopted { qp: 0, token: 7 }));
            wakes();
            adopting.join().unwrap().unwrap()
        });
        raises(Events::MOVED);
        wakes();
        drop(stream);
        wait_for("the close", || engine.pop_request() == Some(EngineRequest::Close { qp: 0 }));
        assert_eq!(broker.hear(), Request::Close { id: 7 });
        // From here on the library's thread sleeps until the broker hangs up.
        wait_for("the thread's sleep", || {
            engine.must_wake_consumer() && {
                thread::sleep(Duration::from_millis(20));
                !engine.must_wake_consumer()
            }
        });
        raises(Events::CLOSED | Events::RELEASED);
        process.kill().unwrap();
        process.wait().unwrap();
        broker.end();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the connection must be closed");
        drop(service);
    });
}
