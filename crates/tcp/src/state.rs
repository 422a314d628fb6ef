//! The states of a connection and the one table of moves between them
//! (RFC 9293 §3.3.2, figure 5).
//!
//! ```text
//!                          CLOSED
//!          PassiveOpen /         \ ActiveOpen
//!                 LISTEN          \
//!             Syn |                \
//!                 v        Syn      v
//!            SYN-RECEIVED <------ SYN-SENT --Close--> CLOSED
//!       AckOfSyn |                   | SynAck
//!                v                   v
//!            ESTABLISHED <-----------+
//!          Close |        \ Fin
//!                v         v
//!          FIN-WAIT-1      CLOSE-WAIT
//!  AckOfFin /      \ Fin       \ Close
//!          v        v           v
//!   FIN-WAIT-2    CLOSING     LAST-ACK
//!      Fin \       / AckOfFin    | AckOfFin
//!           TIME-WAIT            v
//!               | Timeout     CLOSED
//!               v
//!            CLOSED            Reset, Abort: any -> CLOSED
//! ```
//!
//! Where this differs from the figure, the RFC's text allows it: a CLOSE in
//! SYN-RECEIVED is queued until ESTABLISHED (§3.10.4); a SYN-RECEIVED that
//! came from a listener goes away on a reset or a new SYN (the listener itself
//! never left LISTEN, RFC 9293 §3.10.7.4), and `Timeout` also ends FIN-WAIT-2
//! once nobody holds the connection any more. A segment that both acknowledges
//! our FIN and carries the peer's makes two moves.

/// State of a connection (RFC 9293 §3.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// There is no connection.
    Closed,
    /// Waiting for anybody's SYN.
    Listen,
    /// Our SYN is out.
    SynSent,
    /// SYNs crossed or a listener answered one; our SYN is not acknowledged.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// Our FIN is acknowledged; the peer may go on sending.
    FinWait2,
    /// The peer closed; we may go on sending.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed first, then we; our FIN is not acknowledged.
    LastAck,
    /// Both closed; old segments die out.
    TimeWait,
}

/// An event that moves a connection from one state to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A consumer listens.
    PassiveOpen,
    /// A consumer connects: a SYN goes out.
    ActiveOpen,
    /// A SYN without an acknowledgment of ours came.
    Syn,
    /// A SYN came that acknowledges ours.
    SynAck,
    /// Our SYN was acknowledged.
    AckOfSyn,
    /// The consumer closed its sending side: a FIN follows the data.
    Close,
    /// The peer's FIN was reached.
    Fin,
    /// Our FIN was acknowledged.
    AckOfFin,
    /// 2 MSL in TIME-WAIT, or an orphan's time in FIN-WAIT-2, ran out.
    Timeout,
    /// The peer reset the connection.
    Reset,
    /// We give the connection up.
    Abort,
}

impl State {
    /// Every state, in the order of RFC 9293 §3.3.2.
    pub const ALL: [State; 11] = [
        State::Closed,
        State::Listen,
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ];

    /// The state after `event`, or `None` where the event has no place.
    pub const fn next(self, event: Event) -> Option<State> {
        use Event as E;
        use State as S;
        Some(match (self, event) {
            (S::Closed, E::PassiveOpen) => S::Listen,
            (S::Closed, E::ActiveOpen) => S::SynSent,
            (S::Listen, E::Syn) => S::SynReceived,
            (S::SynSent, E::Syn) => S::SynReceived,
            (S::SynSent, E::SynAck) => S::Established,
            (S::SynSent, E::Close) => S::Closed,
            (S::SynReceived, E::AckOfSyn) => S::Established,
            (S::Established, E::Close) => S::FinWait1,
            (S::Established, E::Fin) => S::CloseWait,
            (S::FinWait1, E::AckOfFin) => S::FinWait2,
            (S::FinWait1, E::Fin) => S::Closing,
            (S::FinWait2, E::Fin) => S::TimeWait,
            (S::FinWait2, E::Timeout) => S::Closed,
            (S::CloseWait, E::Close) => S::LastAck,
            (S::Closing, E::AckOfFin) => S::TimeWait,
            (S::LastAck, E::AckOfFin) => S::Closed,
            (S::TimeWait, E::Timeout) => S::Closed,
            (S::Closed, _) => return None,
            (_, E::Reset | E::Abort) => S::Closed,
            _ => return None,
        })
    }

    /// ESTABLISHED or later: both sequence numbers are known and agreed
    /// (RFC 9293 §3.5.2 calls these the synchronized states).
    #[inline]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, State::Closed | State::Listen | State::SynSent | State::SynReceived)
    }

    /// The peer may still send data that we deliver.
    #[inline]
    pub const fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// The consumer may still post data to send.
    #[inline]
    pub const fn may_send(self) -> bool {
        matches!(self, State::Established | State::CloseWait)
    }

    /// The state's number in Linux's `TCP_INFO` (`include/net/tcp_states.h`).
    pub const fn linux(self) -> u8 {
        match self {
            State::Established => 1,
            State::SynSent => 2,
            State::SynReceived => 3,
            State::FinWait1 => 4,
            State::FinWait2 => 5,
            State::TimeWait => 6,
            State::Closed => 7,
            State::CloseWait => 8,
            State::LastAck => 9,
            State::Listen => 10,
            State::Closing => 11,
        }
    }
}
