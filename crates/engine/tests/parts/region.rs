//! A region between an engine and a consumer that keep to the protocol.

use baton_engine::region::{
    BadInput, Completion, ConsumerRegion, EngineRegion, Events, Extent, Identity, Layout, LayoutError, PostError,
    Queue, Region, Request, RequestError,
};
use baton_wire::addr::Addr;
use baton_wire::checksum;
use proptest::prelude::*;
use std::collections::VecDeque;

const LAYOUT: Layout = Layout { qps: 5, queue_depth: 4, requests: 4, data_bytes: 10_000 };

fn pair(layout: Layout) -> (EngineRegion, ConsumerRegion) {
    let region = Region::heap(layout).unwrap();
    (EngineRegion::new(region.clone()), ConsumerRegion::new(region))
}

fn request() -> impl Strategy<Value = Request> {
    let (qp, token) = (0..LAYOUT.qps, any::<u64>());
    let addr = any::<u128>().prop_map(Addr);
    prop_oneof![
        (token, addr.clone(), any::<u16>(), addr.clone(), any::<u16>(), any::<u64>()).prop_map(
            |(token, local, local_port, remote, remote_port, options)| Request::Connect {
                token,
                local,
                local_port,
                remote,
                remote_port,
                options
            }
        ),
        (token, addr, any::<u16>(), any::<u32>(), any::<u64>()).prop_map(
            |(token, local, local_port, backlog, options)| Request::Listen {
                token,
                local,
                local_port,
                backlog,
                options
            }
        ),
        qp.clone().prop_map(|qp| Request::Unlisten { qp }),
        qp.clone().prop_map(|qp| Request::Shutdown { qp }),
        qp.clone().prop_map(|qp| Request::Close { qp }),
        qp.clone().prop_map(|qp| Request::Abort { qp }),
        (token, qp.clone(), any::<u32>(), any::<u64>()).prop_map(|(token, qp, option, value)| Request::SetOption {
            token,
            qp,
            option,
            value
        }),
        (token, qp.clone(), any::<u64>(), any::<u32>()).prop_map(|(token, qp, offset, len)| Request::Info {
            token,
            qp,
            offset,
            len
        }),
        (token, qp).prop_map(|(token, qp)| Request::Unpost { token, qp }),
    ]
}

proptest! {
    #[test]
    fn requests_arrive_as_they_were_made(requests in prop::collection::vec(request(), 1..20)) {
        let (engine, consumer) = pair(LAYOUT);
        for request in requests {
            consumer.request(&request).unwrap();
            prop_assert_eq!(engine.pop_request(), Some(request));
            prop_assert_eq!(engine.pop_request(), None);
            if request.answered() {
                let answer = Completion::Done { token: 9, value: 1 };
                prop_assert!(answer.answers() && engine.complete(answer));
                prop_assert_eq!(consumer.poll_completion(), Some(answer));
            }
        }
        prop_assert_eq!(engine.bad_input(), BadInput::default());
    }
}

#[test]
fn completions_arrive_as_they_were_made() {
    let (engine, consumer) = pair(LAYOUT);
    let completions = [
        Completion::Opened { qp: 3, token: u64::MAX },
        Completion::Accepted { qp: 4, listener: 2 },
        Completion::Failed { token: 7, errno: 111 },
        Completion::Done { token: 8, value: 104 },
    ];
    for completion in completions {
        assert!(!consumer.has_completion());
        assert!(engine.complete(completion));
        assert!(consumer.has_completion());
        assert_eq!(consumer.poll_completion(), Some(completion));
    }
    assert_eq!(consumer.poll_completion(), None);
}

#[test]
fn a_doorbell_rings_once_until_it_is_taken() {
    let (engine, consumer) = pair(LAYOUT);
    for qp in [2, 4, 2, 2, 4] {
        consumer.ring_doorbell(qp);
    }
    assert!(engine.has_work());
    assert_eq!(engine.pop_doorbell(), Some(2));
    consumer.ring_doorbell(2);
    let mut out = [u32::MAX; 8];
    assert_eq!(engine.pop_doorbells(&mut out), 2);
    assert_eq!(out[..2], [4, 2]);
    assert_eq!(engine.pop_doorbell(), None);
    assert!(!engine.has_work());
}

