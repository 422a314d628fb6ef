//! Counts of frames that passed.

/// Frames by direction and fate. The coalescer counts its work on those from the wire in its own
/// [`Counts`](baton_coalesce::Counts).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Frames from the wire.
    pub wire_in: u64,
    /// Their bytes, link headers included.
    pub wire_in_bytes: u64,
    /// Of these, frames that were super-frames already (merged by the device, or never cut on
    /// this machine): passed on as they are.
    pub wire_in_super: u64,
    /// Frames handed to the host.
    pub host_in: u64,
    /// Of these, runs of two segments or more.
    pub runs: u64,
    /// Frames lost because the host's port was full.
    pub host_full: u64,
    /// Frames from the host.
    pub host_out: u64,
    /// Their bytes, link headers included.
    pub host_out_bytes: u64,
    /// Frames handed to the wire; a super-frame counts as one.
    pub wire_out: u64,
    /// Among the host's frames, ACKs that stood for several.
    pub acks_expanded: u64,
    /// ACKs sent in addition to those.
    pub acks_made: u64,
    /// Times that the wire was full, so that a frame waited.
    pub wire_full: u64,
}
