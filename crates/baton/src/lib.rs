//! Baton for Rust programs: the one crate to import.
//!
//! There are four ways to use it:
//!
//! * **Sockets** ([`Stack`], [`TcpListener`], [`TcpStream`]): a TCP/IP stack on threads of its own,
//!   with blocking and asynchronous sockets like those of `std`.
//! * **A moved connection** ([`service`]): a connected socket of the kernel is handed to a running
//!   Baton service, and comes back when asked or when the engine dies.
//! * **An engine in your own loop** ([`host`]): no thread and no lock; you say what time it is.
//! * **The engine itself** ([`engine`], [`queue_pairs`]): buffers of your own, posted one by one, and
//!   any source of frames that implements [`engine::FrameIo`].
//!
//! Two stacks in one process, joined by a wire in memory:
//!
//! ```
//! use baton::port::{MemoryOptions, MemoryPort};
//! use baton::{Stack, StackConfig, Threads};
//! use std::io::{Read, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! let (port_a, port_b) = MemoryPort::wakeable_pair(MemoryOptions::default())?;
//! let a = Stack::spawn(&StackConfig::new("10.0.0.1/24".parse().unwrap()), port_a, Threads::One)?;
//! let b = Stack::spawn(&StackConfig::new("10.0.0.2/24".parse().unwrap()), port_b, Threads::One)?;
//!
//! let listener = b.listen("10.0.0.2:7".parse().unwrap())?;
//! let mut client = a.connect("10.0.0.2:7".parse().unwrap())?;
//! let (mut server, _) = listener.accept()?;
//!
//! client.write_all(b"hello")?;
//! let mut got = [0; 5];
//! server.read_exact(&mut got)?;
//! assert_eq!(&got, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! The `examples/` of this crate have a program for each way.
//!
//! Configurations, events and errors may grow, so they are `#[non_exhaustive]`: a program makes a
//! configuration with its constructor and then sets fields, and a `match` has an arm for the rest.
//!
//! ```
//! use baton::engine::Congestion;
//! use baton::{Addr, StackConfig};
//!
//! let mut config = StackConfig::new("10.0.0.1/24".parse().unwrap());
//! config.engine.interface.gateway_v4 = Some(Addr::v4([10, 0, 0, 254]));
//! config.engine.tcp.congestion = Congestion::Reno;
//! config.consumer.connections = 64;
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub use baton_engine::endpoint::{Cidr, CidrError};
pub use baton_socket::host::HostConfig as StackConfig;
pub use baton_socket::net::{TcpListener, TcpStream};
pub use baton_socket::stack::{Stack, Stats, Threads};
pub use baton_tcp::options::SocketOption;
pub use baton_wire::addr::{Addr, Tuple};

/// Connections of the kernel that a running service takes over and gives back.
pub mod service {
    pub use baton_client::{NotAdopted, Place, Readiness, SOCKET, Service, Stream, Tally};
    pub use baton_ipc::message::{Entry, Selector};
    pub use baton_ipc::placement::Placement;
}

/// An engine, its port and its streams on the caller's thread.
pub mod host {
    pub use baton_consumer::consumer::{Attempt, Conn, Consumer, ConsumerConfig, Listener, SocketEvent};
    pub use baton_consumer::memory::Memory;
    pub use baton_socket::host::{Host, HostConfig};
}

/// Buffers of the program's own choosing, posted one by one.
pub mod queue_pairs {
    pub use baton_consumer::memory::Memory;
    pub use baton_consumer::qp::{QpEvent, QueuePairs};
    pub use baton_engine::region::{EngineRegion, Extent, Layout, LayoutError, PostError, RequestError};
}

/// The engine, and what it asks of a port.
pub mod engine {
    pub use baton_engine::endpoint::InterfaceConfig;
    pub use baton_engine::engine::{Activity, Engine, EngineConfig};
    pub use baton_engine::frame_io::{
        Arrival, BURST, Capabilities, FrameIo, FrameSink, PayloadPart, PortError, RxFrame, RxMeta, TxMeta,
    };
    pub use baton_tcp::config::{Acks, Config as TcpConfig, Congestion};
}

/// Sources and sinks of frames.
pub mod port {
    pub use baton_port::error::OpenError;
    pub use baton_port::memory::{MemoryOptions, MemoryPort};
    pub use baton_port::tap::{Tap, TapOptions};
    pub use baton_port::wait::{WaitSet, Waitable};
    pub use baton_port::xdp::{CopyMode, XdpOptions, XdpPort};
}

/// The engine's clock.
pub mod time {
    pub use baton_tcp::time::{Duration, Instant};
}
