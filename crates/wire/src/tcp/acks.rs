//! How the acknowledgements of a run of segments appear on the wire.

/// How one ACK that a stack has made for a whole run of segments becomes frames (RA §4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Acks {
    /// An ACK for every second segment (RFC 9293 §3.8.6.3, RFC 5681 §4.2), and the stack's own.
    #[default]
    EverySecond,
    /// The stack's own alone: a stretch ACK.
    PerRun,
}
