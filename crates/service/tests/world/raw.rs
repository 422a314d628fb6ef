//! Connections that programs use through raw queue pairs.

use crate::common::kernels::{LONG, Ramp, wait_for};
use crate::common::{Role, World};
use baton_client::raw::{Landing, Place, RawEvent, RawService};
use baton_consumer::qp::QpEvent;
use baton_engine::region::Extent;
use baton_ipc::message::RawSizes;
use baton_testkit::{need_program, need_root};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

/// The registered memory: where queues arrive, then buffers to receive into, then buffers to send
/// from.
const SIZES: RawSizes = RawSizes { connections: 2, queue_depth: 8, data_bytes: 16 << 20 };
const LANDING: u32 = 7 << 20;
const BUFFERS: u64 = 14 << 20;
const BUFFER: u32 = 5000;

/// The first id of buffers that are sent. Smaller ids are buffers that receive.
const SENDS: u64 = 100;
const LANDED: u64 = 50;

enum At {
    Kernel(TcpStream),
    Moving,
    Engine(Place),
    Gone,
}

/// A connection that carries a ramp in both directions.
struct End {
    service: RawService,
    id: u64,
    at: At,
    peer: TcpStream,
    out: Ramp,
    back: Ramp,
    /// Bytes that must be written before any others.
    unsent: Vec<u8>,
    /// The ids of buffers that the engine has.
    posted: Vec<u64>,
    /// The number of unread bytes that it brought along the last time.
    brought: u32,
    stayed: Option<String>,
    /// The memory of an engine that has died.
    dead: Option<u32>,
    /// The peer has sent everything.
    peer_finished: bool,
}

impl End {
    fn new(world: &World<'_>, ipv6: bool) -> End {
        let (ours, peer) = world.wire.connect(ipv6);
        let service = RawService::connect(world.socket, SIZES).unwrap();
        End {
            service,
            id: 0,
            at: At::Kernel(ours),
            peer,
            out: Ramp::default(),
            back: Ramp::default(),
            unsent: Vec::new(),
            posted: Vec::new(),
            brought: 0,
            stayed: None,
            dead: None,
            peer_finished: false,
        }
    }

    fn buffer(&mut self, memory: u32, id: u64) -> Extent {
        let offset = BUFFERS + (id % SENDS + 8 * (id / SENDS)) * u64::from(BUFFER);
        self.service.memory(memory).unwrap().extent(offset, BUFFER).unwrap()
    }

    /// Hands the connection over, until the engine has it. A new engine may need some time to
    /// start.
    #[track_caller]
    fn adopt(&mut self) {
        let begun = Instant::now();
        self.flush();
        while !matches!(self.at, At::Engine(_)) {
            if let At::Kernel(stream) = std::mem::replace(&mut self.at, At::Moving) {
                self.service.adopt(stream.into()).unwrap();
            }
            self.hear();
            assert!(begun.elapsed() < LONG, "the connection is not taken: {:?}", self.stayed);
        }
    }

    /// Writes what must be written first.
    fn flush(&mut self) {
        wait_for("room in the socket", || {
            let done = self.unsent.is_empty();
            if !done {
                self.turn();
            }
            done
        });
    }

    /// Handles all events, and waits for one if there is little else to do.
    #[track_caller]
    fn hear(&mut self) {
        self.service.wait(Some(Duration::from_millis(1))).unwrap();
        while let Some(event) = self.service.poll().unwrap() {
            self.on_event(event);
        }
    }

