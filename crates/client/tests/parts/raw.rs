//! A program with its own queue pairs, and a scripted broker.

use crate::played::{Played, play_at};
use baton_client::raw::{Landing, Place, RawEvent, RawService};
use baton_consumer::qp::QpEvent;
use baton_engine::region::{Completion, EngineRegion, Events, Extent, Request as EngineRequest};
use baton_ipc::message::{Incoming, RawSizes, Reply, Request, Sizes};
use baton_testkit::wait_for;
use std::os::unix::net::UnixStream;

const SIZES: RawSizes = RawSizes { connections: 2, queue_depth: 4, data_bytes: 1 << 16 };

/// Polls until an event is of the wanted kind.
fn next<T>(service: &mut RawService, what: &str, is: impl Fn(RawEvent) -> Option<T>) -> T {
    let mut found = None;
    wait_for(what, || {
        found = service.poll().unwrap().and_then(&is);
        found.is_some()
    });
    found.expect("wait_for has returned")
}

/// Moves a connection to the engine. Returns the engine's end of the memory and the connection's
/// place.
fn moved(service: &mut RawService, broker: &Played) -> (EngineRegion, Place) {
    let (ours, _peer) = UnixStream::pair().unwrap();
    let seq = service.adopt(ours.into()).unwrap();
    assert_eq!(broker.hear(), Request::Adopt { seq });
    let (engine, _completions) = broker.make_region(Sizes::of_raw(SIZES), SIZES.layout());
    broker
        .say(Reply::Bring { incoming: Incoming { seq, id: 7, region: 1, send: 0, unread: 0, shut: false, window: 0 } });
    next(service, "the connection", |event| matches!(event, RawEvent::Coming { id: 7, .. }).then_some(()));
    let nothing = (Extent::default(), 0);
    service.take_in(7, Landing { unread: nothing, unsent: nothing }).unwrap();
    assert_eq!(broker.hear(), Request::Brought { id: 7, taken: true });
    assert!(engine.complete(Completion::Adopted { qp: 0, token: 7 }));
    let place = next(service, "the adoption", |event| match event {
        RawEvent::Adopted { id: 7, place } => Some(place),
        _ => None,
    });
    (engine, place)
}

/// Waits for the socket and returns its unsent bytes.
fn home(service: &mut RawService) -> Vec<u8> {
    next(service, "the socket", |event| match event {
        RawEvent::Home { id: 7, unsent, .. } => Some(unsent),
        _ => None,
    })
}

/// The program posts more bytes than the kernel gets and closes, and the engine releases the queue
/// pair before the program hears that the connection is in the kernel.
#[test]
fn bytes_posted_and_closed_during_a_restore_come_with_the_socket() {
    play_at(|path, broker| {
        let mut service = RawService::connect(path, SIZES).unwrap();
        let (engine, place) = moved(&mut service, &broker);
        let pairs = service.memory(place.memory).unwrap();
        let buffer = pairs.extent(100, 7).unwrap();
        pairs.write(buffer, b"abcdefg");
        pairs.post_send(place.qp, buffer, 71).unwrap();
        service.close(7).unwrap();
        assert_eq!(broker.hear(), Request::Close { id: 7 });
        assert_eq!(engine.pop_request(), Some(EngineRequest::Close { qp: 0 }));
        let gone = Events::MOVED | Events::RELEASED;
        engine.qp(0).raise(gone);
        assert!(engine.complete(Completion::Ready { qp: 0, events: gone }));
        assert!(service.poll().unwrap().is_none(), "its buffer must not be free yet");
        // The engine had seen the first three bytes, and the kernel has them.
        broker.say(Reply::Home { id: 7, rcv_pos: 0, tail_pos: 3, whole: false });
        next(&mut service, "its buffer", |event| {
            let sent = QpEvent::Sent { qp: 0, id: 71, acknowledged: false };
            matches!(event, RawEvent::Happened { event, .. } if event == sent).then_some(())
        });
        assert_eq!(home(&mut service), b"defg");
        assert_eq!(engine.pop_request(), None);
    });
}

/// A second close request would hit the queue pair's next connection.
#[test]
fn a_queue_pair_closed_during_a_restore_is_given_back_once() {
    play_at(|path, broker| {
        let mut service = RawService::connect(path, SIZES).unwrap();
        let (engine, _) = moved(&mut service, &broker);
        engine.qp(0).raise(Events::MOVED);
        assert!(engine.complete(Completion::Ready { qp: 0, events: Events::MOVED }));
        assert!(service.poll().unwrap().is_none(), "no event is reported before the close");
        service.close(7).unwrap();
        assert_eq!(broker.hear(), Request::Close { id: 7 });
        broker.say(Reply::Home { id: 7, rcv_pos: 0, tail_pos: 0, whole: false });
        assert_eq!(home(&mut service), b"");
        assert!(service.poll().unwrap().is_none());
        assert_eq!(engine.pop_request(), Some(EngineRequest::Close { qp: 0 }));
        assert_eq!(engine.pop_request(), None);
    });
}
