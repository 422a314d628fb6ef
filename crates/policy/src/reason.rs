//! Every reason why a connection is where it is: one table for counters, scripts, logs and people.
//!
//! A code never changes. A finding of the kernel's side about a connection is a [`Refusal`] of its
//! own, so that its errors can be matched; here it is one kind of reason among the others.

use crate::Refusal;
use core::fmt;

/// Which part of Baton gives a reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// The connection or the host cannot be handled: the kernel's side found out.
    Kernel,
    /// The program did something that only the kernel can do.
    Program,
    /// The service decided, or one of its processes failed.
    Service,
}

macro_rules! reasons {
    ($($variant:ident $origin:ident $code:literal: $text:literal; $remedy:literal.)*) => {
        /// Why a connection stays in the kernel, moves, or comes home.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Reason {
            /// The kernel's side refused it.
            Refused(Refusal),
            $(#[doc = concat!("`", $code, "`: ", $text, ".")] $variant,)*
        }

        impl Reason {
            /// All reasons but the refusals, in the order of their declaration.
            const OWN: &[Reason] = &[$(Reason::$variant,)*];

            /// Which part of Baton gives it.
            pub const fn origin(self) -> Origin {
                match self {
                    Reason::Refused(_) => Origin::Kernel,
                    $(Reason::$variant => Origin::$origin,)*
                }
            }

            /// Its name in counters, logs and JSON. It never changes.
            pub const fn code(self) -> &'static str {
                match self {
                    Reason::Refused(refusal) => refusal.code(),
                    $(Reason::$variant => $code,)*
                }
            }

            /// Its meaning, as a clause for people.
            pub const fn text(self) -> &'static str {
                match self {
                    Reason::Refused(refusal) => refusal.text(),
                    $(Reason::$variant => $text,)*
                }
            }

            /// The remedy, as an instruction to a person.
            pub const fn remedy(self) -> &'static str {
                match self {
                    Reason::Refused(refusal) => refusal.remedy(),
                    $(Reason::$variant => $remedy,)*
                }
            }
        }
    };
}

