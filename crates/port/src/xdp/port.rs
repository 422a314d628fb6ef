//! The AF_XDP port: the program, and a socket for each queue.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use baton_engine::frame_io::{Capabilities, FrameIo, FrameSink, PayloadPart, PortError, TxMeta};

use super::program::{Program, ProgramCounters, ProgramSetupError, QUEUES_MAX};
use super::socket::{Layout, Socket, StepError};
use crate::error::{OpenError, chain};
use crate::sys::copy_parts;
use crate::wait::{WaitSet, Waitable};
use crate::{link, sys};

/// Ethernet header with a VLAN tag, in bytes.
const LINK_HEADER: u32 = 18;
/// Headroom that the kernel keeps in each chunk, in bytes (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// Chunks to receive into, a queue.
const RX_CHUNKS: u32 = 1024;
/// Frames that can wait to be sent, a queue.
const TX_FRAMES: u32 = 512;

/// How frames get from the driver into packet memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum CopyMode {
    /// Zero-copy if the driver can, else by copy.
    #[default]
    Auto,
    /// By copy.
    Copy,
    /// Zero-copy, or opening fails.
    ZeroCopy,
}

/// How an AF_XDP port is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct XdpOptions {
    /// Use the kernel's generic hook even if the driver has one.
    pub generic: bool,
    /// How frames get into packet memory.
    pub copy: CopyMode,
    /// Receive queues to serve, from the first on; all that the interface has if
    /// `None`. Frames of a queue that is not served go to the kernel.
    pub queues: Option<u32>,
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl XdpOptions {
    /// The defaults: the best mode that the driver has, on all queues.
    pub const fn new() -> Self {
        Self { generic: false, copy: CopyMode::Auto, queues: None }
    }

    /// Sets whether the kernel's generic hook is used even if the driver has one.
    pub const fn generic(self, generic: bool) -> Self {
        Self { generic, ..self }
    }

    /// Sets how frames get into packet memory.
    pub const fn copy(self, copy: CopyMode) -> Self {
        Self { copy, ..self }
    }

    /// Sets the number of receive queues to serve; `None` for all of them.
    pub const fn queues(self, queues: Option<u32>) -> Self {
        Self { queues, ..self }
    }
}

/// The mode that a port obtained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct XdpMode {
    /// The program runs in the driver; else in the generic hook.
    pub driver: bool,
    /// The hardware receives into packet memory; else one copy is made.
    pub zero_copy: bool,
    /// Queues served.
    pub queues: u32,
}

/// Frames by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct XdpCounters {
    /// The program's counts; zeroes if it belongs to another process.
    pub program: ProgramCounters,
    /// Dropped because the receive ring was full or no chunk was free.
    pub rx_full: u64,
    /// Dropped by the kernel for another reason, such as too long for the socket.
    pub rx_dropped: u64,
    /// Dropped by the port as longer than the MTU allows.
    pub rx_too_long: u64,
    /// Refused by the kernel on sending.
    pub tx_invalid: u64,
}

/// An AF_XDP port on an interface.
pub struct XdpPort {
    // Dropped first: no frame is redirected to a socket that is gone. `None` if another
    // process's program redirects.
    program: Option<Program>,
    sockets: Vec<Socket>,
    /// The socket to receive from next.
    next: usize,
    interface: String,
    mtu: u16,
    mode: XdpMode,
    /// A wait has ended and nothing has been received since.
    woken: bool,
}

impl XdpPort {
    /// Attaches the program to `interface` and opens a socket for each queue.
    /// Without [`XdpPort::add_address`] every frame stays with the kernel.
    ///
    /// # Errors
    /// [`OpenError`] with the remedy.
    pub fn open(interface: &str, options: XdpOptions) -> Result<Self, OpenError> {
        let explain = Explain { interface };
        let (index, queues, mtu) = look_at(interface, options, &explain)?;
        let (driver, mut program) = attach(index, options, &explain)?;
        let sockets = bind(index, queues, mtu, driver, options, &explain)?;
        for (queue, socket) in (0..).zip(&sockets) {
            program.set_socket(queue, &socket.as_fd()).map_err(|e| explain.program(e))?;
        }
        Ok(Self::new(Some(program), sockets, interface, mtu, driver))
    }

    /// Opens a socket for each queue of `interface` without loading a program: the program that
    /// is there redirects frames into [`XdpPort::sockets`]. `options` say whether it runs in
    /// the generic hook.
    ///
    /// # Errors
    /// [`OpenError`] with the remedy.
    pub fn open_sockets(interface: &str, options: XdpOptions) -> Result<Self, OpenError> {
        let explain = Explain { interface };
        let (index, queues, mtu) = look_at(interface, options, &explain)?;
        let driver = !options.generic;
        let sockets = bind(index, queues, mtu, driver, options, &explain)?;
        Ok(Self::new(None, sockets, interface, mtu, driver))
    }

