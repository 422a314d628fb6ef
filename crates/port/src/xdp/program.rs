//! The XDP program `bpf/programs/endpoint.c`: loaded, attached, told addresses and sockets.
//!
//! It is attached through a BPF link, which the kernel takes off with the last
//! descriptor of it: also when this process is killed.

use std::net::IpAddr;
use std::os::fd::AsRawFd;

use aya::maps::{HashMap, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::{ProgramError, Xdp, XdpMode};
use aya::{Ebpf, EbpfError};

/// Queues that the program can serve (`QUEUES_MAX` there).
pub const QUEUES_MAX: u32 = 64;

/// Why the program is not in place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramSetupError {
    /// Built without clang.
    #[error("built without the XDP program")]
    NotBuilt,
    /// The kernel refused the program or its maps.
    #[error("loading the XDP program: {0}")]
    Load(#[from] EbpfError),
    /// The kernel refused to verify or attach it.
    #[error("attaching the XDP program: {0}")]
    Attach(#[from] ProgramError),
    /// A map refused an entry.
    #[error("filling the maps of the XDP program: {0}")]
    Map(#[from] MapError),
}

impl ProgramSetupError {
    /// The operating system's answer, if there was one.
    pub fn os_error(&self) -> Option<i32> {
        let mut error: &dyn std::error::Error = self;
        loop {
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                return io.raw_os_error();
            }
            error = error.source()?;
        }
    }
}

/// Frames by what became of them, on all CPUs since the program was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramCounters {
    /// Left to the kernel.
    pub passed: u64,
    /// Handed to a socket.
    pub redirected: u64,
}

/// The program, loaded and attached.
pub struct Program {
    sockets: XskMap<MapData>,
    addresses: HashMap<MapData, [u8; 16], u8>,
    counts: PerCpuArray<MapData, u64>,
    /// Holds the program and its link; dropped, it detaches.
    _ebpf: Ebpf,
}

impl Program {
    /// Loads the program and attaches it to an interface.
    ///
    /// # Errors
    /// The step that failed.
    pub fn attach(interface: u32, mode: XdpMode) -> Result<Self, ProgramSetupError> {
        let mut ebpf = Ebpf::load(object()?)?;
        let sockets = XskMap::try_from(take(&mut ebpf, "SOCKETS"))?;
        let addresses = HashMap::try_from(take(&mut ebpf, "ADDRESSES"))?;
        let counts = PerCpuArray::try_from(take(&mut ebpf, "COUNTS"))?;
        let program = ebpf.program_mut("endpoint").expect("endpoint.c has a program of that name");
        let program: &mut Xdp = program.try_into()?;
        program.load()?;
        program.attach_to_if_index(interface, mode)?;
        Ok(Self { sockets, addresses, counts, _ebpf: ebpf })
    }

    /// Loads the program without attaching it, to see whether the kernel takes it.
    ///
    /// # Errors
    /// The step that failed.
    pub fn probe() -> Result<(), ProgramSetupError> {
        let mut ebpf = Ebpf::load(object()?)?;
        let program: &mut Xdp =
            ebpf.program_mut("endpoint").expect("endpoint.c has a program of that name").try_into()?;
        Ok(program.load()?)
    }

    /// Redirects the endpoint's frames of a queue to `socket`.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn set_socket(&mut self, queue: u32, socket: &impl AsRawFd) -> Result<(), ProgramSetupError> {
        Ok(self.sockets.set(queue, socket.as_raw_fd(), 0)?)
    }

    /// Makes `address` one of the endpoint's own.
    ///
    /// # Errors
    /// As the kernel's: there is room for 256.
    pub fn add_address(&mut self, address: IpAddr) -> Result<(), ProgramSetupError> {
        let bytes = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Ok(self.addresses.insert(bytes, 1, 0)?)
    }

    /// Counts of frames by fate so far.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn counters(&self) -> Result<ProgramCounters, ProgramSetupError> {
        let sum = |index| -> Result<u64, MapError> { Ok(self.counts.get(&index, 0)?.iter().sum()) };
        Ok(ProgramCounters { passed: sum(0)?, redirected: sum(1)? })
    }
}

fn take(ebpf: &mut Ebpf, name: &str) -> aya::maps::Map {
    ebpf.take_map(name).unwrap_or_else(|| panic!("endpoint.c has a map {name}"))
}

/// The compiled program.
fn object() -> Result<&'static [u8], ProgramSetupError> {
    baton_bpf::endpoint().ok_or(ProgramSetupError::NotBuilt)
}
