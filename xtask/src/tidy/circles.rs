//! Circles: no two modules of one folder import each other, directly or through others.
//!
//! A module is a file together with the folder of its name, so what a file deep inside
//! imports counts for each folder above it. The parent is not part of its folder: its
//! children may implement methods on a struct that it owns. A name that a module only
//! passes on counts for the module where it comes from.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{self, Tests};
use super::{File, Finding};

/// Names passed on through more modules than this are not followed.
const DEPTH: usize = 8;

/// A module of a crate: its path from the crate's root.
type Module = Vec<String>;

/// For each folder its modules, and for each of them those that it imports.
type Folders = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Checks the modules of every crate.
pub fn check(files: &[File], findings: &mut Vec<Finding>) {
    for (folder, imports) in folders(files) {
        for circle in circles(&imports) {
            findings.push(Finding {
                path: folder.clone(),
                line: 0,
                rule: "circle",
                message: describe(&imports, &circle),
            });
        }
    }
}

/// The folder of a crate's sources that a file is in, and the module that it is; `None`
/// for files that are no part of a crate's module tree, and for tests.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (root, rest) = path.split_once("/src/")?;
    let mut module: Module = rest.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module[0] == "bin" || module.iter().any(|name| name == "tests" || name.ends_with("_tests")) {
        return None;
    }
    let last = module.last()?.as_str();
    if last == "mod" || module.len() == 1 && ["lib", "main"].contains(&last) {
        module.pop();
    }
    Some((root, module))
}

fn folders(files: &[File]) -> Folders {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &File>> = BTreeMap::new();
    for file in files {
        if let Some((root, module)) = module_of(&file.path) {
            crates.entry(root).or_default().insert(module, file);
        }
    }
    let mut folders = Folders::new();
    for (root, modules) in &crates {
        let crate_names = Names::new(modules);
        for (module, file) in modules {
            // Another rule reports files that are not Rust.
            let paths = tokens::paths(&file.text, Tests::LeaveOut).unwrap_or_default();
            for used in paths.iter().flat_map(|path| crate_names.modules_used(module, &path.segments)) {
                let shared = module.iter().zip(&used).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(shared), used.get(shared)) {
                    let folder = [&[root, "src"][..], &module[..shared].iter().map(String::as_str).collect::<Vec<_>>()]
                        .concat()
                        .join("/");
                    folders.entry(folder).or_default().entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
    }
    folders
}

/// The modules of a crate, and the module that each imported name stands for.
struct Names {
    modules: BTreeSet<Module>,
    /// Imports of each module, by name, as paths within the crate.
    imports: BTreeMap<Module, BTreeMap<String, Module>>,
}

impl Names {
    fn new(files: &BTreeMap<Module, &File>) -> Names {
        let mut names = Names { modules: files.keys().cloned().collect(), imports: BTreeMap::new() };
        for (module, file) in files {
            let imports = tokens::imports(&file.text).unwrap_or_default();
            let absolute = imports.into_iter().filter_map(|i| Some((i.name, names.absolute(module, &i.segments)?)));
            let absolute = absolute.collect();
            names.imports.insert(module.clone(), absolute);
        }
        names
    }

    /// A path as seen from a module, from the crate's root; `None` if it leaves the crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let supers = path.iter().take_while(|segment| *segment == "super").count();
        let (base, rest) = match path.first()?.as_str() {
            "crate" => (&[][..], &path[1..]),
            "self" => (&module[..], &path[1..]),
            "super" => (module.get(..module.len().checked_sub(supers)?)?, &path[supers..]),
            child if self.modules.contains(&[&module[..], &[child.to_owned()]].concat()) => (&module[..], path),
            _ => return None,
        };
        Some([base, rest].concat())
    }

    /// Modules that a path names: the one that it leads to and, if that one only passes the
    /// name on, those where the name comes from.
    fn modules_used(&self, module: &Module, path: &[String]) -> Vec<Module> {
        let mut used = Vec::new();
        let mut next = self.absolute(module, path);
        while let Some(path) = next.take().filter(|_| used.len() < DEPTH) {
            let len = (0..=path.len()).rev().find(|&len| len == 0 || self.modules.contains(&path[..len]));
            let (found, rest) = path.split_at(len.unwrap_or(0));
            if let [name, more @ ..] = rest
                && let Some(target) = self.imports.get(found).and_then(|imports| imports.get(name))
            {
                next = Some([&target[..], more].concat());
            }
            used.push(found.to_vec());
        }
        used
    }
}

/// Sets of modules of which each can be reached from each other.
fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reachable(imports, module))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (module, reached) in &reach {
        if !reached.contains(module) || circles.iter().any(|circle| circle.contains(*module)) {
            continue;
        }
        let back = |other: &&&str| reach.get(**other).is_some_and(|others| others.contains(module));
        circles.push(reached.iter().filter(back).map(|other| (*other).to_owned()).collect());
    }
    circles
}

