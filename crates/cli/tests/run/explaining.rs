//! The output of `baton run` and `baton ps` for programs that end or behave in unusual ways.

use crate::sharing::{echo, place};
use crate::world::{Account, World, baton};
use baton_testkit::{output, run, wait_for};
use std::fs;
use std::process::Command;

/// Sends and receives 20 times 3,000 bytes over one connection.
pub const TALK: &str = "\
import ctypes, os, signal, socket, sys, time
def talk():
    one = socket.create_connection(('10.67.0.2', 8103), timeout=20)
    for _ in range(20):
        one.sendall(b'x' * 3000)
        left = 3000
        while left: left -= len(one.recv(left))
    return one
";

/// A run of Python after [`TALK`]; what was said.
fn python(world: &World, options: &[&str], code: &str) -> String {
    let code = format!("{TALK}{code}");
    let mut command = Command::new(baton());
    command.args(["run", "--explain", "--interface", "wire", "--steer", "tc"]).args(options);
    command.args(["--", "python3", "-c", &code]).current_dir(world.home.path());
    let out = world.ours.enter(|| output(&mut command));
    String::from_utf8(out.stderr).unwrap()
}

pub fn bytes_of_a_program_that_is_killed_are_counted(world: &World) {
    let _echo = echo(world);
    for engine in ["service", "direct"] {
        let said = python(
            world,
            &["--engine", engine, "--policy", "fcfs"],
            "one = talk()\nos.kill(os.getpid(), signal.SIGKILL)",
        );
        assert!(said.contains("1 of 1 connections moved to the engine; 60000 bytes sent and 60000 received"), "{said}");
    }
}

pub fn processes_without_the_library_are_counted(world: &World) {
    let (source, program) = (world.file("static.c"), world.file("static"));
    fs::write(&source, "#include <unistd.h>\nint main(void) { usleep(500000); return 0; }\n").unwrap();
    run(Command::new("cc").arg("-static").arg("-o").args([&program, &source]));
    let out = world.run(&["sh", "-c", "./static & ./static & env -i sleep 0.5; wait"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{said}");
    let expected = format!(
        "  2 processes ran without the library, with all connections in the kernel: {} is linked",
        program.display()
    );
    assert!(said.contains(&expected), "{said}");
    assert!(
        said.contains("  1 process ran without the library") && said.contains("with a different environment"),
        "{said}"
    );
    assert!(!world.run(&["sleep", "0.5"]).stderr.windows(11).any(|words| words == b"ran without"));
}

pub fn what_to_try_is_said_where_nothing_moved(world: &World) {
    let _echo = echo(world);
    let said = python(world, &[], "talk().close()");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(said.contains("0 of 1 connections moved") && said.contains("--policy "), "{cpus} CPUs: {said}");
    let said = python(world, &["--policy", "small"], "talk().close()");
    assert!(said.contains("0 of 1 connections moved") && !said.contains("--policy"), "{said}");
}

/// A ring that is made before anything is connected, as of libuv and of storage engines.
pub fn a_program_can_be_had_to_do_without_io_uring(world: &World) {
    let _echo = echo(world);
    let code = "\
libc = ctypes.CDLL(None, use_errno=True)
made = libc.syscall(425, 4, ctypes.create_string_buffer(120))
print('ring', 'made' if made >= 0 else ctypes.get_errno(), file=sys.stderr)
print('libuv', os.environ['UV_USE_IO_URING'], file=sys.stderr)
talk().close()
";
    let said = python(world, &["--policy", "fcfs"], code);
    assert!(said.contains("ring made") && said.contains("1 stayed in the kernel: io-uring"), "{said}");
    assert!(said.contains("libuv 0"), "{said}");
    let said = python(world, &["--policy", "fcfs", "--no-io-uring"], code);
    assert!(said.contains("ring 38") && said.contains("1 of 1 connections moved"), "{said}");
    // By liburing's own calls, too.
    let code = "\
uring = ctypes.CDLL('liburing.so.2')
print('queue', ctypes.CDLL(None).io_uring_queue_init(4, ctypes.create_string_buffer(1000), 0), file=sys.stderr)
talk().close()
";
    let said = python(world, &["--policy", "fcfs", "--no-io-uring"], code);
    assert!(said.contains("queue -38") && said.contains("1 of 1 connections moved"), "{said}");
}

/// One that waits in TIME-WAIT has carried something.
pub fn ps_says_bytes_and_rates(world: &World) {
    let _echo = echo(world);
    let code = format!(
        "{TALK}talk().close()\nopen('began', 'w')\nwhile not os.path.exists('end'): time.sleep(0.01)\nos._exit(0)"
    );
    let running = world.start(&["python3", "-c", &code]);
    wait_for("the program", || world.file("began").exists());
    let socket = place(world).unwrap().join("socket");
    let list = || {
        let out = output(Command::new(baton()).args(["ps", "--socket"]).arg(&socket));
        String::from_utf8(out.stdout).unwrap()
    };
    wait_for("the connection's end", || list().lines().any(|line| line.starts_with("closing")));
    let said = list();
    let words: Vec<&str> = said.lines().next().unwrap().split_whitespace().collect();
    let row: Vec<&str> = said.lines().find(|line| line.starts_with("closing")).unwrap().split_whitespace().collect();
    let cell = |name: &str| row[words.iter().position(|word| *word == name).unwrap_or_else(|| panic!("{said}"))];
    assert_eq!((cell("SENT"), cell("RECEIVED"), cell("SENT/S"), cell("RECEIVED/S")), ("60000", "60000", "0", "0"));
    fs::write(world.file("end"), "").unwrap();
    let Account { moved, .. } = world.wait(running);
    assert_eq!(moved, 1);
}