    fn new(program: Option<Program>, sockets: Vec<Socket>, interface: &str, mtu: u16, driver: bool) -> Self {
        let zero_copy = sockets.iter().all(|s| s.is_zero_copy().unwrap_or(false));
        let mode = XdpMode { driver, zero_copy, queues: sockets.len() as u32 };
        Self { program, sockets, next: 0, interface: interface.to_owned(), mtu, mode, woken: false }
    }

    /// The sockets, that of the first queue first.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Takes the frames of `address` from the kernel: it is the endpoint's.
    ///
    /// # Errors
    /// [`PortError`] when there are 256 already.
    ///
    /// # Panics
    /// On a port that was opened by [`XdpPort::open_sockets`].
    pub fn add_address(&mut self, address: IpAddr) -> Result<(), PortError> {
        let program = self.program.as_mut().expect("a port with a program of its own");
        program.add_address(address).map_err(|e| self.error("adding an address", io::Error::other(e)))
    }

    /// The mode that was obtained.
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The frames that wait in the receive rings of all queues.
    pub fn waiting(&mut self) -> u32 {
        self.sockets.iter_mut().map(Socket::waiting).sum()
    }

    /// The most frames that the receive rings of all queues hold.
    pub fn ring(&self) -> u32 {
        self.sockets.iter().map(Socket::ring).sum()
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.interface
    }

    /// Counts of frames by fate so far.
    ///
    /// # Errors
    /// [`PortError`] if the kernel cannot be asked.
    pub fn counters(&self) -> Result<XdpCounters, PortError> {
        let program = self.program.as_ref().map_or(Ok(ProgramCounters::default()), Program::counters);
        let program = program.map_err(|e| self.error("reading counters", io::Error::other(e)))?;
        let mut counters = XdpCounters { program, ..XdpCounters::default() };
        for socket in &self.sockets {
            let s = socket.statistics().map_err(|e| self.error("reading statistics", e))?;
            counters.rx_full += s.rx_ring_full;
            counters.rx_dropped += s.rx_dropped;
            counters.tx_invalid += s.tx_invalid_descs;
            counters.rx_too_long += socket.rx_too_long;
        }
        Ok(counters)
    }

    fn error(&self, what: &str, source: io::Error) -> PortError {
        PortError::new(format!("xdp:{}: {what}", self.interface), source)
    }
}

/// The interface's index, how many queues are to be served, the MTU.
fn look_at(interface: &str, options: XdpOptions, explain: &Explain<'_>) -> Result<(u32, u32, u16), OpenError> {
    let index = link::index(interface).map_err(|e| explain.os("finding the interface", e))?;
    let mtu = link::mtu(interface).map_err(|e| explain.os("reading the MTU", e))?;
    let has = link::rx_queues(interface).map_err(|e| explain.os("counting queues", e))?;
    let queues = options.queues.unwrap_or(has).min(QUEUES_MAX);
    if queues == 0 || queues > has {
        return Err(explain.unsuitable(format!("has {has} receive queues, not {queues}"), "ask for that many at most"));
    }
    Ok((index, queues, mtu.min(u16::MAX.into()) as u16))
}

/// Attaches the program in the best mode allowed; whether it runs in the driver.
fn attach(index: u32, options: XdpOptions, explain: &Explain<'_>) -> Result<(bool, Program), OpenError> {
    if !options.generic {
        match Program::attach(index, aya::programs::XdpMode::Driver) {
            Ok(program) => return Ok((true, program)),
            // The driver has no hook, or not for this MTU or these queues.
            Err(e) if matches!(e.os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE | libc::ENOSPC)) => {}
            Err(e) => return Err(explain.program(e)),
        }
    }
    let program = Program::attach(index, aya::programs::XdpMode::Skb).map_err(|e| explain.program(e))?;
    Ok((false, program))
}

/// Opens a socket for each queue.
fn bind(
    index: u32,
    queues: u32,
    mtu: u16,
    driver: bool,
    options: XdpOptions,
    explain: &Explain<'_>,
) -> Result<Vec<Socket>, OpenError> {
    let frame_max = u32::from(mtu) + LINK_HEADER;
    let chunk = if frame_max + HEADROOM <= 2048 { 2048 } else { 4096 };
    let layout = Layout { chunk, rx_chunks: RX_CHUNKS, tx_frames: TX_FRAMES, frame_max };
    let pieces = if frame_max + HEADROOM > chunk { libc::XDP_USE_SG } else { 0 };
    let copy = match options.copy {
        CopyMode::ZeroCopy if !driver => {
            return Err(explain.unsuitable("no zero-copy in the generic hook".into(), "ask for one or the other"));
        }
        CopyMode::ZeroCopy => libc::XDP_ZEROCOPY,
        CopyMode::Auto if driver => 0,
        CopyMode::Auto | CopyMode::Copy => libc::XDP_COPY,
    };
    let flags = libc::XDP_USE_NEED_WAKEUP | pieces | copy;
    (0..queues).map(|queue| Socket::open(index, queue, flags, layout).map_err(|e| explain.socket(e))).collect()
}

