//! The layers of both ways.

/// The number of layers, the two wholes included.
pub const LAYERS: usize = 19;

/// The way of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the program to the wire.
    Transmit,
    /// From the wire to the program.
    Receive,
}

impl Direction {
    /// Both, in the order of a report.
    pub const ALL: [Direction; 2] = [Direction::Transmit, Direction::Receive];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Transmit => "transmit",
            Direction::Receive => "receive",
        }
    }
}

/// A layer that a message passes, or a way as a whole. The number of each is its place in [`Spans`] and in
/// the memory that BPF programs write: do not change one, add at the end of its way.
///
/// [`Spans`]: crate::Spans
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(usize)]
pub enum Layer {
    /// The call entered, until the bytes are copied into the send queue (LA Table 2, User).
    Write = 0,
    /// Copied, until the stack takes them up: the queue to the engine, or Nagle, windows and pacing.
    SendQueue = 1,
    /// Taken up, until the segment is built: headers, copy and checksum (LA Table 2, TCP).
    Segment = 2,
    /// The copy with its checksum in that, where it is apart (LA Table 2, checksum and mcopy).
    SegmentCopy = 3,
    /// Built, until it is handed to the device: routing, neighbour, filters (LA Table 2, IP).
    Output = 4,
    /// Handed to the device, until it is on the wire (LA Table 2, ATM).
    SendDevice = 5,
    /// From the call until the segment is on the wire, or handed over where nothing later is known.
    Transmit = 6,
    /// The frame arrived, until it is taken from the device (LA Table 3, ATM and IPQ).
    ReceiveDevice = 7,
    /// Taken, until its headers are parsed and it is joined to its run (LA Table 3, IP).
    Parse = 8,
    /// Parsed, until its connection is found (the PCB search of LA §3).
    Lookup = 9,
    /// Found, until it is validated and its bytes are in their place, verified (LA Table 3, checksum).
    Place = 10,
    /// In place, until TCP has decided (LA Table 3, segment).
    Decide = 11,
    /// Decided, until the consumer is told.
    Tell = 12,
    /// Told, until the program's thread runs (LA Table 3, Wakeup).
    WakeUp = 13,
    /// Running, until the call has copied the bytes and returns (LA Table 3, User).
    Read = 14,
    /// From the frame's arrival, or from when it was taken, until the call returns.
    Receive = 15,
    /// From the frame's arrival, or from when it was taken, until the consumer is told.
    Stack = 16,
    /// In place, until TCP has decided, where the program does not wait for it: the engine's fast path tells
    /// the consumer first (LC §3.3.1).
    DecideBeside = 17,
    /// From the first call that sends since the last answer, until the call that gets the next bytes returns: what
    /// a client waits for its server, and a server for its client's next request.
    Answer = 18,
}

impl Layer {
    /// All, by number.
    pub const ALL: [Layer; LAYERS] = [
        Layer::Write,
        Layer::SendQueue,
        Layer::Segment,
        Layer::SegmentCopy,
        Layer::Output,
        Layer::SendDevice,
        Layer::Transmit,
        Layer::ReceiveDevice,
        Layer::Parse,
        Layer::Lookup,
        Layer::Place,
        Layer::Decide,
        Layer::Tell,
        Layer::WakeUp,
        Layer::Read,
        Layer::Receive,
        Layer::Stack,
        Layer::DecideBeside,
        Layer::Answer,
    ];

    /// Its name in reports and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Write => "write",
            Layer::SendQueue => "send-queue",
            Layer::Segment => "segment",
            Layer::SegmentCopy => "copy-and-checksum",
            Layer::Output => "output",
            Layer::SendDevice => "send-device",
            Layer::Transmit => "transmit",
            Layer::ReceiveDevice => "receive-device",
            Layer::Parse => "parse",
            Layer::Lookup => "lookup",
            Layer::Place => "place",
            Layer::Decide => "decide",
            Layer::Tell => "tell",
            Layer::WakeUp => "wake-up",
            Layer::Read => "read",
            Layer::Receive => "receive",
            Layer::Stack => "stack",
            Layer::DecideBeside => "decide-beside",
            Layer::Answer => "answer",
        }
    }

    /// The way that it is on.
    pub fn direction(self) -> Direction {
        if self <= Layer::Transmit { Direction::Transmit } else { Direction::Receive }
    }

    /// The layer that is a whole way: those before it add up to it.
    pub fn whole(direction: Direction) -> Layer {
        match direction {
            Direction::Transmit => Layer::Transmit,
            Direction::Receive => Layer::Receive,
        }
    }

    /// True if it counts in the sum of its way: it is no whole, not a part of another layer, and not
    /// beside the way.
    pub fn is_part(self) -> bool {
        !matches!(self, Layer::Transmit | Layer::Receive | Layer::Stack | Layer::Answer) && !self.is_aside()
    }

    /// True if it is a part of another layer, or beside the way: a report shows it, no sum counts it.
    pub fn is_aside(self) -> bool {
        matches!(self, Layer::SegmentCopy | Layer::DecideBeside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_layer_is_its_place() {
        for (at, layer) in Layer::ALL.into_iter().enumerate() {
            assert_eq!(layer as usize, at);
        }
        let names: std::collections::HashSet<_> = Layer::ALL.iter().map(|layer| layer.name()).collect();
        assert_eq!(names.len(), LAYERS);
    }
}
