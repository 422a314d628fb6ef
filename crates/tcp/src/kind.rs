//! Kinds of segments that header prediction tells apart.

/// The kind of a segment, by its payload and its acknowledgment (LA §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Neither of both, or another flag than ACK and PSH.
    Other = 0,
    /// Payload, and no new acknowledgment.
    Data = 1,
    /// A new acknowledgment, and no payload.
    Ack = 2,
    /// Payload and a new acknowledgment.
    DataAck = 3,
}

/// How a segment was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handled {
    /// Its kind when it came; for a run, the kind of its first segment.
    pub kind: Kind,
    /// It took the short way of header prediction.
    pub predicted: bool,
}
