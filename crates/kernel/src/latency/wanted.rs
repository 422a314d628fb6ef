//! Which connections to watch, as the programs read it.

use super::error::LatencyError;
use baton_wire::addr::Tuple;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The size of `struct wanted` of `bpf/programs/latency.c`.
const SIZE: usize = 72;

/// Which connections to watch. All but those of a process are those of this network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// All.
    All,
    /// Those with this port at either end.
    Port(u16),
    /// One.
    Tuple(Tuple),
    /// Those on which this process calls, in whatever network namespace. It is numbered as in this process's
    /// own process namespace.
    Pid(u32),
}

impl Wanted {
    /// As `struct wanted` of the programs.
    ///
    /// # Errors
    /// If the process, or a namespace in /proc, cannot be seen.
    pub(super) fn as_program_reads(self) -> Result<[u8; SIZE], LatencyError> {
        let mut bytes = [0; SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let namespace = |name: &str| {
            let seen = fs::metadata(format!("/proc/thread-self/ns/{name}"));
            seen.map_err(|error| LatencyError::kernel("looking at the namespaces in /proc", error))
        };
        match self {
            Wanted::Pid(pid) => {
                exists(pid)?;
                let own = namespace("pid")?;
                put(8, &kernel_device(own.dev()).to_ne_bytes());
                put(16, &own.ino().to_ne_bytes());
                put(24, &pid.to_ne_bytes());
                return Ok(bytes);
            }
            Wanted::Port(port) => put(28, &port.to_ne_bytes()),
            Wanted::Tuple(tuple) => {
                put(30, &tuple.local_port.to_ne_bytes());
                put(32, &tuple.remote_port.to_ne_bytes());
                put(34, &1u16.to_ne_bytes());
                put(40, &tuple.local.octets());
                put(56, &tuple.remote.octets());
            }
            Wanted::All => {}
        }
        put(0, &namespace("net")?.ino().to_ne_bytes());
        Ok(bytes)
    }
}

/// A device's number as the kernel has it (`MKDEV` of include/linux/kdev_t.h), of the one that it tells.
fn kernel_device(told: u64) -> u64 {
    u64::from(libc::major(told)) << 20 | u64::from(libc::minor(told))
}

fn exists(pid: u32) -> Result<(), LatencyError> {
    match fs::metadata(format!("/proc/{pid}")) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LatencyError::NoProcess { pid }),
        Err(error) => Err(LatencyError::kernel("looking at the process", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_is_laid_out_as_the_programs_read_it() {
        let tuple = Tuple::new("10.1.2.3:258".parse().unwrap(), "[fd00::9]:772".parse().unwrap());
        let bytes = Wanted::Tuple(tuple).as_program_reads().unwrap();
        assert_ne!(bytes[..8], [0; 8], "the network namespace");
        assert_eq!(bytes[8..30], [0; 22]);
        assert_eq!(bytes[30..36], [258u16.to_ne_bytes(), 772u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
        assert_eq!(bytes[36..56], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!((bytes[56], bytes[71]), (0xfd, 9));
    }

    #[test]
    fn a_process_that_has_gone_is_refused() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let refused = Wanted::Pid(child.id()).as_program_reads().unwrap_err();
        assert!(matches!(refused, LatencyError::NoProcess { pid } if pid == child.id()));
        assert!(Wanted::Pid(std::process::id()).as_program_reads().is_ok());
    }
}
