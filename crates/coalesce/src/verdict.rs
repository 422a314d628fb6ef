//! The fate of a frame, the causes that end a run, and counts of both.

/// Why a frame goes on alone, unchanged. Tested in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Neither IPv4 nor IPv6, or shorter than its link header.
    NotIp,
    /// Wrong version, lengths that contradict each other, or an IP or TCP header
    /// that is cut off.
    Malformed,
    /// Another protocol.
    NotTcp,
    /// More fragments, an offset, or an IPv6 fragment header.
    Fragment,
    /// IPv4 options, or IPv6 extension headers before TCP.
    IpOptions,
    /// Other flags than ACK, or ACK and PSH.
    Flags,
    /// Other TCP options than timestamps and padding, or a broken list.
    TcpOptions,
    /// No payload.
    NoPayload,
    /// The IP or TCP checksum is wrong, where checksums are verified.
    Checksum,
    /// [`Profile::Rsc`](crate::Profile): PSH, and no run that the segment can join.
    PshAlone,
    /// Larger than a run may be.
    TooBig,
}

impl Reason {
    /// All of them, in order.
    pub const ALL: [Reason; 11] = [
        Reason::NotIp,
        Reason::Malformed,
        Reason::NotTcp,
        Reason::Fragment,
        Reason::IpOptions,
        Reason::Flags,
        Reason::TcpOptions,
        Reason::NoPayload,
        Reason::Checksum,
        Reason::PshAlone,
        Reason::TooBig,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::NotIp => "not_ip",
            Reason::Malformed => "malformed",
            Reason::NotTcp => "not_tcp",
            Reason::Fragment => "fragment",
            Reason::IpOptions => "ip_options",
            Reason::Flags => "flags",
            Reason::TcpOptions => "tcp_options",
            Reason::NoPayload => "no_payload",
            Reason::Checksum => "checksum",
            Reason::PshAlone => "psh_alone",
            Reason::TooBig => "too_big",
        }
    }
}

/// The cause that ended a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The next segment's sequence number is not the run's next.
    Sequence,
    /// Its acknowledgment is before the run's last.
    Acknowledgment,
    /// One has timestamps and the other has none, or the value went back.
    Timestamps,
    /// Another traffic class byte.
    TrafficClass,
    /// The run would have become larger than it may be.
    Size,
    /// A frame of the connection that goes on alone.
    Bypass,
    /// [`Profile::Rsc`](crate::Profile): the segment just appended has PSH.
    Push,
    /// As many segments as a run may have.
    Limit,
    /// Its place in the cache was needed.
    Evicted,
    /// The window ended.
    Window,
    /// The caller's input is empty, or at its end.
    Input,
}

impl Cause {
    /// All of them: first those of a segment that does not fit, in the order in
    /// which they are tested.
    pub const ALL: [Cause; 11] = [
        Cause::Sequence,
        Cause::Acknowledgment,
        Cause::Timestamps,
        Cause::TrafficClass,
        Cause::Size,
        Cause::Bypass,
        Cause::Push,
        Cause::Limit,
        Cause::Evicted,
        Cause::Window,
        Cause::Input,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Sequence => "sequence",
            Cause::Acknowledgment => "acknowledgment",
            Cause::Timestamps => "timestamps",
            Cause::TrafficClass => "traffic_class",
            Cause::Size => "size",
            Cause::Bypass => "bypass",
            Cause::Push => "push",
            Cause::Limit => "limit",
            Cause::Evicted => "evicted",
            Cause::Window => "window",
            Cause::Input => "input",
        }
    }
}

/// The fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Appended to the run of its connection.
    Merge,
    /// Starts a run.
    Start,
    /// Did not fit the run of its connection, which was flushed, and starts a new
    /// one. The cause is one of the first five.
    Flush(Cause),
    /// Goes on alone, behind what was held of its connection.
    Bypass(Reason),
}

/// How often each was the case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    merged: u64,
    started: u64,
    restarted: [u64; 5],
    bypassed: [u64; Reason::ALL.len()],
    flushed: [u64; Cause::ALL.len()],
    /// Runs of two segments or more that were flushed.
    pub runs: u64,
}

impl Counts {
    /// Frames taken in.
    pub fn frames_in(&self) -> u64 {
        self.merged + self.started + self.restarted.iter().sum::<u64>() + self.bypassed.iter().sum::<u64>()
    }

    /// Frames and runs, of any length, that came out; those still held are not
    /// among them, so after a flush it is `frames_in` less `eliminated`.
    pub fn frames_out(&self) -> u64 {
        self.flushed.iter().sum::<u64>() + self.bypassed.iter().sum::<u64>()
    }

    /// Frames that were appended to another.
    pub fn eliminated(&self) -> u64 {
        self.merged
    }

    /// Frames of one verdict.
    pub fn of(&self, verdict: Verdict) -> u64 {
        match verdict {
            Verdict::Merge => self.merged,
            Verdict::Start => self.started,
            Verdict::Flush(cause) => self.restarted.get(cause as usize).copied().unwrap_or(0),
            Verdict::Bypass(reason) => self.bypassed[reason as usize],
        }
    }

    /// Runs, of any length, that ended for a cause.
    pub fn flushed(&self, cause: Cause) -> u64 {
        self.flushed[cause as usize]
    }

    #[inline]
    pub(crate) fn note(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Merge => self.merged += 1,
            Verdict::Start => self.started += 1,
            Verdict::Flush(cause) => self.restarted[cause as usize] += 1,
            Verdict::Bypass(reason) => self.bypassed[reason as usize] += 1,
        }
    }

    #[inline]
    pub(crate) fn note_flush(&mut self, cause: Cause, segments: u32) {
        self.flushed[cause as usize] += 1;
        self.runs += u64::from(segments > 1);
    }
}
