//! BPF programs that stand for another product's and count the bytes they see.

use aya::Ebpf;
use aya::maps::Array;
use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, SchedClassifier, TcAttachType};
use baton_testkit::run;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A program that is attached until this is dropped.
pub struct Counting(Ebpf);

impl Counting {
    fn load() -> Ebpf {
        static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
        let object = OBJECT.get_or_init(|| {
            let here = Path::new(env!("CARGO_MANIFEST_DIR"));
            let directory = tempfile::tempdir().unwrap();
            let object = directory.path().join("count.o");
            let mut clang = Command::new("clang");
            clang.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3", "-c", "-I"]);
            clang.arg(here.join("../bpf/programs")).arg(here.join("tests/beside/count.c")).arg("-o").arg(&object);
            run(&mut clang);
            fs::read(object).unwrap()
        });
        Ebpf::load(object).unwrap()
    }

    /// Attaches to an interface of this thread's namespace, before or after all other programs.
    pub fn frames(interface: &str, way: TcAttachType, before: bool) -> Counting {
        let mut ebpf = Counting::load();
        let program: &mut SchedClassifier = ebpf.program_mut("count_frames").unwrap().try_into().unwrap();
        program.load().unwrap();
        let order = if before { LinkOrder::first() } else { LinkOrder::last() };
        program.attach_with_options(interface, way, TcAttachOptions::TcxOrder(order)).unwrap();
        Counting(ebpf)
    }

    /// Attaches to the egress of a control group's sockets.
    pub fn packets(group: &Path) -> Counting {
        let mut ebpf = Counting::load();
        let program: &mut CgroupSkb = ebpf.program_mut("count_packets").unwrap().try_into().unwrap();
        program.load().unwrap();
        let group = File::open(group).unwrap();
        program.attach(group, CgroupSkbAttachType::Egress, CgroupAttachMode::Single).unwrap();
        Counting(ebpf)
    }

    /// Bytes seen so far, including headers.
    pub fn bytes(&self) -> u64 {
        let bytes: Array<_, u64> = self.0.map("BYTES").unwrap().try_into().unwrap();
        bytes.get(&0, 0).unwrap()
    }
}

/// A new control group, removed when this value is dropped.
pub struct Group(PathBuf);

impl Group {
    /// The hierarchy of version 2 that this machine has, if any.
    fn root() -> Option<PathBuf> {
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            .map(PathBuf::from)
            .into_iter()
            .find(|root| root.join("cgroup.procs").exists() && root.join("cgroup.controllers").exists())
    }

    /// Returns true if control groups can be made.
    pub fn can_be() -> bool {
        Group::root().is_some()
    }

    pub fn new(name: &str) -> Group {
        let group = Group::root().expect("asked before").join(name);
        fs::create_dir(&group).unwrap();
        Group(group)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still be in the group.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} stays", self.0.display());
    }
}
