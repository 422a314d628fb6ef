//! The model of Linux's GRO beside the kernel's: on the cases of its self-tests, on captures and on made traffic.

#[path = "../../../coalesce/tests/traffic/build.rs"]
mod build;
// Not all that is there is used here.
#[allow(dead_code)]
#[path = "../../../coalesce/tests/gro/cases.rs"]
mod cases;
mod replay;
#[path = "../../../coalesce/tests/slow/mod.rs"]
mod slow;
#[path = "../slow_read/mod.rs"]
mod slow_read;
mod traffic;
#[allow(dead_code)]
#[path = "../../../coalesce/tests/gro/wire_unsafe.rs"]
mod wire_unsafe;

use baton_analyse::gro::{Alone, Fate, Gro, Lists, Rules, Run, Sink};
use baton_coalesce::{Checksums, Frame, Link, Reason, Window, classify};

/// Rules under which a poll takes all frames that there are.
const ONE_POLL: Rules = Rules { window: Window::Input, lists: Lists::Hashed };

/// Lengths of payload that come out.
#[derive(Default)]
struct Lengths(Vec<usize>);

impl Sink for Lengths {
    fn start(&mut self, _: u32, _: u64) {}
    fn append(&mut self, _: u32, _: u64) {}
    fn flush(&mut self, _: u32, run: &Run, _: u64) {
        self.0.push(run.payload_len as usize);
    }
}

/// Sends frames through the model, in one poll.
fn model(frames: &[build::Packet]) -> Vec<usize> {
    let (mut gro, mut out) = (Gro::new(ONE_POLL), Lengths::default());
    for packet in frames {
        let bytes = packet.build(1);
        let frame = Frame::whole(&bytes, Link::Ethernet);
        let class = classify(&frame, Checksums::Verify);
        if let Fate::Alone(_) = gro.handle(&frame, &class, 0, &mut out) {
            out.0.push(packet.payload);
        }
    }
    gro.flush(0, &mut out);
    out.0
}

#[test]
fn linux_own_cases_come_out_as_from_the_kernel() {
    for v6 in [false, true] {
        for case in cases::cases(v6) {
            // Extension headers are left to the kernel (see the module's documentation).
            if case.frames.iter().any(|packet| !packet.extensions.is_empty()) {
                continue;
            }
            let made = model(&case.frames);
            assert!(case.kernel.contains(&made), "{made:?} not {:?}, v6 {v6}: {}", case.kernel, case.name);
        }
    }
}

#[test]
fn a_frame_that_is_never_looked_at_lets_what_is_held_of_its_connection_wait() {
    let first = traffic::bulk(1, 1).remove(0);
    let fragment = build::Packet { fragment: Some(0x2000), ..first.clone() };
    let (mut gro, mut out) = (Gro::new(ONE_POLL), Lengths::default());
    let mut fates = Vec::new();
    for packet in [&first, &fragment] {
        let bytes = packet.build(1);
        let frame = Frame::whole(&bytes, Link::Ethernet);
        fates.push(gro.handle(&frame, &classify(&frame, Checksums::Trust), 0, &mut out));
    }
    assert_eq!(fates, [Fate::Held(None), Fate::Alone(Alone::As(Reason::Fragment))]);
    assert!(out.0.is_empty());
}
