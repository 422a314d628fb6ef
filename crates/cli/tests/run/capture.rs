//! `baton capture`: what two programs exchange through memory, as packets that other tools read.

use crate::world::{World, baton, digest};
use baton_client::Service;
use baton_testkit::{Running, note_skip, output, wait_for};
use baton_wire::addr::Addr;
use baton_wire::checksum;
use baton_wire::packet::{Checks, Link, Packet};
use baton_wire::tcp::{Flags, PROTOCOL_TCP};
use pcap_parser::{Block, OptionCode, PcapBlockOwned, PcapError};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PORT: u16 = 7100;

/// One end of a conversation in turns, of messages from a byte to a page, and some larger ones. It leaves what it
/// sent, and the digests of that and of what it received.
const TALK: &str = "\
import hashlib, os, random, socket, sys, time
role, address, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ':' in address else socket.AF_INET
if role == 'server':
    listener = socket.create_server((address, 7100), family=family)
    one = listener.accept()[0]
else:
    one = socket.create_connection((address, 7100), timeout=20)
    with open('tuple.new', 'w') as out:
        name = lambda at: ('[%s]:%d' if family == socket.AF_INET6 else '%s:%d') % at[:2]
        out.write(name(one.getsockname()) + ',' + name(one.getpeername()))
    os.rename('tuple.new', 'tuple')
sent, got, random = b'', hashlib.sha256(), random.Random(role)
def send(turn):
    global sent
    count = 60000 if turn % 50 == 49 else random.randrange(1, 3000)
    data = count.to_bytes(4, 'big') + random.randbytes(count)
    one.sendall(data)
    sent += data
def read(count):
    data = b''
    while len(data) < count:
        part = one.recv(count - len(data))
        assert part
        data += part
    got.update(data)
    return data
def hear():
    read(int.from_bytes(read(4), 'big'))
if role == 'client':
    while not os.path.exists('go'): time.sleep(0.01)
for turn in range(turns):
    if role == 'client':
        send(turn)
        hear()
        time.sleep(0.001)
    else:
        hear()
        send(turn)
    if role == 'client' and turn == turns // 2 and os.path.exists('pause'):
        while os.path.exists('pause'): time.sleep(0.01)
one.shutdown(socket.SHUT_WR)
assert not one.recv(1)
with open(role + '.sent', 'wb') as out: out.write(sent)
with open(role, 'w') as out: out.write(hashlib.sha256(sent).hexdigest() + ' ' + got.hexdigest())
";

/// A service that joins pairs, and two programs that are about to talk.
struct Talk<'a> {
    world: &'a World,
    programs: Vec<Running>,
    service: Running,
    /// The connection, as the client sees it.
    tuple: String,
}

