//! Every call on a connection, by a C program that prints what came of each: the same with
//! its connections in the kernel, and on the engine.

#[path = "../../service/tests/common/mod.rs"]
mod common;

use baton_ipc::account::{BYTES, entries};
use baton_ipc::environment;
use baton_testkit::{Running, build_beside, need_program, need_root, run};
use common::{World, be_the_engine};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Not a test: what the others start as an engine.
#[test]
fn the_engines_process() {
    be_the_engine();
}

/// The library.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().expect("a path");
        let program = test.ancestors().nth(1).expect("target/debug/deps/test");
        build_beside(program, "baton-shim", env!("CARGO_MANIFEST_DIR"));
        program.with_file_name("libbaton_shim.so")
    })
}

/// The C program.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("calls");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/calls.c");
        let options = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"];
        run(Command::new("cc").args(options).arg(&program).arg(source));
        program
    })
}

/// Seconds that a test may take: one that hangs fails by its name, with what it printed until then.
const LONGEST: &str = "60";

/// What the program prints when it runs one test, with this environment.
fn transcript(world: &World<'_>, test: &str, environment: &[(&str, &Path)]) -> String {
    let mut peer = world.wire.peer.command(program().to_str().unwrap());
    let mut peer = Running::start(peer.args(["peer", "10.66.0.1"]).stdout(Stdio::piped()));
    let mut ready = String::new();
    BufReader::new(peer.child().stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let variables = environment.iter().map(|(name, value)| format!("{name}={}", value.display()));
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", LONGEST, "env"]).args(variables).arg(program()).args(["run", "10.66.0.2", test]);
    // Not by `ip netns exec`, which is a program of its own.
    world.wire.ours.enter(|| run(&mut command))
}

/// Runs a test with the engine in this place, and in the kernel; how many connections moved,
/// and why others came home.
fn compare(test: &str, engine: &str) -> Vec<(String, u64)> {
    let mut counted = Vec::new();
    World::enter(|world| {
        let account = world.socket.with_file_name("account");
        std::fs::write(&account, [0; BYTES]).unwrap();
        let kernels = transcript(world, test, &[]);
        let environment = [
            ("LD_PRELOAD", library()),
            (environment::SOCKET, world.socket),
            (environment::PORTS, Path::new("9000,9002")),
            (environment::ENGINE, Path::new(engine)),
            (environment::ACCOUNT, &account),
        ];
        let ours = transcript(world, test, &environment);
        let (kernels, ours): (Vec<&str>, Vec<&str>) = (kernels.lines().collect(), ours.lines().collect());
        assert!(kernels.len() > 4, "it does something: {kernels:?}");
        let both = kernels.iter().zip(&ours).enumerate();
        let differ: Vec<_> = both.filter(|(_, (kernels, ours))| kernels != ours).collect();
        assert!(differ.is_empty(), "line, the kernel's, and the engine's: {differ:#?}");
        assert_eq!(kernels.len(), ours.len());
        counted = entries(&std::fs::read(&account).unwrap());
    });
    counted
}

/// So many connections moved, and these came home for a reason.
#[track_caller]
fn moved(counted: &[(String, u64)], moved: u64, home: &[(&str, u64)]) {
    let of = |name: &str| counted.iter().find(|(entry, _)| entry == name).map_or(0, |(_, count)| *count);
    assert_eq!(of("moved"), moved, "{counted:?}");
    for (why, count) in home {
        assert_eq!(of(&format!("home {why}")), *count, "{why}: {counted:?}");
    }
    let all: u64 = counted.iter().filter(|(name, _)| name.starts_with("home ")).map(|(_, count)| count).sum();
    assert_eq!(all, home.iter().map(|(_, count)| count).sum::<u64>(), "{counted:?}");
}

macro_rules! calls {
    ($($test:ident: $name:literal, $moved:literal $(, $why:literal $count:literal)*;)*) => {$(
        mod $test {
            use super::*;

            #[test]
            fn in_the_service() {
                of("service");
            }

            #[test]
            fn in_the_program() {
                of("direct");
            }

            fn of(engine: &str) {
                need_root!();
                need_program!("clang");
                moved(&compare($name, engine), $moved, &[$(($why, $count)),*]);
            }
        }
    )*};
}

calls! {
    addresses_are_the_connections: "names", 1;
    options_are_those_of_a_socket: "options", 1, "getsockopt" 1;
    each_way_to_read_gives_what_the_kernel_gives: "reads", 1;
    each_way_to_write_sends_what_the_kernel_sends: "messages", 1;
    files_are_sent_and_streams_of_libc_come_home: "files", 2, "splice" 1, "stdio" 1;
    poll_and_select_mix_with_what_is_the_kernels: "polls", 1;
    time_limits_hold: "timeouts", 1;
    sets_are_in_sets_and_are_polled: "nested", 5;
    bytes_leave_as_they_are_to: "settings", 1;
    urgent_data_is_the_kernels: "urgent", 8, "urgent-data" 8;
    a_call_that_succeeds_leaves_errno: "errno", 1, "fork" 1;
    epoll_is_by_level_by_edge_and_once: "sets", 1;
    descriptors_are_duplicated_and_replaced: "descriptors", 1;
    signals_interrupt_as_they_do_the_kernels_calls: "signals", 1;
    threads_share_a_connection: "threads", 1;
    every_end_is_seen_by_both: "ends", 8, "linger" 1;
    processes_share_and_inherit: "processes", 3, "fork" 2;
    what_a_child_takes_along_is_the_parents_no_more: "taken", 1, "fork" 1;
    connections_are_made_without_waiting: "connecting", 2;
    a_socket_may_be_watched_before_it_is_connected: "watched", 1;
    waits_take_masks_of_signals: "masks", 1;
    calls_by_number_are_the_same: "numbers", 1;
    strangers_get_ordinary_descriptors: "strangers", 2, "sent-away" 1, "inherited" 1;
    children_that_libc_does_not_know_share_too: "clones", 1, "fork" 1;
    what_io_uring_reads_is_in_the_kernel: "rings", 1, "io-uring" 1;
    what_only_the_kernel_can_do_it_does: "homes", 8,
        "stdio" 1, "splice" 1, "sendfile-of-no-file" 1, "urgent-data" 1, "signals-for-data" 1, "setsockopt" 1,
        "connected-anew" 1;
    sets_hold_all_kinds_of_descriptors: "mixtures", 1;
    what_is_watched_once_before_it_is_connected_stays: "early", 0;
    a_reset_takes_no_data_away: "resets", 41;
    connections_begin_with_data: "fastopen", 6;
    what_is_done_asynchronously_is_in_the_kernel: "asynchronous", 2, "aio" 2;
    each_handler_lets_calls_go_on_or_not: "handlers", 1;
    handlers_may_leave_what_they_interrupted: "leaving", 1;
    what_is_unusual_is_as_the_kernel_does_it: "unusual", 1;
    what_has_ended_answers_every_call: "afterwards", 96;
    what_others_do_is_seen_by_who_waits: "together", 55;
    what_is_accepted_is_as_its_listener_and_its_past: "accepted", 16;
    what_found_no_room_ends_as_in_the_kernel: "partly", 6;
    both_families_are_as_the_kernels: "families", 4;
    what_is_no_connection_is_the_kernels: "beginnings", 16, "connected-anew" 16;
    threads_are_cancelled_in_their_calls: "cancelled", 28;
    mistakes_are_answered_as_by_the_kernel: "mistaken", 2, "setsockopt" 1;
}

/// In the service it is seen a moment later, when its engine had its turn.
#[test]
fn a_reset_that_has_come_is_seen_by_whoever_asks_for_the_peer() {
    need_root!();
    need_program!("clang");
    moved(&compare("over", "direct"), 50, &[]);
}
