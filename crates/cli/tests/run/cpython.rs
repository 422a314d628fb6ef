//! CPython's own socket tests, on the kernel and under `baton run`: each must have the same result.
//!
//! ```text
//!          near 10.68.0.1 ----- wire ----- far 10.68.0.2      both in one namespace
//! ```
//!
//! Both ends of their connections are in one process, and loopback stays in the kernel. So the namespace
//! sends packets for the far address over the wire, although the address is its own, and the tests are
//! copied with that address in place of 127.0.0.1. Debian has a separate package for these tests, which
//! `cargo xtask setup` unpacks.

use crate::restless::Restless;
use crate::rough::Rough;
use crate::world::{Account, baton, times};
use baton_client::Service;
use baton_testkit::{Netns, Running, output, run, skip, veth, wait_for};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Modules of CPython's tests that use TCP; the first few take seconds.
const MODULES: [&str; 7] = [
    "test_socketserver",
    "test_httpservers",
    "test_httplib",
    "test_selectors",
    "test_socket",
    "test_ssl",
    "test_asyncio",
];
const QUICK: usize = 3;

/// Debian's, whose tests those are.
const PYTHON: &str = "/usr/bin/python3";

const FAR: &str = "10.68.0.2";

/// How often tests with a different result are repeated, since some depend on timing.
const AGAIN: usize = 3;

/// Time limits in seconds: of a module's tests, after which Python ends and prints where each thread was; and of all
/// modules, after which the children that tests have forked end, too. The quick modules take seconds, and minutes on a
/// busy machine.
const LONGEST: [(&str, &str); 2] = [("200", "400"), ("500", "3000")];

/// Its client gives a connection one second, after which the kernel would have sent a lost SYN
/// again, and its server then waits for ever: so it ended on the kernel, without us.
const HANGS_WITHOUT_ITS_SYN: &str = "*testOutsideTimeout";

/// Where set-up puts the package's tests: beside cargo's directory for tests.
fn unpacked() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("cpython")
}

/// The wire between the tests' two ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Between {
    Loopback,
    Wire,
    /// A wire that loses, duplicates and reorders frames.
    BadWire,
}

/// The namespace, and a copy of the tests.
struct Site {
    _rough: Option<Rough>,
    ours: Netns,
    home: tempfile::TempDir,
    between: Between,
    /// Where the engine runs.
    engine: &'static str,
}

/// How the tests are run.
#[derive(Clone, Copy)]
enum How<'a> {
    Kernel,
    /// With a service of its own.
    Run,
    /// With the service that listens there.
    With(&'a Path),
}

/// A test's name and its result.
type Outcomes = BTreeMap<String, &'static str>;

impl Site {
    /// Returns `None`, and reports a skip, if the tests are not installed.
    fn new(between: Between, engine: &'static str) -> Option<Site> {
        let package = unpacked();
        if !package.join("test").is_dir() {
            skip::missing("needs CPython's tests: `cargo xtask setup` unpacks them");
            return None;
        }
        let ours = Netns::new("cpython");
        let rough = (between == Between::BadWire).then(|| Rough::new([(&ours, "near"), (&ours, "far")]));
        if rough.is_none() {
            veth(&ours, "near", &ours, "far");
        }
        let site = Site { _rough: rough, ours, home: tempfile::tempdir().unwrap(), between, engine };
        let tests = site.home.path().join("tests");
        fs::create_dir(&tests).unwrap();
        let script = "import sys, test; print(test.__path__[0])";
        let library = run(Command::new(PYTHON).args(["-c", script]));
        run(Command::new("cp").arg("-r").arg(library.trim()).arg(&tests));
        run(Command::new("cp").arg("-r").arg(package.join("test")).arg(&tests));
        if between != Between::Loopback {
            site.take_the_wire();
            site.rewrite(&tests.join("test"));
        }
        Some(site)
    }