impl<'a> Talk<'a> {
    fn start(world: &'a World, address: &str, turns: usize) -> Talk<'a> {
        for name in ["tuple", "go", "client", "server"] {
            let _ = fs::remove_file(world.file(name));
        }
        fs::write(world.file("config"), "[pair]\nusers = \"same-user\"\n").unwrap();
        let mut command = Command::new(baton());
        command.args(["service", "--no-interface", "--config"]).arg(world.file("config"));
        command.arg("--socket").arg(world.socket()).stdin(Stdio::null());
        command.stderr(fs::File::create(world.file("service")).unwrap());
        let service = world.ours.enter(|| Running::start(&mut command));
        wait_for("the service", || Service::connect(world.socket()).is_ok());
        let program = |role: &str| {
            let mut command = Command::new(baton());
            command.arg("run").arg("--socket").arg(world.socket()).args(["--policy", "fcfs", "--", "python3", "-c"]);
            command.args([TALK, role, address, &turns.to_string()]).current_dir(world.home.path());
            command.stdin(Stdio::null()).stderr(fs::File::create(world.file(&format!("{role}.said"))).unwrap());
            world.ours.enter(|| Running::start(&mut command))
        };
        let server = program("server");
        world.listens(PORT);
        let programs = vec![program("client"), server];
        wait_for("the client", || world.file("tuple").exists());
        let tuple = fs::read_to_string(world.file("tuple")).unwrap();
        Talk { world, programs, service, tuple }
    }

    fn until(&self, place: &str) {
        let service = Service::connect(self.world.socket()).unwrap();
        wait_for(place, || {
            let list = service.list().unwrap();
            list.len() == 2 && list.iter().all(|entry| entry.place == place)
        });
    }

    fn go(&self) {
        fs::write(self.world.file("go"), "").unwrap();
    }

    /// Waits until both programs have ended well, and gives what the client and the server sent.
    fn end(mut self) -> [Vec<u8>; 2] {
        for program in &mut self.programs {
            wait_for("the program's end", || program.child().try_wait().unwrap().is_some());
            assert!(program.child().wait().unwrap().success(), "{}", self.said());
        }
        self.service.signal(Signal::TERM);
        wait_for("the service's end", || self.service.child().try_wait().unwrap().is_some());
        let [client, server] = ["client", "server"].map(|role| fs::read_to_string(self.world.file(role)).unwrap());
        let (sent, got) = client.split_once(' ').unwrap();
        assert_eq!(server, format!("{got} {sent}"));
        ["client.sent", "server.sent"].map(|name| fs::read(self.world.file(name)).unwrap())
    }

    fn said(&self) -> String {
        ["client.said", "server.said", "service"]
            .map(|name| fs::read_to_string(self.world.file(name)).unwrap())
            .join("")
    }
}

/// A capture that goes on, of which it is known that it follows a pair.
struct Captured<'a> {
    world: &'a World,
    running: Running,
}

fn command(world: &World, words: &[&str]) -> Command {
    let mut command = Command::new(baton());
    command.args(["capture", "--socket"]).arg(world.socket()).args(words);
    command.current_dir(world.home.path()).stdin(Stdio::null());
    command
}

fn run(world: &World, words: &[&str]) -> Output {
    world.ours.enter(|| output(&mut command(world, words)))
}

impl<'a> Captured<'a> {
    fn start(world: &'a World, words: &[&str]) -> Captured<'a> {
        let mut command = command(world, words);
        command.args(["-w", "capture"]).stderr(fs::File::create(world.file("capture.said")).unwrap());
        let captured = Captured { world, running: world.ours.enter(|| Running::start(&mut command)) };
        wait_for("the pair", || captured.said().contains("pair "));
        captured
    }

    fn said(&self) -> String {
        fs::read_to_string(self.world.file("capture.said")).unwrap()
    }

    /// Waits for its end. Returns what it summed up.
    fn end(mut self) -> [u64; 3] {
        wait_for("the capture's end", || self.running.child().try_wait().unwrap().is_some());
        assert!(self.running.child().wait().unwrap().success(), "{}", self.said());
        let said = self.said();
        let words: Vec<&str> = said.lines().last().unwrap().split(' ').collect();
        [0, 2, 4].map(|at| words[at].parse().unwrap_or_else(|_| panic!("{said}")))
    }
}

/// The segments of one end in a capture.
#[derive(Default)]
struct Way {
    /// Payloads, by their sequence numbers.
    parts: Vec<(u32, Vec<u8>)>,
    /// The number behind the last one.
    next: Option<u32>,
    /// The number of its FIN.
    fin: Option<u32>,
}

impl Way {
    /// Compares it with what was sent. Returns how many bytes it lacks.
    fn compare(&self, sent: &[u8]) -> u64 {
        let first = self.fin.expect("it has finished").wrapping_sub(sent.len() as u32);
        let (mut next, mut lacks) = (0, 0);
        for (seq, bytes) in &self.parts {
            let at = seq.wrapping_sub(first) as usize;
            assert!(at >= next && sent[at..].starts_with(bytes), "the bytes at {at}");
            lacks += at - next;
            next = at + bytes.len();
        }
        (lacks + sent.len() - next) as u64
    }