    #[track_caller]
    fn on_event(&mut self, event: RawEvent) {
        match event {
            RawEvent::Memory { .. } => {}
            RawEvent::Dead { memory } => self.dead = Some(memory),
            RawEvent::Coming { id, memory, unread, .. } => {
                (self.id, self.brought) = (id, unread);
                let pairs = self.service.memory(memory).unwrap();
                let extent = |at| pairs.extent(at, LANDING).unwrap();
                let (unread, unsent) = (extent(0), extent(LANDING.into()));
                let landing = Landing { unread: (unread, LANDED), unsent: (unsent, LANDED + SENDS) };
                self.service.take_in(id, landing).unwrap();
            }
            RawEvent::NotAdopted { refused, .. } => {
                self.stayed = Some(refused.to_string());
                self.at = At::Kernel(refused.fd.expect("the socket is whole").into());
            }
            RawEvent::Adopted { id, place } => {
                assert_eq!(id, self.id);
                self.at = At::Engine(place);
            }
            RawEvent::Happened { memory, event: QpEvent::Received { id, buffer, .. } } => {
                let mut bytes = vec![0; buffer.len() as usize];
                self.service.memory(memory).unwrap().read(buffer, &mut bytes);
                self.take(&bytes);
                self.posted.retain(|posted| *posted != id);
            }
            RawEvent::Happened { event: QpEvent::Sent { id, .. }, .. } => self.posted.retain(|posted| *posted != id),
            RawEvent::Happened { event, .. } => {
                self.peer_finished |= matches!(event, QpEvent::PeerFinished { .. });
            }
            RawEvent::Home { fd, unread, unsent, .. } => {
                assert!(self.posted.is_empty(), "all buffers are free: {:?}", self.posted);
                self.take(&unread);
                self.dead.take().into_iter().for_each(|memory| self.service.forget(memory));
                self.unsent = unsent;
                let stream = TcpStream::from(fd);
                stream.set_nonblocking(true).unwrap();
                self.at = At::Kernel(stream);
            }
            RawEvent::Stays { text, .. } => self.stayed = Some(text),
            RawEvent::Gone { text, .. } => {
                assert_eq!(text, "");
                self.at = At::Gone;
            }
        }
    }

    /// Checks that received bytes are the next ones of the ramp.
    #[track_caller]
    fn take(&mut self, bytes: &[u8]) {
        let right = Ramp::bytes(self.back.read, bytes.len());
        assert!(bytes == right, "{} bytes at {} differ", bytes.len(), self.back.read);
        self.back.read += bytes.len() as u64;
        assert!(self.back.read <= self.back.written, "more was read than written");
    }

    /// Writes and reads as much as fits, in both directions.
    #[track_caller]
    fn turn(&mut self) {
        self.back.write(&self.peer, 30_000);
        let _ = self.out.read(&self.peer);
        match &mut self.at {
            At::Kernel(stream) => {
                let fresh = self.unsent.is_empty();
                let bytes = if fresh { Ramp::bytes(self.out.written, 30_000) } else { self.unsent.clone() };
                let count = now(stream.write(&bytes));
                if fresh {
                    self.out.written += count as u64;
                } else {
                    self.unsent.drain(..count);
                }
                let mut bytes = vec![0; 1 << 16];
                let count = now(stream.read(&mut bytes));
                self.take(&bytes[..count]);
            }
            At::Engine(place) => {
                let place = *place;
                self.post(place);
                self.hear();
            }
            At::Moving | At::Gone => self.hear(),
        }
    }

    /// Posts each free buffer. The memory of the tests has room for two arrivals.
    fn post(&mut self, Place { memory, qp }: Place) {
        for id in (0..6).chain(SENDS..SENDS + 6) {
            if self.posted.contains(&id) {
                continue;
            }
            let buffer = self.buffer(memory, id);
            let bytes = Ramp::bytes(self.out.written, BUFFER as usize);
            let pairs = self.service.memory(memory).unwrap();
            if id < SENDS {
                pairs.post_receive(qp, buffer, id).unwrap();
            } else {
                pairs.write(buffer, &bytes);
                pairs.post_send(qp, buffer, id).unwrap();
                self.out.written += u64::from(BUFFER);
            }
            self.posted.push(id);
        }
    }

    /// Runs rounds until `bytes` more have arrived in both directions.
    #[track_caller]
    fn go_on(&mut self, bytes: u64) {
        let goals = [self.out.read + bytes, self.back.read + bytes];
        let begun = Instant::now();
        while self.out.read < goals[0] || self.back.read < goals[1] {
            self.turn();
            assert!(begun.elapsed() < LONG, "no progress: {:?} {:?}", self.out, self.back);
        }
    }

    #[track_caller]
    fn until_home(&mut self) {
        let begun = Instant::now();
        while !matches!(self.at, At::Kernel(_)) {
            self.turn();
            assert!(begun.elapsed() < LONG, "the connection does not come home: {:?}", self.stayed);
        }
    }

