//! Dependencies in a crate's `Cargo.toml` that none of its sources names.

use super::metadata::{Dependency, Metadata, Package};
use super::tokens::{self, Tests};
use super::{File, Finding};

/// Checks every package.
pub fn check(metadata: &Metadata, files: &[File], findings: &mut Vec<Finding>) {
    for member in metadata.members() {
        let Some(directory) = directory(&member.manifest_path, files) else { continue };
        let sources = sources(&directory, files);
        for dependency in &member.dependencies {
            let name = crate_name(metadata, dependency);
            if !sources.iter().any(|(path, file)| is_for(dependency, path) && names(file, &name)) {
                findings.push(Finding {
                    path: format!("{directory}Cargo.toml"),
                    line: 0,
                    rule: "unused",
                    message: format!("no source names {}: remove it", dependency.name),
                });
            }
        }
    }
}

/// Sources of the package in a directory, by their paths there. One that is taken in from
/// elsewhere by `#[path]`, and its modules, have the path of the file that takes it in.
fn sources<'f>(directory: &str, files: &'f [File]) -> Vec<(&'f str, &'f File)> {
    let rust: Vec<&File> = files.iter().filter(|file| file.path.ends_with(".rs")).collect();
    let mut found: Vec<(&str, &File)> =
        rust.iter().filter_map(|file| Some((file.path.strip_prefix(directory)?, *file))).collect();
    let mut next = 0;
    while let Some(&(path, file)) = found.get(next) {
        next += 1;
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let taken_in =
            file.text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        for taken in taken_in.map(|taken| normal(folder, taken)) {
            let modules = taken.strip_suffix("mod.rs").map_or_else(|| taken.replace(".rs", "/"), str::to_owned);
            for other in rust.iter().filter(|other| other.path == taken || other.path.starts_with(&modules)) {
                if !found.contains(&(path, other)) {
                    found.push((path, other));
                }
            }
        }
    }
    found
}

/// A path as seen from a folder, from the top of the workspace.
fn normal(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A package's directory from the top of the workspace, with a slash at its end.
fn directory(manifest: &str, files: &[File]) -> Option<String> {
    let file =
        files.iter().filter(|file| manifest.ends_with(&format!("/{}", file.path))).max_by_key(|f| f.path.len())?;
    file.path.strip_suffix("Cargo.toml").map(str::to_owned)
}

/// The name of a dependency in sources: its new name, or that of its library.
fn crate_name(metadata: &Metadata, dependency: &Dependency) -> String {
    let library = |package: &Package| {
        package.targets.iter().find(|t| t.kind.iter().any(|k| LIBRARIES.contains(&&**k))).map(|t| t.name.clone())
    };
    let package = metadata.packages.iter().find(|package| package.name == dependency.name);
    let name = dependency.rename.clone().or_else(|| library(package?)).unwrap_or_else(|| dependency.name.clone());
    name.replace('-', "_")
}

const LIBRARIES: &[&str] = &["lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"];

/// Whether a file of the package, by its path there, may use a dependency of this kind. A
/// test dependency may also be named by the tests within `src`.
fn is_for(dependency: &Dependency, path: &str) -> bool {
    match dependency.kind.as_deref() {
        Some("build") => path == "build.rs" || path.starts_with("build/"),
        Some("dev") => path != "build.rs",
        _ => path.starts_with("src/"),
    }
}

/// Whether a file names a crate in its code or in an example of its documentation.
fn names(file: &File, name: &str) -> bool {
    let in_code = tokens::paths(&file.text, Tests::Keep)
        .is_ok_and(|paths| paths.iter().any(|path| path.segments.iter().any(|segment| segment == name)));
    let path = format!("{name}::");
    in_code || file.text.lines().any(|line| line.trim_start().starts_with("//") && line.contains(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::metadata::Target;

    fn found(kind: Option<&str>, rename: Option<&str>, path: &str, source: &str) -> usize {
        let package = |name: &str, dependencies| Package {
            name: name.into(),
            id: name.into(),
            manifest_path: format!("/x/crates/{name}/Cargo.toml"),
            dependencies,
            targets: vec![Target { name: name.into(), kind: vec!["lib".into()] }],
            ..Package::default()
        };
        let dependency =
            Dependency { name: "some-crate".into(), kind: kind.map(str::to_owned), rename: rename.map(str::to_owned) };
        let metadata = Metadata {
            packages: vec![package("port", vec![dependency]), package("some-crate", vec![])],
            workspace_members: vec!["port".into()],
        };
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            file("crates/other/tests/all.rs", "#[path = \"../src/lib.rs\"]\nmod other;"),
            file("crates/port/Cargo.toml", ""),
            file(&format!("crates/port/{path}"), source),
            file("crates/other/src/lib.rs", "use some_crate::A;"),
        ];
        let mut findings = Vec::new();
        check(&metadata, &files, &mut findings);
        findings.len()
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        assert_eq!(found(None, None, "src/lib.rs", "use some_crate::A;"), 0);
        assert_eq!(found(None, None, "src/lib.rs", "fn f() { g!(some_crate::a()); }"), 0);
        assert_eq!(found(None, None, "src/lib.rs", "// some_crate\nfn f() {}"), 1);
        assert_eq!(found(None, None, "tests/a.rs", "use some_crate::A;"), 1);
        assert_eq!(found(None, Some("short"), "src/lib.rs", "use short::A;"), 0);
        assert_eq!(found(None, Some("short"), "src/lib.rs", "use some_crate::A;"), 1);
    }

    #[test]
    fn a_source_that_is_taken_in_from_elsewhere_counts() {
        let taken = "#[path = \"../../other/src/lib.rs\"]\nmod other;";
        assert_eq!(found(Some("dev"), None, "tests/a.rs", taken), 0);
        let through_another = "#[path = \"../../other/tests/all.rs\"]\nmod all;";
        assert_eq!(found(Some("dev"), None, "tests/a.rs", through_another), 0);
        assert_eq!(found(None, None, "tests/a.rs", taken), 1);
        assert_eq!(found(Some("dev"), None, "tests/a.rs", "#[path = \"../../other/src/b.rs\"]\nmod b;"), 1);
    }

    #[test]
    fn tests_and_build_scripts_have_dependencies_of_their_own() {
        assert_eq!(found(Some("dev"), None, "tests/a.rs", "use some_crate::A;"), 0);
        assert_eq!(found(Some("dev"), None, "src/a.rs", "//! use some_crate::A;"), 0);
        assert_eq!(found(Some("dev"), None, "build.rs", "use some_crate::A;"), 1);
        assert_eq!(found(Some("build"), None, "build.rs", "use some_crate::A;"), 0);
        assert_eq!(found(Some("build"), None, "src/a.rs", "use some_crate::A;"), 1);
    }
}
