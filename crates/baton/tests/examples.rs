//! Every example runs to its end.

#[path = "../examples/adopt.rs"]
mod adopt;
#[path = "../examples/custom_port.rs"]
mod custom_port;
#[path = "../examples/echo.rs"]
mod echo;
#[path = "../examples/event_loop.rs"]
mod event_loop;
#[path = "../examples/queue_pairs.rs"]
mod queue_pairs;
#[path = "../examples/tokio_echo.rs"]
mod tokio_echo;

use std::io::ErrorKind;
use std::path::Path;

#[test]
fn examples_run_to_their_end() {
    echo::main().expect("echo");
    tokio_echo::main().expect("tokio_echo");
    event_loop::main().expect("event_loop");
    custom_port::main().expect("custom_port");
    queue_pairs::main().expect("queue_pairs");
    adopt::main().expect("adopt says how it is used");
}

#[test]
fn without_a_service_adopt_says_so() {
    let error = adopt::move_and_return(Path::new("/nonexistent/baton.sock"), "127.0.0.1:7").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
