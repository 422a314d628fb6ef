//! The server at the far end of a wire: a thread in the server's namespace, in this process, so that its
//! engine's times can be read here.

use crate::workload::wires::Far;
use crate::world::World;
use anyhow::{Context, anyhow, ensure};
use baton_apps::net::engine::EngineNet;
use baton_apps::net::kernel::KernelNet;
use baton_apps::net::{Accept, Flow, Handler, Net, StreamIo};
use baton_engine::endpoint::Cidr;
use baton_latency::WatchMemory;
use baton_port::{AnyPort, PortSpec};
use baton_socket::host::HostConfig;
use baton_tcp::config::Congestion;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

/// The port of every server.
pub const PORT: u16 = 7;

/// The longest wait of a turn; bounds the time until a server ends.
const WAIT: Duration = Duration::from_millis(20);

/// Connections of a server of the kernel's: one at a time, and one that is not closed yet.
const CONNECTIONS: usize = 64;

/// Orders of the measurement to all servers, and their answers.
#[derive(Default)]
pub struct Orders {
    /// Bytes of a request, and of its answer, on the next connection.
    bytes: AtomicUsize,
    end: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Orders {
    /// The next connection has requests of this size.
    pub fn expect(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// The failure of a server, if one failed.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Ends all servers once it is dropped.
pub struct Ending(pub Arc<Orders>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end.store(true, Ordering::Relaxed);
    }
}

/// Starts a server, which lives until the orders end. Returns the memory of its engine's times, or `None`
/// for one of the kernel.
///
/// # Errors
/// If its stack cannot be opened.
pub fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    world: &'scope World,
    far: &Far,
    orders: &Arc<Orders>,
) -> anyhow::Result<Option<Arc<WatchMemory>>> {
    let memory = (!far.is_kernel()).then(WatchMemory::heap);
    let (ready, told) = channel();
    let (port, cidrs, watched, orders) = (far.port.clone(), far.cidrs.clone(), memory.clone(), orders.clone());
    scope.spawn(move || {
        let served = world.server.enter(|| {
            let addresses = cidrs.iter().map(|cidr| cidr.parse()).collect::<Result<Vec<Cidr>, _>>()?;
            let mut net: Box<dyn Net> = match watched {
                Some(memory) => Box::new(engine(&port, &addresses, memory)?),
                None => Box::new(KernelNet::new(CONNECTIONS)?),
            };
            serve(net.as_mut(), addresses[0].addr.ip(), &orders, &ready)
        });
        // The starter waits for the server to be ready and is told. A later error is for the client, which gets no answer.
        if let Err(error) = served
            && let Err(late) = ready.send(Err(error))
        {
            let error = late.0.err().map(|error| format!("{error:#}"));
            *orders.failure.lock().unwrap_or_else(PoisonError::into_inner) = error;
        }
    });
    told.recv().map_err(|_| anyhow!("a server ended at once"))??;
    Ok(memory)
}

fn engine(port: &str, addresses: &[Cidr], memory: Arc<WatchMemory>) -> anyhow::Result<EngineNet<AnyPort>> {
    let spec: PortSpec = port.parse()?;
    let mut port = AnyPort::open(&spec)?;
    let mut config = HostConfig::new(*addresses.first().context("a wire without an address")?);
    config.engine.tcp.congestion = Congestion::Reno;
    config.engine.interface.addresses = addresses.to_vec();
    if let Some(mac) = port.required_link_address() {
        config.engine.interface.mac = mac;
    }
    for address in addresses {
        port.add_address(address.addr.ip()).context("cannot direct an address to the port")?;
    }
    config.watch = Some(memory);
    Ok(EngineNet::new(&config, port, false)?)
}

fn serve(
    net: &mut dyn Net,
    ip: IpAddr,
    orders: &Arc<Orders>,
    ready: &Sender<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let of = orders.clone();
    let accept: Accept = Box::new(move |_| Box::new(Answers::of(of.bytes.load(Ordering::Relaxed))));
    net.listen(SocketAddr::new(ip, PORT), accept)?;
    ensure!(ready.send(Ok(())).is_ok(), "nobody waits for the server");
    while !orders.end.load(Ordering::Relaxed) {
        net.turn(WAIT)?;
    }
    Ok(())
}

/// Receives a whole request, sends it back, and waits for the next: the paper's server (§1.2).
struct Answers {
    /// A request, or its answer.
    buf: Vec<u8>,
    received: usize,
    sent: usize,
}

impl Answers {
    fn of(bytes: usize) -> Answers {
        Answers { buf: vec![0; bytes], received: 0, sent: 0 }
    }
}

impl Handler for Answers {
    fn on_ready(&mut self, io: &mut dyn StreamIo) -> io::Result<Flow> {
        loop {
            while self.received < self.buf.len() {
                match io.read(&mut self.buf[self.received..])? {
                    0 => {
                        io.finish()?;
                        return Ok(Flow::Done);
                    }
                    len => self.received += len,
                }
            }
            while self.sent < self.buf.len() {
                self.sent += io.write(&self.buf[self.sent..])?;
            }
            (self.received, self.sent) = (0, 0);
        }
    }
}
