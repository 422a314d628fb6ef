//! From the kernel to the engine.

use super::Broker;
use super::lines::{Goal, Line, State};
use crate::order::Order;
use baton_host::handoff::{Aborted, Handoff, Outcome, Steps};
use baton_host::kernel_side::{KernelError, KernelSide, Plan};
use baton_host::policy::{Decision, History, Room};
use baton_host::{Captured, Refusal};
use baton_mover::engine_side;
use baton_socket::service::message::Reply;
use baton_socket::service::write_queues;
use baton_wire::addr::Tuple;
use rustix::fs::fstat;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The kernel's half of a move; the engine's half is waited for in between.
pub(super) struct Half<'a> {
    pub kernel: &'a mut KernelSide,
    pub fd: BorrowedFd<'a>,
    pub plan: Plan,
    /// Longest queue that can come along.
    pub largest: usize,
    /// What was captured, or is to be rebuilt.
    pub captured: Option<Captured>,
    /// The engine has it standing: there is a way back.
    pub stands: bool,
}

impl Steps for Half<'_> {
    type Error = KernelError;

    fn steer(&mut self) -> Result<(), KernelError> {
        self.kernel.steer(&self.plan)
    }

    fn capture(&mut self) -> Result<Captured, KernelError> {
        let captured = self.kernel.capture(self.fd)?;
        if captured.send_queue.len().max(captured.receive_queue.len()) > self.largest {
            // Nothing was changed: it is an ordinary socket again.
            baton_host::release(self.fd, &captured)?;
            return Err(self.kernel.refuse(Refusal::TooMuchQueued));
        }
        Ok(captured)
    }

    fn make_husk(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.make_husk(self.fd, captured)
    }

    fn start(&mut self, captured: &Captured) -> Result<(), KernelError> {
        match &self.captured {
            None => self.captured = Some(captured.clone()),
            // What the kernel received since is not known where it stands.
            Some(before) if self.stands && before == captured => {}
            Some(_) => return Err(Refusal::State.into()),
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<Captured, KernelError> {
        self.captured.clone().ok_or(KernelError::Refused(Refusal::State))
    }

    fn rebuild(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.rebuild(self.fd, captured)
    }

    fn unsteer(&mut self) -> Result<(), KernelError> {
        self.kernel.unsteer(&self.plan)
    }

    fn recapture(&mut self, previous: &Captured) -> Result<Captured, KernelError> {
        self.kernel.recapture(self.fd, previous)
    }

    fn resume(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.resume(self.fd, captured)
    }
}

/// A refusal that is the broker's own: a word and a sentence.
pub(super) type Why = (&'static str, String);

pub(super) fn why(error: &KernelError) -> Why {
    (error.refusal().map_or("failed", Refusal::code), error.to_string())
}

impl Broker {
    /// A program wants its socket handed over.
    pub(super) fn adopt(&mut self, client: u32, seq: u64, fd: OwnedFd) {
        let planned = self.admit(client, &fd).and_then(|()| self.plan(&fd));
        let chosen = planned.and_then(|planned| self.choose(&fd, planned.1).map(|()| planned));
        let (plan, side) = match chosen {
            Ok(planned) => planned,
            Err((code, text)) => {
                return self.tell_client(client, &Reply::Stays { seq, id: 0, code: code.into(), text }, Vec::new());
            }
        };
        self.next_line += 1;
        let Some(program) = self.clients.get_mut(&client) else { return };
        program.lines += 1;
        let mut line = Line::new(self.next_line, client, (program.pid, program.uid), seq, fd, plan.tuple());
        (line.plan, line.side) = (Some(plan), side);
        let id = line.id;
        self.lines.insert(id, line);
        self.tuples.insert(plan.tuple(), id);
        self.hold(id);
    }

    /// Whether this program may hand this socket over.
    fn admit(&self, client: u32, fd: &OwnedFd) -> Result<(), Why> {
        let program = self.clients.get(&client).ok_or_else(|| ("gone", String::new()))?;
        if program.lines >= self.config.consumer.connections as usize {
            return Err(("too-many", "the program has as many connections here as it may".into()));
        }
        let owner = fstat(fd).map_err(|e| ("failed", e.to_string()))?.st_uid;
        if program.uid != 0 && owner != program.uid {
            return Err(("not-yours", format!("the socket is user {owner}'s")));
        }
        if self.stopping {
            return Err(("stopping", "the service is about to end".into()));
        }
        Ok(())
    }

    /// Whether it is to move now. A program whose connection waits asks again when it sends;
    /// what a person asks for by name is not asked about.
    fn choose(&self, fd: &OwnedFd, side: usize) -> Result<(), Why> {
        let known = baton_host::known(fd, History::New).map_err(|e| ("failed", e.to_string()))?;
        let connections = self.lines.values().filter(|line| line.side == side).count() as u64;
        match self.config.policy.decide(&known, Room { connections, at_most: self.config.connections.into() }) {
            Decision::Move => Ok(()),
            stays => Err((stays.code(), stays.to_string())),
        }
    }

    fn plan(&mut self, fd: &OwnedFd) -> Result<(Plan, usize), Why> {
        let plan = self.kernel.plan(fd).map_err(|error| why(&error))?;
        let refused = |refusal: Refusal| (refusal.code(), refusal.to_string());
        let side = self.sides.iter().position(|side| side.index == plan.way.interface);
        let side = side.ok_or_else(|| refused(Refusal::NotSteerable))?;
        if self.tuples.contains_key(&plan.tuple()) {
            return Err(refused(Refusal::AlreadyAway));
        }
        if !self.sides[side].engine.as_ref().is_some_and(|engine| engine.started) {
            return Err(("no-engine", "the interface's engine does not run".into()));
        }
        Ok((plan, side))
    }

    /// Its program lets nobody use the descriptor: it may go.
    pub(super) fn on_ready(&mut self, id: u64, free: bool) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.state = State::Kernel;
        line.seq = 0;
        let tuple = line.tuple;
        if !free {
            return self.settled(id, false);
        }
        // It is in the list of names itself.
        self.tuples.remove(&tuple);
        let Ok(fd) = self.lines[&id].fd.try_clone() else { return self.stays(id, ("failed", "no descriptor".into())) };
        let planned = self.plan(&fd);
        self.tuples.insert(tuple, id);
        match planned {
            Ok((plan, side)) if plan.tuple() == tuple => {
                if let Some(line) = self.lines.get_mut(&id) {
                    (line.plan, line.side) = (Some(plan), side);
                }
                self.hold(id);
            }
            Ok(_) => self.stays(id, ("failed", "the socket has another connection".into())),
            Err(why) => self.stays(id, why),
        }
    }

    fn hold(&mut self, id: u64) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.state = State::Holding;
        let order = Order::Hold { id, tuple: line.tuple };
        self.sides[line.side].tell(&order, Vec::new());
    }

    /// Frames of it are kept: it is taken out of the kernel, and brought to its program.
    pub(super) fn take(&mut self, id: u64) {
        let Some(line) = self.lines.get(&id).filter(|line| line.state == State::Holding) else { return };
        let (at, client) = (line.side, line.client);
        let region = match self.region(at, client) {
            Ok(region) => region,
            Err(error) => return self.stays(id, ("no-memory", error.to_string())),
        };
        let largest = self.config.consumer.stream_buffer.max(self.config.consumer.large_buffer) as usize;
        let Broker { lines, kernel, .. } = self;
        let line = lines.get_mut(&id).expect("it is there");
        let plan = line.plan.expect("it was planned");
        line.stop();
        let fd = std::os::fd::AsFd::as_fd(&line.fd);
        let mut half = Half { kernel, fd, plan, largest, captured: None, stands: false };
        let taken = Handoff::new().hand_off(&mut half);
        let captured = half.captured;
        match (taken, captured) {
            (Ok(()), Some(captured)) => self.bring(id, region, captured),
            (Ok(()), None) => unreachable!("what was handed off was captured"),
            (Err(Aborted { cause, outcome: Outcome::InKernel, .. }), _) => self.stays(id, why(&cause)),
            (Err(aborted), _) => self.lost(id, &aborted.to_string()),
        }
    }

    fn bring(&mut self, id: u64, region: u32, captured: Captured) {
        let file = write_queues(&captured.send_queue, &captured.receive_queue);
        let line = self.lines.get_mut(&id).expect("it is there");
        line.state = State::Bringing;
        line.shell = Some(engine_side::shell(&captured));
        let reply = Reply::Bring {
            seq: line.seq,
            id,
            region,
            send: captured.send_queue.len() as u32,
            unread: captured.receive_queue.len() as u32,
            shut: captured.protocol.has_our_fin(),
            window: captured.protocol.rcv_wnd(),
        };
        line.captured = Some(captured);
        let client = line.client;
        match file {
            Ok(file) => self.tell_client(client, &reply, file.into_iter().collect()),
            Err(error) => self.give_back_whole(id, &error.to_string()),
        }
    }

    /// Its program has taken in what it brings along.
    pub(super) fn on_brought(&mut self, id: u64, taken: bool) {
        if !taken {
            return self.give_back_whole(id, "the program has no buffers for what the connection brings along");
        }
        let Broker { lines, sides, .. } = self;
        let line = lines.get_mut(&id).expect("it is there");
        let (Some(captured), Some(plan)) = (&line.captured, line.plan) else { return };
        let side = &mut sides[line.side];
        let Some(memory) = side.memory(line.client) else {
            return self.on_not_adopted(id, "the engine has died");
        };
        let options = engine_side::options(captured);
        let key = memory.region;
        let adopt = engine_side::adoption(captured, &options, plan.way.via, baton_engine::streamer::ConsumerId(0), id);
        let order = Order::Adopt {
            id,
            key,
            tuple: adopt.tuple,
            snapshot: adopt.snapshot.to_words().to_vec(),
            ip: adopt.ip.bits(),
            via: plan.way.via,
            mac: plan.mac,
            options: options.iter().map(|option| baton_engine::options::encode(*option)).collect(),
        };
        line.state = State::Starting;
        side.tell(&order, Vec::new());
    }

    pub(super) fn on_adopted(&mut self, id: u64, conn: u32) {
        let gone = |line: &Line| !self.clients.contains_key(&line.client);
        let gone = self.lines.get(&id).is_some_and(gone);
        let Some(line) = self.lines.get_mut(&id).filter(|line| line.state == State::Starting) else { return };
        line.conn = Some(conn);
        line.seq = 0;
        line.arrive(State::Engine, "handed-over");
        if gone {
            self.leave(id, Goal::Close, "program-gone");
        }
        self.settled(id, true);
    }

    /// The engine does not have it: the kernel gets it back, but for what its program has
    /// taken in already.
    pub(super) fn on_not_adopted(&mut self, id: u64, _text: &str) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let Some(captured) = line.captured.take() else { return };
        self.come_home_as_captured(id, captured, "engine-refused");
    }

    /// It is in the kernel as it was.
    pub(super) fn stays(&mut self, id: u64, (code, text): Why) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.stood_still = None;
        let (seq, client, side, tuple) = (line.seq, line.client, line.side, line.tuple);
        line.state = State::Kernel;
        self.unhold(side, tuple);
        self.tell_client(client, &Reply::Stays { seq, id, code: code.into(), text }, Vec::new());
        self.settled(id, false);
        if seq != 0 {
            // Its program has the socket, and no stream.
            self.forget(id);
        }
    }

    pub(super) fn unhold(&mut self, side: usize, tuple: Tuple) {
        self.sides[side].tell(&Order::Unhold { tuple }, Vec::new());
    }
}
