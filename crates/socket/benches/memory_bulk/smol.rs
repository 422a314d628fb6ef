//! smoltcp doing the same: two interfaces on an in-memory wire, driven in turn.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Size of each stream buffer in bytes, the same as Baton's.
const BUFFER: usize = 256 << 10;

/// Frames that fit on the wire in each direction, the same as on Baton's.
const FRAMES: usize = 64;

/// One direction of the wire: its frames, and the free buffers that they return to.
#[derive(Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

struct Wire {
    rx: Rc<RefCell<Queue>>,
    tx: Rc<RefCell<Queue>>,
}

struct Received(Vec<u8>, Rc<RefCell<Queue>>);
struct Sending(Rc<RefCell<Queue>>);

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending)> {
        let frame = self.rx.borrow_mut().frames.pop_front()?;
        Some((Received(frame, self.rx.clone()), Sending(self.tx.clone())))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending> {
        (self.tx.borrow().frames.len() < FRAMES).then(|| Sending(self.tx.clone()))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities.max_burst_size = None;
        let mut checksum = ChecksumCapabilities::default();
        checksum.tcp = Checksum::Both;
        capabilities.checksum = checksum;
        capabilities
    }
}

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.0);
        self.1.borrow_mut().spare.push(self.0);
        result
    }
}

impl TxToken for Sending {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut queue = self.0.borrow_mut();
        let mut frame = queue.spare.pop().unwrap_or_default();
        frame.resize(len, 0);
        let result = f(&mut frame);
        queue.frames.push_back(frame);
        result
    }
}

struct Host {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Host {
    fn new(last: u8, mut wire: Wire) -> Host {
        let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, last]).into());
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::v4(10, 0, 0, last), 24)).expect("room for one address");
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(socket);
        Host { wire, interface, sockets, handle }
    }

    fn poll(&mut self, micros: i64) {
        self.interface.poll(Instant::from_micros(micros), &mut self.wire, &mut self.sockets);
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }
}

/// A client and a server with an open connection between them.
pub struct Pair {
    client: Host,
    server: Host,
    micros: i64,
    data: Vec<u8>,
    sink: Vec<u8>,
}

impl Pair {
    pub fn connected() -> Pair {
        let (there, back) = (Rc::<RefCell<Queue>>::default(), Rc::<RefCell<Queue>>::default());
        let mut client = Host::new(1, Wire { rx: back.clone(), tx: there.clone() });
        let mut server = Host::new(2, Wire { rx: there, tx: back });
        server.socket().listen(80).expect("a free port");
        let Host { interface, sockets, handle, .. } = &mut client;
        let socket = sockets.get_mut::<tcp::Socket<'_>>(*handle);
        socket.connect(interface.context(), (IpAddress::v4(10, 0, 0, 2), 80), 49_152).expect("a route");
        let mut pair = Pair { client, server, micros: 0, data: vec![7; 64 << 10], sink: vec![0; 64 << 10] };
        while !(pair.client.socket().may_send() && pair.server.socket().may_recv()) {
            pair.step();
            assert!(pair.micros < 10_000_000, "no connection");
        }
        pair
    }

    fn step(&mut self) {
        self.micros += 2;
        self.client.poll(self.micros);
        self.server.poll(self.micros);
    }

    /// Sends `total` bytes from client to server.
    pub fn transfer(&mut self, total: usize) {
        let (mut sent, mut received) = (0, 0);
        while received < total {
            while sent < total {
                let count = self.data.len().min(total - sent);
                match self.client.sockets.get_mut::<tcp::Socket<'_>>(self.client.handle).send_slice(&self.data[..count])
                {
                    Ok(0) | Err(_) => break,
                    Ok(count) => sent += count,
                }
            }
            self.step();
            while let Ok(count @ 1..) =
                self.server.sockets.get_mut::<tcp::Socket<'_>>(self.server.handle).recv_slice(&mut self.sink)
            {
                received += count;
            }
        }
    }
}
