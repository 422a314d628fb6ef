//! Loads of a connection while it moves: what each of its ends writes and reads in a turn. The matrices of moves
//! to engines and of pairs share them.

/// The most bytes that are written in a turn.
const CHUNK: usize = 30_000;
/// The length of a request and of its answer, in bytes.
pub const REQUEST: u64 = 100;
/// The bytes of [`Load::Unread`].
pub const UNREAD: u64 = 60_000;
/// The bytes of [`Load::Unsent`].
const UNSENT: u64 = 300_000;
/// The bytes that a slow reader reads in a turn.
const SLOWLY: usize = 4_000;

/// Traffic of a connection while it moves. Where only one end moves, that is ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    Idle,
    In,
    Out,
    Both,
    RequestResponse,
    OurFin,
    PeersFin,
    Loss,
    ZeroWindow,
    Unread,
    Unsent,
    /// The peer reads less than we write.
    Full,
    /// The peer stands still while the connection moves.
    Stopped,
}

impl Load {
    /// The most bytes that an end, which has written and read so many, writes in a turn.
    pub fn writes(self, ours: bool, written: u64, read: u64) -> usize {
        match (self, ours) {
            (Load::Both | Load::Loss | Load::OurFin | Load::PeersFin, _)
            | (Load::In, false)
            | (Load::Out | Load::Full | Load::Stopped, true) => CHUNK,
            // The peer asks once it has the last answer.
            (Load::RequestResponse, false) if written == read => REQUEST as usize,
            (Load::RequestResponse, true) => (read - written) as usize,
            // Nobody reads what is written.
            (Load::ZeroWindow, true) => 2_000,
            (Load::Unsent, true) if written < UNSENT => 50_000,
            (Load::Unread, false) if written < UNREAD => 5_000,
            _ => 0,
        }
    }

    /// The most bytes that an end reads in a turn.
    pub fn reads(self, ours: bool) -> usize {
        match (self, ours) {
            (Load::Idle | Load::ZeroWindow | Load::Unread | Load::Unsent, _) => 0,
            (Load::Full, false) => SLOWLY,
            _ => usize::MAX,
        }
    }

    /// Whether bytes arrive at the peer, and at our end, at every time until an end closes.
    pub fn flows(self) -> [bool; 2] {
        let both = matches!(self, Load::Both | Load::Loss | Load::OurFin | Load::PeersFin | Load::RequestResponse);
        [both || matches!(self, Load::Out | Load::Full | Load::Stopped), both || self == Load::In]
    }

    /// The end that closes in the middle: ours, or the peer's.
    pub fn closes(self) -> Option<bool> {
        match self {
            Load::OurFin => Some(true),
            Load::PeersFin => Some(false),
            _ => None,
        }
    }
}