#[test]
fn nobody_is_woken_for_nothing() {
    let (engine, consumer) = pair(LAYOUT);
    assert!(engine.prepare_sleep() && consumer.prepare_sleep());
    assert!(!consumer.must_wake_engine() && !engine.must_wake_consumer(), "nothing is there");
    consumer.ring_doorbell(2);
    assert!(consumer.must_wake_engine());
    assert!(!consumer.must_wake_engine(), "once");
    assert!(engine.complete(Completion::Adopted { qp: 2, token: 7 }));
    assert!(engine.must_wake_consumer() && !engine.must_wake_consumer());
    // Entries put in while the other side is awake are found before it sleeps.
    engine.awake();
    consumer.request(&Request::Shutdown { qp: 2 }).unwrap();
    assert!(!consumer.must_wake_engine() && !engine.prepare_sleep());
    assert!(engine.pop_request().is_some() && engine.pop_doorbell() == Some(2) && engine.prepare_sleep());
    assert!(!consumer.must_wake_engine(), "it has been taken");
}

#[test]
fn events_gather_under_one_completion() {
    let (engine, consumer) = pair(LAYOUT);
    let qp = engine.qp(1);
    qp.raise(Events::RECV);
    qp.raise(Events::SEND);
    assert_eq!(consumer.qp(1).take_events(), Events::RECV | Events::SEND);
    qp.raise(Events::PEER_FIN);
    let ready = Completion::Ready { qp: 1, events: Events::PEER_FIN };
    assert_eq!(consumer.poll_completion(), Some(ready));
    assert_eq!(consumer.poll_completion(), None, "the events taken by hand had no completion of their own");
    qp.raise(Events::RECV);
    assert_eq!(consumer.poll_completion(), Some(Completion::Ready { qp: 1, events: Events::RECV }));
}

#[test]
fn a_queue_pair_starts_afresh_but_for_what_is_under_way() {
    let (engine, consumer) = pair(LAYOUT);
    let (ours, theirs) = (engine.qp(0), consumer.qp(0));
    theirs.post(Queue::Send, 0, 0, consumer.extent(0, 10).unwrap()).unwrap();
    theirs.post(Queue::Receive, 0, 0, consumer.extent(10, 10).unwrap()).unwrap();
    theirs.set_snd_tail(10);
    theirs.set_rcv_limit(10);
    consumer.ring_doorbell(0);
    ours.set_rcv_done(1);
    ours.set_snd_done(2);
    ours.set_snd_sent(3);
    ours.set_urgent(4);
    ours.set_state(5);
    ours.set_error(6);
    assert_eq!((theirs.rcv_done(), theirs.snd_done(), theirs.snd_sent(), theirs.urgent()), (1, 2, 3, 4));
    assert_eq!((theirs.state(), theirs.error()), (5, 6));
    assert_eq!((ours.snd_tail(), ours.rcv_limit(), ours.sq_tail(), ours.rq_tail()), (10, 10, 1, 1));
    ours.raise(Events::CLOSED | Events::RELEASED);
    ours.reset();
    assert_eq!((theirs.rcv_done(), theirs.snd_done(), theirs.snd_sent(), theirs.urgent()), (0, 0, 0, 0));
    assert_eq!((theirs.state(), theirs.error()), (0, 0));
    assert_eq!((ours.snd_tail(), ours.rcv_limit(), ours.sq_tail(), ours.rq_tail()), (0, 0, 0, 0));
    ours.raise(Events::ESTABLISHED);
    let events = Events::RELEASED | Events::ESTABLISHED;
    assert_eq!(consumer.poll_completion(), Some(Completion::Ready { qp: 0, events }));
    assert_eq!(engine.pop_doorbell(), Some(0));
}

#[test]
fn identity_is_read_as_written() {
    let (engine, consumer) = pair(LAYOUT);
    let identity = Identity {
        local: Addr::v4([10, 1, 2, 3]),
        remote: Addr(0x2001_0db8_0000_0000_0000_0000_0000_0001),
        local_port: 0xfffe,
        remote_port: 1,
        token: 0x0123_4567_89ab_cdef,
        listener: u32::MAX,
    };
    engine.qp(3).write_identity(&identity);
    assert_eq!(consumer.qp(3).identity(), identity);
}