reasons! {
    Loopback Program "loopback": "both ends are on this machine, at a loopback address"; "start the program at the other end under `baton run`, too, and neither with `--pair never`".
    PeerNotServed Service "peer-not-served": "its other end is on this machine, and no program that uses the service has it"; "start the program at the other end under `baton run`, too".
    OtherUser Service "other-user": "its other end belongs to a program of another user"; "set `pair = \"any\"` in the service's configuration to join them".
    RuleNever Program "rule-never": "the policy keeps it in the kernel, or `--ports` does not name its port"; "name its port, or choose another policy".
    OnlyPairs Program "only-pairs": "the rule `pairs` sends it to no engine, and its other end is not known to be on this machine"; "nothing, or choose another policy: `baton run --explain` says why this is the default".
    HandoffFailed Service "handoff-failed": "its handoff failed before"; "look into the service's log for the first failure".
    PolicyChanged Service "policy-changed": "a new policy was loaded, by which it may not be there"; "nothing: `baton policy explain` names the rule".
    Restored Service "restored": "it was given back to the kernel on request"; "use `baton handoff` to move it again".
    Bulk Program "bulk": "it proved to be a large transfer, which the kernel carries at less cost"; "choose the policy `fcfs` to have it on the engine all the same".
    WaitsForSends Service "waits-for-sends": "the policy moves it once it has made more requests to send"; "nothing, or choose a policy with a smaller number".
    WaitsForCondition Service "waits-for-condition": "a rule that may move it later asks for more bytes, sends or age"; "nothing, or change the rule's conditions".
    WaitsForRoom Service "waits-for-room": "the engine has as many connections as it may"; "raise `connections` in `[engine]`".
    WaitsForLoad Service "waits-for-load": "the engine has as many connections as its load allows"; "nothing: it moves once the load falls, which `baton ps --load` shows".
    LargeTransfers Service "large-transfers": "its transfers are too large for the policy `small`"; "nothing: it moves once they get smaller".
    FewPackets Service "few-packets": "it is expected to send too few packets for a move to pay (`predict`)"; "nothing: it moves once more are expected".
    GaveWay Service "gave-way": "its place in a full engine went to a connection that gains more by it"; "nothing, or raise `connections` in `[engine]`".
    InUse Program "in-use": "another thread was in a call on it each time it could have moved"; "nothing: it moves at a later call".
    Bypassed Service "bypassed": "its peer's packets come in by another interface, or in fragments"; "have the route back to the peer use the same interface".
    Homeless Service "homeless": "its address or route is away, or leads over another interface"; "put the address or route back; it may move again then".
    Load Service "load": "its engine had more to do than it could, and it came home"; "nothing: it returns once the load falls, or give the engine more CPU time".
    RulesChanged Service "rules-changed": "the firewall's rules changed just then"; "nothing: it is tried again".
    Untracked Service "untracked": "somebody deleted its conntrack entry, and it came home"; "nothing: the firewall's rules decide whether it goes on".
    NoService Program "no-service": "the service does not answer at its socket"; "start the service, or give the program access to its socket (`chroot`, mounts, user)".
    ServiceKilled Program "service": "the service was killed just then"; "look into the log why the service was killed".
    Fork Program "fork": "the process forked, and parent and child share it"; "close it in one of them; it may move then".
    Inherited Program "inherited": "another program was started that inherits the descriptor"; "set FD_CLOEXEC on it".
    SentAway Program "sent-away": "the descriptor was sent to another process"; "nothing: the kernel shares it between processes".
    Linger Program "linger": "it was closed with a SO_LINGER time, for which the kernel waits"; "do without SO_LINGER".
    Stdio Program "stdio": "it was made a FILE*, or written to by dprintf"; "read and write the descriptor itself".
    Splice Program "splice": "splice reads from it or writes to it"; "read and write, or use sendfile".
    Aio Program "aio": "aio_read, aio_write or lio_listio use it from the C library's own threads"; "read and write it directly".
    SendfileOfNoFile Program "sendfile-of-no-file": "sendfile sends from something that is not a file"; "read and write instead".
    UrgentData Program "urgent-data": "the program or its peer sends urgent data"; "nothing: only the kernel carries urgent data".
    ControlData Program "control-data": "sendmsg was called with control data"; "send without control data".
    SignalsForData Program "signals-for-data": "O_ASYNC or FIOASYNC asks for signals"; "use poll or epoll".
    Getsockopt Program "getsockopt": "the program asks for an option that the engine does not have"; "nothing: the kernel answers it".
    Setsockopt Program "setsockopt": "the program sets an option that the engine does not have, such as kernel TLS"; "nothing: the kernel has it".
    ConnectedAnew Program "connected-anew": "connect with AF_UNSPEC dissolved it"; "nothing: the next connection of the descriptor may move".
    IoUring Program "io-uring": "the program uses io_uring, whose calls cannot be seen"; "use `baton run --no-io-uring`".
    EpollOneshot Program "epoll-oneshot": "it was in an epoll set with EPOLLONESHOT before it could move"; "nothing: whether the kernel has reported it cannot be known".
    EpollClosed Program "epoll-closed": "its descriptor in an epoll set was closed, and another descriptor is open"; "remove a descriptor from the set before closing it".
    EpollShared Program "epoll-shared": "it is in an epoll set that another process has as well"; "give each process an epoll set of its own".
    ClosedUnseen Program "closed-unseen": "the descriptor was closed by a call that the library does not see"; "close it by close(2)".
    NoBuffers Service "no-buffers": "the program's memory with the engine is full"; "raise `connections` or `large-buffers` in `[memory]`".
    NoDescriptors Program "no-descriptors": "the program may have no more descriptors"; "raise its limit of open files (ulimit -n)".
    TooMany Service "too-many": "the program has as many connections there as it may"; "raise `connections` in `[memory]`".
    NotYours Service "not-yours": "the socket belongs to another user"; "run the program as the user that opened it, or as root".
    Failed Service "failed": "a call of the kernel failed on the way"; "look into the service's log; it is tried again".
    NoEngine Service "no-engine": "the engine was not there"; "nothing: the service starts another; look into its log if it does not".
    EngineRefused Service "engine-refused": "the engine refused it"; "look into the service's log".
    NoMemory Service "no-memory": "the service ran out of memory for it"; "give the service more memory, or fewer connections".
    Stopping Service "stopping": "the service is about to end"; "nothing, or start the service again".
    Lost Service "lost": "the connection ended on the way"; "look into the service's log".
    BrokerDied Service "broker-died": "the broker died on the way"; "look into the log why it died".
    HandedOver Service "handed-over": "the program or the policy handed it over"; "nothing to be done".
    AskedFor Service "asked-for": "`baton handoff`, `baton restore` or the program asked for it"; "nothing to be done".
    EngineDied Service "engine-died": "its engine died, and it came back to the kernel"; "look into the log why the engine died".
    EngineHung Service "engine-hung": "its engine did not answer for too long, and it came back to the kernel"; "report it with the service's log".
    ProgramSilent Service "program-silent": "its program did not answer for too long"; "look why the program stood still".
    ProgramGone Service "program-gone": "its program has ended, and it is being closed"; "nothing to be done".
    Gone Service "gone": "its program has ended"; "nothing to be done".
    KernelRefused Service "kernel-refused": "the kernel did not take it back, and the engine goes on with it"; "look into the service's log; it is tried again".
    Closing Service "closing": "it is closing on both sides, and ends in the engine"; "nothing: it is over soon".
    MtuChanged Service "mtu-changed": "the interface's MTU changed, and a new engine was started"; "nothing: it may move again".
    Upgrade Service "upgrade": "the service was upgraded, and a new engine was started"; "nothing: it may move again".
    Stop Service "stop": "the service ended"; "nothing to be done".
}