    fn take_the_wire(&self) {
        self.ours.enter(|| {
            for device in ["all", "near", "far"] {
                let directory = Path::new("/proc/sys/net/ipv4/conf").join(device);
                fs::write(directory.join("accept_local"), "1").unwrap();
                fs::write(directory.join("rp_filter"), "0").unwrap();
            }
        });
        // Incoming packets are ours as ever; packets to the other end take the wire; an end's packets to
        // itself do not. Nor do datagrams (UDP, UDP-Lite): tests wait for some for ever, and a test
        // that loses one has lost it, on the kernel, too.
        for line in [
            "addr add 10.68.0.1/24 dev near",
            "addr add 10.68.0.2/24 dev far",
            "rule add pref 1 iif near lookup local",
            "rule add pref 2 iif far lookup local",
            "rule add pref 3 from 10.68.0.1 to 10.68.0.1 lookup local",
            "rule add pref 4 from 10.68.0.2 to 10.68.0.2 lookup local",
            "rule add pref 5 ipproto 17 lookup local",
            "rule add pref 6 ipproto 136 lookup local",
            "rule add pref 10 lookup 100",
            "rule add pref 20 lookup local",
            "rule del pref 0",
            "route add 10.68.0.2 dev near src 10.68.0.1 table 100",
            "route add 10.68.0.1 dev far src 10.68.0.2 table 100",
        ] {
            self.ours.run(&format!("ip {line}"));
        }
        fs::write(self.home.path().join("hosts"), format!("{FAR} localhost\n")).unwrap();
    }

    fn rewrite(&self, tests: &Path) {
        let some = MODULES.iter().map(|name| tests.join(name).with_extension("py"));
        let asyncio = fs::read_dir(tests.join("test_asyncio")).unwrap().map(|entry| entry.unwrap().path());
        for path in some.chain(asyncio).chain([tests.join("support/socket_helper.py")]) {
            if path.extension().is_some_and(|it| it == "py") && path.is_file() {
                let text = fs::read_to_string(&path).unwrap();
                fs::write(&path, text.replace("127.0.0.1", FAR)).unwrap();
            }
        }
    }