    fn bytes(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|(_, bytes)| bytes).copied().collect()
    }
}

/// A capture, taken apart and checked.
struct Seen {
    ways: BTreeMap<u16, Way>,
    segments: u64,
    comments: Vec<String>,
}

impl Seen {
    fn read(path: &Path) -> Seen {
        let bytes = fs::read(path).unwrap();
        let mut seen = Seen { ways: BTreeMap::new(), segments: 0, comments: Vec::new() };
        let mut reader = pcap_parser::create_reader(1 << 20, bytes.as_slice()).unwrap();
        let mut time = 0;
        loop {
            match reader.next() {
                Ok((offset, block)) => {
                    if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = block {
                        let at = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                        assert!(at >= time, "time goes on");
                        time = at;
                        let comment = packet.options.iter().find(|option| option.code == OptionCode::Comment);
                        seen.comments.extend(
                            comment.map(|it| String::from_utf8(it.value[..usize::from(it.len)].to_vec()).unwrap()),
                        );
                        seen.take(&packet.data[..packet.origlen as usize]);
                    }
                    reader.consume(offset);
                }
                Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
                Err(PcapError::Eof) => return seen,
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// A packet whose checksums are right, and whose segment does not go back.
    fn take(&mut self, data: &[u8]) {
        self.segments += 1;
        let packet = Packet::parse_with(data, Link::Ip, Checks::ALL).unwrap();
        let tcp = &data[usize::from(packet.tcp_offset)..];
        let pseudo = checksum::pseudo(packet.src, packet.dst, PROTOCOL_TCP, tcp.len() as u32);
        assert_eq!(checksum::finish(pseudo + checksum::sum(tcp)), 0);
        assert!([packet.src, packet.dst].iter().all(|it: &Addr| it.ip().is_loopback()), "{packet:?}");
        let way = self.ways.entry(packet.src_port).or_default();
        let payload = &data[usize::from(packet.payload_offset)..];
        assert_eq!(payload.len(), packet.payload_len as usize);
        let ahead = packet.seq.0.wrapping_sub(way.next.unwrap_or(packet.seq.0));
        assert!(ahead < 1 << 31, "{packet:?}");
        let fin = packet.flags.contains(Flags::FIN);
        way.next = Some(packet.seq.0.wrapping_add(packet.payload_len).wrapping_add(fin.into()));
        way.fin = way.fin.or(fin.then_some(packet.seq.0));
        if !payload.is_empty() {
            way.parts.push((packet.seq.0, payload.to_vec()));
        }
        // It has read no more than there is.
        if let Some(next) = self.ways.get(&packet.dst_port).and_then(|peer| peer.next) {
            assert!(next.wrapping_sub(packet.ack.0) < 1 << 31, "{packet:?}");
        }
    }
}

/// The port of the client.
fn client(tuple: &str) -> u16 {
    tuple.split_once(',').unwrap().0.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// tshark finds nothing wrong with a capture but what is lost, and tcpdump reads each of its packets.
fn others_read_it(world: &World, segments: u64, lost: u64) {
    if is_there("tshark") {
        let wrong = "tcp.checksum.status == 0 || ip.checksum.status == 0 || tcp.analysis.out_of_order || \
                     tcp.analysis.retransmission || tcp.analysis.window_full";
        let gaps = " || tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment";
        let bad = &format!("{wrong}{}", if lost == 0 { gaps } else { "" });
        let mut command = Command::new("tshark");
        command.args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", bad, "-r", "capture"]);
        let out = output(command.current_dir(world.home.path()));
        assert!(out.status.success() && out.stdout.is_empty(), "{out:?}");
    } else {
        note_skip!("there is no tshark");
    }
    if is_there("tcpdump") {
        let out = output(Command::new("tcpdump").args(["-n", "-r", "capture"]).current_dir(world.home.path()));
        let text = String::from_utf8_lossy(&out.stdout);
        assert_eq!((out.status.success(), text.lines().count() as u64), (true, segments), "{out:?}");
    } else {
        note_skip!("there is no tcpdump");
    }
}

pub fn a_pair_is_captured_whole(world: &World) {
    for address in ["127.0.0.1", "::1"] {
        let talk = Talk::start(world, address, 400);
        talk.until("pair");
        let captured = Captured::start(world, &["--pair", &talk.tuple]);
        talk.go();
        let port = client(&talk.tuple);
        let sent = talk.end();
        let [segments, bytes, lost] = captured.end();
        let seen = Seen::read(&world.file("capture"));
        // A capture that has no CPU for a while loses bytes, and counts them.
        let ways = [&seen.ways[&port], &seen.ways[&PORT]];
        let lacks = [0, 1].map(|at| ways[at].compare(&sent[at]));
        assert_eq!((lacks[0] + lacks[1], seen.segments), (lost, segments));
        assert_eq!(bytes + lost, sent.iter().map(|sent| sent.len() as u64).sum::<u64>());
        assert!(lost < bytes, "{lost} of {bytes} bytes were lost");
        if lost == 0 {
            assert_eq!(ways.map(|way| digest(&way.bytes())), sent.each_ref().map(|sent| digest(sent)));
        }
        assert!(seen.comments[0].contains("is python3["), "{:?}", seen.comments);
        println!("{segments} segments, {bytes} bytes, {lost} lost");
        others_read_it(world, segments, lost);
    }
}

pub fn a_capture_ends_where_the_kernel_goes_on(world: &World) {
    fs::write(world.file("pause"), "").unwrap();
    let talk = Talk::start(world, "127.0.0.1", 100);
    talk.until("pair");
    let captured = Captured::start(world, &["--pair", &talk.tuple]);
    talk.go();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let service = Service::connect(world.socket()).unwrap();
    assert_eq!(service.bring_home(baton_ipc::message::Selector::All).unwrap().failed, 0);
    let [segments, ..] = captured.end();
    let seen = Seen::read(&world.file("capture"));
    assert_eq!(seen.segments, segments);
    let last = seen.comments.last().unwrap();
    assert!(
        last.starts_with("from here on the kernel carries this connection") && last.contains("asked-for"),
        "{last}"
    );
    // There is nothing to capture now.
    let out = run(world, &["--pair", &talk.tuple, "-w", "none"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("is no pair: its place is kernel (asked-for); tcpdump shows"), "{said}");
    assert!(!world.file("none").exists());
    fs::remove_file(world.file("pause")).unwrap();
    talk.end();
}

pub fn captures_say_what_they_cannot_do(world: &World) {
    let refused = |words: &[&str]| {
        let out = run(world, words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        said
    };
    assert!(refused(&["--all", "-w", "-"]).contains("check that 'baton service' is running"));
    assert!(refused(&["--all"]).contains("--write"));
    let talk = Talk::start(world, "127.0.0.1", 50);
    talk.until("pair");
    assert!(refused(&["--pair", "127.0.0.1:1,127.0.0.1:2", "-w", "none"]).contains("knows no such connection"));
    assert!(refused(&["--all", "-w", "no/such/directory"]).contains("name another file"));
    // A reader that has seen enough ends it, and so does a count.
    talk.go();
    let line = format!(
        "{} capture --socket {} --port 7100 -w - | tcpdump -n -c 3 -r -",
        baton().display(),
        world.socket().display()
    );
    let mut shell = Command::new("sh");
    let out = world.ours.enter(|| output(shell.args(["-c", &line]).stdin(Stdio::null())));
    assert_eq!(String::from_utf8_lossy(&out.stdout).lines().count(), 3, "{out:?}");
    let out = run(world, &["--all", "--seconds", "0.1", "-w", "some"]);
    assert!(out.status.success(), "{out:?}");
    talk.end();
}