impl Reason {
    /// All reasons, refusals first.
    pub fn all() -> impl Iterator<Item = Reason> {
        Refusal::ALL.into_iter().map(Reason::Refused).chain(Reason::OWN.iter().copied())
    }

    /// The reason of this code.
    pub fn from_code(code: &str) -> Option<Reason> {
        Reason::all().find(|reason| reason.code() == code)
    }

    /// Whether a connection that stays for it may be asked about again.
    pub const fn may_pass(self) -> bool {
        matches!(
            self,
            Reason::WaitsForSends
                | Reason::WaitsForCondition
                | Reason::WaitsForRoom
                | Reason::WaitsForLoad
                | Reason::Load
                | Reason::LargeTransfers
                | Reason::FewPackets
                | Reason::NoBuffers
                | Reason::RulesChanged
        )
    }
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Reason {
        Reason::Refused(refusal)
    }
}

/// Gives the reason's code.
impl From<Reason> for std::borrow::Cow<'static, str> {
    fn from(reason: Reason) -> Self {
        Self::Borrowed(reason.code())
    }
}

/// Writes the reason's code.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;
    use std::collections::HashSet;

    #[test]
    fn codes_are_words_and_lead_back() {
        let mut seen = HashSet::new();
        for reason in Reason::all() {
            let code = reason.code();
            assert!(!code.is_empty() && code.chars().all(|it| it.is_ascii_lowercase() || it == '-'), "{code}");
            assert!(seen.insert(code), "{code} stands twice");
            assert_eq!(Reason::from_code(code), Some(reason));
        }
        assert_eq!(Reason::from_code("nonsense"), None);
    }

    #[test]
    fn texts_are_clauses() {
        for reason in Reason::all() {
            for text in [reason.text(), reason.remedy()] {
                assert!(text.len() > 6 && !text.ends_with('.'), "{reason}: {text}");
            }
        }
    }
}
