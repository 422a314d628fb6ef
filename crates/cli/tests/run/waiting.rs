//! The sum of all waiting times (`docs/design/waiting.md`), counted: sleeps of an idle program and of one that answers,
//! and the shares of two that answer at the same time.

use crate::sharing::echo;
use crate::world::{Account, World};
use baton_testkit::Running;
use std::process::Stdio;

/// Counts how often this process's threads have slept.
const SLEEPS: &str = "\
import os, select, socket, sys, time
def sleeps():
    total, tasks = 0, '/proc/self/task/'
    for task in os.listdir(tasks):
        for line in open(tasks + task + '/status'):
            if line.startswith('voluntary_ctxt_switches:'): total += int(line.split()[1])
    return total
";

/// Has a connection that moves; then does nothing for two seconds.
const IDLE: &str = "\
with socket.create_connection(('10.67.0.2', 8103), timeout=20) as end:
    for word in (b'one', b'two'):
        end.sendall(word)
        assert end.recv(100) == word
    poll = select.epoll()
    poll.register(end, select.EPOLLIN)
    assert poll.poll(1) == []
    before = sleeps()
    assert poll.poll(2) == []
    print(sleeps() - before)
";

/// Answers on a port, and says at the end of each connection how many words it answered and how often it slept.
const SERVER: &str = "\
listener = socket.create_server(('10.67.0.1', int(sys.argv[1])))
with listener.accept()[0] as end:
    before, answered = sleeps(), 0
    while word := end.recv(100):
        end.sendall(word)
        answered += 1
    with open('answered' + sys.argv[1], 'w') as file:
        print(answered, sleeps() - before, file=file)
";

/// Asks there for a second.
const CLIENT: &str = "\
import socket, sys, time
with socket.create_connection(('10.67.0.1', int(sys.argv[1])), timeout=20) as end:
    ends = time.monotonic() + 1
    while time.monotonic() < ends:
        end.sendall(b'word')
        assert end.recv(100) == b'word'
";

pub fn an_idle_program_hardly_wakes_up(world: &World) {
    let _echo = echo(world);
    let out = world.run(&["python3", "-c", &[SLEEPS, IDLE].concat()]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    assert_eq!(Account::of(&said).moved, 1, "{said}");
    let slept: u64 = String::from_utf8_lossy(&out.stdout).trim().parse().unwrap();
    println!("{slept} sleeps in two seconds");
    assert!(slept <= 60, "{slept} sleeps in two seconds");
}

pub fn two_programs_answer_side_by_side(world: &World) {
    let server = [SLEEPS, SERVER].concat();
    let ports = ["8105", "8106"];
    let servers = ports.map(|port| world.start(&["python3", "-c", &server, port]));
    ports.iter().for_each(|port| world.listens(port.parse().unwrap()));
    let client = |port: &str| {
        let mut command = world.peer.command("python3");
        Running::start(command.args(["-c", CLIENT, port]).stdin(Stdio::null()))
    };
    let clients = ports.map(client);
    for mut running in clients.into_iter().chain(servers) {
        assert!(running.child().wait().unwrap().success());
    }
    let counts = ports.map(|port| {
        let said = std::fs::read_to_string(world.file(&format!("answered{port}"))).unwrap();
        let numbers: Vec<u64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
        (numbers[0], numbers[1])
    });
    println!("answered, and slept: {counts:?}");
    for (answered, slept) in counts {
        assert!(slept <= 3 * answered + 100, "{slept} sleeps for {answered} answers");
    }
    let [(one, _), (other, _)] = counts;
    assert!(one.min(other) * 4 >= one.max(other), "{one} and {other} answers");
}
