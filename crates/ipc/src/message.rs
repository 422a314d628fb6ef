//! Messages between programs and the broker.
//!
//! ```text
//!  program                                broker
//!  Adopt + socket                 -->     may it move? frames held, socket captured
//!                                 <--     Region + memory, doorbell, completions  (once)
//!                                 <--     Bring + the two queues
//!  Brought                        -->     the engine adopts
//!          (the engine says Adopted in the region)
//!
//!  Restore                        -->     the engine suspends
//!                                 <--     Stand
//!  LeftBehind + what it holds     -->     rebuilt, resumed
//!                                 <--     Home
//! ```
//!
//! *Positions.* The streams of a queue pair have positions. `Home` says up to which position
//! received bytes are still in the region (`rcv_pos`), and up to which position the kernel has the
//! written bytes (`tail_pos`). The program first reads the bytes before `rcv_pos` from the region,
//! and first writes the bytes after `tail_pos` to the kernel. So nothing has to stop while the
//! broker counts, and each byte counts once, whichever process is killed.
//!
//! After an engine has died, the program holds some bytes. If it wants a plain socket again, it
//! passes them to the kernel later (`PutBack`).
//!
//! *Death of the broker.* A request is consumed once it has been carried out; otherwise the next
//! broker receives it again. Replies that the program had not read are sent again.
//!
//! A connection that returns to the kernel without a request (because of an engine that died, a
//! stop or an administrator) gets only a `Home`. A connection that moves to the engine again gets a
//! `Prepare` first.

mod fields;
mod parts;

pub use parts::{
    Destination, Entry, FollowedPair, Incoming, Loss, ProgramId, RawSizes, Selector, Sizes, Told, Transferred,
};

use crate::load::Past;
use crate::messages;
use baton_journal::Numbered;
use baton_wire::addr::Tuple;

