//! A connection between two kernels: ours, whose end moves, and the peer's.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod firewall;
pub mod load;
pub mod toy;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::time::Duration;
use std::{fs, thread};

use baton_kernel::{Captured, capture, make_husk, rebuild, resume};
pub use baton_testkit::{LONG, wait_for};
use baton_testkit::{Netns, veth};

/// The streams repeat after this many bytes, a prime number.
const PERIOD: u64 = 251;

/// Two namespaces and a wire.
pub struct Wire {
    pub ours: Netns,
    pub peer: Netns,
}

impl Wire {
    /// A wire. `settings` are sysctls set on both sides, such as `net.ipv4.tcp_sack=0`.
    pub fn new(settings: &[&str]) -> Wire {
        let (ours, peer) = (Netns::new("ours"), Netns::new("peer"));
        veth(&ours, "wire", &peer, "wire");
        for (side, last) in [(&ours, 1), (&peer, 2)] {
            side.run(&format!("ip addr add 10.66.0.{last}/24 dev wire"));
            side.run(&format!("ip addr add fd66::{last}/64 dev wire nodad"));
            for setting in settings {
                side.run(&format!("sysctl -q -w {setting}"));
            }
        }
        Wire { ours, peer }.with_hold()
    }

    /// Two wires with a router between them, in a namespace of its own with devices `ours` and
    /// `peer`. Both sides have the same addresses as without a router.
    pub fn through(router: &Netns) -> Wire {
        let (ours, peer) = (Netns::new("ours"), Netns::new("peer"));
        for (side, name, last, other) in [(&ours, "ours", 1, 2), (&peer, "peer", 2, 1)] {
            veth(side, "wire", router, name);
            for (address, length) in [("10.66.0.", 32), ("fd66::", 128)] {
                let dad = if length == 128 { "nodad" } else { "" };
                side.run(&format!("ip addr add {address}{last}/{length} dev wire {dad}"));
                side.run(&format!("ip route add {address}9 dev wire"));
                side.run(&format!("ip route add {address}{other} via {address}9"));
                router.run(&format!("ip addr add {address}9/{length} dev {name} {dad}"));
                router.run(&format!("ip route add {address}{last} dev {name}"));
            }
        }
        router.run("sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        Wire { ours, peer }.with_hold()
    }

    /// Makes the peer's packets arrive on another interface from now on. Ours leave as before.
    pub fn reroute_peer(&self) {
        veth(&self.ours, "other", &self.peer, "other");
        self.ours.run("sysctl -q -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.other.rp_filter=0");
        self.ours.run("ip link set other address 02:00:00:00:67:01");
        for (side, last) in [(&self.ours, 1), (&self.peer, 2)] {
            side.run(&format!("ip addr add 10.67.0.{last}/24 dev other"));
            side.run(&format!("ip addr add fd67::{last}/64 dev other nodad"));
        }
        // Solicitations by a new device may stay without an answer. The kernel was seen to take the less specific
        // route then, by the old interface, for as long as the test waited.
        for address in ["10.67.0.1", "fd67::1"] {
            self.peer.run(&format!("ip neigh add {address} dev other lladdr 02:00:00:00:67:01 nud permanent"));
        }
        self.peer.run("ip route add 10.66.0.1/32 via 10.67.0.1");
        self.peer.run("ip route add fd66::1/128 via fd67::1");
    }

    /// Uses VLAN devices as the wire; only the underlying devices carry tags. [`Wire::hold`] does
    /// not work on it.
    pub fn over_vlan() -> Wire {
        let (ours, peer) = (Netns::new("ours"), Netns::new("peer"));
        veth(&ours, "beneath", &peer, "beneath");
        for (side, last) in [(&ours, 1), (&peer, 2)] {
            side.run("ip link add link beneath name wire type vlan id 7");
            side.run("ip link set wire up");
            side.run(&format!("ip addr add 10.66.0.{last}/24 dev wire"));
            side.run(&format!("ip addr add fd66::{last}/64 dev wire nodad"));
        }
        Wire { ours, peer }
    }

    fn with_hold(self) -> Wire {
        self.ours.run("nft add table inet hold");
        self.ours.run("nft add chain inet hold in { type filter hook prerouting priority -300 ; }");
        self
    }

    /// The index of our end.
    pub fn index(&self) -> u32 {
        self.ours.run("ip -o link show wire").split(':').next().and_then(|index| index.parse().ok()).expect("an index")
    }

    /// Our address and the peer's.
    pub fn addresses(ipv6: bool) -> [IpAddr; 2] {
        let text = if ipv6 { ["fd66::1", "fd66::2"] } else { ["10.66.0.1", "10.66.0.2"] };
        text.map(|t| t.parse().expect("an address"))
    }

    /// A connection opened by our side: our end, which is non-blocking, and the peer's.
    pub fn connect(&self, ipv6: bool) -> (TcpStream, TcpStream) {
        let [_, there] = Wire::addresses(ipv6);
        let listener = self.peer.enter(|| TcpListener::bind((there, 0)).unwrap());
        let ours = self.ours.enter(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        (ours, peer)
    }

    /// Keeps everything that arrives over the wire from our kernel, as steering would.
    pub fn hold(&self) {
        self.ours.run("nft add rule inet hold in iifname != lo meta l4proto tcp counter drop");
    }

    /// Drops the peer's segments that have timestamps and one byte of payload, however often the
    /// peer sends them. The bytes after such a segment lie beyond a gap. The segments are lost
    /// after the peer's stack, which does not notice, and before our firewall, which would keep the
    /// connection in the kernel.
    pub fn lose_single_bytes(&self, ipv6: bool) {
        let rule = if ipv6 { "ip6 length 33" } else { "ip length 53" };
        self.peer.run("nft add table netdev lose");
        self.peer.run("nft add chain netdev lose out { type filter hook egress device wire priority 0 ; }");
        self.peer.run(&format!("nft add rule netdev lose out {rule} fwd to lo"));
    }

    /// Lets such segments pass again.
    pub fn lose_nothing(&self) {
        self.peer.run("nft delete table netdev lose");
    }

    /// Lets everything through to our kernel again.
    pub fn let_go(&self) {
        self.ours.run("nft flush chain inet hold in");
    }

    /// The number of resets that either side has sent.
    pub fn resets(&self) -> u64 {
        self.ours.enter(|| tcp_counter("OutRsts")) + self.peer.enter(|| tcp_counter("OutRsts"))
    }

    /// Moves a connection out of the kernel and back, in the order that steering requires.
    pub fn move_there_and_back(&self, ours: &TcpStream) -> Captured {
        self.hold();
        let captured = self.ours.enter(|| {
            let captured = capture(ours).unwrap();
            make_husk(ours, &captured).unwrap();
            rebuild(ours, &captured).unwrap();
            captured
        });
        self.let_go();
        self.ours.enter(|| resume(ours, &captured)).unwrap();
        captured
    }
}

/// Runs a test over IPv4 and over IPv6, each on a connection that has carried data in both
/// directions. Nobody may reset it.
#[track_caller]
pub fn over_each_version(mut test: impl FnMut(&Wire, Pair)) {
    let wire = Wire::new(&[]);
    for ipv6 in [false, true] {
        let mut pair = Pair::new(&wire, ipv6);
        pair.exchange(5_000);
        test(&wire, pair);
    }
    assert_eq!(wire.resets(), 0);
}

/// A counter of this thread's namespace (`/proc/net/snmp` and `netstat`).
pub fn tcp_counter(name: &str) -> u64 {
    let text = ["snmp", "netstat"].map(|file| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap());
    let lines: Vec<&str> = text.iter().flat_map(|text| text.lines()).collect();
    let value = lines.chunks_exact(2).filter(|pair| pair[0].starts_with("Tcp")).find_map(|pair| {
        let place = pair[0].split(' ').position(|n| n == name)?;
        pair[1].split(' ').nth(place)
    });
    value.unwrap().parse().unwrap()
}

/// One direction of a connection: counts what was written and read, and checks that what is read
/// was written.
#[derive(Debug, Default)]
pub struct Ramp {
    pub written: u64,
    pub read: u64,
}

impl Ramp {
    /// `len` bytes of a stream, beginning with byte `from`.
    pub fn bytes(from: u64, len: usize) -> Vec<u8> {
        (from..from + len as u64).map(|i| (i % PERIOD) as u8).collect()
    }

    /// Writes up to `len` bytes without waiting. Returns how many the kernel accepted.
    pub fn write(&mut self, mut to: &TcpStream, len: usize) -> usize {
        let bytes = Ramp::bytes(self.written, len);
        match to.write(&bytes) {
            Ok(n) => {
                self.written += n as u64;
                n
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(e) => panic!("write after {} bytes: {e}", self.written),
        }
    }

    /// Reads what has arrived. Returns the number of bytes, or `None` at the end.
    #[track_caller]
    pub fn read(&mut self, mut from: &TcpStream) -> Option<usize> {
        let mut bytes = [0; 65536];
        match from.read(&mut bytes) {
            Ok(0) => None,
            Ok(n) => {
                for (byte, at) in bytes[..n].iter().zip(self.read..) {
                    assert_eq!(u64::from(*byte), at % PERIOD, "byte {at}");
                }
                self.read += n as u64;
                assert!(self.read <= self.written, "more was read than written");
                Some(n)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Some(0),
            Err(e) => panic!("read after {} bytes: {e}", self.read),
        }
    }
}

/// A connection with its two streams.
pub struct Pair {
    pub ours: TcpStream,
    pub peer: TcpStream,
    pub out: Ramp,
    pub back: Ramp,
}

impl Pair {
    pub fn new(wire: &Wire, ipv6: bool) -> Pair {
        let (ours, peer) = wire.connect(ipv6);
        Pair { ours, peer, out: Ramp::default(), back: Ramp::default() }
    }

    /// A connection between link-local addresses, which are only meaningful together with the
    /// device.
    pub fn link_local(wire: &Wire) -> Pair {
        for (side, last) in [(&wire.ours, 1), (&wire.peer, 2)] {
            side.run(&format!("ip addr add fe80::66:{last}/64 dev wire nodad"));
        }
        let device =
            |side: &Netns| -> u32 { side.run("cat /sys/class/net/wire/ifindex").trim().parse().expect("a number") };
        let address = |side: &Netns, last| {
            SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x66, last), 0, 0, device(side))
        };
        let listener = wire.peer.enter(|| TcpListener::bind(address(&wire.peer, 2)).unwrap());
        let mut there = address(&wire.ours, 2);
        there.set_port(listener.local_addr().unwrap().port());
        let ours = wire.ours.enter(|| TcpStream::connect(there).unwrap());
        let (peer, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        Pair { ours, peer, out: Ramp::default(), back: Ramp::default() }
    }

    /// Exchanges `len` more bytes in each direction and reads all of them.
    #[track_caller]
    pub fn exchange(&mut self, len: u64) {
        let (out, back) = (self.out.written + len, self.back.written + len);
        wait_for("the exchange", || {
            self.out.write(&self.ours, (out - self.out.written).min(65536) as usize);
            self.back.write(&self.peer, (back - self.back.written).min(65536) as usize);
            self.out.read(&self.peer).expect("no end yet");
            self.back.read(&self.ours).expect("no end yet");
            (self.out.read, self.back.read) == (out, back)
        });
    }

    /// Sends us bytes that we do not read, up to `len` or as many as the kernels accept.
    pub fn leave_unread(&mut self, len: usize) {
        self.back.write(&self.peer, len);
        thread::sleep(Duration::from_millis(20));
    }

    /// Sends bytes to the peer, which does not read and has little room, until nobody accepts more.
    /// The bytes sent are acknowledged, the window is closed, and the rest waits.
    pub fn fill_send_queue(&mut self) {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.peer, 4096).unwrap();
        let mut quiet = 0;
        while quiet < 50 {
            quiet = if self.out.write(&self.ours, 10_000) == 0 { quiet + 1 } else { 0 };
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends bytes that the peer receives while its acknowledgments are kept from us, and some that
    /// it does not receive.
    pub fn leave_unacked(&mut self, wire: &Wire, len: usize) {
        wire.hold();
        self.out.write(&self.ours, len);
        thread::sleep(Duration::from_millis(5));
    }

    /// Closes both sides in an orderly way. Everything was read before.
    #[track_caller]
    pub fn close(mut self) {
        self.ours.shutdown(Shutdown::Write).unwrap();
        let mut ended = false;
        wait_for("our end of the stream", || {
            self.back.read(&self.ours).expect("the peer has not closed");
            ended |= self.out.read(&self.peer).is_none();
            ended && self.back.read == self.back.written
        });
        assert_eq!(self.out.read, self.out.written, "everything was read before the end");
        self.peer.shutdown(Shutdown::Write).unwrap();
        wait_for("the peer's end of the stream", || self.back.read(&self.ours).is_none());
    }

    /// The peer reads our stream to its end.
    #[track_caller]
    pub fn end_of_ours(&mut self) {
        wait_for("the end of our stream", || self.out.read(&self.peer).is_none());
        assert_eq!(self.out.read, self.out.written);
    }

    /// We read the peer's stream to its end.
    #[track_caller]
    pub fn end_of_theirs(&mut self) {
        wait_for("the end of the peer's stream", || self.back.read(&self.ours).is_none());
        assert_eq!(self.back.read, self.back.written);
    }

    /// Our side writes `len` more bytes and closes. The peer reads all of it.
    #[track_caller]
    pub fn finish_ours(&mut self, len: usize) {
        self.out.write(&self.ours, len);
        self.ours.shutdown(Shutdown::Write).unwrap();
        self.end_of_ours();
    }

    /// The peer writes `len` more bytes and closes. We read all of it.
    #[track_caller]
    pub fn finish_theirs(&mut self, len: usize) {
        self.back.write(&self.peer, len);
        self.peer.shutdown(Shutdown::Write).unwrap();
        self.end_of_theirs();
    }

    pub fn local(&self) -> SocketAddr {
        self.ours.local_addr().unwrap()
    }
}
