//! Two kernels and a wire, a mover next to ours, and a connection between them whose end on our
//! side moves.

#[path = "../../../kernel/tests/common/mod.rs"]
pub mod common;

use baton_kernel::steer::Kind;
use baton_mover::{Connection, Mover, MoverConfig};
use baton_port::faulty::{Faults, Faulty};
use baton_port::{SteeredPort, link};
use baton_tcp::time::Duration;
pub use common::load::Load;
use common::load::REQUEST;
use common::{LONG, Ramp, Wire};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size, set_tcp_nodelay};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The loads of this matrix.
pub const LOADS: [Load; 11] = [
    Load::Idle,
    Load::In,
    Load::Out,
    Load::Both,
    Load::RequestResponse,
    Load::OurFin,
    Load::PeersFin,
    Load::Loss,
    Load::ZeroWindow,
    Load::Unread,
    Load::Unsent,
];

pub struct World<'w> {
    pub mover: Mover<Faulty<SteeredPort>>,
    pub wire: &'w Wire,
    resets: u64,
}

impl World<'_> {
    /// Runs `f` in our namespace, with everything set up.
    pub fn enter(kind: Kind, f: impl FnOnce(&mut World<'_>) + Send) {
        let mut config = MoverConfig::default();
        // Both kernels' buffers grow larger than a program usually needs.
        config.consumer.large_buffer = 16 << 20;
        config.tcp.time_wait = Duration::from_millis(10);
        World::enter_with(kind, config, None, f);
    }

    pub fn enter_with(kind: Kind, config: MoverConfig, faults: Option<Faults>, f: impl FnOnce(&mut World<'_>) + Send) {
        World::enter_on(&Wire::new(&[]), kind, config, faults, f);
    }

    /// The same, with a wire of the caller's.
    pub fn enter_on(
        wire: &Wire,
        kind: Kind,
        config: MoverConfig,
        faults: Option<Faults>,
        f: impl FnOnce(&mut World<'_>) + Send,
    ) {
        if kind == Kind::Xdp {
            // AF_XDP cannot tell a checksum that a veth left out from damage.
            wire.peer.enter(|| link::set_tx_checksum_offload("wire", false).unwrap());
        }
        wire.ours.enter(|| {
            let mut mover = Mover::new(config).unwrap();
            mover.add_interface("wire", kind, |port| Faulty::new(port, faults)).unwrap();
            let mut world = World { mover, wire, resets: 0 };
            world.resets = world.wire.resets();
            f(&mut world);
        });
    }

    /// Adds another interface of the same name.
    pub fn add_interface(&mut self, kind: Kind) {
        self.mover.add_interface("wire", kind, |port| Faulty::new(port, None)).unwrap();
    }

    /// The number of resets sent by anybody since the start, except those at the end of TIME-WAIT.
    pub fn resets(&self) -> u64 {
        self.wire.resets() - self.resets
    }

    pub fn line(&mut self, load: Load, ipv6: bool) -> Line {
        let [_, there] = Wire::addresses(ipv6);
        let listener = self.wire.peer.enter(|| TcpListener::bind((there, 0)).unwrap());
        if matches!(load, Load::ZeroWindow | Load::Unsent) {
            set_socket_recv_buffer_size(&listener, 4096).unwrap();
        }
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        set_tcp_nodelay(&ours, true).unwrap();
        set_tcp_nodelay(&peer, true).unwrap();
        if load == Load::Loss {
            // While the kernel waits for a timeout, written data accumulates. Without a limit the
            // kernel's buffer would outgrow the engine's, and the connection would have to stay.
            set_socket_send_buffer_size(&ours, 1 << 20).unwrap();
        }
        let faults = Faults { loss: 0.01, seed: 7, ..Faults::default() };
        let port = self.mover.port(0).expect("one interface");
        port.set_faults((load == Load::Loss).then_some(faults));
        Line {
            load,
            at: At::Kernel(ours),
            peer,
            out: Ramp::default(),
            back: Ramp::default(),
            ours_shut: false,
            peer_shut: false,
        }
    }
}

/// Where our end is.
pub enum At {
    Kernel(TcpStream),
    Engine(Connection),
    Moving,
}

/// A connection with its load.
pub struct Line {
    load: Load,
    pub at: At,
    pub peer: TcpStream,
    pub out: Ramp,
    pub back: Ramp,
    ours_shut: bool,
    peer_shut: bool,
}

impl Line {
    #[track_caller]
    pub fn handoff(&mut self, world: &mut World<'_>) {
        let At::Kernel(stream) = std::mem::replace(&mut self.at, At::Moving) else { panic!("it is away") };
        let name = world.mover.handoff(stream.into());
        self.at = At::Engine(name.unwrap_or_else(|stayed| panic!("{:?}: {stayed}: {:?}", self.load, stayed.error)));
    }

    #[track_caller]
    pub fn restore(&mut self, world: &mut World<'_>) {
        let At::Engine(name) = std::mem::replace(&mut self.at, At::Moving) else { panic!("it is in the kernel") };
        let fd: OwnedFd =
            world.mover.restore(name).unwrap_or_else(|aborted| panic!("{:?}: {aborted}: {aborted:?}", self.load));
        self.at = At::Kernel(fd.into());
    }

    /// Runs `count` rounds of the load.
    pub fn turns(&mut self, world: &mut World<'_>, count: u32) {
        for _ in 0..count {
            world.mover.poll().unwrap();
            self.turn(world);
        }
    }

    /// Runs rounds of the load until `bytes` more have arrived in each direction that carries data.
    #[track_caller]
    pub fn go_on(&mut self, world: &mut World<'_>, bytes: u64) {
        let goal = |flows: bool, shut: bool, read: u64| match self.load {
            Load::RequestResponse => read + 3 * REQUEST,
            _ => read + u64::from(flows && !shut) * bytes,
        };
        let [out, back] = self.load.flows();
        let goals = [goal(out, self.ours_shut, self.out.read), goal(back, self.peer_shut, self.back.read)];
        let begun = Instant::now();
        while self.out.read < goals[0] || self.back.read < goals[1] {
            self.turns(world, 1);
            assert!(begun.elapsed() < LONG, "{:?} makes no progress, in the kernel {}", self.load, self.in_kernel());
        }
    }

    fn in_kernel(&self) -> bool {
        matches!(self.at, At::Kernel(_))
    }

    fn turn(&mut self, world: &mut World<'_>) {
        let load = self.load;
        if !self.peer_shut {
            self.write_peer(load.writes(false, self.back.written, self.out.read));
        }
        if load.reads(true) > 0 {
            self.read_ours(world);
        }
        if !self.ours_shut {
            self.write_ours(world, load.writes(true, self.out.written, self.back.read));
        }
        if load.reads(false) > 0 {
            self.read_peer();
        }
    }

    /// The middle of the test: the side that is to close does so.
    pub fn halfway(&mut self, world: &mut World<'_>) {
        match self.load.closes() {
            Some(true) => self.shut_ours(world),
            Some(false) => self.shut_peer(),
            None => {}
        }
    }

    fn write_peer(&mut self, len: usize) {
        self.back.write(&self.peer, len);
    }

    fn write_ours(&mut self, world: &mut World<'_>, len: usize) {
        let bytes = Ramp::bytes(self.out.written, len);
        let written = match &self.at {
            At::Kernel(stream) => (&*stream).write(&bytes),
            At::Engine(name) => world.mover.write(*name, &bytes),
            At::Moving => unreachable!(),
        };
        match written {
            Ok(count) => self.out.written += count as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{:?}: writing after {} bytes: {error}", self.load, self.out.written),
        }
    }

    /// Reads what has arrived. Returns true at the end.
    #[track_caller]
    fn read_ours(&mut self, world: &mut World<'_>) -> bool {
        let mut bytes = vec![0; 1 << 16];
        loop {
            let read = match &self.at {
                At::Kernel(stream) => (&*stream).read(&mut bytes),
                At::Engine(name) => world.mover.read(*name, &mut bytes),
                At::Moving => unreachable!(),
            };
            match read {
                Ok(0) => return true,
                Ok(count) => {
                    assert!(
                        bytes[..count] == Ramp::bytes(self.back.read, count),
                        "{:?} at {}",
                        self.load,
                        self.back.read
                    );
                    self.back.read += count as u64;
                    assert!(self.back.read <= self.back.written, "more was read than written");
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{:?}: reading after {} bytes: {error}", self.load, self.back.read),
            }
        }
    }

    #[track_caller]
    fn read_peer(&mut self) -> bool {
        loop {
            match self.out.read(&self.peer) {
                None => return true,
                Some(0) => return false,
                Some(_) => {}
            }
        }
    }

    fn shut_ours(&mut self, world: &mut World<'_>) {
        self.ours_shut = true;
        match &self.at {
            At::Kernel(stream) => stream.shutdown(Shutdown::Write).unwrap(),
            At::Engine(name) => {
                let (consumer, conn) = world.mover.stream(*name).unwrap();
                consumer.shutdown(conn).unwrap();
            }
            At::Moving => unreachable!(),
        }
    }

    fn shut_peer(&mut self) {
        self.peer_shut = true;
        self.peer.shutdown(Shutdown::Write).unwrap();
    }

    /// Checks that the connection carried what its load requires.
    #[track_caller]
    pub fn was_under_load(&self, world: &mut World<'_>) {
        let (out, back) = (self.out.written, self.back.written);
        let enough = match self.load {
            Load::Idle => out == 0 && back == 0,
            Load::In => back > 500_000,
            Load::Out => out > 500_000,
            Load::Both | Load::Loss | Load::OurFin | Load::PeersFin => out > 500_000 && back > 500_000,
            Load::RequestResponse => out >= 500,
            Load::ZeroWindow => out > 10_000,
            Load::Unread => back > 50_000,
            Load::Unsent => out > 256 << 10,
            Load::Full | Load::Stopped => unreachable!("loads of pairs"),
        };
        assert!(enough, "{:?}: {out} bytes out, {back} back", self.load);
        if self.load == Load::Loss {
            let (rx, tx) = world.mover.port(0).and_then(|port| port.counters()).expect("a port with faults");
            assert!(rx.lost + tx.lost > 0, "{rx:?} {tx:?}");
        }
    }

    /// Everything written is read, both sides close, and both see the end.
    #[track_caller]
    pub fn finish(mut self, world: &mut World<'_>) {
        if matches!(self.load, Load::ZeroWindow | Load::Unsent) {
            set_socket_recv_buffer_size(&self.peer, 1 << 20).unwrap();
        }
        let (mut ours_ended, mut peer_ended) = (false, false);
        let deadline = Instant::now() + LONG;
        while !(ours_ended && peer_ended) {
            world.mover.poll().unwrap();
            ours_ended |= self.read_ours(world);
            peer_ended |= self.read_peer();
            let done = self.out.read == self.out.written && self.back.read == self.back.written;
            if done && !self.ours_shut {
                self.shut_ours(world);
            }
            if done && !self.peer_shut {
                self.shut_peer();
            }
            assert!(
                Instant::now() < deadline,
                "{:?}: {} of {} out, {} of {} back, ends {ours_ended} {peer_ended}, in the kernel {}",
                self.load,
                self.out.read,
                self.out.written,
                self.back.read,
                self.back.written,
                self.in_kernel()
            );
        }
        assert_eq!((self.out.read, self.back.read), (self.out.written, self.back.written), "{:?}", self.load);
        if let At::Engine(name) = self.at {
            world.mover.close(name);
            while world.mover.phase(name).is_some() {
                world.mover.poll().unwrap();
                assert!(Instant::now() < deadline, "{:?} is not cleared away", self.load);
            }
        }
    }
}
