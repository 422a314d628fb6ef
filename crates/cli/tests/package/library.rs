//! The C library's names: the one that the loader looks for, and those of its functions.

use crate::packages;
use baton_testkit::{c, need_program, run};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

#[test]
fn it_has_a_soname_and_each_function_of_the_header_a_version() {
    need_program!("cc");
    need_program!("readelf");
    need_program!("nm");
    let library = packages().join("tree/files/usr/lib/libbaton.so");
    let told = run(Command::new("readelf").args(["--wide", "--dynamic"]).arg(&library));
    assert!(told.contains("Library soname: [libbaton.so.0]"), "{told}");
    let told = run(Command::new("nm").args(["--dynamic", "--defined-only", "--with-symbol-versions"]).arg(&library));
    // An address, a letter, and the name. The version's own name is an absolute symbol ('A').
    let symbols = told.lines().filter(|line| !line.contains(" A ")).map(|line| line.split_whitespace().nth(2));
    let symbols: BTreeSet<&str> = symbols.map(Option::unwrap).collect();
    let header = fs::read_to_string(c::root().join("include/baton.h")).unwrap();
    let functions = declared(&header).map(|name| format!("{name}@@BATON_0"));
    assert_eq!(symbols, functions.collect::<BTreeSet<_>>().iter().map(String::as_str).collect());
}

/// Names of the functions that a header declares: each before a parenthesis, at the left margin.
fn declared(header: &str) -> impl Iterator<Item = &str> {
    let declarations = header.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let before = declarations.filter_map(|line| line.split_once('(').map(|(before, _)| before));
    let names = before.filter_map(|text| text.rsplit([' ', '*']).next());
    names.filter(|name| name.starts_with("baton_"))
}