impl FrameIo for XdpPort {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.mtu)
    }

    fn receive<S: FrameSink>(&mut self, limit: usize, sink: &mut S) -> Result<usize, PortError> {
        let (mut total, mut dry) = (0, 0);
        while total < limit && dry < self.sockets.len() {
            let count = self.sockets[self.next].receive(limit - total, sink);
            self.next = (self.next + 1) % self.sockets.len();
            dry = if count == 0 { dry + 1 } else { 0 };
            total += count;
        }
        if total == 0 && self.woken {
            let gone = self.sockets.iter().find_map(|s| s.take_error().err());
            if let Some(e) = gone {
                return Err(self.error("receiving", e));
            }
        }
        self.woken = false;
        Ok(total)
    }

    fn slot(&mut self, len: usize) -> Option<&mut [u8]> {
        self.sockets[0].slot(len)
    }

    fn commit(&mut self, len: usize, _meta: TxMeta) {
        self.sockets[0].commit(len);
    }

    fn gather(&mut self, header: &[u8], payload: &[PayloadPart], meta: TxMeta) -> bool {
        let len = header.len() + payload.iter().map(|p| p.len).sum::<usize>();
        let Some(slot) = self.slot(len) else { return false };
        copy_parts(slot, header, payload);
        self.commit(len, meta);
        true
    }

    fn flush(&mut self) -> Result<(), PortError> {
        for i in 0..self.sockets.len() {
            self.sockets[i].flush().map_err(|e| self.error("sending", e))?;
        }
        Ok(())
    }
}

impl Waitable for XdpPort {
    /// Polling a socket also wakes the driver where it asks for it.
    fn poll_fds(&self, set: &mut WaitSet) {
        for socket in &self.sockets {
            set.add(&socket.as_fd());
        }
    }

    fn prepare_wait(&mut self) -> bool {
        !self.sockets.iter_mut().any(Socket::has_waiting)
    }

    fn finish_wait(&mut self) {
        self.woken = true;
    }
}

/// Puts the kernel's answers into words with a remedy.
struct Explain<'a> {
    interface: &'a str,
}

impl Explain<'_> {
    fn device(&self) -> String {
        format!("xdp:{}", self.interface)
    }

    fn unsuitable(&self, what: String, remedy: &str) -> OpenError {
        OpenError::Unsuitable { device: self.device(), what, remedy: remedy.into() }
    }

    fn os(&self, what: &'static str, source: io::Error) -> OpenError {
        match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => OpenError::Missing {
                device: self.device(),
                remedy: "name an interface that is there (see them: ip link)".into(),
            },
            None if source.kind() == io::ErrorKind::InvalidInput => {
                let remedy = format!("use 1 to {} letters, without /", sys::ioctl::NAME_MAX);
                self.unsuitable("no name for an interface".into(), &remedy)
            }
            _ => OpenError::System { device: self.device(), what, source },
        }
    }

    fn program(&self, error: ProgramSetupError) -> OpenError {
        let device = self.device();
        if matches!(error, ProgramSetupError::NotBuilt) {
            let remedy = "built without clang: install clang and build again".into();
            return OpenError::Unsuitable { device, what: error.to_string(), remedy };
        }
        match error.os_error() {
            Some(libc::EPERM | libc::EACCES) => OpenError::NotPermitted {
                device,
                remedy: "run as root, or with CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF".into(),
            },
            Some(libc::EBUSY | libc::EEXIST) => OpenError::Busy {
                device,
                remedy: format!(
                    "take the other XDP program off (who: bpftool net; ip link set {} xdp off), or use tap:",
                    self.interface
                ),
            },
            _ => {
                let what = chain(&error);
                OpenError::Unsuitable { device, what, remedy: "use xdp:INTERFACE,generic or tap:".into() }
            }
        }
    }

    fn socket(&self, error: StepError) -> OpenError {
        let device = self.device();
        match error.source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                OpenError::NotPermitted { device, remedy: "run as root, or with CAP_NET_RAW".into() }
            }
            Some(libc::EBUSY) => OpenError::Busy {
                device,
                remedy: "end the program that has an AF_XDP socket on this queue (who: ss --xdp)".into(),
            },
            Some(libc::EAFNOSUPPORT) => {
                OpenError::Missing { device, remedy: "use a kernel with CONFIG_XDP_SOCKETS, or tap:".into() }
            }
            Some(libc::ENOBUFS) => OpenError::Unsuitable {
                device,
                what: "packet memory may not be locked".into(),
                remedy: "raise the limit (ulimit -l unlimited), or run with CAP_IPC_LOCK".into(),
            },
            Some(libc::EOPNOTSUPP | libc::EINVAL) => OpenError::Unsuitable {
                device,
                what: format!("{}: {}", error.what, error.source),
                remedy: "use xdp:INTERFACE,copy or xdp:INTERFACE,generic".into(),
            },
            _ => OpenError::System { device, what: error.what, source: error.source },
        }
    }
}
