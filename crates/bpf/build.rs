//! Compiles the BPF programs with clang. Without clang the build goes on, and
//! code that needs a program reports what is missing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // As this runs, not as it was compiled: clones may share what cargo has built.
    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let source = Path::new(&package).join("programs");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rustc-check-cfg=cfg(bpf_objects)");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    for name in ["arrive", "bump", "endpoint", "gap", "latency", "queue", "steer"] {
        let (source, object) = (source.join(name).with_extension("c"), out.join(name).with_extension("o"));
        // v2 is the instruction set of every kernel with AF_XDP.
        let compiled = Command::new(&clang)
            .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v2", "-c"])
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .status();
        match compiled {
            Ok(status) if status.success() => {}
            // A clang that is there and fails is a mistake in the program.
            Ok(status) => panic!("{} failed on {name}.c: {status}", clang.to_string_lossy()),
            Err(error) => {
                println!(
                    "cargo::warning=no AF_XDP ports and no steering in this build: {} cannot be run ({error}); install clang and build again",
                    clang.to_string_lossy()
                );
                // A file that is not there makes cargo try again each time.
                println!("cargo::rerun-if-changed={}", object.display());
                return;
            }
        }
    }
    println!("cargo::rustc-cfg=bpf_objects");
}
