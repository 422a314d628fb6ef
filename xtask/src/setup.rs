//! System packages that the project needs and cargo does not provide.
//!
//! Each is probed for by the program that is used, so that programs installed by hand count.
//! Missing packages are installed through apt as root; otherwise the one command to run is
//! printed, with what works without it. The kernel that some tests boot, CPython's tests, and what
//! the Python module is built with lie next to cargo's output, and are not installed.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{cpython, guest, python, run};

/// A Debian package and why it is wanted.
#[derive(Debug)]
struct Package {
    name: &'static str,
    /// The program that is looked for.
    program: &'static str,
    /// The work that cannot be done without it.
    purpose: &'static str,
    /// `run` needs it; the others only `test` and `bench` do.
    for_run: bool,
}

const PACKAGES: &[Package] = &[
    Package { name: "clang", program: "clang", purpose: "AF_XDP ports: the XDP program is compiled", for_run: true },
    Package { name: "iproute2", program: "ip", purpose: "wires to the kernel, in the demo and tests", for_run: true },
    Package { name: "curl", program: "curl", purpose: "downloads in the demo and in tests", for_run: true },
    Package { name: "ethtool", program: "ethtool", purpose: "wires without offloads in the demo", for_run: true },
    Package { name: "iputils-ping", program: "ping", purpose: "tests against the kernel", for_run: false },
    Package { name: "tcpdump", program: "tcpdump", purpose: "tests of what is on a wire", for_run: false },
    Package {
        name: "tshark",
        program: "tshark",
        purpose: "tests of capture files and of what is on a wire",
        for_run: false,
    },
    Package {
        name: "nftables",
        program: "nft",
        purpose: "faults injected in tests against the kernel",
        for_run: false,
    },
    Package { name: "conntrack", program: "conntrack", purpose: "tests of what conntrack has", for_run: false },
    Package {
        name: "iptables",
        program: "iptables-legacy",
        purpose: "rules that tests have the kernel apply",
        for_run: false,
    },
    Package { name: "ufw", program: "ufw", purpose: "its rules, which tests have the kernel apply", for_run: false },
    Package { name: "nginx", program: "nginx", purpose: "the server of the demo, and tests against it", for_run: true },
    Package { name: "wrk", program: "wrk", purpose: "load on nginx in the demo and the benchmarks", for_run: true },
    Package { name: "redis-server", program: "redis-server", purpose: "tests of baton run", for_run: false },
    Package { name: "memcached", program: "memcached", purpose: "tests of baton run", for_run: false },
    Package { name: "iperf3", program: "iperf3", purpose: "tests of baton run and baton bump", for_run: false },
    Package { name: "openssl", program: "openssl", purpose: "tests of baton run", for_run: false },
    Package { name: "python3", program: "python3", purpose: "tests of baton run", for_run: false },
    Package { name: "pkg-config", program: "pkg-config", purpose: "C programs against the library", for_run: false },
    Package { name: "valgrind", program: "valgrind", purpose: "C programs against the library", for_run: false },
    Package {
        name: "qemu-system-x86",
        program: "qemu-system-x86_64",
        purpose: "tests under a kernel that has VLAN devices",
        for_run: false,
    },
    Package {
        name: "iptables",
        program: "iptables",
        purpose: "tests of baton run on hosts with a firewall",
        for_run: false,
    },
    Package {
        name: "docker.io",
        program: "dockerd",
        purpose: "tests of baton run on hosts with a firewall",
        for_run: false,
    },
    Package {
        name: "dbus",
        program: "dbus-daemon",
        purpose: "tests of baton run on hosts with a firewall",
        for_run: false,
    },
    Package {
        name: "firewalld",
        program: "firewalld",
        purpose: "tests of baton run on hosts with a firewall",
        for_run: false,
    },
    Package { name: "ufw", program: "ufw", purpose: "tests of baton run on hosts with a firewall", for_run: false },
    Package { name: "chromium", program: "chromium", purpose: "the test of the report page", for_run: false },
];

/// Packages that bring services, and these: only their programs are wanted.
const SERVICES: &[(&str, &[&str])] = &[
    ("nginx", &["nginx"]),
    ("redis-server", &["redis-server"]),
    ("memcached", &["memcached"]),
    ("docker.io", &["docker.service", "docker.socket", "containerd.service"]),
    ("firewalld", &["firewalld"]),
    ("ufw", &["ufw"]),
];

/// The result of setting up.
#[derive(PartialEq, Eq, Debug)]
pub enum Setup {
    /// Everything is there.
    Complete,
    /// These are not, and why.
    Incomplete(String),
}

