//! The second queue of a TAP device: what is written to it the kernel merges (GRO)
//! before it reads it.
//!
//! A frame written to an ordinary queue is received within the `write(2)`: each frame goes the
//! whole path up to the local socket and wakes the reader there. A queue with NAPI (`IFF_NAPI`)
//! only takes the frame in; a kernel thread takes the frames that have gathered, merges those
//! that follow each other, and goes up the path once for all. That halves the CPU time of bulk,
//! but delays a program that waits for one answer: so only frames that follow others of their
//! connection come this way ([`TxMeta::follows`](baton_engine::frame_io::TxMeta::follows)).
//!
//! The kernel's own frames keep coming on the first queue, because of a BPF program of one
//! instruction. The thread runs as batch work (`SCHED_BATCH`): woken, it lets the running
//! thread go on, and finds more to merge.
//!
//! Kernel: drivers/net/tun.c (`tun_napi_init`, `tun_set_ebpf`), net/core/dev.c
//! (`netif_set_threaded`), Documentation/networking/napi.rst.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::programs::{ProgramError, SocketFilter};
use aya::{Ebpf, EbpfError};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::sys::{io as sys_io, ioctl};

/// Why frames are not merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergingError {
    /// Not asked for.
    #[error("not asked for")]
    Off,
    /// The device is there already, and was made with one queue.
    #[error("the device was made with one queue; make it with: ip tuntap add dev NAME mode tap multi_queue")]
    OneQueue,
    /// Built without clang.
    #[error("built without clang, so without BPF programs")]
    NotBuilt,
    /// The kernel refused the program.
    #[error("loading the BPF program: {0}")]
    Load(#[from] EbpfError),
    /// The kernel did not verify the program.
    #[error("verifying the BPF program: {0}")]
    Verify(#[from] ProgramError),
    /// A step that failed.
    #[error("{0}: {1}")]
    Step(&'static str, io::Error),
}

/// The network devices of the calling thread's namespace, as files.
pub(crate) struct Sysfs(OwnedFd);

impl Sysfs {
    /// Mounts them out of sight: `/sys` shows the namespace that it was mounted in.
    pub fn mount() -> Result<Self, MergingError> {
        let at = |e: rustix::io::Errno| MergingError::Step("mounting sysfs", e.into());
        let context = rustix::mount::fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(at)?;
        rustix::mount::fsconfig_create(context.as_fd()).map_err(at)?;
        rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
            .map(Self)
            .map_err(at)
    }

    /// Queues of a device that are attached.
    pub fn queues(&self, device: &str) -> io::Result<usize> {
        let path = format!("class/net/{device}/queues");
        let dir =
            rustix::fs::openat(&self.0, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut count = 0;
        for entry in rustix::fs::Dir::new(dir)? {
            count += usize::from(entry?.file_name().to_bytes().starts_with(b"tx-"));
        }
        Ok(count)
    }

    /// Has the device's NAPI polled by threads.
    fn set_threaded(&self, device: &str) -> io::Result<()> {
        let path = format!("class/net/{device}/threaded");
        let file = rustix::fs::openat(&self.0, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        fs::File::from(file).write_all(b"1")
    }
}

/// Has the kernel's frames arrive on the first queue of the device behind `first`,
/// and attaches to its second queue, as `flags` say.
pub(crate) fn attach(
    sysfs: &Sysfs,
    first: BorrowedFd<'_>,
    name: &str,
    flags: libc::c_int,
) -> Result<OwnedFd, MergingError> {
    let step = |what| move |e| MergingError::Step(what, e);
    let mut ebpf = Ebpf::load(baton_bpf::queue().ok_or(MergingError::NotBuilt)?)?;
    let program = ebpf.program_mut("first_queue").expect("queue.c has a program of that name");
    let program: &mut SocketFilter = program.try_into()?;
    program.load()?;
    ioctl::tun_set_steering(first, program.fd()?.as_fd()).map_err(step("choosing the first queue"))?;
    // A device that was threaded before makes the thread as soon as the queue is there.
    let before = threads(name);
    let second = ioctl::open_device(c"/dev/net/tun").map_err(step("opening /dev/net/tun"))?;
    ioctl::tun_set_iff(second.as_fd(), name, flags | libc::IFF_NAPI).map_err(step("attaching to a second queue"))?;
    sysfs.set_threaded(name).map_err(step("asking for a NAPI thread"))?;
    for thread in threads(name).difference(&before) {
        // Only a matter of speed: without the privilege it stays as it is.
        let _ = sys_io::set_batch(*thread);
    }
    Ok(second)
}

/// Threads that poll the NAPI of a device of that name, in any namespace.
fn threads(device: &str) -> HashSet<u32> {
    let prefix = format!("napi/{device}-");
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(&prefix)))
        .collect()
}
