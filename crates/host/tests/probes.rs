//! Every belief about the kernel, tried on this one.

use baton_host::probe::{self, Outcome};
use baton_testkit::need_root;

#[test]
fn what_is_believed_about_the_kernel_holds() {
    need_root!();
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
    let names: std::collections::HashSet<_> = verdicts.iter().map(|v| v.name).collect();
    assert_eq!(names.len(), verdicts.len());
}