#[test]
fn bytes_go_through_and_are_summed() {
    let (mut engine, consumer) = pair(LAYOUT);
    go_through_and_are_summed(&engine, &consumer);
    engine.set_one_pass(false);
    go_through_and_are_summed(&engine, &consumer);
}

fn go_through_and_are_summed(engine: &EngineRegion, consumer: &ConsumerRegion) {
    let bytes: Vec<u8> = (0..1448u32).map(|at| (at * 7 % 251) as u8).collect();
    let extent = consumer.extent(123, 1448).unwrap();
    consumer.write(extent, &bytes);
    let mut out = vec![0; 1448];
    assert_eq!(engine.copy_out_sum(extent, &mut out), checksum::sum(&bytes));
    assert_eq!(out, bytes);
    assert_eq!(engine.sum(extent), checksum::sum(&bytes));
    assert_eq!(engine.part(extent).len, 1448);
    let place = engine.extent(5000, 1448).unwrap();
    assert_eq!(engine.copy_in_sum(place, &bytes), checksum::sum(&bytes));
    engine.copy_in(place.part(10, 4), b"wxyz");
    out.fill(0);
    consumer.read(place, &mut out);
    assert_eq!(&out[..10], &bytes[..10]);
    assert_eq!(&out[10..14], b"wxyz");
    assert_eq!(&out[14..], &bytes[14..]);
    engine.copy_out(place.part(10, 4), &mut out[..4]);
    assert_eq!(&out[..4], b"wxyz");
    consumer.read(consumer.extent(5000 + 1448, 8).unwrap(), &mut out[..8]);
    assert_eq!(&out[..8], &[0; 8], "nothing beyond was touched");
}

#[test]
fn extents_end_where_the_data_area_does() {
    let (engine, _) = pair(LAYOUT);
    assert!(engine.extent(9_999, 1).is_some() && engine.extent(10_000, 0).is_some());
    for (offset, len) in [(9_999, 2), (10_001, 0), (u64::MAX, 1), (u64::MAX, u32::MAX), (0, u32::MAX)] {
        assert_eq!(engine.extent(offset, len), None);
    }
    assert_eq!(engine.bad_input().extents, 5);
    let whole = engine.extent(100, 50).unwrap();
    assert_eq!((whole.part(10, 20).offset(), whole.part(10, 20).len()), (110, 20));
    assert_eq!(whole.part(40, 20).len(), 10);
    assert!(whole.part(50, 1).is_empty() && whole.part(u32::MAX, u32::MAX).is_empty());
}

#[test]
fn extents_are_read_as_posted_and_slots_come_round() {
    let (engine, consumer) = pair(LAYOUT);
    let (ours, theirs) = (engine.qp(2), consumer.qp(2));
    for index in 0..6u32 {
        let extent = consumer.extent(u64::from(index) * 100, index + 1).unwrap();
        theirs.post(Queue::Receive, index, index.min(3), extent).unwrap();
        assert_eq!((ours.rq_tail(), ours.rq_extent(index)), (index + 1, Some(extent)));
        assert_eq!((ours.sq_tail(), ours.sq_extent(index)), (0, None), "the other queue: none posted, or an empty one");
    }
    assert_eq!(ours.rq_extent(1), ours.rq_extent(5), "four slots");
    assert_eq!(theirs.post(Queue::Receive, 6, 4, Extent::default()), Err(PostError::Full));
    assert_eq!(ours.rq_tail(), 6);
}

/// An engine that writes as many completions as it may, and a consumer that reads only when it
/// has to: the ring holds them all.
#[derive(Clone, Debug)]
enum Step {
    Connect,
    Accept,
    Close(prop::sample::Index),
    Raise(u32),
    TakeEvents(u32),
    Poll,
    Serve,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Connect),
        4 => Just(Step::Accept),
        2 => any::<prop::sample::Index>().prop_map(Step::Close),
        4 => (0..LAYOUT.qps).prop_map(Step::Raise),
        2 => (0..LAYOUT.qps).prop_map(Step::TakeEvents),
        1 => Just(Step::Poll),
        4 => Just(Step::Serve),
    ]
}

