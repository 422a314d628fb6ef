//! Another kernel, in an emulator, for tests of what this one lacks.
//!
//! The test's own binary is the guest's first process: it runs the one test anew, there.
//!
//! ```text
//!   host:   run(kernel, test)  -- vmlinuz, modules, this binary, programs --> qemu
//!   guest:  is_guest(): enter(), then the test; when it ends, so does the machine
//! ```
//!
//! Nothing is shared with the guest but its console. Set-up puts the kernel in place
//! (`cargo xtask setup`); the emulator needs no hardware support.

mod archive;

use crate::process::output;
use archive::Archive;
use rustix::mount::{MountFlags, mount};
use rustix::system::finit_module;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

/// Set for the guest's first process.
const GUEST: &str = "BATON_GUEST";
const EMULATOR: &str = "qemu-system-x86_64";
/// Where modules lie in the guest, in the order in which they are loaded.
const MODULES: &str = "/modules";
/// `MODULE_INIT_COMPRESSED_FILE` of linux/module.h.
const COMPRESSED: i32 = 4;
/// Longer than boot and test take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A kernel that set-up unpacked: `vmlinuz` and modules beside it.
#[derive(Debug)]
pub struct Kernel(PathBuf);

impl Kernel {
    /// The kernel that set-up put into cargo's target directory, of which `scratch`
    /// (`CARGO_TARGET_TMPDIR`) is a part.
    ///
    /// # Errors
    /// Why no guest can be started.
    pub fn find(scratch: &str) -> Result<Kernel, String> {
        crate::skip::check_program(EMULATOR)?;
        let directory = Path::new(scratch).with_file_name("guest");
        if directory.join("vmlinuz").is_file() {
            Ok(Kernel(directory))
        } else {
            Err("needs another kernel's package: `cargo xtask setup` unpacks it, where Debian's can be had".into())
        }
    }
}

/// Whether this process runs in a guest.
pub fn is_guest() -> bool {
    env::var_os(GUEST).is_some()
}

/// Prepares a guest before anything else: file systems, modules.
///
/// # Panics
/// If something cannot be mounted or loaded.
pub fn enter() {
    let mounts = [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run"), ("tmpfs", "/tmp")];
    for (kind, place) in mounts {
        mount(kind, place, kind, MountFlags::empty(), None).unwrap_or_else(|e| panic!("mounting {place}: {e}"));
    }
    // Address space is asked for that is never used, as on any machine with more memory.
    fs::write("/proc/sys/vm/overcommit_memory", "1").expect("memory may be promised");
    let mut modules: Vec<PathBuf> =
        fs::read_dir(MODULES).expect("modules").map(|entry| entry.expect("an entry").path()).collect();
    modules.sort();
    for path in modules {
        let file = fs::File::open(&path).expect("a module opens");
        let none = CString::default();
        finit_module(&file, &none, COMPRESSED).unwrap_or_else(|e| panic!("loading {}: {e}", path.display()));
    }
}

/// Runs a test of this binary in a guest that has these modules, each after those that it
/// needs, and these programs. Returns what it printed.
///
/// # Panics
/// If the test fails there, or the guest does not end by itself.
#[track_caller]
pub fn run(kernel: &Kernel, modules: &[&str], programs: &[&str], test: &str) -> String {
    let directory = env::temp_dir().join(format!("baton-guest-{}-{}", std::process::id(), test.replace(':', "-")));
    fs::create_dir(&directory).expect("a directory of one's own");
    let result = boot(kernel, modules, programs, test, &directory);
    fs::remove_dir_all(&directory).expect("it can be removed");
    let console = result.unwrap_or_else(|e| panic!("{EMULATOR}: {e}"));
    assert!(console.contains("test result: ok. 1 passed"), "in the guest:\n{console}");
    console
}

fn boot(kernel: &Kernel, modules: &[&str], programs: &[&str], test: &str, directory: &Path) -> io::Result<String> {
    let memory = directory.join("memory");
    fs::write(&memory, contents(kernel, modules, programs, directory)?)?;
    let console = directory.join("console");
    // The words behind `--` are arguments of the first process; settings that the kernel does
    // not know are its environment. The machine ends with that process: a panic, and no way to restart.
    let line = format!("console=ttyS0 quiet panic=-1 rdinit=/test {GUEST}=1 PATH=/bin -- --exact --nocapture {test}");
    let mut emulator = Command::new(EMULATOR);
    emulator.args(["-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "1024", "-nodefaults", "-no-reboot"]);
    emulator.args(["-display", "none", "-serial"]).arg(format!("file:{}", console.display()));
    emulator.arg("-kernel").arg(kernel.0.join("vmlinuz")).arg("-initrd").arg(&memory).args(["-append", &line]);
    emulator.stdin(Stdio::null());
    await_end(emulator.spawn()?)?;
    Ok(String::from_utf8_lossy(&fs::read(&console)?).into_owned())
}

fn await_end(mut child: Child) -> io::Result<()> {
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The guest's first file system.
fn contents(kernel: &Kernel, modules: &[&str], programs: &[&str], directory: &Path) -> io::Result<Vec<u8>> {
    let mut archive = Archive::new();
    for place in ["proc", "sys", "dev", "run", "tmp", "bin", "etc", "modules"] {
        archive.directory(place);
    }
    // Output needs a device before /dev is mounted.
    archive.console();
    for (order, name) in modules.iter().enumerate() {
        let file = fs::read(kernel.0.join(format!("{name}.ko.xz")))?;
        archive.file(&format!("modules/{order:02}-{name}"), &file);
    }
    let own = env::current_exe()?;
    let mut libraries = libraries(&own)?;
    archive.file("test", &stripped(&own, directory)?);
    for program in programs {
        let path = find(program)?;
        libraries.extend(self::libraries(&path)?);
        archive.file(&format!("bin/{program}"), &fs::read(path)?);
    }
    for library in libraries {
        archive.file_with_parents(&library, &fs::read(&library)?);
    }
    Ok(archive.finish())
}

/// The libraries that a program is linked with, as `ldd` says: `name => path (address)`, or the
/// path.
fn libraries(program: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let out = output(Command::new("ldd").arg(program));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

fn find(program: &str) -> io::Result<PathBuf> {
    let places = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(|place| Path::new(place).join(program));
    let found = places.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{program} is not installed")))
}

/// A program without debug information, if it can be stripped: the guest keeps all files in
/// memory.
fn stripped(program: &Path, directory: &Path) -> io::Result<Vec<u8>> {
    let to = directory.join("stripped");
    let strip = Command::new("strip").arg("-o").arg(&to).arg(program).status();
    if strip.is_ok_and(|status| status.success()) { fs::read(to) } else { fs::read(program) }
}
