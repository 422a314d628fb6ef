//! Compiles the BPF programs with clang. Without clang the build goes on, and
//! opening an AF_XDP port says what is missing.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rustc-check-cfg=cfg(bpf_endpoint)");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    // v2 is the instruction set of every kernel with AF_XDP.
    let compiled = Command::new(&clang)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v2", "-c"])
        .arg(source.join("endpoint.c"))
        .arg("-o")
        .arg(Path::new(&out).join("endpoint.o"))
        .status();
    match compiled {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=bpf_endpoint"),
        // A clang that is there and fails is a mistake in the program.
        Ok(status) => panic!("{} failed on endpoint.c: {status}", clang.to_string_lossy()),
        Err(error) => {
            println!(
                "cargo::warning=no AF_XDP ports in this build: {} cannot be run ({error}); install clang and build again",
                clang.to_string_lossy()
            );
            // A file that is not there makes cargo try again each time.
            println!("cargo::rerun-if-changed={}", Path::new(&out).join("endpoint.o").display());
        }
    }
}
