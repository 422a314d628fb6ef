//! Programs that read along what pairs exchange.

use crate::common::World;
use crate::common::kernels::wait_for;
use crate::pairs::{ends, enter, home, join, talk};
use crate::strangers::{greet, next, say};
use baton_client::{FollowNews, Followed, Place, Service};
use baton_ipc::message::{Reply, Request, Selector};
use baton_pair::Stage;
use baton_service::broker::PairUsers;
use baton_testkit::{need_program, need_root};
use baton_wire::addr::Tuple;
use rustix::thread::set_thread_uid;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;

const NOBODY: u32 = 65_534;

/// The next news, once there are some.
#[track_caller]
fn hear(service: &Service) -> Vec<FollowNews> {
    let mut news = Vec::new();
    wait_for("news of pairs", || {
        news.extend(service.follow_news());
        !news.is_empty()
    });
    news
}

#[track_caller]
fn hear_of_a_pair(service: &Service) -> Followed {
    match hear(service).pop() {
        Some(FollowNews::Begun(followed)) => followed,
        other => panic!("{other:?}"),
    }
}

/// The bytes that an end wrote since the last time, of which nothing was lost.
#[track_caller]
fn read(followed: &mut Followed, at: usize) -> Vec<u8> {
    followed.follower.look().unwrap();
    let mut bytes = vec![0; 1 << 20];
    let passed = followed.follower.read(at, u64::MAX, &mut bytes).unwrap();
    assert_eq!(passed.lost, 0);
    bytes.truncate(passed.count);
    bytes
}

fn tuple(socket: &TcpStream) -> Tuple {
    Tuple::new(socket.local_addr().unwrap(), socket.peer_addr().unwrap())
}

#[test]
fn what_pairs_exchange_is_read_along_until_they_come_home() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let ends = ends(world, address);
            let tuples = ends.each_ref().map(tuple);
            let mut streams = join([&one, &other], ends);
            talk(&mut streams);
            // By either end's tuple: what is written from now on, in both directions.
            for name in tuples {
                let follower = world.service();
                assert_eq!(follower.follow(Selector::Tuple(name)).unwrap(), 1);
                let mut followed = hear_of_a_pair(&follower);
                let at = usize::from(followed.pair.tuple != tuples[0]);
                assert!(!followed.pair.fresh && tuples.contains(&followed.pair.tuple));
                talk(&mut streams);
                assert_eq!(
                    (read(&mut followed, at), read(&mut followed, 1 - at)),
                    (b"therethird".into(), b"again".into())
                );
            }
            // Pairs that come later are told of, with their first byte.
            let follower = world.service();
            let port = tuples[0].remote_port;
            assert_eq!(follower.follow(Selector::Port(port)).unwrap(), 1);
            let first = hear_of_a_pair(&follower);
            streams[0].write_all(b"on the way").unwrap();
            home(&one, &streams);
            let written = match hear(&follower).pop() {
                Some(FollowNews::Ended { number, written, home: Some(code) }) => {
                    assert_eq!((number, code.as_str()), (first.pair.number, "asked-for"));
                    written
                }
                other => panic!("{other:?}"),
            };
            let mut first = first;
            assert_eq!(first.follower.look().unwrap().stage, Stage::Stopped);
            let at = usize::from(first.pair.tuple != tuples[0]);
            assert_eq!(first.follower.passed(at) + 10, written[at]);
            assert_eq!(read(&mut first, at), b"on the way");
            one.handoff(Selector::All).unwrap();
            wait_for("both are joined again", || streams.iter().all(|stream| stream.place() == Place::Pair));
            let mut second = hear_of_a_pair(&follower);
            assert!(second.pair.fresh && second.pair.number != first.pair.number);
            let [mut reader, mut writer] = streams;
            writer.write_all(b"once more").unwrap();
            let at = usize::from(second.pair.tuple != tuples[1]);
            assert_eq!(read(&mut second, at), b"once more");
            // The numbers went on where the first pair's ended, but for what had not been read: that is the second's
            // first.
            assert_eq!(read(&mut second, 1 - at), b"on the way");
            let seq = |followed: &Followed, of: &Tuple| {
                let first = followed.pair.tuple == *of;
                if first { followed.pair.seqs.0 } else { followed.pair.seqs.1 }
            };
            let sent_home = if first.pair.tuple == tuples[0] { written[0] } else { written[1] };
            assert_eq!(seq(&second, &tuples[0]), seq(&first, &tuples[0]).wrapping_add(sent_home as u32 - 10));
            let mut got = [0; 10];
            std::io::Read::read_exact(&mut writer, &mut got).unwrap();
            assert_eq!(&got, b"on the way");
            reader.write_all(b"last").unwrap();
            drop((reader, writer));
            let ended = |news: &FollowNews| matches!(news, FollowNews::Ended { home: None, number, .. } if *number == second.pair.number);
            wait_for("its end", || follower.follow_news().iter().any(ended));
            wait_for("nothing is left", || one.list().unwrap().is_empty());
        }
    });
}

#[test]
fn others_pairs_are_not_shown_and_older_programs_are_not_joined() {
    need_root!();
    need_program!("clang");
    World::enter_with(
        |config| (config.mode, config.users, config.pair) = (0o666, vec![NOBODY], PairUsers::Same),
        |world| {
            let (one, other) = (world.service(), world.service());
            let streams = join([&one, &other], ends(world, "127.0.0.1:0"));
            std::thread::scope(|scope| {
                let stranger = scope.spawn(|| {
                    set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
                    let service = world.service();
                    (service.follow(Selector::All).unwrap(), service.follow_news().len())
                });
                assert_eq!(stranger.join().unwrap(), (0, 0));
            });
            drop(streams);
            wait_for("nothing is left", || one.list().unwrap().is_empty());

            // A program that speaks version 6 would hold bytes that come along.
            let mut old = world.channel();
            say(&mut old, &Request::Hello { oldest: 1, newest: 6 }, Vec::new());
            let [ours, _theirs] = ends(world, "127.0.0.1:0");
            say(&mut old, &Request::Offer { seq: 1, told: Default::default(), held: None }, vec![ours.into()]);
            let code = loop {
                match next(&mut old) {
                    Some((Reply::Stays { seq: 1, code, .. }, _)) => break code,
                    Some(_) => {}
                    None => panic!("it is cut off"),
                }
            };
            assert_eq!(code, "not-steerable");
        },
    );
}

#[test]
fn a_follower_gets_no_more_than_its_share() {
    need_root!();
    need_program!("clang");
    enter(|world| {
        let (one, other) = (world.service(), world.service());
        let mut streams = join([&one, &other], ends(world, "127.0.0.1:0"));
        // It asks again and again, and does not read.
        let mut hostile = greet(world);
        for ask in 0..50_000 {
            let _ = hostile.send(Request::Follow { ask, which: Selector::All }.to_bytes(), Vec::new());
        }
        talk(&mut streams);
        drop(hostile);
        let mut followers = Vec::new();
        let refused = loop {
            let service = world.service();
            match service.follow(Selector::All) {
                Ok(_) => followers.push(service),
                Err(error) if followers.is_empty() => {
                    // The hostile one may not be gone yet.
                    assert!(error.to_string().contains("follow pairs already"), "{error}");
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("8 programs of this user follow"), "{refused}");
        assert!(followers.len() <= 8);
        talk(&mut streams);
    });
}
