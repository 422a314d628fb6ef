//! Puts the bytes that a program still holds, after its engine's death, into the kernel.
//!
//! The connection is already live in the kernel. So the broker takes it out as for a move, extends
//! both of its queues, and rebuilds it. Frames that arrive meanwhile are lost, as if the network
//! had dropped them.
//!
//! Nothing drops the segments of a connection whose both ends are here: the kernel would answer with a reset while
//! one is being rebuilt. So both stop, as when they are joined, and both are rebuilt before either runs.

use super::Broker;
use super::hand_off::other_connection;
use super::pair::head_of;
use super::pair_home::Coming;
use super::state::State;
use super::stay_reason::StayReason;
use super::transfer::{Direction, HandedOff, Landed, Terms};
use baton_consumer::adoption::LeftBehind;
use baton_ipc::message::Reply;
use baton_ipc::record::Home;
use baton_kernel::Captured;
use baton_kernel::handoff::Outcome;
use baton_policy::Reason;

/// Why a connection was not taken out of the kernel.
enum NotOut {
    /// It stays in the kernel, unchanged.
    Stays(StayReason),
    /// It is lost.
    Lost(String),
}

impl Broker {
    /// A program sends the bytes that it holds of a connection in the kernel.
    pub(super) fn put_back(&mut self, id: u64, left: LeftBehind) {
        let Some(connection) = self.connections.known(id) else { return };
        if connection.state.home() == Some(Home::WHOLE) {
            // The program holds nothing: a predecessor read this request and died before it
            // answered.
            return self.tell_home(id);
        }
        if connection.plan.between.is_some() {
            return self.put_back_between(id, left);
        }
        let before = match self.take_out(id) {
            Ok(captured) => captured,
            Err(NotOut::Stays(why)) => return self.not_put_back(id, why),
            Err(NotOut::Lost(text)) => return self.lost(id, &text),
        };
        let landed = self.restore(id, longer(before.clone(), left), false, Direction::ToKernel(Home::WHOLE));
        if matches!(landed, Landed::InKernel) {
            if let Some(kernel) = self.connections.known_mut(id).and_then(|connection| connection.state.in_kernel_mut())
            {
                kernel.home = Some(Home::WHOLE);
            }
            self.note(id);
            return self.tell_home(id);
        }
        match self.restore(id, before, false, Direction::ToEngine) {
            Landed::InKernel => self.not_put_back(
                id,
                StayReason::new(Reason::Failed, "the kernel does not take the bytes that the program holds"),
            ),
            Landed::StaysInEngine => self.lost(id, "the connection continues in the engine"),
            Landed::NoRoute(_) => self.lost(id, "the kernel has no route for the connection"),
            Landed::Lost(text) => self.lost(id, &text),
        }
    }

    /// Takes a connection out of the kernel.
    fn take_out(&mut self, id: u64) -> Result<Captured, NotOut> {
        let Broker { connections, kernel, .. } = self;
        let connection = connections.get(id).expect("the caller has the connection");
        // No engine gets the connection, so its frames are dropped meanwhile.
        let plan = kernel.plan(&connection.fd).map_err(|error| NotOut::Stays(StayReason::from(&error)))?;
        if plan.tuple() != connection.tuple() {
            return Err(NotOut::Stays(other_connection()));
        }
        connections.replan(id, plan);
        match self.hand_off(id, Terms::NONE) {
            Ok(HandedOff { captured, .. }) => Ok(captured),
            Err(aborted) if matches!(aborted.outcome, Outcome::InKernel) => {
                Err(NotOut::Stays(StayReason::from(&aborted.cause)))
            }
            Err(aborted) => Err(NotOut::Lost(aborted.to_string())),
        }
    }

    /// The same if both ends are here: the other program stops using its end, too.
    fn put_back_between(&mut self, id: u64, left: LeftBehind) {
        let why = match (self.plan_again(id), self.other_end(id)) {
            (Ok(()), Some(peer)) => return self.meet_with([id, peer], Some(Box::new(left))),
            (Err(why), _) => why,
            (Ok(()), None) => {
                let text = "the other end's program has closed it, or taken it back: read what has arrived first";
                StayReason::new(Reason::PeerNotServed, text)
            }
        };
        self.not_put_back(id, why);
    }

    /// Takes the bytes that the programs of both ends hold, if they have said that they hold any.
    pub(super) fn take_left(&mut self, ends: [u64; 2]) -> Option<[Option<Box<LeftBehind>>; 2]> {
        let left = ends.map(|id| match self.connections.get_mut(id).map(|connection| &mut connection.state) {
            Some(State::Meeting(meeting)) => meeting.left.take(),
            _ => None,
        });
        left.iter().any(Option::is_some).then_some(left)
    }

    /// Both ends have been taken out, and go back with the bytes that their programs hold.
    pub(super) fn put_back_beside(
        &mut self,
        ends: [u64; 2],
        captured: &[Box<Captured>; 2],
        left: [Option<Box<LeftBehind>>; 2],
    ) {
        let mut changed = captured.each_ref().map(|captured| (**captured).clone());
        for (at, left) in left.iter().enumerate() {
            // They take up room that was promised to the other end, which knows of it what is set here.
            let bytes = left.as_ref().map_or(0, |left| left.unread.len() as u32);
            let window = changed[at].window().saturating_sub(bytes);
            let ours = &mut changed[at].protocol;
            ours.right_edge = ours.rcv_nxt + window;
            let theirs = &mut changed[1 - at].protocol;
            theirs.snd_wnd = theirs.snd_wnd.min(window);
        }
        let coming = ends.into_iter().zip(changed).zip(left).map(|((id, captured), left)| {
            let head = head_of(&captured);
            match left {
                Some(left) => Coming { id, captured: longer(captured, *left), head, told: Ok(Home::WHOLE) },
                None => {
                    let why = StayReason::new(Reason::InUse, "the program of the other end takes that back");
                    Coming { id, captured, head, told: Err(why) }
                }
            }
        });
        let coming: Vec<Coming> = coming.collect();
        match self.rebuild_ends(&coming) {
            Ok(()) => self.resume_ends(coming),
            Err(text) => self.put_back_both(ends, captured, Some(StayReason::new(Reason::Failed, text))),
        }
    }

    fn not_put_back(&mut self, id: u64, StayReason { code, text }: StayReason) {
        self.log_stays_in_kernel(id, code, &text);
        self.note(id);
        let Some(client) = self.connections.known(id).map(|connection| connection.client) else { return };
        self.tell_client(client, &Reply::Stays { seq: 0, id, code: code.to_string(), text }, Vec::new());
    }
}

/// The connection with the bytes left behind: unread ones before its receive queue, and unsent ones
/// after its send queue.
fn longer(mut captured: Captured, left: LeftBehind) -> Captured {
    captured.protocol.copied_seq = captured.protocol.copied_seq - left.unread.len() as u32;
    captured.receive_queue.splice(..0, left.unread);
    if !captured.protocol.has_our_fin() {
        captured.protocol.write_seq += left.unsent.len() as u32;
        captured.send_queue.extend(left.unsent);
    }
    captured
}
