//! Every belief about the kernel is tested on this one, and on another if one can be booted.

use baton_kernel::probe::{self, Outcome};
use baton_testkit::{need_root, skip, vm};

fn try_all() {
    let verdicts = probe::all().unwrap();
    for verdict in &verdicts {
        println!("{verdict}");
    }
    assert!(verdicts.len() >= 20);
    for verdict in &verdicts {
        match &verdict.outcome {
            Outcome::Ok => {}
            Outcome::No(_) if verdict.needed => panic!("{verdict}"),
            Outcome::No(why) => baton_testkit::note_skip!("{} on this kernel: {why}", verdict.name),
        }
    }
    let conntrack = verdicts.iter().filter(|verdict| verdict.name.starts_with("conntrack-"));
    assert_eq!(
        conntrack.filter(|verdict| verdict.outcome == Outcome::Ok).count(),
        2,
        "the kernels tested here have conntrack"
    );
    let names: std::collections::HashSet<_> = verdicts.iter().map(|v| v.name).collect();
    assert_eq!(names.len(), verdicts.len());
}

#[test]
fn what_is_believed_about_the_kernel_holds() {
    need_root!();
    try_all();
}

#[test]
fn what_is_needed_holds_on_another_kernel() {
    if vm::is_guest() {
        vm::enter();
        return try_all();
    }
    match vm::Kernel::find(env!("CARGO_TARGET_TMPDIR")) {
        Ok(kernel) => {
            let modules = ["inet_diag", "tcp_diag", "nfnetlink", "libcrc32c", "nf_defrag_ipv4", "nf_defrag_ipv6"];
            let modules = [&modules[..], &["nf_conntrack", "nf_conntrack_netlink"]].concat();
            println!("{}", vm::run(&kernel, &modules, &[], "what_is_needed_holds_on_another_kernel"));
        }
        Err(why) => skip!("another kernel {why}"),
    }
}
