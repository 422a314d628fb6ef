//! Every command that a page shows is run, as the page has it.
//!
//! A page's blocks run one after another in one shell, in a network namespace of their own whose
//! `eth0` (192.0.2.1) leads to another machine (192.0.2.2), which serves files over HTTP. The
//! shell's directory is empty but for the files that pages speak of. The output that a page shows
//! has to come, numbers aside.

use crate::fences::{self, Fence, Step};
use crate::top;
use baton_testkit::{Netns, Running, build_beside, need_program, need_root, veth, wait_for};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

/// Longest that a page's commands may take together, in seconds.
const LIMIT: &str = "120";

/// The file that pages call `nginx.conf`.
const NGINX: &str = "\
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    server { listen 8080; root site; }
}
";

/// Printed in front of each command, with its number.
const MARK: &str = "@@@ command ";

#[test]
fn each_block_of_commands_has_known_marks() {
    for page in fences::pages(&top()) {
        let text = fs::read_to_string(&page).unwrap();
        for fence in fences::of(&text) {
            let place = format!("{}:{}", page.display(), fence.line);
            assert_eq!(fence.bad_mark(), None, "{place}: a mark is `endless` or `not-run=why`");
            let steps = fence.steps();
            assert!(!steps.is_empty() && steps.iter().all(|step| !step.command.is_empty()), "{place}: no command");
            assert!(!fence.is_endless() || steps.len() == 1, "{place}: what is endless is one command");
        }
    }
}

#[test]
fn commands_on_the_pages_run_and_print_what_is_shown() {
    need_root!();
    need_program!("curl");
    need_program!("nginx");
    need_program!("clang");
    let mut failed = Vec::new();
    for page in fences::pages(&top()) {
        let text = fs::read_to_string(&page).unwrap();
        let fences: Vec<Fence> = fences::of(&text).into_iter().filter(|fence| fence.not_run().is_none()).collect();
        if !fences.is_empty() {
            failed.extend(World::new().play(&fences).err().map(|why| format!("{}: {why}", page.display())));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// This machine and another one, and an empty directory.
struct World {
    _served: Running,
    ours: Netns,
    _other: Netns,
    home: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let (ours, other) = (Netns::new("pages"), Netns::new("pagesother"));
        veth(&ours, "eth0", &other, "eth0");
        ours.run("ip addr add 192.0.2.1/24 dev eth0");
        other.run("ip addr add 192.0.2.2/24 dev eth0");
        let home = tempfile::tempdir().unwrap();
        let site = home.path().join("site");
        fs::create_dir(&site).unwrap();
        fs::write(site.join("file"), vec![b'x'; 1 << 20]).unwrap();
        fs::write(home.path().join("nginx.conf"), NGINX).unwrap();
        fs::copy(top().join("crates/wire/tests/pcaps/tcp-timestamp-snapped.pcap"), home.path().join("capture.pcap"))
            .unwrap();
        let mut serve = other.command(env!("CARGO_BIN_EXE_baton"));
        serve.args(["serve", "--port", "kernel", "--addr", "192.0.2.2", "http"]).arg(&site).args(["--listen", "80"]);
        let served = Running::start(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
        wait_for("the other machine's service", || other.enter(|| TcpStream::connect("192.0.2.2:80").is_ok()));
        World { _served: served, ours, _other: other, home }
    }

    /// Runs the blocks; an error says which command failed, or printed something else.
    fn play(&self, fences: &[Fence]) -> Result<(), String> {
        let mut steps = Vec::new();
        let mut script = String::from("set -e\nmount -t tmpfs tmpfs /run\nendless=\n");
        let mut is_behind_endless = false;
        for fence in fences {
            for step in fence.steps() {
                let number = steps.len();
                script.push_str(&format!("echo '{MARK}{number}'\n"));
                if fence.is_endless() {
                    script.push_str(&format!("{} &\nendless=\"$endless $!\"\nsleep 1\nkill -0 $!\n", step.command));
                } else if is_behind_endless {
                    // It may need what is not ready yet.
                    let file = self.home.path().join(format!("step-{number}"));
                    fs::write(&file, &step.command).unwrap();
                    script.push_str(&format!("tries=0\nuntil sh -e {}; do\n", file.display()));
                    script.push_str("tries=$((tries + 1))\n[ $tries -lt 40 ]\nsleep 0.5\ndone\n");
                } else {
                    script.push_str(&format!("{}\n", step.command));
                }
                is_behind_endless = fence.is_endless();
                steps.push((fence.line, step));
            }
        }
        script.push_str("for each in $endless; do kill $each; wait $each || true; done\n");
        let log = self.home.path().join("log");
        let file = File::create(&log).unwrap();
        let mut command = self.ours.command("timeout");
        command.args([LIMIT, "sh", "-c", &script]).current_dir(self.home.path()).env("PATH", path());
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let status = command.status().unwrap();
        let said = fs::read_to_string(&log).unwrap();
        if !status.success() {
            return Err(format!("{status}, after\n{said}"));
        }
        steps.iter().enumerate().try_for_each(|(number, (line, step))| {
            let mark = format!("{MARK}{number}\n");
            let begun = said.find(&mark).map(|at| at + mark.len()).ok_or(format!("{line}: not reached"))?;
            is_printed(step, &said[begun..]).map_err(|missing| format!("{line}: `{missing}` is not in\n{said}"))
        })
    }
}

/// The programs of this build, then the system's.
fn path() -> &'static OsString {
    static PATH: OnceLock<OsString> = OnceLock::new();
    PATH.get_or_init(search_path)
}

fn search_path() -> OsString {
    let baton = PathBuf::from(env!("CARGO_BIN_EXE_baton"));
    build_beside(&baton, "baton-shim", env!("CARGO_MANIFEST_DIR"));
    let before = baton.parent().map(Path::to_owned);
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let paths = before.into_iter().chain(std::env::split_paths(&rest)).chain(["/usr/sbin".into(), "/sbin".into()]);
    std::env::join_paths(paths).expect("a path without colons")
}

/// Whether all that is shown was printed, in that order; else the line that was not.
fn is_printed(step: &Step, said: &str) -> Result<(), String> {
    let mut lines = said.lines().map(without_numbers);
    for shown in step.output.iter().filter(|line| !["", "…"].contains(&line.trim())) {
        if !lines.any(|line| line == without_numbers(shown)) {
            return Err(shown.clone());
        }
    }
    Ok(())
}

/// A line with each number as `0`, and blanks as one.
fn without_numbers(line: &str) -> String {
    let mut out = String::new();
    for word in line.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        for c in word.chars() {
            match c {
                '0'..='9' if out.ends_with('0') => {}
                '0'..='9' => out.push('0'),
                c => out.push(c),
            }
        }
    }
    out
}

#[test]
fn shown_output_is_compared_but_for_its_numbers() {
    let step = |output: &[&str]| Step {
        command: String::new(),
        output: output.iter().map(|line| (*line).to_owned()).collect(),
    };
    let said = "first 12.5  s\nother\nsecond 1000 of 20\n";
    assert_eq!(is_printed(&step(&["first 7.25 s", "…", "second 3 of 4"]), said), Ok(()));
    assert_eq!(is_printed(&step(&["second 3 of 4", "first 7.25 s"]), said), Err("first 7.25 s".into()));
}
