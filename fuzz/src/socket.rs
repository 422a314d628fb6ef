//! A target for what stands before the engine: on both sides of a wire, sockets called in any
//! order with any arguments, and frames that are cut, changed, repeated or made up.
//!
//! ```text
//!   script --calls--> sockets A ==== wire ==== sockets B <--calls-- script
//!                              ^ lost, changed, repeated, made up
//! ```

#[path = "script.rs"]
pub mod script;

use baton_socket::host::HostConfig;
use baton_socket::posix::{Fd, Posix, PosixConfig};
use baton_tcp::time::Instant;
use script::Script;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[("socket_posix", posix)];

/// Calls of one script at most.
const CALLS: usize = 1000;

impl Script<'_> {
    /// Mostly one of the first descriptors.
    fn fd(&mut self) -> Fd {
        match self.byte() {
            low @ ..=0x7f => 3 + Fd::from(low % 12),
            high => Fd::from(high as i8),
        }
    }
}

/// Both ends and what goes between them.
struct World {
    ends: [Posix; 2],
    now: u64,
    last_frame: Vec<u8>,
}

fn end(number: u8) -> Posix {
    let mut host = HostConfig::new(format!("10.0.0.{number}/24").parse().expect("an address"));
    host.engine.interface.addresses.push(format!("fd00::{number}/64").parse().expect("an address"));
    host.engine.interface.mac = [2, 0, 0, 0, 0, number];
    host.engine.interface.mtu = 1500;
    host.engine.secret = [number; 32];
    host.engine.max_connections = 32;
    host.engine.reassembly_bytes = 1 << 16;
    host.consumer.stream_buffer = 4096;
    host.consumer.stream_buffers = 24;
    host.consumer.large_buffer = 16_384;
    host.consumer.large_buffers = 2;
    host.consumer.connections = 16;
    Posix::new(&PosixConfig { host, queue_frames: 64, descriptors: 16, now: Instant(0) }).expect("sizes that fit")
}

/// Runs one script.
pub fn posix(data: &[u8]) {
    let mut script = Script(data);
    let mut world = World { ends: [end(1), end(2)], now: 0, last_frame: Vec::new() };
    for _ in 0..CALLS {
        if script.0.is_empty() {
            break;
        }
        let op = script.byte();
        match op & 0x1f {
            0..=7 => world.step(0, 50, &mut script),
            8 => {
                let micros = 1 << (script.byte() & 31);
                world.step(0, micros, &mut script);
            }
            9 => {
                let harm = script.byte();
                world.step(harm, 50, &mut script);
            }
            10 => {
                let frame = script.bytes(200);
                let _ = world.ends[usize::from(op >> 7)].input(&frame);
            }
            11 => {
                let mut frame = world.last_frame.clone();
                change(&mut frame, &mut script);
                let _ = world.ends[usize::from(op >> 7)].input(&frame);
            }
            _ => call(&mut world.ends[usize::from(op >> 7)], op & 0x1f, &mut script),
        }
    }
    // The connections that are left come to an end of their own: every timer fires, nothing hangs.
    for _ in 0..64 {
        world.step(0, 10_000_000, &mut script);
    }
}

/// Changes a byte of a frame.
fn change(frame: &mut [u8], script: &mut Script<'_>) {
    let (at, value) = (usize::from(script.short()), script.byte());
    if !frame.is_empty() {
        let at = at % frame.len();
        frame[at] ^= value;
    }
}

impl World {
    /// Time passes and frames go both ways. `harm`, if not 0, says which of them
    /// are lost, repeated or changed.
    fn step(&mut self, harm: u8, micros: u64, script: &mut Script<'_>) {
        self.now += micros * 1000;
        let mut frame = [0; 1600];
        for from in 0..2 {
            self.ends[from].drive(Instant(self.now)).expect("this port does not fail");
            let mut count = 0u8;
            while let Some(len) = self.ends[from].output(&mut frame).expect("the room it asks for") {
                let frame = &mut frame[..len];
                self.last_frame = frame.to_vec();
                count = count.wrapping_add(1);
                let harmed = harm != 0 && count & 3 == harm >> 6;
                match harm & 3 {
                    _ if !harmed => {}
                    0 => continue,
                    1 => {
                        let _ = self.ends[1 - from].input(frame);
                    }
                    _ => change(frame, script),
                }
                // A frame that does not fit is lost.
                let _ = self.ends[1 - from].input(frame);
            }
        }
    }
}