/// `cargo xtask setup`.
pub fn command(flags: &[&str]) -> Result<ExitCode> {
    if flags.contains(&"--print") {
        let packages = missing(false);
        if packages.is_empty() {
            println!("Nothing is missing.");
        } else {
            println!("{}", advice(&packages));
        }
        return Ok(ExitCode::SUCCESS);
    }
    match ensure(false)? {
        Setup::Complete => println!("Nothing is missing."),
        Setup::Incomplete(why) => println!("{why}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs what is missing, if it can.
pub fn ensure(for_run: bool) -> Result<Setup> {
    let setup = ensure_packages(for_run)?;
    if !for_run {
        // Only tests need them, and without Debian's packages they cannot be fetched at all.
        let fetched = [
            if guest::is_settled() { Ok(()) } else { guest::fetch() },
            if cpython::is_settled() { Ok(()) } else { cpython::fetch() },
            if python::is_settled() { Ok(()) } else { environments().and_then(|()| python::fetch()) },
        ];
        fetched.into_iter().filter_map(Result::err).for_each(|e| println!("{e:#}"));
    }
    Ok(setup)
}

fn ensure_packages(for_run: bool) -> Result<Setup> {
    let packages = missing(for_run);
    if packages.is_empty() {
        return Ok(Setup::Complete);
    }
    if !run::on_path("apt-get") {
        let purposes = purposes(&packages);
        return Ok(Setup::Incomplete(format!("No apt-get here; these are missing, by Debian's names:\n{purposes}")));
    }
    if !run::is_root() {
        return Ok(Setup::Incomplete(advice(&packages)));
    }
    println!("Installing:\n{}", purposes(&packages));
    if let Err(e) = install(&packages) {
        println!("{e:#}");
    }
    let still = missing(for_run);
    Ok(if still.is_empty() {
        Setup::Complete
    } else {
        Setup::Incomplete(format!("Could not be installed; what needs them is skipped:\n{}", purposes(&still)))
    })
}

/// Installs what makes Python environments, where Debian has it apart from Python.
fn environments() -> Result<()> {
    if python::lacks_venv() {
        anyhow::ensure!(
            run::is_root() && run::on_path("apt-get"),
            "the Python module is not tested: sudo apt-get install -y python3-venv"
        );
        run::succeed(&mut apt_install(&["python3-venv"]))?;
    }
    Ok(())
}

fn missing(for_run: bool) -> Vec<&'static Package> {
    PACKAGES.iter().filter(|package| (package.for_run || !for_run) && !run::on_path(package.program)).collect()
}

fn names(packages: &[&Package]) -> Vec<&'static str> {
    packages.iter().map(|package| package.name).collect()
}

fn purposes(packages: &[&Package]) -> String {
    packages.iter().map(|p| format!("  {:<12} {}", p.name, p.purpose)).collect::<Vec<_>>().join("\n")
}

fn advice(packages: &[&Package]) -> String {
    format!(
        "Missing, each with what cannot be done without it:\n{}\nInstall them with:\n  \
         sudo apt-get update && sudo apt-get install -y --no-install-recommends {}",
        purposes(packages),
        names(packages).join(" ")
    )
}

fn install(packages: &[&Package]) -> Result<()> {
    // Old lists name files that mirrors no longer have. With no network this
    // fails, and what apt has cached may still do.
    if let Err(e) = run::succeed(&mut apt(&["update", "-qq"])) {
        println!("{e:#}; going on with the lists that are there");
    }
    let outcome = install_quietly(packages);
    let new = |name: &str| packages.iter().any(|package| package.name == name);
    for (_, units) in SERVICES.iter().filter(|(name, _)| new(name)) {
        if Path::new("/run/systemd/system").exists() {
            // Not started now, it would be at the next boot.
            run::succeed(run::program("systemctl", &["disable", "--quiet"]).args(*units))?;
        }
    }
    outcome
}

fn install_quietly(packages: &[&Package]) -> Result<()> {
    let _quiet = NoServices::new()?;
    let all = names(packages);
    if run::succeed(&mut apt_install(&all)).is_ok() {
        return Ok(());
    }
    // One that cannot be had (chromium is not a package everywhere) must not keep
    // the others away.
    for name in all {
        if let Err(e) = run::succeed(&mut apt_install(&[name])) {
            println!("{e:#}");
        }
    }
    Ok(())
}

/// Keeps packages from starting their services while it lives: nginx is wanted
/// as a program, and its service would take port 80.
struct NoServices {
    ours: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl NoServices {
    fn new() -> Result<NoServices> {
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY);
        match file {
            Ok(mut file) => {
                use std::io::Write;
                // 101: "action forbidden by policy" (invoke-rc.d(8)).
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                file.set_permissions(fs::Permissions::from_mode(0o755))?;
                Ok(NoServices { ours: true })
            }
            // There is a policy already, as in containers: it decides.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(NoServices { ours: false }),
            Err(e) => Err(e).with_context(|| format!("cannot write {POLICY}")),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}

fn apt(arguments: &[&str]) -> std::process::Command {
    let mut command = run::program("apt-get", &["-o", "Dpkg::Use-Pty=0"]);
    command.args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn apt_install(packages: &[&str]) -> std::process::Command {
    let mut command = apt(&["install", "-y", "-qq", "--no-install-recommends"]);
    command.args(packages);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_one_command_with_every_package() {
        let all: Vec<&Package> = PACKAGES.iter().collect();
        let text = advice(&all);
        let command = text.lines().last().unwrap();
        assert!(command.contains("apt-get update && sudo apt-get install"), "{text}");
        for package in PACKAGES {
            assert!(command.contains(package.name) && text.contains(package.purpose), "{text}");
        }
    }
}
