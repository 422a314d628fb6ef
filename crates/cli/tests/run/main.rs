//! `baton run`: real programs under it, between two namespaces.

mod both_ends;
mod capture;
mod cpython;
mod ends;
mod explaining;
mod firewall;
mod hosts;
mod latency;
mod page;
mod programs;
mod restless;
mod rough;
mod sharing;
mod telling;
mod tls;
mod unused;
mod urgent;
mod waiting;
mod world;

use baton_testkit::{need_program, need_root, output, run, wait_for};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use world::{Account, World, baton};

/// Each program's load in this world.
macro_rules! each_in {
    ($world:expr; $($name:ident of $of:ident: $($program:literal)*;)*) => {
        $(#[test] fn $name() {
            baton_testkit::need_root!();
            $(baton_testkit::need_program!($program);)*
            crate::$of::$name(&$world);
        })*
    };
}

/// Each program's load in a quiet world and in a restless one, with the engine in the service and
/// in the program.
macro_rules! in_all {
    ($($loads:tt)*) => {
        mod quiet {
            use crate::world::World;
            each_in! { World::quiet(); $($loads)* }
        }
        mod quietly_inside {
            use crate::world::World;
            each_in! { World::quiet().inside(); $($loads)* }
        }
        mod restlessly {
            use crate::world::World;
            each_in! { World::restless(); $($loads)* }
        }
        mod restlessly_inside {
            use crate::world::World;
            each_in! { World::restless().inside(); $($loads)* }
        }
    };
}

in_all! {
    nginx_serves_from_several_workers of programs: "clang" "nginx" "curl";
    python_serves of programs: "clang" "curl" "python3";
    curl_fetches of programs: "clang" "curl" "python3";
    redis_answers_many_connections of programs: "clang" "redis-server" "redis-benchmark";
    memcached_serves_from_several_threads of programs: "clang" "memcached";
    iperf_measures_in_both_directions of programs: "clang" "iperf3";
    nginx_encrypts_and_passes_on of tls: "clang" "nginx" "curl" "openssl" "python3";
    openssl_serves of tls: "clang" "curl" "openssl";
    openssl_asks of tls: "clang" "openssl";
}

/// CPython's own tests, with the engine in the service and in the program.
macro_rules! cpythons {
    ($($test:ident: $how:ident $between:ident;)*) => {$(
        mod $test {
            #[test]
            fn in_the_service() {
                of("service");
            }

            #[test]
            fn in_the_program() {
                of("direct");
            }

            fn of(engine: &'static str) {
                baton_testkit::need_root!();
                baton_testkit::need_program!("clang");
                crate::cpython::$how(crate::cpython::Between::$between, engine);
            }
        }
    )*};
}

cpythons! {
    cpythons_tests_end_as_on_the_kernel: quietly Wire;
    cpythons_tests_end_as_on_the_kernel_over_loopback: quietly Loopback;
    cpythons_tests_end_as_on_the_kernel_while_connections_move: restlessly Wire;
    cpythons_tests_end_as_on_the_kernel_over_a_bad_wire: quietly BadWire;
    cpythons_tests_end_as_on_the_kernel_while_connections_move_over_a_bad_wire: restlessly BadWire;
}

/// Real programs on hosts with a usual package's firewall.
macro_rules! on_hosts {
    ($($test:ident: $host:ident $policy:expr;)*) => {
        $(#[test] fn $test() {
            let host = crate::hosts::Host::$host;
            baton_testkit::need_root!();
            for program in ["clang", "nft", "nginx", "curl", "python3", "redis-server", "memcached", "iperf3", "openssl"] {
                baton_testkit::need_program!(program);
            }
            for program in host.programs() {
                baton_testkit::need_program!(program);
            }
            crate::hosts::programs_run(host, $policy);
        })*
    };
}

on_hosts! {
    programs_run_beside_docker: Docker None;
    programs_run_beside_docker_on_the_engine: Docker Some("fcfs");
    programs_run_under_firewalld: Firewalld None;
    programs_run_under_firewalld_on_the_engine: Firewalld Some("fcfs");
    programs_run_under_ufw: Ufw None;
    programs_run_under_ufw_on_the_engine: Ufw Some("fcfs");
}

