//! A C program makes every call on connections and prints each result. The test runs it with the
//! connections in the kernel and in the engine, and compares the output.

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

/// Not a test of its own: the other tests start this as the engine's process.
#[test]
fn the_engines_process() {
    be_the_engine();
}

/// The path of the preload library, which is built once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().expect("a path");
        let program = test.ancestors().nth(1).expect("target/debug/deps/test");
        build_beside(program, "baton-shim", env!("CARGO_MANIFEST_DIR"));
        program.with_file_name("libbaton_shim.so")
    })
}

/// The path of the C program, which is built once.
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

/// The time limit of a test in seconds: one that hangs fails under its own name, with its output so far.
const TIME_LIMIT: &str = "60";

/// The output of the program for one test, with these environment variables.
fn transcript(world: &World<'_>, test: &str, environment: &[(&str, &Path)]) -> String {
    let mut peer = world.wire.peer.command(program().to_str().unwrap());
    let mut peer = Running::start(peer.args(["peer", "10.66.0.1"]).stdout(Stdio::piped()));
    let mut ready = String::new();
    BufReader::new(peer.child().stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let variables = environment.iter().map(|(name, value)| format!("{name}={}", value.display()));
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", TIME_LIMIT, "env"]).args(variables).arg(program()).args(["run", "10.66.0.2", test]);
    // Enter the namespace directly, without the extra process of `ip netns exec`.
    world.wire.ours.enter(|| run(&mut command))
}

/// Runs a test in the kernel and in an engine at this placement, and compares. Returns the counters of
/// the run in the engine.
fn compare(test: &str, engine: &str) -> Vec<(String, u64)> {
    let mut counted = Vec::new();
    World::enter(|world| {
        let account = world.socket.with_file_name("account");
        std::fs::write(&account, [0; BYTES]).unwrap();
        let kernels = transcript(world, test, &[]);
        let environment = [
            ("LD_PRELOAD", library()),
            (environment::SOCKET, world.socket),
            (environment::POLICY, Path::new("local-port=9000, 9002\tfcfs\nremote-port=9000, 9002\tfcfs\nnever")),
            (environment::ENGINE, Path::new(engine)),
            (environment::ACCOUNT, &account),
        ];
        let ours = transcript(world, test, &environment);
        let (kernels, ours): (Vec<&str>, Vec<&str>) = (kernels.lines().collect(), ours.lines().collect());
        assert!(kernels.len() > 4, "the test prints too little: {kernels:?}");
        let both = kernels.iter().zip(&ours).enumerate();
        let differ: Vec<_> = both.filter(|(_, (kernels, ours))| kernels != ours).collect();
        assert!(differ.is_empty(), "these lines differ (number, kernel, engine): {differ:#?}");
        assert_eq!(kernels.len(), ours.len());
        counted = entries(&std::fs::read(&account).unwrap());
    });
    counted
}

/// Asserts how many connections moved, and how many came home for each reason.
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
    addresses_are_those_of_the_connection: "names", 1;
    options_are_those_of_a_socket: "options", 1, "getsockopt" 1;
    each_way_to_read_gives_what_the_kernel_gives: "reads", 1;
    each_way_to_write_sends_what_the_kernel_sends: "messages", 1;
    files_are_sent_and_streams_of_libc_come_home: "files", 2, "splice" 1, "stdio" 1;
    poll_and_select_mix_with_kernel_descriptors: "polls", 1;
    time_limits_hold: "timeouts", 1;
    epoll_sets_are_nested_and_polled: "nested", 5;
    options_control_when_bytes_are_sent: "settings", 1;
    urgent_data_brings_connections_home: "urgent", 8, "urgent-data" 8;
    a_call_that_succeeds_leaves_errno: "errno", 1, "fork" 1;
    epoll_is_level_triggered_edge_triggered_and_one_shot: "sets", 1;
    descriptors_are_duplicated_and_replaced: "descriptors", 1;
    signals_interrupt_calls_as_in_the_kernel: "signals", 1;
    threads_share_a_connection: "threads", 1;
    both_ends_see_every_kind_of_close: "ends", 8, "linger" 1;
    processes_share_and_inherit: "processes", 3, "fork" 2;
    a_descriptor_that_a_child_takes_along_is_shared: "taken", 1, "fork" 1;
    connections_are_made_without_waiting: "connecting", 2;
    a_socket_may_be_watched_before_it_is_connected: "watched", 1;
    waits_accept_signal_masks: "masks", 1;
    calls_by_number_match_calls_by_name: "numbers", 1;
    other_programs_get_ordinary_descriptors: "strangers", 2, "sent-away" 1, "inherited" 1;
    children_made_without_libc_share_connections: "clones", 1, "fork" 1;
    io_uring_brings_connections_home: "rings", 1, "io-uring" 1;
    calls_that_need_the_kernel_bring_connections_home: "homes", 8,
        "stdio" 1, "splice" 1, "sendfile-of-no-file" 1, "urgent-data" 1, "signals-for-data" 1, "setsockopt" 1,
        "connected-anew" 1;
    sets_hold_all_kinds_of_descriptors: "mixtures", 1;
    a_one_shot_watch_from_before_the_connect_keeps_it_in_the_kernel: "early", 0;
    a_reset_discards_no_data: "resets", 41;
    connections_begin_with_data: "fastopen", 6;
    asynchronous_io_brings_connections_home: "asynchronous", 2, "aio" 2;
    each_handler_restarts_or_interrupts_calls: "handlers", 1;
    handlers_may_leave_with_longjmp: "leaving", 1;
    unusual_calls_match_the_kernel: "unusual", 1;
    ended_connections_answer_every_call: "afterwards", 96;
    waiting_calls_see_changes_by_other_threads: "together", 55;
    accepted_connections_have_inherited_options_and_early_data: "accepted", 16;
    partial_sends_end_as_in_the_kernel: "partly", 6;
    both_address_families_match_the_kernel: "families", 4;
    sockets_without_connections_match_the_kernel: "beginnings", 16, "connected-anew" 16;
    threads_are_cancelled_in_their_calls: "cancelled", 28;
    mistakes_fail_as_in_the_kernel: "mistaken", 2, "setsockopt" 1;
}

/// Only with the engine in the program: an engine in the service sees the reset when it runs next.
#[test]
fn getpeername_sees_a_reset_that_has_arrived() {
    need_root!();
    need_program!("clang");
    moved(&compare("over", "direct"), 50, &[]);
}
