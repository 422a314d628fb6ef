//! Times of kernel connections by layer, of real connections in a namespace.

use baton_kernel::latency::{By, LatencyError, Reading, Wanted, Watch, Watched, sights};
use baton_latency::{Direction, Layer, Table};
use baton_testkit::{Netns, need_root, run, skip, types, vm, wait_for};
use baton_wire::addr::Tuple;
use rustix::net::sockopt::set_tcp_cork;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// How long a test delays a layer.
const DELAY: Duration = Duration::from_millis(60);
/// The least that must be seen of it.
const SEEN_MS: u64 = 50;

/// Ends the test if this kernel does not let programs see both ways.
macro_rules! need_sight {
    () => {
        need_root!();
        let sights = sights().expect("the programs load");
        if let Some(dark) = sights.iter().find(|sight| sight.by == By::Nothing) {
            skip!("{}: {}", dark.way.name(), dark.note);
        }
    };
}

/// A connection over loopback: the client's end, and the server's.
fn pair(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    (client, listener.accept().unwrap().0)
}

fn tuple(stream: &TcpStream) -> Tuple {
    Tuple::new(stream.local_addr().unwrap(), stream.peer_addr().unwrap())
}

/// Answers each message of 4 bytes until the client is done.
fn echo(mut server: TcpStream) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut message = [0; 4];
        while server.read_exact(&mut message).is_ok() {
            server.write_all(&message).unwrap();
        }
    })
}

fn round(client: &mut TcpStream) {
    client.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
}

fn of<'a>(reading: &'a Reading, stream: &TcpStream) -> &'a Watched {
    let wanted = tuple(stream);
    reading.connections.iter().find(|watched| watched.tuple == wanted).expect("the connection is watched")
}

/// The sums of the layers of a way, and of the whole, in nanoseconds.
fn sums(table: &Table, way: Direction) -> (u64, u64) {
    let parts = Layer::ALL.into_iter().filter(|layer| layer.direction() == way && layer.is_part());
    (parts.map(|layer| table.layer(layer).sum).sum(), table.layer(Layer::whole(way)).sum)
}

/// The sum of a layer in milliseconds.
fn ms(table: &Table, layer: Layer) -> u64 {
    table.layer(layer).sum / 1_000_000
}

/// The layer of a way that has most of its time.
fn slowest(table: &Table, way: Direction) -> Layer {
    let parts = Layer::ALL.into_iter().filter(|layer| layer.direction() == way && layer.is_part());
    parts.max_by_key(|layer| table.layer(*layer).sum).unwrap()
}

/// Fifty messages one at a time, each seen by itself. The other end is another tuple, so one is watched.
fn each_adds_up(address: &str) {
    let (mut client, server) = pair(address);
    let mut watch = Watch::start(&Wanted::Tuple(tuple(&client)), 1).unwrap();
    let echo = echo(server);
    let mut before = Table::default();
    for message in 1..=50 {
        round(&mut client);
        let reading = watch.read().unwrap();
        assert_eq!((reading.connections.len(), reading.left_out), (1, 0));
        let table = of(&reading, &client).table.clone();
        let this = table.since(&before);
        before = table;
        for way in Direction::ALL {
            let whole = this.layer(Layer::whole(way)).count;
            assert!(whole == 1, "{address}, message {message}, {}: {whole}", way.name());
            let (parts, whole) = sums(&this, way);
            assert!(parts.abs_diff(whole) * 50 <= whole, "{address}, {}: {parts} of {whole}", way.name());
        }
    }
    let layers = Layer::ALL.into_iter().filter(|layer| before.layer(*layer).count > 0);
    let names: Vec<&str> = layers.map(Layer::name).collect();
    let expected = match watch.sights()[0].by {
        By::Functions => {
            "write send-queue segment output transmit receive-device parse lookup place decide tell wake-up read \
             receive stack answer"
        }
        _ => "write output transmit receive-device parse place wake-up read receive stack answer",
    };
    assert_eq!(names.join(" "), expected);
    drop(client);
    echo.join().unwrap();
}

