//! The BPF file system, in which steering is pinned. systemd mounts it at boot. Where nothing has,
//! as in a container or on a small system, we mount it, as `bpftool` does.

use rustix::fs::{FlockOperation, flock, statfs};
use rustix::mount::{MountFlags, mount};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// `BPF_FS_MAGIC` of `include/uapi/linux/magic.h`.
const MAGIC: i64 = 0xcafe_4a11;

/// Mounts it at `place`, unless it is mounted there.
///
/// Does not do so in a mount namespace that is known not to be the first process's (`ip netns exec`
/// creates one): pinned objects would end with that namespace, and other processes would not find
/// them.
///
/// # Errors
/// Errors from `mount(2)`; `Unsupported` in such a namespace.
pub fn ensure(place: &Path) -> io::Result<()> {
    if is_there(place)? {
        return Ok(());
    }
    let first = fs::read_link("/proc/1/ns/mnt");
    if first.is_ok_and(|first| fs::read_link("/proc/self/ns/mnt").is_ok_and(|ours| ours != first)) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "no BPF file system in this mount namespace"));
    }
    // Two processes that mount it at the same time would hide each other's mount.
    let directory = File::open(place)?;
    flock(&directory, FlockOperation::LockExclusive)?;
    if !is_there(place)? {
        mount("bpf", place, "bpf", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    }
    Ok(())
}

fn is_there(place: &Path) -> io::Result<bool> {
    Ok(statfs(place)?.f_type as i64 & 0xffff_ffff == MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_testkit::need_root;
    use rustix::mount::{UnmountFlags, unmount};
    use std::thread;

    #[test]
    fn many_at_once_mount_it_once() {
        need_root!();
        let place = std::env::temp_dir().join(format!("baton-bpf-fs-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        assert!(!is_there(&place).unwrap());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| ensure(&place))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        let there = is_there(&place).unwrap();
        unmount(&place, UnmountFlags::empty()).unwrap();
        assert!(there && !is_there(&place).unwrap(), "there is exactly one mount");
        fs::remove_dir(&place).unwrap();
    }
}
