//! Times of kernel connections by layer, of real connections in a namespace.

use baton_kernel::latency::{By, Reading, Wanted, Watch, Watched, sights};
use baton_latency::{Direction, Layer, Table};
use baton_testkit::{Netns, need_root, skip};
use baton_wire::addr::Tuple;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

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

#[test]
fn the_layers_of_each_message_add_up() {
    need_sight!();
    let netns = Netns::new("latency");
    for address in ["127.0.0.1", "::1"] {
        netns.enter(|| {
            let (mut client, server) = pair(address);
            let mut watch = Watch::start(&Wanted::Tuple(tuple(&client)), 1).unwrap();
            let echo = echo(server);
            let mut before = Table::default();
            for message in 1..=50 {
                round(&mut client);
                let reading = watch.read().unwrap();
                let table = of(&reading, &client).table.clone();
                let this = table.since(&before);
                before = table;
                for way in Direction::ALL {
                    let whole = this.layer(Layer::whole(way)).count;
                    // Nobody watched when the first answer was on its way.
                    assert!(whole == 1, "{address}, message {message}, {}: {whole}", way.name());
                    let (parts, whole) = sums(&this, way);
                    assert!(parts.abs_diff(whole) * 50 <= whole, "{address}, {}: {parts} of {whole}", way.name());
                }
            }
            let layers = Layer::ALL.into_iter().filter(|layer| before.layer(*layer).count > 0);
            let names: Vec<&str> = layers.map(Layer::name).collect();
            let expected = match watch.sights()[0].by {
                By::Functions => {
                    "write send-queue segment output transmit receive-device parse lookup place decide tell wake-up \
                     read receive stack"
                }
                _ => "write output transmit receive-device parse place wake-up read receive stack",
            };
            assert_eq!(names.join(" "), expected);
            let only = watch.read().unwrap();
            assert_eq!((only.connections.len(), only.left_out), (1, 0), "the other end is another tuple");
            drop(client);
            echo.join().unwrap();
        });
    }
}