proptest! {
    #[test]
    fn the_completion_ring_never_overflows(steps in prop::collection::vec(step(), 0..2000)) {
        let (engine, consumer) = pair(LAYOUT);
        let mut free: VecDeque<u32> = (0..LAYOUT.qps).collect();
        let mut known: Vec<u32> = Vec::new();
        for step in steps {
            match step {
                Step::Connect => {
                    let remote = Addr::v4([1, 2, 3, 4]);
                    let (local, local_port, remote_port) = (Addr::UNSPECIFIED, 0, 1);
                    let request = Request::Connect { token: 1, local, local_port, remote, remote_port, options: 0 };
                    prop_assert!(matches!(consumer.request(&request), Ok(()) | Err(RequestError::Full)));
                }
                Step::Accept => {
                    if let Some(qp) = free.pop_front() {
                        engine.qp(qp).reset();
                        let told = engine.complete(Completion::Accepted { qp, listener: 0 });
                        prop_assert!(told);
                    }
                }
                Step::Close(which) if !known.is_empty() => {
                    let qp = which.index(known.len());
                    if consumer.request(&Request::Close { qp: known[qp] }).is_ok() {
                        known.swap_remove(qp);
                    }
                }
                Step::Close(_) => {}
                Step::Raise(qp) => engine.qp(qp).raise(Events::RECV),
                Step::TakeEvents(qp) => {
                    consumer.qp(qp).take_events();
                }
                Step::Poll => {
                    if let Some(Completion::Opened { qp, .. } | Completion::Accepted { qp, .. }) = consumer.poll_completion() {
                        known.push(qp);
                    }
                }
                Step::Serve => match engine.pop_request() {
                    Some(Request::Connect { token, .. }) => {
                        let answer = match free.pop_front() {
                            Some(qp) => Completion::Opened { qp, token },
                            None => Completion::Failed { token, errno: 12 },
                        };
                        prop_assert!(engine.complete(answer));
                    }
                    Some(Request::Close { qp }) => {
                        engine.qp(qp).raise(Events::RELEASED);
                        free.push_back(qp);
                    }
                    other => prop_assert_eq!(other, None),
                },
            }
        }
        prop_assert_eq!(engine.bad_input(), BadInput::default());
    }
}

#[test]
fn the_request_ring_refuses_what_could_not_be_answered() {
    let (engine, consumer) = pair(LAYOUT);
    let info = Request::Info { token: 1, qp: 0, offset: 0, len: 8 };
    for _ in 0..LAYOUT.requests {
        consumer.request(&info).unwrap();
    }
    assert_eq!(consumer.request(&info), Err(RequestError::Full), "the ring is full");
    while engine.pop_request().is_some() {}
    assert_eq!(consumer.request(&info), Err(RequestError::Full), "no answer was taken yet");
    consumer.request(&Request::Abort { qp: 0 }).expect("needs no answer");
    engine.complete(Completion::Done { token: 1, value: 8 });
    consumer.poll_completion().unwrap();
    consumer.request(&info).unwrap();
}

#[test]
fn layouts_are_checked_and_sized() {
    let depth = |queue_depth| Layout { queue_depth, ..LAYOUT }.bytes();
    assert!([0, 1, 3, 2048].iter().all(|&wrong| depth(wrong) == Err(LayoutError::QueueDepth(wrong))));
    assert_eq!(Layout { qps: 0, ..LAYOUT }.bytes(), Err(LayoutError::Qps(0)));
    assert_eq!(Layout { requests: 5, ..LAYOUT }.bytes(), Err(LayoutError::Requests(5)));
    let too_large = Layout { data_bytes: u64::MAX, ..LAYOUT };
    assert_eq!(too_large.bytes(), Err(LayoutError::DataBytes(u64::MAX)));
    let million = Layout { qps: 1_000_000, queue_depth: 4, requests: 1024, data_bytes: 0 };
    let rings = 4 * (1 << 20) + 16 * million.completions().unwrap() as usize + 64 * 1024;
    let all = million.bytes().unwrap();
    assert!(all >= 256 * 1_000_000 + rings && all < 256 * 1_000_000 + rings + 8192, "256 bytes a queue pair: {all}");
    assert!(all / 1_000_000 < 300, "an idle connection's share: {}", all / 1_000_000);
}
