//! Whether the kernel holds payload of a connection beyond a gap.
//!
//! `TCP_REPAIR` does not show it: who takes the connection out of the kernel then loses it. The
//! peer knows of it by SACK, though, and Linux takes a receiver that forgets (RFC 2018 §8)
//! hard: it waits for a timeout, and then repeats all that it had sent (net/ipv4/tcp_input.c
//! `tcp_check_sack_reneging`); with BBR, as seen on Linux 6.18, with a window of one segment
//! until all of that is acknowledged. So a moment without one is waited for.
//!
//! A BPF program looks into the kernel's socket (`bpf/programs/gap.c`), of which it knows the layout by the
//! kernel's BTF.

use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use baton_wire::addr::{Addr, Tuple};

use super::error::SteerError;

/// Length of an Ethernet header.
const ETHERNET: usize = 14;
/// Where a `struct __sk_buff` has `ifindex` (include/uapi/linux/bpf.h).
const IFINDEX: usize = 40;
const PROGRAM: &str = "has_gap";
const LOADING: &str = "loading the program that sees gaps";

/// What looks for gaps.
pub struct Gaps(Ebpf);

impl Gaps {
    /// Loads the program.
    ///
    /// # Errors
    /// [`SteerError`]: this kernel has no BTF, say, or is locked down.
    pub fn open() -> Result<Gaps, SteerError> {
        let object = baton_bpf::gap().ok_or(SteerError::NotBuilt)?;
        let mut ebpf = EbpfLoader::new().load(object).map_err(|error| SteerError::kernel(LOADING, error))?;
        let program = ebpf.program_mut(PROGRAM).expect("gap.c has a program of that name");
        let program: &mut SchedClassifier = program.try_into().expect("it is a classifier");
        program.load().map_err(|error| SteerError::kernel(LOADING, error))?;
        Ok(Gaps(ebpf))
    }

    /// Whether there is one in what the kernel has of this connection, over the interface of
    /// that index of the thread's network namespace. No, if the kernel does not have it.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn has(&self, tuple: &Tuple, interface: u32) -> Result<bool, SteerError> {
        let program = self.0.program(PROGRAM).expect("gap.c has a program of that name");
        let program: &SchedClassifier = program.try_into().expect("it is a classifier");
        let mut context = [0; IFINDEX + size_of::<u32>()];
        context[IFINDEX..].copy_from_slice(&interface.to_ne_bytes());
        let name = name_of(tuple);
        let options = TestRunOptions { data_in: Some(&name), ctx_in: Some(&context), ..TestRunOptions::new() };
        let ran = program.test_run(options).map_err(|error| SteerError::kernel("looking for a gap", error))?;
        Ok(ran.return_value == 1)
    }
}

/// A connection's name behind an empty link header, as `bpf/programs/gap.c` wants it.
fn name_of(tuple: &Tuple) -> Vec<u8> {
    let mut name = vec![0; ETHERNET];
    let is_v4 = tuple.local.is_v4();
    let mut address = |address: Addr| {
        if is_v4 {
            name.extend(address.octets_v4());
        } else {
            name.extend(address.octets());
        }
    };
    address(tuple.remote);
    address(tuple.local);
    name.extend(tuple.remote_port.to_be_bytes());
    name.extend(tuple.local_port.to_be_bytes());
    name
}