    /// Runs tests, or only the named ones if any are named.
    fn outcomes(&self, modules: &[&str], named: &[&String], how: How<'_>) -> (Outcomes, Option<Account>) {
        let report = self.home.path().join("report.xml");
        let _ = fs::remove_file(&report);
        let longest = LONGEST[usize::from(times() > 1)];
        let mut command = Command::new("timeout");
        command.args(["--signal", "KILL", longest.1, "unshare"]);
        let hosts = "if [ -e hosts ]; then mount --bind hosts /etc/hosts; fi; exec \"$@\"";
        command.args(["--mount", "sh", "-c", hosts, "sh"]);
        if !matches!(how, How::Kernel) {
            command.arg(baton()).args(["run", "--explain", "--engine", self.engine, "--policy", "fcfs"]);
            command.args(["--pair", if self.between == Between::Loopback { "same-user" } else { "never" }]);
        }
        match how {
            How::Kernel => &mut command,
            How::Run => command.args(["--steer", "tc", "--interface", "near", "--interface", "far", "--"]),
            How::With(socket) => command.arg("--socket").arg(socket).arg("--"),
        };
        // Those of VSOCK hang on machines that have half of it.
        command.args([PYTHON, "-m", "test", "--timeout", longest.0, "-u", "network", "-i", "*VSOCK*"]);
        if self.between == Between::BadWire {
            command.args(["-i", HANGS_WITHOUT_ITS_SYN]);
        }
        command.arg("--junit-xml").arg(&report).args(named.iter().flat_map(|name| ["-m", name])).args(modules);
        command.env("PYTHONPATH", self.home.path().join("tests")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.current_dir(self.home.path()).stdin(Stdio::null());
        let out = self.ours.enter(|| output(&mut command));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let Ok(report) = fs::read_to_string(&report) else {
            panic!("no report: {:?}\n{}\n{said}", hung(&said), String::from_utf8_lossy(&out.stdout));
        };
        let is_kernel = matches!(how, How::Kernel);
        if !is_kernel {
            // Kept by the test's output if what it tells of differs.
            errors(&report).for_each(|case| println!("{}", case.trim()));
        }
        (read(&report), (!is_kernel).then(|| Account::of(&said)))
    }

    /// Runs them on the kernel and with Baton, and compares the results.
    fn compare(&self, how: How<'_>) {
        let modules = &MODULES[..if times() > 1 { MODULES.len() } else { QUICK }];
        let (kernels, _) = self.outcomes(modules, &[], How::Kernel);
        let (ours, account) = self.outcomes(modules, &[], how);
        assert!(kernels.len() > 100 && kernels.values().filter(|outcome| **outcome == "ok").count() > 80);
        let mut differ = differences(&kernels, &ours);
        println!("{} tests, {} of them with another outcome at first", kernels.len(), differ.len());
        for _ in 0..AGAIN {
            if differ.is_empty() {
                break;
            }
            println!("again: {differ:?}");
            let names: Vec<&String> = differ.keys().collect();
            let both = [How::Kernel, how].map(|how| self.outcomes(modules, &names, how).0);
            let still = differences(&both[0], &both[1]);
            differ.retain(|name, _| still.contains_key(name));
        }
        assert!(differ.is_empty(), "not as on the kernel: {differ:?}");
        let account = account.expect("it was explained");
        println!("{}", account.said.lines().filter(|line| line.starts_with("baton: ")).collect::<Vec<_>>().join("\n"));
        assert!(self.between == Between::Loopback || account.moved * 2 > account.all, "too few moved");
    }
}

/// The tests that threads were in when the time was over, as Python's `faulthandler` says it.
fn hung(said: &str) -> Vec<&str> {
    let stacks = said.split_once("Timeout (").map_or("", |(_, stacks)| stacks);
    stacks.lines().filter_map(|line| line.rsplit_once(" in ")?.1.strip_prefix("test").map(|_| line.trim())).collect()
}

/// Outcomes of a report in JUnit's form.
fn read(report: &str) -> Outcomes {
    let cases = report.split("<testcase ").skip(1);
    let outcome = |case: &str| {
        let of = [("<error", "error"), ("<failure", "failure"), ("<skipped", "skipped")];
        of.into_iter().find(|(tag, _)| case.contains(tag)).map_or("ok", |(_, outcome)| outcome)
    };
    let named = |case: &str| {
        let (name, rest) = case.split_once("name=\"")?.1.split_once('"')?;
        Some((name.to_owned(), outcome(rest)))
    };
    cases.filter_map(named).collect()
}

/// A report's entries of tests that failed or ended in an error.
fn errors(report: &str) -> impl Iterator<Item = &str> {
    report.split("<testcase ").skip(1).filter(|case| case.contains("<error") || case.contains("<failure"))
}

/// Tests that came to different things: the kernel's, and ours.
fn differences(kernels: &Outcomes, ours: &Outcomes) -> BTreeMap<String, [&'static str; 2]> {
    let names = kernels.keys().chain(ours.keys());
    let of = |outcomes: &Outcomes, name| outcomes.get(name).copied().unwrap_or("none");
    let both = names.map(|name| (name.clone(), [of(kernels, name), of(ours, name)]));
    both.filter(|(_, [kernels, ours])| kernels != ours).collect()
}

/// Each with a service of its own, and nothing moves but by the policy.
pub fn quietly(between: Between, engine: &'static str) {
    if let Some(site) = Site::new(between, engine) {
        site.compare(How::Run);
    }
}

/// While their connections move.
pub fn restlessly(between: Between, engine: &'static str) {
    let Some(site) = Site::new(between, engine) else { return };
    let socket = site.home.path().join("socket");
    let mut command = Command::new(baton());
    command.args(["service", "--interface", "near", "--interface", "far", "--steer", "tc", "--socket"]).arg(&socket);
    command.stdin(Stdio::null()).stderr(fs::File::create(site.home.path().join("service")).unwrap());
    let _service = site.ours.enter(|| Running::start(&mut command));
    wait_for("the service", || Service::connect(&socket).is_ok());
    let restless = Restless::start(&socket);
    site.compare(How::With(&socket));
    println!("{} moves", restless.moves());
    assert!(restless.moves() > 0, "nothing moved");
}
