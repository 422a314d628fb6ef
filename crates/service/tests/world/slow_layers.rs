//! A layer of an engine's connection that a test delays is the one that an observer finds.

use crate::beside::EACH;
use crate::common::World;
use crate::common::kernels::wait_for;
use crate::observe::{Observer, call, messages, only};
use baton_client::{Observed, Service, Stream};
use baton_latency::{Direction, Layer, Table};
use baton_testkit::{need_program, need_root};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

/// How long a test delays a layer.
const DELAY: Duration = Duration::from_millis(60);
/// A message that was read has been counted by then.
const SETTLES: Duration = Duration::from_millis(20);
/// The least that must be seen of it, in nanoseconds.
const SEEN: u64 = 50_000_000;

/// Returns the times since then, once a message more has come to its end on a way.
#[track_caller]
fn next(observed: &Observed, before: &Table, way: Direction) -> Table {
    wait_for("the message", || messages(&only(observed))[way as usize] > messages(before)[way as usize]);
    only(observed).since(before)
}

/// One layer has the delay, and most of its way's time.
#[track_caller]
fn is_found(table: &Table, slow: Layer) {
    let way = slow.direction();
    let parts = Layer::ALL.into_iter().filter(|layer| layer.direction() == way && layer.is_part());
    let slowest = parts.max_by_key(|layer| table.layer(*layer).sum).unwrap();
    let rows = table.rows(way);
    assert!(slowest == slow && table.layer(slow).sum >= SEEN, "{} is slowest: {rows:?}", slowest.name());
}

/// The message that was delayed is the slowest of its way, with most of its time in that layer.
#[track_caller]
fn is_kept(observed: &Observed, slow: Layer) {
    let kept = observed.memory.connections().remove(0).slowest;
    let slowest = kept.iter().find(|message| message.direction == slow.direction()).unwrap();
    let ns = slowest.layers().find(|(layer, _)| *layer == slow).map_or(0, |(_, ns)| ns);
    assert!(ns >= SEEN && ns > slowest.whole / 2, "{} of {kept:?}", slow.name());
    assert!(kept.iter().filter(|message| message.direction == slow.direction()).count() > 1, "{kept:?}");
}

/// A message there and one back, each seen by itself.
fn round(stream: &mut Stream, peer: &mut TcpStream, observed: &Observed) -> Table {
    let before = observed.memory.connections().first().map_or_else(Table::default, |it| it.table.clone());
    stream.write_all(b"ping").unwrap();
    peer.read_exact(&mut [0; 4]).unwrap();
    peer.write_all(b"pong").unwrap();
    read(stream);
    for way in Direction::ALL {
        next(observed, &before, way);
    }
    // A message that was on its way before may have been the one that was counted.
    wait_for("the last of them", || {
        let seen = messages(&only(observed));
        sleep(SETTLES);
        messages(&only(observed)) == seen
    });
    only(observed)
}

fn read(stream: &mut Stream) {
    wait_for("four bytes", || stream.read(&mut [0; 4]).is_ok_and(|count| count == 4));
}

fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}

fn stop(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::STOP).unwrap();
    wait_for("the engine stops", || is_stopped(pid));
}

fn go_on(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::CONT).unwrap();
}

#[test]
fn a_layer_that_is_slow_is_found() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.service();
        let (mut stream, mut peer) = call(world, &service);
        let mut observer = Observer::all(world, 1);
        let observed = observer.memory(1);

        // An engine that does not run leaves the message in the queue to it.
        let before = round(&mut stream, &mut peer, observed);
        stop(world.engine);
        stream.write_all(b"ping").unwrap();
        sleep(DELAY);
        go_on(world.engine);
        peer.read_exact(&mut [0; 4]).unwrap();
        is_found(&next(observed, &before, Direction::Transmit), Layer::SendQueue);
        is_kept(observed, Layer::SendQueue);

        // A program that does not run is told, and late to wake.
        let before = round(&mut stream, &mut peer, observed);
        peer.write_all(b"pong").unwrap();
        let told = |table: &Table| table.layer(Layer::Stack).count;
        wait_for("word of the message", || told(&only(observed)) > told(&before));
        sleep(DELAY);
        read(&mut stream);
        is_found(&next(observed, &before, Direction::Receive), Layer::WakeUp);
        is_kept(observed, Layer::WakeUp);
    });
}

/// A connection whose peer does not wait for the engine's acknowledgment before it sends.
fn hasty(world: &World<'_>, service: &Service) -> (Stream, TcpStream) {
    let (stream, peer) = call(world, service);
    peer.set_nodelay(true).unwrap();
    (stream, peer)
}

/// Messages wait in the device of an engine that does not run: in the TAP device, or in the ring of AF_XDP.
#[test]
fn frames_that_wait_for_the_engine_have_waited_in_its_device() {
    need_root!();
    need_program!("clang");
    for kind in EACH {
        World::enter_with(
            |config| config.interfaces[0].kind = kind,
            |world| {
                let service = world.service();
                let (mut stream, mut peer) = hasty(world, &service);
                let mut observer = Observer::all(world, 1);
                let observed = observer.memory(1);
                let before = round(&mut stream, &mut peer, observed);
                stop(world.engine);
                peer.write_all(b"pong").unwrap();
                sleep(DELAY);
                go_on(world.engine);
                read(&mut stream);
                let table = next(observed, &before, Direction::Receive);
                is_found(&table, Layer::ReceiveDevice);
                // The whole begins when the frame arrived.
                let [waited, whole] = [Layer::ReceiveDevice, Layer::Receive].map(|layer| table.layer(layer));
                assert_eq!((waited.count, whole.count), (1, 1), "{kind:?}");
                assert!(whole.sum > waited.sum, "{kind:?}: {} of {} ns", waited.sum, whole.sum);

                // The next observer's times are as good.
                drop(observer);
                let mut observer = Observer::all(world, 1);
                let observed = observer.memory(1);
                let table = round(&mut stream, &mut peer, observed);
                assert_eq!(table.layer(Layer::ReceiveDevice).count, table.layer(Layer::Stack).count, "{kind:?}");
            },
        );
    }
}

/// While the program makes no calls, its own engine may take the frame or not: the time before that is the device's,
/// and the time after is the wake-up.
#[test]
fn a_programs_own_engine_knows_when_frames_arrived() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let service = world.direct();
        let (mut stream, mut peer) = hasty(world, &service);
        let mut observer = Observer::all(world, 1);
        let observed = observer.memory(1);
        let before = round(&mut stream, &mut peer, observed);
        peer.write_all(b"pong").unwrap();
        sleep(DELAY);
        read(&mut stream);
        let table = next(observed, &before, Direction::Receive);
        let [waited, woken] = [Layer::ReceiveDevice, Layer::WakeUp].map(|layer| table.layer(layer));
        assert_eq!((waited.count, woken.count), (1, 1));
        assert!(waited.sum + woken.sum >= SEEN, "{} and {} ns", waited.sum, woken.sum);
    });
}
