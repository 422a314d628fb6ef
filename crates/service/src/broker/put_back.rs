//! Puts the bytes that a program still holds, after its engine's death, into the kernel.
//!
//! The connection is already live in the kernel. So the broker takes it out as for a move, extends
//! both of its queues, and rebuilds it. Frames that arrive meanwhile are lost, as if the network
//! had dropped them.
//!
//! Nothing drops the segments of a connection whose both ends are here: the kernel would answer with a reset while
//! one is being rebuilt. But what its program holds is never more than unsent bytes ([`super::pair_home`]), and those
//! fit into a larger buffer of a socket that lives.

use super::Broker;
use super::hand_off::other_connection;
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
            return self.put_back_between(id, &left);
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

    /// The same if both ends are here: the program writes its bytes itself, once they fit into the socket.
    fn put_back_between(&mut self, id: u64, left: &LeftBehind) {
        let Some(connection) = self.connections.known(id) else { return };
        let why = if left.unread.is_empty() {
            baton_kernel::make_room_to_send(&connection.fd, left.unsent.len()).err().map(|error| error.to_string())
        } else {
            Some("read what has arrived first".to_owned())
        };
        match why {
            Some(text) => self.not_put_back(id, StayReason::new(Reason::Failed, text)),
            None => {
                let (client, Home { rcv_pos, tail_pos, whole }) = (connection.client, Home::at((0, 0)));
                self.tell_client(client, &Reply::Home { id, rcv_pos, tail_pos, whole }, Vec::new());
            }
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