fn address(script: &mut Script<'_>) -> SocketAddr {
    let kind = script.byte();
    let ip: IpAddr = match kind & 7 {
        0 => Ipv4Addr::UNSPECIFIED.into(),
        1 => Ipv6Addr::UNSPECIFIED.into(),
        2 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
        3 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
        4 => Ipv4Addr::new(10, 0, 0, script.byte()).into(),
        5 => Ipv4Addr::new(10, 0, 0, 1).into(),
        6 => Ipv4Addr::new(10, 0, 0, 2).into(),
        _ => Ipv4Addr::new(10, 0, 0, 2).to_ipv6_mapped().into(),
    };
    SocketAddr::new(ip, u16::from(kind >> 5))
}

/// One call with arguments of the script. Any answer will do.
fn call(posix: &mut Posix, op: u8, script: &mut Script<'_>) {
    const LEVELS: [i32; 4] = [libc::SOL_SOCKET, libc::IPPROTO_TCP, libc::IPPROTO_IPV6, 77];
    let fd = script.fd();
    match op {
        12 => {
            let domain = if script.byte() & 1 == 0 { libc::AF_INET } else { libc::AF_INET6 };
            let _ = posix.socket(domain, libc::SOCK_STREAM, 0);
        }
        13 => drop(posix.bind(fd, address(script))),
        14 => drop(posix.listen(fd, i32::from(script.byte() as i8))),
        15 => drop(posix.connect(fd, address(script))),
        16 => drop(posix.accept(fd, 0)),
        17 | 18 => {
            let len = usize::from(script.short() & 0x3fff);
            if let Ok(count) = posix.send(fd, &vec![0x5a; len], 0) {
                assert!(count <= len, "more was taken than given");
            }
        }
        19 | 20 => {
            let (len, peek) = (usize::from(script.short() & 0x3fff), script.byte() & 1);
            if peek != 0 && len & 1 != 0 {
                let _ = posix.discard(fd, len, libc::MSG_PEEK * i32::from(len & 2 != 0));
            }
            let mut buf = vec![0; len];
            if let Ok(count) = posix.recv(fd, &mut buf, i32::from(peek) * libc::MSG_PEEK) {
                assert!(buf[count..].iter().all(|byte| *byte == 0), "written past what was received");
            }
        }
        21 => {
            let how = [Shutdown::Read, Shutdown::Write, Shutdown::Both][usize::from(script.byte() % 3)];
            let _ = posix.shutdown(fd, how);
        }
        22 => drop(posix.close(fd)),
        23 => {
            let (level, name) = (LEVELS[usize::from(script.byte() & 3)], i32::from(script.byte()));
            let value = script.bytes(20);
            let _ = posix.set_option(fd, level, name, &value);
        }
        24 => {
            let (level, name) = (LEVELS[usize::from(script.byte() & 3)], i32::from(script.byte()));
            let _ = posix.option(fd, level, name);
        }
        25 => drop(posix.epoll_create(0)),
        26 | 27 => {
            let (ctl, watched, events) = (i32::from(script.byte() & 3), script.fd(), script.short());
            let events = u32::from(events & 0x3fff) | u32::from(events >> 14) << 30;
            let _ = posix.epoll_ctl(fd, ctl, watched, events, 9);
        }
        28 => {
            let max = usize::from(script.byte());
            if let Ok(ready) = posix.epoll_ready(fd, max) {
                assert!(ready.len() <= max, "more is told than asked for");
            }
        }
        29 => {
            let _ = (posix.local_name(fd), posix.peer_name(fd), posix.unread(fd), posix.unsent(fd));
        }
        30 => {
            let _ = (posix.poll_mask(fd, u32::from(script.short())), posix.next_deadline());
        }
        _ => drop(posix.set_nonblocking(fd, script.byte() & 1 != 0)),
    }
}
