//! The part of steering in the BPF file system, which outlives its process: a directory for
//! each interface, with the maps and the link of the program.
//!
//! ```text
//!   /sys/fs/bpf/baton/<network namespace>-<interface>/
//!     TUPLES ENGINES SOCKETS COUNTS NOTES    the maps
//!     tc | xdp | xdp-generic                 the link, named after the kind
//!     guard guard-N                          the links on the engines' TAP devices
//! ```
//!
//! The steering process locks the directory (`flock(2)`), so an unlocked directory is a left-over.
//! A directory whose link has lost its interface is of no use, and its name, which contains the
//! namespace's inode, may be reused. So the steering process removes such a directory when it finds one.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, PinnedLink};
use rustix::fs::{FlockOperation, flock};

use super::{Mode, SteerError, bpf_fs};

const FILE_SYSTEM: &str = "/sys/fs/bpf";
const ROOT: &str = "/sys/fs/bpf/baton";
const GUARD: &str = "guard";
const MODES: [Mode; 3] = [Mode::Tc, Mode::Xdp { driver: true }, Mode::Xdp { driver: false }];

/// The name of a kind of steering.
pub fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::Tc => "tc",
        Mode::Xdp { driver: true } => "xdp",
        Mode::Xdp { driver: false } => "xdp-generic",
    }
}

/// An interface's locked directory.
pub struct Pins {
    directory: PathBuf,
    _lock: File,
}

impl Pins {
    fn directory(interface: &str) -> Result<PathBuf, SteerError> {
        let namespace = fs::metadata("/proc/thread-self/ns/net");
        let namespace = namespace.map_err(|e| SteerError::kernel("finding the network namespace", e))?;
        Ok(Path::new(ROOT).join(format!("{}-{interface}", namespace.ino())))
    }

    /// Finds the directory, or creates it.
    ///
    /// # Errors
    /// [`SteerError::Occupied`] if a living process has locked it.
    pub fn make(interface: &str) -> Result<Self, SteerError> {
        let directory = Self::directory(interface)?;
        let made = bpf_fs::ensure(Path::new(FILE_SYSTEM)).and_then(|()| fs::create_dir_all(&directory));
        made.map_err(|e| SteerError::Unsuitable {
            interface: interface.to_owned(),
            what: format!("{}: {e}", directory.display()),
            remedy: "mount the BPF file system: mount -t bpf bpf /sys/fs/bpf",
        })?;
        let pins = Self::lock(directory, interface)?;
        if is_dead(&pins.directory) {
            pins.clear();
        }
        sweep();
        Ok(pins)
    }

    /// Finds the directory, if it exists.
    ///
    /// # Errors
    /// [`SteerError::Occupied`] if a living process has locked it.
    pub fn find(interface: &str) -> Result<Option<Self>, SteerError> {
        let directory = Self::directory(interface)?;
        if !directory.exists() {
            return Ok(None);
        }
        let pins = Self::lock(directory, interface)?;
        if is_dead(&pins.directory) {
            pins.remove();
            return Ok(None);
        }
        Ok(Some(pins))
    }

    fn lock(directory: PathBuf, interface: &str) -> Result<Self, SteerError> {
        let lock = File::open(&directory).map_err(|e| SteerError::kernel("opening the directory of pins", e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| occupied(interface))?;
        Ok(Self { directory, _lock: lock })
    }

    /// Removes what a dead process left on an interface. Returns true if there was anything.
    pub fn clean(interface: &str) -> Result<bool, SteerError> {
        let left = Self::find(interface)?;
        if let Some(pins) = &left {
            pins.remove();
        }
        Ok(left.is_some())
    }

    /// Removes everything, beginning with the link.
    pub fn remove(&self) {
        self.clear();
        let _ = fs::remove_dir(&self.directory);
        // This succeeds only if the directory is empty.
        let _ = fs::remove_dir(ROOT);
    }

    fn clear(&self) {
        for mode in MODES {
            let _ = fs::remove_file(self.path(name(mode)));
        }
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&format!("{GUARD}-")) {
                remove_device(&entry.path());
            }
            let _ = fs::remove_file(entry.path());
        }
    }

    /// The path at which a map is, or will be, pinned.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The kind of program that was left.
    pub fn mode(&self) -> Option<Mode> {
        MODES.into_iter().find(|&mode| self.path(name(mode)).exists())
    }

    /// The link that was left.
    pub fn link(&self, mode: Mode) -> Result<FdLink, SteerError> {
        let link = PinnedLink::from_pin(self.path(name(mode)));
        Ok(link.map_err(|e| SteerError::kernel("opening the pinned link", e))?.into())
    }

    /// Pins the program's link.
    pub fn keep_link(&self, link: FdLink, mode: Mode) -> Result<FdLink, SteerError> {
        self.keep(link, name(mode))
    }

    /// Pins the link on an engine's TAP device.
    pub fn keep_guard(&self, link: FdLink, engine: u32) -> Result<FdLink, SteerError> {
        self.keep(link, &guard(engine))
    }

    /// Removes the pin of a guard. From then on anybody who has the device open writes into the
    /// kernel's own stack, so the device must be gone.
    pub fn forget_guard(&self, engine: u32) {
        let _ = fs::remove_file(self.path(&guard(engine)));
    }

    /// Returns true if the device of an engine exists, which means that somebody has it open.
    pub fn has_device(&self, engine: u32) -> bool {
        interface_of(&self.path(&guard(engine))).is_some_and(|index| index != 0)
    }

    /// Pins a link in place of an earlier one.
    fn keep(&self, link: FdLink, name: &str) -> Result<FdLink, SteerError> {
        let path = self.path(name);
        let _ = fs::remove_file(&path);
        Ok(link.pin(path).map_err(|e| SteerError::kernel("pinning a link", e))?.into())
    }
}

/// Removes unusable directories of all interfaces.
fn sweep() {
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    // Only unusable directories are locked here, so that an owner about to lock its own never
    // fails.
    for directory in entries.map(|entry| entry.path()).filter(|path| is_dead(path)) {
        if let Ok(pins) = Pins::lock(directory, "") {
            pins.remove();
        }
    }
}

/// Returns true if a link is pinned there whose interface is gone. The kernel then reports index 0
/// (`tcx_link_fdinfo`, `bpf_xdp_link_show_fdinfo`).
fn is_dead(directory: &Path) -> bool {
    MODES.into_iter().find_map(|mode| interface_of(&directory.join(name(mode)))) == Some(0)
}

/// The index of the interface of a pinned link; 0 if the interface is gone.
fn interface_of(path: &Path) -> Option<u32> {
    let link = crate::sys::open_pinned(path).ok()?;
    let info = fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", link.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("ifindex:")?.trim().parse().ok())
}

/// The name of the pin of the link on an engine's device.
fn guard(engine: u32) -> String {
    if engine == 0 { GUARD.to_owned() } else { format!("{GUARD}-{engine}") }
}

/// Removes the device of a guard. A living program may have it open, but must not keep it without
/// its guard.
fn remove_device(guard: &Path) {
    if let Some(index @ 1..) = interface_of(guard) {
        // One that has gone since is gone.
        let _ = crate::hops::remove_link(index);
    }
}

/// The error for an interface that a living process steers.
pub fn occupied(interface: &str) -> SteerError {
    SteerError::Occupied {
        interface: interface.to_owned(),
        by: "another process steers it",
        remedy: "end that process first (find it: bpftool net)",
    }
}
