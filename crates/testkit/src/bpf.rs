//! BPF programs that stand for other people's, for tests of coexistence: they count packets,
//! and pass or drop them.

use aya::Ebpf;
use aya::maps::Array;
use aya::programs::links::{CgroupAttachMode, LinkOrder};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{CgroupSkb, CgroupSkbAttachType, SchedClassifier, SocketFilter, TcAttachType};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::run;

const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
typedef unsigned int u32;
typedef unsigned long long u64;
static void *(*lookup)(void *map, const void *key) = (void *)1;

struct {
    int (*type)[2];
    int (*max_entries)[1];
    u32 *key;
    u64 *value;
} SEEN SEC(".maps");

static __attribute__((always_inline)) int see(int verdict)
{
    u32 key = 0;
    u64 *seen = lookup(&SEEN, &key);

    if (seen)
        __sync_fetch_and_add(seen, 1);
    return verdict;
}

SEC("cgroup_skb/egress") int group_out(void *skb) { return see(1); }
SEC("cgroup_skb/ingress") int group_in(void *skb) { return see(1); }
SEC("socket") int whole(void *skb) { return see(0x7fffffff); }
SEC("classifier") int pass(void *skb) { return see(-1); }
SEC("classifier") int drop(void *skb) { return see(2); }
char LICENSE[] SEC("license") = "GPL";
"#;

const FOR_ROUTES: &str = r#"
__attribute__((section("lwt_xmit"), used)) int pass(void *skb) { return 0; }
char LICENSE[] __attribute__((section("license"), used)) = "GPL";
"#;

const HASHING: &str = r#"
static unsigned int (*hash_recalc)(void *skb) = (void *)34;
__attribute__((section("classifier"), used)) int hash(void *skb) { hash_recalc(skb); return 0; }
char LICENSE[] __attribute__((section("license"), used)) = "GPL";
"#;

/// A file of programs that goes away.
pub struct Object(PathBuf);

impl Object {
    /// A file with a program for `ip route .. encap bpf out`, in the section `lwt_xmit`, that
    /// lets all pass.
    ///
    /// # Panics
    /// If it cannot be compiled.
    #[track_caller]
    pub fn for_routes() -> Object {
        Object::compile(FOR_ROUTES)
    }

    /// A file with a program for `tc filter .. bpf da`, in the section `classifier`, that has the kernel compute a
    /// frame's hash and lets it pass.
    ///
    /// # Panics
    /// If it cannot be compiled.
    #[track_caller]
    pub fn hashing() -> Object {
        Object::compile(HASHING)
    }

    /// Path of the object file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn compile(text: &str) -> Object {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = std::env::temp_dir().join(format!("baton-bpf-{}-{number}", std::process::id()));
        let (source, object) = (base.with_extension("c"), base.with_extension("o"));
        std::fs::write(&source, text).expect("a file can be written");
        run(Command::new("clang").args(["-O2", "-g", "-target", "bpf", "-c"]).arg(&source).arg("-o").arg(&object));
        let _ = std::fs::remove_file(&source);
        Object(object)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Where a program stands among those of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Before all others.
    First,
    /// Behind all others.
    Last,
}

/// Programs that share one count of packets. When dropped, they are detached.
pub struct Programs(Ebpf);

impl Programs {
    /// Compiles and loads them; they are not attached yet.
    ///
    /// # Panics
    /// If that fails; call [`need_root!`](crate::need_root) and
    /// [`need_program!("clang")`](crate::need_program) first.
    #[track_caller]
    pub fn load() -> Programs {
        let object = Object::compile(SOURCE);
        Programs(Ebpf::load_file(&object.0).expect("the programs load"))
    }

    /// Attaches one to a control group (version 2), in addition to what is there.
    ///
    /// # Panics
    /// If the kernel says no.
    #[track_caller]
    pub fn on_cgroup(&mut self, directory: &Path, egress: bool) {
        let (name, kind) = match egress {
            true => ("group_out", CgroupSkbAttachType::Egress),
            false => ("group_in", CgroupSkbAttachType::Ingress),
        };
        let program = self.0.program_mut(name).expect("there is one of that name");
        let program: &mut CgroupSkb = program.try_into().expect("it is one for control groups");
        program.load().expect("it loads");
        let group = File::open(directory).expect("the group is there");
        // A link coexists with others by default.
        program.attach(group, kind, CgroupAttachMode::Single).expect("it is attached");
    }

    /// Attaches one to an interface of the thread's network namespace, by TCX.
    ///
    /// # Panics
    /// If the kernel says no.
    #[track_caller]
    pub fn on_interface(&mut self, interface: &str, egress: bool, order: Order, drops: bool) {
        let name = if drops { "drop" } else { "pass" };
        let program = self.0.program_mut(name).expect("there is one of that name");
        let program: &mut SchedClassifier = program.try_into().expect("it is a classifier");
        program.load().expect("it loads");
        let order = match order {
            Order::First => LinkOrder::first(),
            Order::Last => LinkOrder::last(),
        };
        let way = if egress { TcAttachType::Egress } else { TcAttachType::Ingress };
        let options = TcAttachOptions::TcxOrder(order);
        program.attach_with_options(interface, way, options).expect("it is attached");
    }

    /// Attaches one to a socket.
    ///
    /// # Panics
    /// If the kernel says no.
    #[track_caller]
    pub fn on_socket(&mut self, socket: impl AsFd) {
        let program = self.0.program_mut("whole").expect("there is one of that name");
        let program: &mut SocketFilter = program.try_into().expect("it is a socket's");
        program.load().expect("it loads");
        program.attach(socket).expect("it is attached");
    }

    /// Packets that they have counted.
    ///
    /// # Panics
    /// If the kernel does not tell.
    pub fn seen(&self) -> u64 {
        let map = self.0.map("SEEN").expect("it is there");
        Array::<_, u64>::try_from(map).expect("it is an array").get(&0, 0).expect("it has one place")
    }
}