/// Runs a shell's line; its exit status and what was said.
fn shell(world: &World, line: &str) -> (std::process::ExitStatus, String) {
    let out = world.run(&["sh", "-c", line]);
    (out.status, String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn it_ends_as_the_program_does() {
    need_root!();
    need_program!("clang");
    let world = World::quiet();
    let (status, said) = shell(&world, "exit 7");
    assert_eq!(status.code(), Some(7), "{said}");
    assert_eq!(Account::of(&said).all, 0);
    assert_eq!(shell(&world, "kill -9 $$").0.signal(), Some(9));
    // A process that a program leaves behind is waited for.
    let (status, _) = shell(&world, "(sleep 0.3; touch late) & exit 3");
    assert_eq!(status.code(), Some(3));
    assert!(world.file("late").exists());
    // A signal goes to the program.
    let mut running = world.start(&["sh", "-c", "trap 'exit 9' TERM; touch began; while :; do sleep 0.01; done"]);
    wait_for("the program", || world.file("began").exists());
    running.signal(rustix::process::Signal::TERM);
    assert_eq!(running.child().wait().unwrap().code(), Some(9));
}

#[test]
fn nothing_is_left_after_many_connections() {
    need_root!();
    need_program!("clang");
    need_program!("python3");
    ends::after_many_connections(&World::quiet().inside());
}

#[test]
fn both_ends_of_a_connection_are_joined() {
    need_root!();
    for program in ["clang", "redis-server", "redis-benchmark"] {
        need_program!(program);
    }
    both_ends::redis_and_its_clients_share_memory(&World::quiet());
}

#[test]
fn both_ends_of_a_connection_are_joined_on_one_cpu() {
    need_root!();
    for program in ["clang", "redis-server", "redis-benchmark", "taskset"] {
        need_program!(program);
    }
    both_ends::redis_and_its_clients_share_memory_on_one_cpu(&World::quiet());
}

#[test]
fn few_connections_wait_for_a_server_that_uses_no_service() {
    need_root!();
    need_program!("python3");
    both_ends::few_connections_wait_for_a_server_that_uses_no_service(&World::pairs());
}

#[test]
fn both_ends_of_a_connection_between_namespaces_are_joined() {
    need_root!();
    for program in ["clang", "redis-server", "redis-benchmark"] {
        need_program!(program);
    }
    both_ends::redis_and_its_clients_in_two_namespaces(&World::quiet());
}

#[test]
fn urgent_data_sends_both_ends_of_a_pair_home() {
    need_root!();
    need_program!("python3");
    urgent::urgent_data_sends_both_ends_home(&World::quiet());
}

/// Programs at both ends of pairs, which are made and come home all the time.
mod restless_pairs {
    use crate::world::World;
    each_in! {
        World::restless_pairs();
        nginx_passes_on_to_nginx of both_ends: "nginx" "curl";
        redis_answers_its_clients of both_ends: "redis-server" "redis-benchmark";
        memcached_keeps_what_python_gives_it of both_ends: "memcached" "python3";
        python_serves_python of both_ends: "python3";
    }
}

#[test]
fn a_link_that_is_not_used_ends() {
    need_root!();
    need_program!("clang");
    need_program!("python3");
    unused::the_library_s_thread_ends_and_comes_back(&World::quiet().inside());
    unused::the_library_s_thread_ends_and_comes_back(&World::quiet());
}

#[test]
fn an_idle_program_hardly_wakes_up() {
    need_root!();
    need_program!("clang");
    need_program!("python3");
    waiting::an_idle_program_hardly_wakes_up(&World::quiet().inside());
}

#[test]
fn two_programs_answer_side_by_side() {
    need_root!();
    need_program!("clang");
    need_program!("python3");
    waiting::two_programs_answer_side_by_side(&World::quiet().inside());
}

#[test]
fn a_link_with_something_left_is_used_again() {
    need_root!();
    need_program!("clang");
    need_program!("python3");
    unused::a_link_with_something_left_is_used_again(&World::quiet().inside());
}

#[test]
fn signals_are_for_what_the_program_left_behind() {
    need_root!();
    need_program!("clang");
    ends::after_what_the_program_left_was_told_to_end(&World::quiet());
}

#[test]
fn nothing_is_left_after_its_own_death() {
    need_root!();
    need_program!("clang");
    ends::after_its_own_death(&World::quiet());
}

#[test]
fn nothing_is_left_after_a_guardian_was_replaced() {
    need_root!();
    need_program!("clang");
    ends::after_a_guardian_was_replaced(&World::quiet());
}

#[test]
fn nothing_is_left_after_a_broker_stood_still() {
    need_root!();
    need_program!("clang");
    ends::after_a_broker_stood_still(&World::quiet());
}

/// In a world of its own each.
macro_rules! alone {
    ($of:ident: $($test:ident: $($inside:ident)?;)*) => {$(
        #[test]
        fn $test() {
            need_root!();
            need_program!("clang");
            need_program!("python3");
            $of::$test(&World::quiet()$(.$inside())?);
        }
    )*};
}

alone! {
    sharing:
    two_share_a_service: inside;
    one_of_two_is_killed:;
    all_are_killed: inside;
    the_whole_service_is_killed:;
    another_service_is_started:;
    a_broker_that_died_is_replaced_for_all:;
    engines_inside_programs_go_on_without_a_service: inside;
    other_users_stay_in_the_kernel:;
}

alone! {
    explaining:
    bytes_of_a_program_that_is_killed_are_counted:;
    processes_without_the_library_are_counted:;
    what_to_try_is_said_where_nothing_moved:;
    a_program_can_be_had_to_do_without_io_uring:;
    ps_says_bytes_and_rates:;
}

alone! {
    latency:
    a_moved_connection_has_both_places_in_the_service:;
    a_moved_connection_has_both_places_inside:;
    engines_are_shown_where_the_kernel_cannot_be:;
    an_observer_that_is_killed_ends_the_watching:;
    a_slow_message_of_an_engine_is_shown:;
    all_connections_of_engines_are_sampled:;
    a_run_prints_where_the_time_went:;
    a_service_that_is_not_there_is_said:;
}

alone! {
    capture:
    a_pair_is_captured_whole:;
    a_capture_ends_where_the_kernel_goes_on:;
    captures_say_what_they_cannot_do:;
}

alone! {
    telling:
    a_log_and_events_say_what_moved_and_who_died:;
    a_log_of_engines_inside_programs_has_both_sides: inside;
}

#[test]
fn what_cannot_be_loaded_into_is_said_before_it_starts() {
    need_program!("cc");
    let home = tempfile::tempdir().unwrap();
    let (source, program) = (home.path().join("static.c"), home.path().join("static"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    run(Command::new("cc").arg("-static").arg("-o").args([&program, &source]));
    let out = output(Command::new(baton()).args(["run", "--"]).arg(&program));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("is linked statically") && said.lines().count() == 1, "{said}");
    let refused = |words: &[&OsStr]| {
        let out = output(Command::new(baton()).arg("run").args(words));
        assert_eq!(out.status.code(), Some(2));
        String::from_utf8(out.stderr).unwrap()
    };
    let said = refused(&[OsStr::new("--require"), OsStr::new("--"), program.as_os_str()]);
    assert!(said.contains("is linked statically") && said.lines().count() == 1, "{said}");
    let said = refused(&[OsStr::new("no-such-program-here")]);
    assert!(said.contains("there is no program"), "{said}");
    let said = refused(&["--policy", "sometimes", "--", "true"].map(OsStr::new));
    assert!(said.contains("'sometimes' is not a rule"), "{said}");
    let said = refused(&["--ports", "http", "--", "true"].map(OsStr::new));
    assert!(said.contains("'http' is not a port or range"), "{said}");
}