#[test]
fn the_layers_of_each_message_add_up() {
    need_sight!();
    let netns = Netns::new("latency");
    netns.enter(|| each_adds_up("127.0.0.1"));
    netns.enter(|| each_adds_up("::1"));
}

/// A kernel that lets programs see its functions.
#[test]
fn another_kernel_shows_every_layer() {
    if vm::is_guest() {
        vm::enter();
        run(Command::new("ip").args(["link", "set", "lo", "up"]));
        assert!(sights().unwrap().iter().all(|sight| sight.by == By::Functions), "{:?}", sights());
        each_adds_up("127.0.0.1");
        each_adds_up("::1");
        what_is_corked_waits_in_the_send_queue();
        return a_stopped_program_is_late_to_wake();
    }
    need_root!();
    match vm::Kernel::find(env!("CARGO_TARGET_TMPDIR")) {
        Ok(kernel) => println!("{}", vm::run(&kernel, &[], &["cat", "ip"], "another_kernel_shows_every_layer")),
        Err(why) => skip!("another kernel {why}"),
    }
}

fn what_is_corked_waits_in_the_send_queue() {
    let (mut client, server) = pair("127.0.0.1");
    let mut watch = Watch::start(&Wanted::Tuple(tuple(&client)), 1).unwrap();
    let echo = echo(server);
    set_tcp_cork(&client, true).unwrap();
    client.write_all(b"ping").unwrap();
    thread::sleep(DELAY);
    set_tcp_cork(&client, false).unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    let table = of(&watch.read().unwrap(), &client).table.clone();
    assert!(ms(&table, Layer::SendQueue) >= SEEN_MS, "{:?}", table.rows(Direction::Transmit));
    assert_eq!(slowest(&table, Direction::Transmit), Layer::SendQueue);
    drop(client);
    echo.join().unwrap();
}

/// `cat`, which reads what the peer sends, until it is killed.
struct Cat(Child);