fn reachable<'a>(imports: &'a BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&str> = vec![from];
    while let Some(module) = left.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if reached.insert(next.as_str()) {
                left.push(next);
            }
        }
    }
    reached
}

fn describe(imports: &BTreeMap<String, BTreeSet<String>>, circle: &BTreeSet<String>) -> String {
    let way = shortest(imports, circle);
    let mut text = format!("modules import each other: {}", way.join(" -> "));
    if way.len() <= circle.len() {
        let all: Vec<&str> = circle.iter().map(String::as_str).collect();
        text.push_str(&format!(" (the whole circle: {})", all.join(", ")));
    }
    text
}

/// A shortest way round a circle from its first module, which stands at both ends.
fn shortest(imports: &BTreeMap<String, BTreeSet<String>>, circle: &BTreeSet<String>) -> Vec<String> {
    let Some(start) = circle.first() else { return Vec::new() };
    let mut ways = vec![vec![start.clone()]];
    let mut seen = BTreeSet::new();
    loop {
        let mut longer = Vec::new();
        for way in &ways {
            for next in way.last().and_then(|last| imports.get(last)).into_iter().flatten() {
                let longer_way = [&way[..], std::slice::from_ref(next)].concat();
                if next == start {
                    return longer_way;
                }
                if circle.contains(next) && seen.insert(next) {
                    longer.push(longer_way);
                }
            }
        }
        if longer.is_empty() {
            return vec![start.clone()];
        }
        ways = longer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> =
            sources.iter().map(|&(path, text)| File { path: format!("c/src/{path}"), text: text.into() }).collect();
        let mut findings = Vec::new();
        check(&files, &mut findings);
        findings.into_iter().map(|f| format!("{}: {}", f.path, f.message)).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn modules_that_import_each_other_are_found() {
        let two = [("a.rs", "use crate::b::B;"), ("b.rs", "fn f(_: super::a::A) {}")];
        assert_eq!(found(&two), ["c/src: modules import each other: a -> b -> a"]);
        let chain = [("a.rs", "use crate::b;"), ("b.rs", "use crate::{d, c};"), ("d.rs", ""), ("c.rs", "")];
        assert_eq!(found(&chain), NONE);
        let ring = [chain[0], chain[1], ("c.rs", "use crate::{d, a};"), ("d.rs", "")];
        assert_eq!(found(&ring), ["c/src: modules import each other: a -> b -> c -> a"]);
    }

    #[test]
    fn what_lies_deep_counts_for_the_folders_above() {
        let deep = [("a/x.rs", "use crate::b::y::Y;"), ("a.rs", ""), ("b/y.rs", "use crate::a::A;"), ("b/mod.rs", "")];
        assert_eq!(found(&deep), ["c/src: modules import each other: a -> b -> a"]);
        let inside = [("a/mod.rs", ""), ("a/x.rs", "use super::y::Y;"), ("a/y.rs", "use super::x::X;")];
        assert_eq!(found(&inside), ["c/src/a: modules import each other: x -> y -> x"]);
    }

    #[test]
    fn a_parent_and_its_children_may_import_each_other() {
        let family = [("a.rs", "mod x; use x::X; pub struct A;"), ("a/x.rs", "use super::A; pub struct X;")];
        assert_eq!(found(&family), NONE);
        assert_eq!(found(&[("lib.rs", "use a::A;"), ("a.rs", "use crate::L;")]), NONE);
    }

    #[test]
    fn a_name_that_is_passed_on_counts_where_it_comes_from() {
        let passed = [("lib.rs", "pub use b::B as C;"), ("a.rs", "use crate::C;"), ("b.rs", "use crate::a::A;")];
        assert_eq!(found(&passed), ["c/src: modules import each other: a -> b -> a"]);
    }

    #[test]
    fn tests_may_import_what_they_like() {
        let source = "#[cfg(test)] mod tests { use crate::b::B; }";
        assert_eq!(found(&[("a.rs", source), ("b.rs", "use crate::a::A;")]), NONE);
        assert_eq!(found(&[("a/tests.rs", "use crate::b::B;"), ("b.rs", "use crate::a;"), ("a.rs", "")]), NONE);
    }
}
