//! Two hosts, and a middle through which every frame goes.

use baton_consumer::consumer::{Conn, SocketEvent};
use baton_engine::counters::StreamerCounters;
use baton_engine::frame_io::{FrameIo, FrameSink, RxFrame, TxMeta};
use baton_port::memory::{MemoryOptions, MemoryPort};
use baton_socket::host::{Host, HostConfig};
use baton_tcp::time::{Duration, Instant};
use baton_wire::packet::{Link, Packet};
use baton_wire::tcp::options::TcpOption;
use baton_wire::tcp::unsummed::is_marked;
use baton_wire::tcp::{Flags, header};

/// Sees a frame that host 0 or 1 sent, and may change it.
pub type Middle = Box<dyn FnMut(usize, &mut Vec<u8>)>;

/// TCP segments that a host sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// SYNs with the option.
    pub asking: u32,
    /// Segments with the mark.
    pub marked: u32,
    /// SYNs excepted, segments without.
    pub summed: u32,
}

pub struct World {
    pub hosts: [Host<MemoryPort>; 2],
    far: [MemoryPort; 2],
    middle: Middle,
    pub sent: [Sent; 2],
    pub now: u64,
}

/// Bytes of a stream, different for each of its places.
pub fn ramp(at: u64) -> u8 {
    (at % 251) as u8 ^ (at >> 12) as u8
}

struct Frames(Vec<Vec<u8>>);

impl FrameSink for Frames {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        self.0.extend(frames.iter().map(|frame| frame.data.to_vec()));
    }
}

/// The configuration of host 0 or 1.
pub fn config(number: usize, unsummed: bool) -> HostConfig {
    let address = ["10.0.0.1/24", "10.0.0.2/24"][number];
    let mut config = HostConfig::new(address.parse().unwrap());
    config.consumer.stream_buffer = 64 << 10;
    config.engine.tcp.time_wait = Duration::from_millis(100);
    config.engine.tcp.unsummed = unsummed;
    config
}

/// Makes the checksum of a changed segment right again.
pub fn seal(frame: &mut [u8]) {
    let packet = Packet::parse(frame, Link::Ethernet).expect("a segment");
    let end = usize::from(packet.payload_offset) + packet.payload_len as usize;
    let segment = &mut frame[usize::from(packet.tcp_offset)..end];
    header::fill_checksum(segment, packet.src, packet.dst).unwrap();
}

/// Writes no-operations over the option in a SYN, as a middlebox that does not know it may.
pub fn strip(frame: &mut [u8]) {
    let Ok(packet) = Packet::parse(frame, Link::Ethernet) else { return };
    let options = usize::from(packet.tcp_offset) + 20..usize::from(packet.payload_offset);
    if packet.flags.contains(Flags::SYN)
        && let Some(at) = options.clone().find(|&at| frame[at..].starts_with(&[254, 7]))
    {
        frame[at..at + 7].fill(1);
        seal(frame);
    }
}

impl World {
    pub fn new(unsummed: [bool; 2], middle: Middle) -> World {
        World::with([0, 1].map(|number| config(number, unsummed[number])), middle)
    }

    pub fn with(configs: [HostConfig; 2], middle: Middle) -> World {
        let [(a, far_a), (b, far_b)] = [0, 1].map(|_| MemoryPort::pair(MemoryOptions::default()));
        let [one, two] = &configs;
        let hosts = [Host::new(one, a).unwrap(), Host::new(two, b).unwrap()];
        World { hosts, far: [far_a, far_b], middle, sent: [Sent::default(); 2], now: 0 }
    }

    pub fn counters(&mut self, host: usize) -> StreamerCounters {
        *self.hosts[host].engine().streamer().counters()
    }

    /// Half a millisecond.
    pub fn step(&mut self) {
        self.now += 500_000;
        for host in &mut self.hosts {
            host.poll(Instant(self.now)).unwrap();
        }
        self.carry();
    }

    /// Brings the frames of both hosts through the middle.
    pub fn carry(&mut self) {
        for from in 0..2 {
            let mut frames = Frames(Vec::new());
            self.far[from].receive(256, &mut frames).unwrap();
            for mut frame in frames.0 {
                self.sent[from].count(&frame);
                (self.middle)(from, &mut frame);
                let to = &mut self.far[1 - from];
                if let Some(slot) = to.slot(frame.len()) {
                    slot[..frame.len()].copy_from_slice(&frame);
                    to.commit(frame.len(), TxMeta::default());
                }
            }
        }
        self.far.iter_mut().for_each(|far| far.flush().unwrap());
    }

    /// Opens a connection from host 0 to host 1.
    pub fn connect(&mut self) -> [Conn; 2] {
        let server = "10.0.0.2:7".parse().unwrap();
        self.hosts[1].listen(server, 16).unwrap();
        self.step();
        self.hosts[0].connect(server, None).unwrap();
        let mut conns = [None; 2];
        for _ in 0..10_000 {
            self.step();
            for (host, conn) in self.hosts.iter_mut().zip(&mut conns) {
                while let Some(event) = host.next_event() {
                    if let SocketEvent::Opening { conn: new, .. } | SocketEvent::Accepted { conn: new, .. } = event {
                        *conn = Some(new);
                    }
                }
            }
            if let [Some(client), Some(server)] = conns
                && self.hosts[0].stream(client).unwrap().is_established()
            {
                return [client, server];
            }
        }
        panic!("no connection");
    }

    /// Sends `bytes` in both directions, at the same time, and compares every byte; the number
    /// of steps that it took.
    pub fn exchange(&mut self, conns: [Conn; 2], bytes: u64) -> u32 {
        let (mut written, mut read) = ([0; 2], [0; 2]);
        for steps in 0..2_000_000 {
            for at in 0..2 {
                let data: Vec<u8> = (written[at]..bytes.min(written[at] + 20_000)).map(ramp).collect();
                written[at] += self.hosts[at].write(conns[at], &data).unwrap_or(0) as u64;
                let mut buf = [0; 30_000];
                while let Ok(count @ 1..) = self.hosts[at].read(conns[at], &mut buf) {
                    for (got, place) in buf[..count].iter().zip(read[at]..) {
                        assert_eq!(*got, ramp(place), "byte {place} from host {}", 1 - at);
                    }
                    read[at] += count as u64;
                }
            }
            if read == [bytes; 2] {
                return steps;
            }
            self.step();
        }
        panic!("{read:?} of {bytes} bytes arrived");
    }

    /// Ends the connection from both sides, and sees both ends go.
    pub fn close(&mut self, conns: [Conn; 2]) {
        for (host, conn) in self.hosts.iter_mut().zip(conns) {
            host.shutdown(conn).unwrap();
        }
        for _ in 0..20_000 {
            self.step();
            let finished = |at: usize| self.hosts[at].stream(conns[at]).is_none_or(|stream| stream.peer_finished());
            if finished(0) && finished(1) {
                return;
            }
        }
        panic!("a FIN did not arrive");
    }
}

impl Sent {
    fn count(&mut self, frame: &[u8]) {
        let Ok(packet) = Packet::parse(frame, Link::Ethernet) else { return };
        let asks = packet.options(frame).any(|option| matches!(option, Ok(TcpOption::Unsummed { .. })));
        if packet.flags.contains(Flags::SYN) {
            self.asking += u32::from(asks);
        } else if is_marked(packet.tcp_header(frame)) {
            self.marked += 1;
        } else {
            self.summed += 1;
        }
    }
}
