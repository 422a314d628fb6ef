//! A program that has had connections in an engine and has none any more.

use crate::sharing::echo;
use crate::world::{Account, World};
use baton_testkit::Running;
use std::process::Stdio;

/// Counts the library's threads.
const THREADS: &str = "\
import os, select, socket, time
def threads():
    tasks = '/proc/self/task/'
    names = [open(tasks + task + '/comm').read().strip() for task in os.listdir(tasks)]
    return names.count('baton-service')
";

/// Serves a connection that moves; then waits on a descriptor of its own, as an event loop with timers does, until
/// the library's thread has ended; then serves the next.
const SERVER: &str = "\
def serve():
    with listener.accept()[0] as end:
        while word := end.recv(100): end.sendall(word)
        assert threads() == 1, 'it has not moved'
listener = socket.create_server(('10.67.0.1', 8104))
assert threads() == 0
poll, pipe = select.epoll(), os.pipe()
poll.register(pipe[0], select.EPOLLIN)
for _ in range(2):
    serve()
    ends = time.monotonic() + 60
    while threads() and time.monotonic() < ends:
        os.write(pipe[1], b'.')
        assert poll.poll(1) == [(pipe[0], select.EPOLLIN)]
        os.read(pipe[0], 1)
        assert poll.poll(0.1) == []
    assert threads() == 0, 'the thread has not ended'
serve()
";

/// Closes each connection first, so that nothing of it is left in the server's engine.
const CLIENT: &str = "\
import socket
for _ in range(3):
    with socket.create_connection(('10.67.0.1', 8104), timeout=100) as end:
        for word in (b'one', b'two'):
            end.sendall(word)
            assert end.recv(100) == word
";

/// Closes a connection first, which its engine then has in TIME-WAIT; waits; and has another.
const CLOSER: &str = "\
poll, pipe = select.epoll(), os.pipe()
poll.register(pipe[0], select.EPOLLIN)
for _ in range(2):
    ends = time.monotonic() + 4
    with socket.create_connection(('10.67.0.2', 8103), timeout=20) as end:
        poll.register(end, select.EPOLLIN)
        for word in (b'one', b'two'):
            end.sendall(word)
            assert poll.poll(20) == [(end.fileno(), select.EPOLLIN)]
            assert end.recv(100) == word
    while time.monotonic() < ends:
        assert poll.poll(0.1) == []
    assert threads() == 1, threads()
";

pub fn a_link_with_something_left_is_used_again(world: &World) {
    let _echo = echo(world);
    let out = world.run(&["python3", "-c", &[THREADS, CLOSER].concat()]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert_eq!(Account::of(&said).moved, 2, "{said}");
}

pub fn the_library_s_thread_ends_and_comes_back(world: &World) {
    let server = world.start(&["python3", "-c", &[THREADS, SERVER].concat()]);
    world.listens(8104);
    let mut client = world.peer.command("python3");
    let mut client = Running::start(client.args(["-c", CLIENT]).stdin(Stdio::null()));
    let account = world.wait(server);
    assert!(client.child().wait().unwrap().success(), "{}", account.said);
    assert_eq!(account.moved, 3, "{}", account.said);
}
