//! Connections of C programs, through the C library.

use crate::common::World;
use baton_testkit::{c, need_program, need_root, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

/// The program with this name in `tests/c`.
fn program(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("service-{name}"));
    c::build_static(&source, &program);
    program
}

/// Echoes one connection at the far end of the wire, until it ends.
fn echo(world: &World<'_>) -> (SocketAddr, JoinHandle<()>) {
    let listener = world.wire.peer.enter(|| TcpListener::bind("10.66.0.2:0").unwrap());
    let address = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 1 << 16];
        loop {
            match peer.read(&mut bytes).unwrap() {
                0 => return,
                count => peer.write_all(&bytes[..count]).unwrap(),
            }
        }
    });
    (address, echo)
}

/// Starts a program with the service, an echoing peer, and one more argument.
fn start(program: &Path, world: &World<'_>, echo: SocketAddr, word: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(world.socket).args([echo.ip().to_string(), echo.port().to_string(), word.to_owned()]);
    command
}

#[test]
fn a_c_programs_connection_goes_and_comes_back_and_outlives_the_engine() {
    need_root!();
    need_program!("clang");
    need_program!("cc");
    let program = program("program");
    World::enter(|world| {
        let resets = world.wire.resets();
        let (address, echo) = echo(world);
        let mut command = start(&program, world, address, &world.engine.to_string());
        let said = world.wire.ours.enter(|| run(&mut command));
        assert_eq!(said.trim(), "OK");
        echo.join().unwrap();
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn children_of_a_program_leave_its_connections_alone() {
    need_root!();
    need_program!("clang");
    need_program!("cc");
    let program = program("fork");
    World::enter(|world| {
        let resets = world.wire.resets();
        let (address, echo) = echo(world);
        let mut command = start(&program, world, address, "go-on");
        let said = world.wire.ours.enter(|| run(&mut command));
        assert_eq!(said.trim(), "OK");
        echo.join().unwrap();
        assert_eq!(world.wire.resets(), resets);
    });
}

#[test]
fn a_program_that_dies_has_its_connections_closed_though_a_child_of_it_lives() {
    need_root!();
    need_program!("clang");
    need_program!("cc");
    let program = program("fork");
    World::enter(|world| {
        let (address, echo) = echo(world);
        let mut command = start(&program, world, address, "survive");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = world.wire.ours.enter(|| command.spawn().unwrap());
        let mut childs_input = program.stdin.take().unwrap();
        let said = program.wait_with_output().unwrap();
        assert_eq!((said.status.success(), said.stdout.trim_ascii()), (true, &b"OK"[..]));
        echo.join().unwrap();
        childs_input.write_all(b"still there?").unwrap();
    });
}
