//! Urgent data between two unmodified programs whose connections are pairs: both see what they see on the kernel.

use crate::world::{Account, World, baton};
use baton_client::Service;
use baton_testkit::{Running, wait_for};
use std::fs;
use std::process::{Command, Stdio};

/// Two programs, told apart by their first argument, that say what they receive, in files of their names. Both wait
/// for a file once they have talked over both connections.
const PROGRAM: &str = "\
import errno, fcntl, os, select, socket, struct, sys, time
name, port = sys.argv[1], int(sys.argv[2])
told = open(name + '.told', 'w')
def say(*words): print(*words, file=told, flush=True)
def at_mark(end): return struct.unpack('i', fcntl.ioctl(end, 0x8905, struct.pack('i', -1)))[0]
def read_to_mark(end, most):
    got = b''
    while len(got) < most and not at_mark(end): got += end.recv(most - len(got))
    return got
def urgent(end):
    try: return end.recv(1, socket.MSG_OOB)
    except OSError as error: return errno.errorcode[error.errno]
def whole(end, count):
    got = b''
    while len(got) < count: got += end.recv(count - len(got))
    return got
def takes(end):
    say('urgent at once', urgent(end))
    say('to send', end.send(b'.'))
    say('exceptional', len(select.select([], [], [end], 20)[2]))
    got = read_to_mark(end, 5002)
    say('before', len(got), got[-2:], 'at the mark', at_mark(end))
    say('urgent', urgent(end), urgent(end))
    say('exceptional', len(select.select([], [], [end], 0)[2]))
    end.send(b'.')
    say('then', whole(end, 4))
def gives(end):
    say('asked', end.recv(1))
    say('unread', end.send(b'u' * 5000))
    say('urgent', end.send(b'abU', socket.MSG_OOB))
    say('asked', end.recv(1))
    say('then', end.send(b'then'))
def takes_while_it_waits(end):
    end.send(b'.')
    say('while it waits', end.recv(100))
    say('later', urgent(end))
def gives_while_the_other_waits(end):
    say('asked', end.recv(1))
    time.sleep(0.2)
    say('urgent', end.send(b'X', socket.MSG_OOB))
    time.sleep(0.2)
    say('more', end.send(b'more'))
if name == 'server':
    listener = socket.create_server(('127.0.0.1', port))
    open('listens', 'w').close()
    ends = [listener.accept()[0] for _ in range(3)]
    for end in ends: end.send(whole(end, 5))
else:
    ends = [socket.create_connection(('127.0.0.1', port), timeout=20) for _ in range(3)]
    for end in ends: end.settimeout(None)
    for end in ends: end.send(b'hello')
    for end in ends: say(whole(end, 5))
while not os.path.exists('go'): time.sleep(0.01)
acts = [(takes, gives), (gives, takes), (takes_while_it_waits, gives_while_the_other_waits)]
for end, act in zip(ends, acts): act[name == 'client'](end)
for end in ends:
    end.shutdown(socket.SHUT_WR)
    say('end', end.recv(100))
";

/// Runs both programs with this in front of them. Returns what each has said, and what was said of it.
fn conversation(world: &World, port: u16, before: &[&str], go: impl FnOnce()) -> [(String, String); 2] {
    for name in ["go", "listens"] {
        let _ = fs::remove_file(world.file(name));
    }
    let port = port.to_string();
    let start = |name: &str| {
        let words = [before, &["python3", "-c", PROGRAM, name, &port]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(world.home.path()).stdin(Stdio::null());
        command.stderr(fs::File::create(world.file(&format!("{name}.said"))).unwrap());
        world.ours.enter(|| Running::start(&mut command))
    };
    let server = start("server");
    wait_for("the server", || world.file("listens").exists());
    let client = start("client");
    go();
    fs::write(world.file("go"), "").unwrap();
    let ended = |name: &str, mut running: Running| {
        let read = |what| fs::read_to_string(world.file(&format!("{name}.{what}"))).unwrap();
        let mut status = None;
        wait_for("its end", || {
            status = running.child().try_wait().unwrap();
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{name}: {}{}", read("told"), read("said"));
        (read("told"), read("said"))
    };
    [ended("server", server), ended("client", client)]
}

pub fn urgent_data_sends_both_ends_home(world: &World) {
    let expected = conversation(world, 7100, &["env"], || {});
    let service = world.service_for_pairs();
    let socket = world.socket();
    let run = [baton().to_str().unwrap(), "run", "--explain", "--pair", "same-user", "--policy", "fcfs"];
    let run = [&run[..], &["--socket", socket.to_str().unwrap(), "--"]].concat();
    let admin = Service::connect(&socket).unwrap();
    let got = conversation(world, 7100, &run, || {
        wait_for("all are joined", || {
            let entries = admin.list().unwrap();
            entries.len() == 6 && entries.iter().all(|entry| entry.place == "pair")
        });
    });
    for ((told, said), (right, _)) in got.iter().zip(&expected) {
        assert_eq!(told, right, "{said}");
        assert_eq!(Account::of(said).moved, 3, "{said}");
        // A read that waits may step over the urgent byte before the library sees it, as on the kernel.
        let came_back = |count: u32| said.contains(&format!("{count} came back to the kernel: urgent-data"));
        assert!(came_back(2) || came_back(3), "{said}");
    }
    drop(service);
}