messages! {
    /// A message of a program.
    pub enum Request {
        /// First message on the channel.
        1 Hello {
            /// The oldest version of the protocol that the program speaks ([`crate::version`]).
            oldest: u32,
            /// The newest one.
            newest: u32,
        },
        /// Hands over the connection of the attached socket.
        2 Adopt {
            /// Number that the answer repeats.
            seq: u64,
        },
        /// As [`Request::Adopt`], with what only the program knows (version 2).
        21 Offer {
            /// Number that the answer repeats.
            seq: u64,
            /// The connection's history.
            told: Told,
            /// If the program's own engines keep the connection's frames already: its addresses and
            /// ports as the frames have them, and the number of the last engine that the program had
            /// heard of ([`Reply::LocalEngine`]).
            held: Option<(Tuple, u64)>,
        },
        /// Answers [`Reply::Bring`].
        3 Brought {
            /// The broker's number of the connection.
            id: u64,
            /// True if the program had space for it.
            taken: bool,
        },
        /// Answers [`Reply::Prepare`].
        4 Ready {
            /// The broker's number of the connection.
            id: u64,
            /// True if nobody uses the descriptor any more.
            free: bool,
        },
        /// Asks for the whole connection to be restored to the kernel. After [`Request::Raw`], the
        /// bytes that the program holds are excepted.
        5 Restore {
            /// The broker's number of the connection.
            id: u64,
        },
        /// Answers [`Reply::Stand`]. If there are bytes, a memory file holds first those not read,
        /// then those not sent.
        6 LeftBehind {
            /// The broker's number of the connection.
            id: u64,
            /// Number of bytes not read.
            unread: u32,
            /// Number of bytes that the engine does not know of.
            unsent: u32,
        },
        /// The program has closed a connection: through the engine, or by closing the socket.
        7 Close {
            /// The broker's number of the connection.
            id: u64,
        },
        /// Asks for a list of connections: one [`Reply::Entry`] each, then [`Reply::Done`].
        8 List {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Asks for the loads of the engines: [`Reply::Load`]s, oldest first, then [`Reply::Done`].
        22 Loads {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Hands over connections of programs.
        9 Handoff {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
            /// The connections to move.
            which: Selector,
        },
        /// As [`Request::Handoff`], to a place that is named (version 8).
        29 HandoffTo {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
            /// The connections to move.
            which: Selector,
            /// Where they go.
            to: Destination,
        },
        /// Restores connections to the kernel.
        10 Home {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
            /// The connections to move.
            which: Selector,
        },
        /// Restores all connections to the kernel and ends the service.
        11 Stop {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Restarts the engine. Connections wait in the kernel and then return to it.
        12 Upgrade {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Asks for `TCP_INFO` of a connection that is in an engine; [`Reply::Info`] answers.
        14 Info {
            /// The broker's number of the connection.
            id: u64,
        },
        /// Inserts the bytes that the program has held since an engine died into the socket's
        /// queues: unread bytes before those that it has received, unsent bytes after those that it
        /// has to send. A memory file holds first the unread, then the unsent bytes.
        /// [`Reply::Home`] or [`Reply::Stays`] follows; until then nobody uses the descriptor.
        13 PutBack {
            /// The broker's number of the connection.
            id: u64,
            /// Number of bytes not read.
            unread: u32,
            /// Number of bytes not written.
            unsent: u32,
        },
        /// Sent before the first adoption: this program wants memory for its own queue pairs, not
        /// for streams. [`Reply::Refused`] if the service offers no such memory.
        17 Raw {
            /// Sizes of that memory.
            sizes: RawSizes,
        },
        /// Sent before the first adoption: this program drives engines itself where an interface
        /// allows it. [`Reply::Welcome`] follows.
        18 Direct {},
        /// Adds this process to those whose end a service waits for.
        19 Join {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Asks for events: [`Reply::Event`] each, then [`Reply::Done`], whose count is the number of
        /// the last event.
        20 Events {
            /// A number for [`Reply::Done`].
            ask: u64,
            /// Only those with a higher number.
            after: u64,
            /// At most this many, the last ones.
            most: u16,
        },
        /// Replaces the policy by the text in a memory file; without, the service reads its own file.
        24 Reload {
            /// Number that [`Reply::Done`] or [`Reply::Failed`] repeats.
            ask: u64,
            /// Length of the text in bytes.
            len: u32,
        },
        /// Asks for the service's policy: [`Reply::Policy`], then [`Reply::Done`].
        23 Policy {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
        },
        /// Asks how many packets a connection is expected to send yet, by the rule `predict`:
        /// [`Reply::Expected`] if somebody counts them, then [`Reply::Done`].
        25 Expect {
            /// Number that [`Reply::Done`] repeats.
            ask: u64,
            /// The place of its rule in the policy.
            rule: u16,
            /// The service's port.
            port: u16,
            /// Packets that it has sent.
            packets: u64,
        },
        /// Watches where the time of messages goes, of connections in engines, until this program
        /// disconnects: one [`Reply::Observed`] for each program and engine, then [`Reply::Done`] with their
        /// number. Those that come later follow by themselves ([`Reply::Failed`] if this program or too many
        /// of its user's observe already).
        27 Observe {
            /// Number that [`Reply::Done`] or [`Reply::Failed`] repeats.
            ask: u64,
            /// Selects them by their tuples.
            which: Selector,
            /// Only those of this process.
            pid: Option<u32>,
            /// The engine records one message in this many, on average. It records more if another observer
            /// wants more.
            every: u32,
        },
        /// Reads along what pairs exchange, until this program disconnects (version 6): one
        /// [`Reply::Followed`] for each pair of this user's programs, then [`Reply::Done`] with their number.
        /// Pairs that come later follow by themselves ([`Reply::Failed`] if this program or too many of its
        /// user's follow already).
        28 Follow {
            /// Number that [`Reply::Done`] or [`Reply::Failed`] repeats.
            ask: u64,
            /// Selects them by the tuple of either end.
            which: Selector,
        },
        /// Answers [`Reply::Restarted`]: the program has this connection.
        15 Has {
            /// The broker's number of the connection.
            id: u64,
        },
        /// Answers [`Reply::Restarted`]: the program waits for this adoption.
        16 Pending {
            /// Number of the [`Request::Adopt`].
            seq: u64,
        },
    }
}

messages! {
    /// A message of the broker.
    pub enum Reply {
        /// Answers [`Request::Hello`], [`Request::Raw`] and [`Request::Direct`].
        1 Welcome {
            /// The version that both speak from now on.
            version: u32,
        },
        /// Announces memory shared with an engine. The descriptors are its file, the doorbell that
        /// wakes the engine, the eventfd for completions, and the pidfd of an engine that has its
        /// own process.
        2 Region {
            /// Number of the region.
            region: u32,
            /// Its sizes. After [`Request::Raw`] there are no stream buffers.
            sizes: Sizes,
        },
        /// Gives the program an engine to drive. The descriptor is its control channel
        /// ([`super::order`]), on which its configuration is waiting.
        15 Engine {},
        /// As [`Reply::Engine`], with the engine's number, which is higher than those of all before
        /// (version 2).
        17 LocalEngine {
            /// The engine's number.
            engine: u64,
        },
        /// A connection arrives for an engine in the program, which is to adopt it at once
        /// (version 2). The engine answers: [`Report::Adopted`](crate::order::Report::Adopted) or
        /// [`Report::NotAdopted`](crate::order::Report::NotAdopted). In both cases the program has
        /// the bytes that come along.
        18 BringToEngine {
            /// The connection, as in [`Reply::Bring`].
            incoming: Incoming,
            /// The encoded [`Order::Adopt`](crate::order::Order::Adopt).
            order: Vec<u8>,
        },
        /// A connection arrives. If its two queues hold bytes, a memory file holds them.
        3 Bring {
            /// The connection and what it brings along.
            incoming: Incoming,
        },
        /// A connection stays where it was, in its previous state.
        4 Stays {
            /// Number of the [`Request::Adopt`]; 0 for a connection that has an id.
            seq: u64,
            /// The broker's number of the connection.
            id: u64,
            /// Reason code.
            code: String,
            /// Reason as a sentence.
            text: String,
        },
        /// Prepares for a move to the engine: nobody may use the descriptor from now on.
        5 Prepare {
            /// The broker's number of the connection.
            id: u64,
        },
        /// The connection is suspended. Asks for the bytes that the program holds.
        6 Stand {
            /// The broker's number of the connection.
            id: u64,
            /// Position up to which bytes were received, including those in the region.
            rcv_pos: u64,
            /// Position up to which the broker has read the written bytes.
            tail_pos: u64,
        },
        /// The connection is in the kernel.
        7 Home {
            /// The broker's number of the connection.
            id: u64,
            /// Position up to which received bytes are, or were, in the region.
            rcv_pos: u64,
            /// Position up to which the kernel has the written bytes.
            tail_pos: u64,
            /// True if the kernel has everything, so nothing is to be read or written from the
            /// region.
            whole: bool,
        },
        /// The connection has ended or is lost.
        8 Gone {
            /// Number of the adoption, if the program waits for one.
            seq: u64,
            /// The broker's number of the connection.
            id: u64,
            /// Whether it is lost.
            loss: Loss,
        },
        /// The engine of a region has died. Nothing more happens there.
        9 Dead {
            /// Number of the region.
            region: u32,
        },
        /// One connection in answer to [`Request::List`].
        10 Entry {
            /// State of one connection.
            entry: Entry,
        },
        /// The load of an engine at one time, in answer to [`Request::Loads`].
        19 Load {
            /// The engine's name: its interface.
            engine: String,
            /// The load, and when it was measured.
            past: Past,
        },
        /// An event of [`Request::Events`].
        16 Event {
            /// The event with its number.
            event: Numbered,
        },
        /// The service's policy, as text in a memory file.
        22 Policy {
            /// Length of the text in bytes.
            len: u32,
        },
        /// The answer to [`Request::Expect`].
        23 Expected {
            /// Packets still to come.
            packets: u64,
            /// Connections like it that ended and count.
            ended: u32,
        },
        /// The kernel gets a connection back whole, of which [`Reply::Home`] tells next.
        24 GivenBack {
            /// The broker's number of the connection.
            id: u64,
            /// The code of the reason.
            code: String,
        },
        /// Somebody watches where the time of messages goes ([`Request::Observe`]): from now on the program
        /// stamps its calls in the memory of the attached file (version 5). Without a file, no more.
        25 Watch {
            /// Number of the region whose connections are watched.
            region: u32,
        },
        /// Memory in which a program and an engine stamp, in answer to [`Request::Observe`]. The descriptor
        /// is its file, which can only be read. Nothing more is stamped there once the engine or the program
        /// has gone, of which [`Reply::Dead`] tells.
        26 Observed {
            /// Number of the region whose connections are watched.
            region: u32,
            /// Process and user of the program.
            program: ProgramId,
            /// The program's name.
            name: String,
            /// The engine's name: its interface, with a number for an engine in the program.
            engine: String,
            /// The program stamps its calls. Otherwise only the engine stamps.
            calls: bool,
            /// Nobody observed before, so every time in it came since.
            fresh: bool,
        },
        /// A connection that was handed over waits in the kernel for its other end, which is on this machine
        /// (version 5). It is a stream already.
        27 Waits {
            /// Number of the [`Request::Adopt`].
            seq: u64,
            /// The broker's number of the connection.
            id: u64,
        },
        /// Announces memory shared with another program, or with this one (version 5). The descriptors are
        /// the file of the side that this program writes, that of the other side, which can only be read,
        /// this program's bell, and the other program's.
        28 Link {
            /// Number of the link.
            link: u32,
            /// This program writes the first of its two sides.
            first: bool,
        },
        /// The program at the other side of a link has gone, and no connection needs the link any more (version 6).
        40 Unlink {
            /// Number of the link.
            link: u32,
            /// This program writes the first of its two sides.
            first: bool,
        },
        /// A connection arrives whose other end is at the other side of a link (version 7).
        /// [`Request::Brought`] answers. The link has the bytes of its two queues.
        29 Pair {
            /// The connection, without bytes. Its region is the link.
            incoming: Incoming,
            /// It is at the first side.
            first: bool,
            /// Its slot there.
            slot: u32,
            /// Number of the pair, which the slot never had before.
            number: u64,
        },
        /// A pair that may be read along, in answer to [`Request::Follow`]. The descriptors are the files of
        /// its link's two sides, which can only be read.
        30 Followed {
            /// Its numbers, and where it is.
            pair: FollowedPair,
        },
        /// A pair of [`Reply::Followed`] has left its slot.
        31 Unfollowed {
            /// Number of the pair.
            number: u64,
            /// Bytes of each end that count as the pair's. Those beyond are the kernel's.
            written: (u64, u64),
            /// The code of the reason for which both ends are in the kernel; empty if the connection has ended.
            home: String,
        },
        /// The request cannot be carried out, and nothing has changed.
        20 Failed {
            /// Number of the request.
            ask: u64,
            /// The reason as a sentence, with a remedy.
            text: String,
        },
        /// The rule for a connection that is about to arrive: its program applies `Rule::keeps`.
        21 Ruled {
            /// The broker's number of the connection.
            id: u64,
            /// The rule as text.
            rule: String,
        },
        /// End of an answer.
        11 Done {
            /// Number of the request.
            ask: u64,
            /// Number of selected connections.
            count: u64,
            /// How many of those did not move.
            failed: u64,
            /// Longest time that one of them was stopped, in microseconds.
            pause_us: u64,
        },
        /// Answers [`Request::Info`].
        13 Info {
            /// The broker's number of the connection.
            id: u64,
            /// The engine's `TCP_INFO` in the kernel's layout; empty if the engine does not have
            /// the connection.
            bytes: Vec<u8>,
        },
        /// The program may not do this, or has violated the protocol. Last message.
        12 Refused {
            /// The reason as a sentence.
            text: String,
        },
        /// The broker died and a new one took over. Open requests must be repeated. Connections
        /// keep their ids. The program reports its connections and pending adoptions
        /// ([`Request::Has`], [`Request::Pending`]). The broker then sends their locations as if
        /// they had just moved.
        14 Restarted {},
    }
}
