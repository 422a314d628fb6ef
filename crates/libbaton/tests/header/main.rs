//! `include/baton.h` is generated from the sources of the boundary. This test generates it
//! again and compares. `BATON_BLESS=1 cargo test -p libbaton --test header` writes it.
//!
//! The test has its own generator: the licence of the known tool is not among those that this
//! project accepts, and the boundary needs little of C.

mod c;

use std::fs;
use std::path::Path;

/// The files that have the declarations, in the order of the header.
const SOURCES: &[&str] = &["mod", "config", "drive", "sockets", "transfer", "options", "events", "service"];

const OPENING: &str = "\
/* Baton: TCP sockets on an engine that the caller drives.
 *
 * Generated from the sources by a test; see crates/libbaton/tests/header.
 *
 * A call that is named after a POSIX call does what POSIX says, with Linux's
 * constants. On failure it returns -1 and sets errno. An invalid handle fails with
 * EFAULT. SIGPIPE is never raised.
 *
 * An engine's calls start no thread and read no clock. One thread at a time may use
 * an engine; a call that finds another in progress fails with EBUSY. After an
 * internal error every call on the engine fails with EIO.
 *
 * The calls baton_service_... and baton_stream_... hand kernel sockets to a Baton
 * service, which runs the engine and has the privileges. A connection to a service
 * has a thread of its own, which blocks all signals. Any number of threads may make
 * these calls at once. After an internal error a call fails with EIO.
 *
 * In a child of fork(2) every call on a handle of the parent fails with ENOTCONN,
 * except the calls that free handles: baton_stream_close closes the child's copy of
 * the descriptor and leaves the parent's connection alone. A child may connect to
 * the service itself. To pass a connection on to a child, the parent restores it
 * before the fork. */
#ifndef BATON_H
#define BATON_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern \"C\" {
#endif

/* An engine and its sockets. */
typedef struct baton baton;

/* A connection to a service. */
typedef struct baton_service baton_service;

/* A stream on a connection that may move. */
typedef struct baton_stream baton_stream;
";

const CLOSING: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

fn generate(root: &Path) -> String {
    let mut header = OPENING.to_owned();
    for name in SOURCES {
        let path = root.join("src/sys").join(format!("{name}.rs"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = syn::parse_file(&text).expect("it compiles");
        for item in &file.items {
            if let Some(declaration) = c::declaration(item) {
                header.push('\n');
                header.push_str(&declaration);
            }
        }
    }
    header + CLOSING
}

#[test]
fn the_header_matches_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/baton.h");
    let made = generate(root);
    if std::env::var_os("BATON_BLESS").is_some() {
        fs::write(&path, &made).expect("include/ can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == committed,
        "include/baton.h differs from the sources; run this test with BATON_BLESS=1 to write it"
    );
}

#[test]
fn every_exported_function_is_declared() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = generate(root);
    let mut exported = 0;
    for entry in fs::read_dir(root.join("src/sys")).expect("a directory") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a source");
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("pub unsafe extern \"C\" fn ") {
                let name = rest.split('(').next().unwrap_or_default();
                assert!(header.contains(&format!(" {name}(")) || header.contains(&format!("*{name}(")), "{name}");
                exported += 1;
            }
        }
    }
    assert!(exported > 20, "{exported} found");
}
