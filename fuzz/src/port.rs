//! A target for the reader of capture files, which anybody may have made.

#[path = "pieces.rs"]
pub mod pieces;

use baton_engine::frame_io::{FrameIo, FrameSink, RxFrame};
use baton_port::pcap_file::{BLOCK_MAX, PcapFile};
use pieces::Pieces;

/// A target's name, which is its corpus directory's too, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this module.
pub const TARGETS: &[Target] = &[("port_pcap_file", pcap_file)];

/// Contents of a capture: its frames one after another, the length of each, and how
/// it ended.
#[derive(PartialEq, Eq, Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    error: Option<String>,
}

impl FrameSink for Contents {
    fn burst(&mut self, frames: &[RxFrame<'_>]) {
        for frame in frames {
            self.bytes.extend_from_slice(frame.data);
            self.lengths.push(frame.data.len());
        }
    }
}

fn contents(data: &[u8], step: usize) -> Contents {
    let mut contents = Contents::default();
    let file = Pieces::of(data, step);
    let mut port = match PcapFile::read("fuzz", file) {
        Ok(port) => port,
        Err(error) => {
            contents.error = Some(error.to_string());
            return contents;
        }
    };
    loop {
        let before = contents.lengths.len();
        match port.receive(7, &mut contents) {
            Ok(0) => break,
            Ok(count) => assert_eq!(contents.lengths.len() - before, count, "a frame was not counted"),
            Err(error) => {
                contents.error = Some(error.to_string());
                break;
            }
        }
    }
    let counters = port.counters();
    let blocks = contents.lengths.len() as u64 + counters.other_link + counters.truncated;
    assert!(blocks <= data.len() as u64 / 16, "more frames than there is room for");
    assert_eq!(port.receive(7, &mut contents).ok(), Some(0), "it goes on after its end");
    contents
}

/// Reads a capture, whole and in small pieces: it holds the same.
pub fn pcap_file(data: &[u8]) {
    let whole = contents(data, BLOCK_MAX);
    assert!(whole.bytes.len() <= data.len(), "frames out of nowhere");
    if data.len() < 4096 {
        let step = 1 + data.len() % 61;
        assert_eq!(contents(data, step), whole, "in pieces of {step}");
    }
}