    /// Everything written arrives, and both sides see the end.
    #[track_caller]
    fn finish(mut self) {
        assert!(matches!(self.at, At::Kernel(_)));
        self.flush();
        let At::Kernel(mut stream) = self.at else { unreachable!("the connection is in the kernel") };
        stream.shutdown(Shutdown::Write).unwrap();
        self.peer.shutdown(Shutdown::Write).unwrap();
        let mut ended = [false; 2];
        wait_for("the end", || {
            ended[0] |= self.out.read(&self.peer).is_none();
            let mut bytes = vec![0; 1 << 16];
            match stream.read(&mut bytes) {
                Ok(0) => ended[1] = true,
                read => {
                    let count = now(read);
                    assert!(bytes[..count] == Ramp::bytes(self.back.read, count));
                    self.back.read += count as u64;
                }
            }
            ended == [true; 2]
        });
        assert_eq!((self.out.read, self.back.read), (self.out.written, self.back.written));
    }
}

/// The number of bytes that moved; 0 if the call would have waited.
#[track_caller]
fn now(done: std::io::Result<usize>) -> usize {
    match done {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_connection_goes_to_queue_pairs_and_back() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let resets = world.wire.resets();
        for ipv6 in [false, true] {
            let mut end = End::new(world, ipv6);
            end.go_on(100_000);
            for round in 0..5 {
                end.adopt();
                end.go_on(if round % 2 == 0 { 400_000 } else { 0 });
                end.service.send_home(end.id).unwrap();
                end.until_home();
                end.go_on(100_000);
            }
            end.finish();
        }
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn what_was_not_read_is_received_where_it_was_to_land() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let mut end = End::new(world, false);
        end.back.write(&end.peer, 10_000);
        let At::Kernel(ours) = &end.at else { panic!("the connection is in the kernel") };
        wait_for("the bytes", || ours.peek(&mut [0; 10_000]).is_ok_and(|count| count == 10_000));
        end.adopt();
        assert_eq!(end.brought, 10_000);
        // This needs nothing from the peer.
        wait_for("what was brought", || {
            end.hear();
            end.back.read == 10_000
        });
        end.go_on(100_000);
        end.service.send_home(end.id).unwrap();
        end.until_home();
        end.finish();
    });
}

#[test]
fn when_the_engine_is_killed_the_socket_comes_back_with_what_was_not_taken() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let resets = world.wire.resets();
        let mut end = End::new(world, false);
        end.adopt();
        end.go_on(300_000);
        kill(world.engine);
        end.until_home();
        end.go_on(100_000);
        // A new engine has new memory.
        end.adopt();
        end.go_on(300_000);
        end.service.send_home(end.id).unwrap();
        end.until_home();
        end.finish();
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn when_the_broker_is_killed_the_socket_comes_back_too() {
    need_root!();
    need_program!("clang");
    World::enter_guarded(|world| {
        let resets = world.wire.resets();
        let mut end = End::new(world, true);
        for _ in 0..3 {
            end.adopt();
            end.go_on(100_000);
            kill(world.process(Role::Broker));
            end.until_home();
            end.go_on(100_000);
        }
        end.finish();
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn what_is_let_go_of_ends_behind_what_was_posted() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        let mut end = End::new(world, false);
        end.adopt();
        end.go_on(100_000);
        end.peer.shutdown(Shutdown::Write).unwrap();
        wait_for("all that the peer sent", || {
            let At::Engine(place) = end.at else { panic!("the engine has it") };
            end.out.read(&end.peer);
            if !end.peer_finished {
                end.post(place);
            }
            end.hear();
            end.peer_finished
        });
        assert_eq!(end.back.read, end.back.written);
        end.service.close(end.id).unwrap();
        wait_for("the end", || {
            end.hear();
            end.out.read(&end.peer).is_none()
        });
        assert_eq!(end.out.read, end.out.written);
        wait_for("the broker's word", || {
            end.hear();
            matches!(end.at, At::Gone)
        });
    });
}

#[test]
fn a_program_gets_no_more_memory_than_others_have() {
    need_root!();
    need_program!("clang");
    World::enter(|world| {
        for sizes in [
            RawSizes { data_bytes: 1 << 40, ..SIZES },
            RawSizes { connections: 1 << 20, ..SIZES },
            RawSizes { connections: 0, ..SIZES },
            RawSizes { queue_depth: 3, ..SIZES },
        ] {
            let refused = RawService::connect(world.socket, sizes).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{sizes:?}");
        }
    });
}