impl Cat {
    fn start(server: TcpStream) -> Cat {
        let server = Stdio::from(OwnedFd::from(server));
        Cat(Command::new("cat").stdin(server).stdout(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    }
}

impl Drop for Cat {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_stopped_program_is_late_to_wake() {
    let (mut client, server) = pair("127.0.0.1");
    let peer = Tuple::new(client.peer_addr().unwrap(), client.local_addr().unwrap());
    let mut watch = Watch::start(&Wanted::Tuple(peer), 1).unwrap();
    let cat = Cat::start(server);
    let mut received = |client: &mut TcpStream, count: u64| {
        let mut table = Table::default();
        // A connection is watched from its first call on, which may have begun before.
        wait_for("the message is received", || {
            client.write_all(b"ping").unwrap();
            thread::sleep(Duration::from_millis(5));
            let reading = watch.read().unwrap();
            table = reading.connections.first().map(|it| it.table.clone()).unwrap_or_default();
            table.layer(Layer::Receive).count >= count
        });
        table
    };
    let before = received(&mut client, 2);
    cat.signal(Signal::STOP);
    // A call that the signal interrupts would take the message along.
    wait_for("the program stops", || cat.is_stopped());
    client.write_all(b"ping").unwrap();
    thread::sleep(DELAY);
    cat.signal(Signal::CONT);
    let count = before.layer(Layer::Receive).count;
    let table = received(&mut client, count + 2).since(&before);
    assert!(ms(&table, Layer::WakeUp) >= SEEN_MS, "{:?}", table.rows(Direction::Receive));
    assert_eq!(slowest(&table, Direction::Receive), Layer::WakeUp);
    drop(cat);
}

#[test]
fn slow_layers_are_found() {
    need_sight!();
    let netns = Netns::new("latency");
    netns.enter(what_is_corked_waits_in_the_send_queue);
    netns.enter(a_stopped_program_is_late_to_wake);
    // A device that sends 70 bytes in 70 ms.
    netns.run("tc qdisc add dev lo root tbf rate 8kbit burst 300 latency 10s");
    netns.enter(|| {
        let (mut client, server) = pair("127.0.0.1");
        let mut watch = Watch::start(&Wanted::Tuple(tuple(&client)), 1).unwrap();
        let echo = echo(server);
        (0..3).for_each(|_| round(&mut client));
        let table = of(&watch.read().unwrap(), &client).table.clone();
        assert!(ms(&table, Layer::Output) >= SEEN_MS, "{:?}", table.rows(Direction::Transmit));
        assert_eq!(slowest(&table, Direction::Transmit), Layer::Output);
        drop(client);
        echo.join().unwrap();
    });
}

#[test]
fn connections_beyond_the_slots_are_counted_and_closed_ones_make_room() {
    need_sight!();
    let netns = Netns::new("latency");
    netns.enter(|| {
        let mut watch = Watch::start(&Wanted::All, 2).unwrap();
        let talk = || {
            let (mut client, server) = pair("127.0.0.1");
            let echo = echo(server);
            (0..3).for_each(|_| round(&mut client));
            (client, echo)
        };
        // Each connection has both its ends here.
        let mut talks: Vec<_> = (0..3).map(|_| talk()).collect();
        let reading = watch.read().unwrap();
        assert_eq!((reading.connections.len(), reading.left_out), (2, 4));
        assert_eq!(reading.earlier_count, 0);
        let (first, echo) = talks.remove(0);
        let sent = of(&reading, &first).table.layer(Layer::Transmit).count;
        assert_eq!(sent, 3);
        let port = first.local_addr().unwrap().port();
        drop(first);
        echo.join().unwrap();
        wait_for("both ends are closed", || {
            let reading = watch.read().unwrap();
            reading.connections.iter().filter(|watched| watched.closed).count() == 2
        });
        let (again, echo) = talk();
        let reading = watch.read().unwrap();
        assert_eq!((reading.connections.len(), reading.left_out), (4, 4), "two closed, two new");
        assert!(of(&reading, &again).table.layer(Layer::Receive).count >= 2);
        let ports = reading.connections.iter().filter(|it| it.tuple.local_port == port || it.tuple.remote_port == port);
        assert_eq!(ports.count(), 2, "what closed is shown still");
        drop(again);
        echo.join().unwrap();
        for (client, echo) in talks {
            drop(client);
            echo.join().unwrap();
        }
    });
}

#[test]
fn connections_are_chosen_by_port_and_by_process() {
    need_sight!();
    let netns = Netns::new("latency");
    netns.enter(|| {
        let (mut wanted, server) = pair("127.0.0.1");
        let port = wanted.peer_addr().unwrap().port();
        let mut by_port = Watch::start(&Wanted::Port(port), 8).unwrap();
        let (mut other, other_server) = pair("127.0.0.1");
        let echoes = [echo(server), echo(other_server)];
        let cat_pair = pair("127.0.0.1");
        let cat = Cat::start(cat_pair.1);
        let mut by_pid = Watch::start(&Wanted::Pid(cat.0.id()), 8).unwrap();
        let mut client = cat_pair.0;
        for _ in 0..5 {
            round(&mut wanted);
            round(&mut other);
            client.write_all(b"ping").unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        let seen = by_port.read().unwrap().connections;
        assert_eq!(seen.len(), 2, "both ends");
        assert!(seen.iter().all(|it| it.tuple.local_port == port || it.tuple.remote_port == port));
        let seen = by_pid.read().unwrap().connections;
        assert_eq!(seen.iter().map(|it| it.tuple.local_port).collect::<Vec<_>>(), [client.peer_addr().unwrap().port()]);
        assert!(seen[0].table.layer(Layer::Receive).count >= 2);
        assert_eq!(seen[0].pid, cat.0.id());
        drop((wanted, other));
        echoes.into_iter().for_each(|echo| echo.join().unwrap());
    });
}

#[test]
fn a_kernel_without_types_is_refused() {
    need_root!();
    if !types::are_hidden("a_kernel_without_types_is_refused") {
        return;
    }
    let refused = Watch::start(&Wanted::All, 1).err().expect("it is refused");
    assert!(matches!(refused, LatencyError::NoBtf { .. }), "{refused}");
    assert!(refused.to_string().contains("CONFIG_DEBUG_INFO_BTF"));
}
