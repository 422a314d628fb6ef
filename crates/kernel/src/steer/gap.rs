//! Finds out whether the kernel holds payload of a connection beyond a gap.
//!
//! `TCP_REPAIR` does not show such payload, so taking the connection out of the kernel loses it.
//! The peer, however, knows of it by SACK, and Linux reacts strongly to a receiver that discards
//! such data (RFC 2018 §8): it waits for a timeout, and then repeats everything that it had sent
//! (`tcp_check_sack_reneging`, net/ipv4/tcp_input.c). With BBR, as observed on Linux 6.18, it does
//! so with a window of one segment until all of that is acknowledged. So a move waits for a moment
//! without a gap.
//!
//! A BPF program reads the kernel's socket (`bpf/programs/gap.c`), whose layout it knows from the kernel's
//! BTF.

use aya::programs::{SchedClassifier, TestRun, TestRunOptions};
use aya::{Ebpf, EbpfLoader};
use baton_wire::addr::{Addr, Tuple};

use super::error::SteerError;

/// The length of an Ethernet header.
const ETHERNET: usize = 14;
/// The offset of `ifindex` in `struct __sk_buff` (include/uapi/linux/bpf.h).
const IFINDEX: usize = 40;
const PROGRAM: &str = "has_gap";
const LOADING: &str = "loading the program that detects gaps";

/// Detects gaps.
pub struct Gaps(Ebpf);

impl Gaps {
    /// Loads the program.
    ///
    /// # Errors
    /// [`SteerError`], for example if this kernel has no BTF or is locked down.
    pub fn open() -> Result<Gaps, SteerError> {
        let object = baton_bpf::gap().ok_or(SteerError::NotBuilt)?;
        let mut ebpf = EbpfLoader::new().load(object).map_err(|error| SteerError::kernel(LOADING, error))?;
        let program = ebpf.program_mut(PROGRAM).expect("gap.c has a program of that name");
        let program: &mut SchedClassifier = program.try_into().expect("the program is a classifier");
        program.load().map_err(|error| SteerError::kernel(LOADING, error))?;
        Ok(Gaps(ebpf))
    }

    /// Returns true if the kernel holds payload of this connection beyond a gap. `interface` is the
    /// index of its interface in the thread's network namespace. Returns false if the kernel does
    /// not have the connection.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn has(&self, tuple: &Tuple, interface: u32) -> Result<bool, SteerError> {
        let program = self.0.program(PROGRAM).expect("gap.c has a program of that name");
        let program: &SchedClassifier = program.try_into().expect("the program is a classifier");
        let mut context = [0; IFINDEX + size_of::<u32>()];
        context[IFINDEX..].copy_from_slice(&interface.to_ne_bytes());
        let name = name_of(tuple);
        let options = TestRunOptions { data_in: Some(&name), ctx_in: Some(&context), ..TestRunOptions::new() };
        let ran = program.test_run(options).map_err(|error| SteerError::kernel("looking for a gap", error))?;
        Ok(ran.return_value == 1)
    }
}

/// A connection's addresses and ports after an empty link header, as `bpf/programs/gap.c` expects it.
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
