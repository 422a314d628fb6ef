//! From the kernel to the engine.

use super::Broker;
use super::left::{no_route, without_route};
use super::lines::{Goal, Line, State};
use super::rules::RULES_CHANGED;
use super::side::Process;
use baton_ipc::message::Reply;
use baton_ipc::order::Order;
use baton_ipc::queues::write_queues;
use baton_ipc::record::{self, Phase, Record};
use baton_kernel::handoff::{Aborted, Handoff, Outcome, Steps};
use baton_kernel::kernel_side::{KernelError, KernelSide, Plan};
use baton_kernel::{Captured, Failed};
use baton_policy::Refusal;
use baton_policy::rules::{Decision, History, Room};
use baton_wire::addr::Tuple;
use rustix::fs::fstat;
use rustix::net::sockopt::socket_type;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// The kernel's half of a move; the engine's half is waited for in between.
pub(super) struct Half<'a> {
    pub kernel: &'a mut KernelSide,
    pub fd: BorrowedFd<'a>,
    pub plan: Plan,
    pub terms: Terms,
    /// What was captured, or is to be rebuilt.
    pub captured: Option<Captured>,
    /// The engine has it standing: there is a way back.
    pub stands: bool,
    /// It comes from the kernel; else it goes there, and its program is told this.
    pub way: Direction,
    /// Keeps with the guardian how far it has come, before the step that makes it so.
    pub keep: &'a mut dyn FnMut(Phase, &Captured) -> io::Result<()>,
    /// What was rebuilt last, without its queues' bytes.
    pub rebuilt: Option<Captured>,
}

/// What a connection has to be like to leave the kernel.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    /// Bytes in the longest queue that can come along.
    pub largest: usize,
    /// The kernel has nothing of it beyond a gap.
    pub settled: bool,
}

impl Terms {
    /// It leaves as it is.
    pub const NONE: Terms = Terms { largest: usize::MAX, settled: false };
}

/// What came out of the kernel: a connection, and a file of its queues if they hold anything.
type Out = (Captured, Option<Arc<OwnedFd>>);

/// Where a connection goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// To the engine.
    Out,
    /// To the kernel; what its program is told then.
    Home((u64, u64, bool)),
}

impl Half<'_> {
    fn keep(&mut self, phase: Phase, captured: &Captured) -> Result<(), KernelError> {
        let kept = (self.keep)(phase, captured);
        kept.map_err(|source| Failed { during: "keeping what was captured", source }.into())
    }
}

impl Steps for Half<'_> {
    type Error = KernelError;

    fn steer(&mut self) -> Result<(), KernelError> {
        if self.terms.settled { self.kernel.steer_settled(&self.plan) } else { self.kernel.steer(&self.plan) }
    }

    fn capture(&mut self) -> Result<Captured, KernelError> {
        let captured = self.kernel.capture(self.fd)?;
        if captured.send_queue.len().max(captured.receive_queue.len()) > self.terms.largest {
            // Nothing was changed: it is an ordinary socket again.
            baton_kernel::release(self.fd, &captured)?;
            return Err(self.kernel.refuse(Refusal::TooMuchQueued));
        }
        Ok(captured)
    }

    fn make_husk(&mut self, captured: &Captured) -> Result<(), KernelError> {
        if self.way == Direction::Out {
            self.keep(Phase::Captured, captured)?;
        }
        let made = self.kernel.make_husk(self.fd, captured);
        // What stands in the engine goes on there whether the socket is a good husk or not:
        // without its address it can be none. The next way home begins with it anew.
        if self.stands { Ok(()) } else { made }
    }

    fn start(&mut self, captured: &Captured) -> Result<(), KernelError> {
        match &self.captured {
            None => self.captured = Some(captured.clone()),
            // What the kernel received since is not known where it stands.
            Some(before) if self.stands && before == captured => self.keep(Phase::Engine, captured)?,
            Some(_) => return Err(Refusal::State.into()),
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<Captured, KernelError> {
        let captured = self.captured.as_mut().ok_or(KernelError::Refused(Refusal::State))?;
        if self.stands {
            return Ok(captured.clone());
        }
        // There is no way back, for which its queues would have to be known.
        let shell = baton_bridge::shell(captured);
        Ok(std::mem::replace(captured, shell))
    }

    fn rebuild(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.rebuild(self.fd, captured)?;
        self.rebuilt = Some(baton_bridge::shell(captured));
        Ok(())
    }

    fn unsteer(&mut self) -> Result<(), KernelError> {
        // From here on the kernel goes on with it, and what was captured is history.
        if let Some(rebuilt) = self.rebuilt.take() {
            let home = if let Direction::Home(home) = self.way { Some(home) } else { None };
            self.keep(Phase::Rebuilt(home), &rebuilt)?;
        }
        self.kernel.unsteer(&self.plan)
    }

    fn recapture(&mut self, previous: &Captured) -> Result<Captured, KernelError> {
        self.kernel.recapture(self.fd, previous)
    }

    fn resume(&mut self, captured: &Captured) -> Result<(), KernelError> {
        self.kernel.resume(self.fd, captured)
    }
}

/// Whether a moment later it may go.
fn is_unsettled(aborted: &Aborted<KernelError>) -> bool {
    matches!(aborted.outcome, Outcome::InKernel) && aborted.cause.refusal() == Some(Refusal::Unsettled)
}

/// A refusal that is the broker's own: a word and a sentence.
pub(super) type Why = (&'static str, String);

pub(super) fn why(error: &KernelError) -> Why {
    (error.refusal().map_or("failed", Refusal::code), error.to_string())
}

impl Broker {
    /// A program wants its socket handed over.
    pub(super) fn adopt(&mut self, client: u32, seq: u64, fd: OwnedFd) {
        let planned = self.admit(client, &fd).and_then(|()| self.plan(client, &fd));
        let chosen = planned.and_then(|planned| self.choose(&fd, planned.1).map(|()| planned));
        let (plan, side) = match chosen {
            Ok(planned) => planned,
            Err(why) => {
                self.log_refused(client, &fd, &why);
                let (code, text) = why;
                self.discard(client, [fd]);
                return self.tell_client(client, &Reply::Stays { seq, id: 0, code: code.into(), text }, Vec::new());
            }
        };
        self.next_line += 1;
        let Some(program) = self.clients.get_mut(&client) else { return };
        program.lines += 1;
        let who = (program.pid, program.uid);
        let mut line = Line::new(self.next_line, client, who, seq, Arc::new(fd), plan.tuple());
        (line.plan, line.side) = (Some(plan), side);
        let id = line.id;
        self.lines.insert(id, line);
        self.tuples.insert(plan.tuple(), id);
        self.hold(id);
    }

    /// Whether this program may hand this socket over.
    fn admit(&self, client: u32, fd: &OwnedFd) -> Result<(), Why> {
        let program = self.clients.get(&client).ok_or_else(|| ("gone", String::new()))?;
        if program.lines >= program.limits(&self.config).0 {
            return Err(("too-many", "the program has as many connections here as it may".into()));
        }
        // Whatever else is asked of another kind of file may wait for whoever made it.
        if socket_type(fd).is_err() {
            return Err((Refusal::NotTcp.code(), Refusal::NotTcp.to_string()));
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
        let known = baton_kernel::known(fd, History::New).map_err(|e| ("failed", e.to_string()))?;
        let connections = self.lines.values().filter(|line| line.side == side).count() as u64;
        match self.config.policy.decide(&known, Room { connections, at_most: self.config.connections.into() }) {
            Decision::Move => Ok(()),
            stays => Err((stays.code(), stays.to_string())),
        }
    }

    fn plan(&mut self, client: u32, fd: &OwnedFd) -> Result<(Plan, usize), Why> {
        if self.churn.is_pausing(Instant::now()) {
            return Err((RULES_CHANGED, "the firewall's rules change often, and did so just now".into()));
        }
        let mut plan = self.kernel.plan(fd).map_err(|error| why(&error))?;
        let refused = |refusal: Refusal| (refusal.code(), refusal.to_string());
        let side = self.sides.iter().position(|side| side.owner.is_none() && side.index == plan.way.interface);
        let interface = side.ok_or_else(|| refused(Refusal::NotSteerable))?;
        if self.tuples.contains_key(&plan.tuple()) {
            return Err(refused(Refusal::AlreadyAway));
        }
        let side = self.side_for(client, interface);
        plan.engine = self.sides[side].number();
        // A program's engine hears what is asked of it once it has begun.
        let is_there = |engine: &Process| engine.started || plan.engine != 0;
        if !self.sides[side].engine.as_ref().is_some_and(is_there) {
            return Err(("no-engine", "the interface's engine does not run".into()));
        }
        Ok((plan, side))
    }

    /// Its program lets nobody use the descriptor: it may go.
    pub(super) fn on_ready(&mut self, id: u64, free: bool) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.state = State::Kernel;
        line.seq = 0;
        let (tuple, client) = (line.tuple, line.client);
        if !free {
            line.may_return_later();
            self.log_stays(id, &("in-use", "its program uses it just now".into()));
            return self.settled(id, false);
        }
        if self.stopping {
            return self.stays(id, ("stopping", "the service is about to end".into()));
        }
        // It is in the list of names itself.
        self.tuples.remove(&tuple);
        let fd = self.lines[&id].fd.clone();
        let planned = self.plan(client, &fd);
        self.tuples.insert(tuple, id);
        match planned {
            Ok((plan, side)) if plan.tuple() == tuple => {
                if let Some(line) = self.lines.get_mut(&id) {
                    (line.plan, line.side) = (Some(plan), side);
                }
                self.hold(id);
            }
            Ok(_) => self.stays(id, ("failed", "the socket has another connection".into())),
            Err(why) => {
                if let Some(line) = self.lines.get_mut(&id).filter(|_| why.0 == RULES_CHANGED) {
                    line.may_return_later();
                }
                self.stays(id, why);
            }
        }
    }

    fn hold(&mut self, id: u64) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        line.state = State::Holding;
        line.held = None;
        self.note(id);
        let Some(line) = self.lines.get(&id) else { return };
        let order = Order::Hold { id, tuple: line.tuple };
        self.sides[line.side].tell(&order, Vec::new());
    }

    /// Frames of it are kept: it is taken out of the kernel, as soon as that has nothing of it
    /// beyond a gap, and brought to its program.
    pub(super) fn take(&mut self, id: u64) {
        let Some(line) = self.lines.get_mut(&id).filter(|line| line.state == State::Holding) else { return };
        let (at, client) = (line.side, line.client);
        let settled = line.held.get_or_insert_with(Instant::now).elapsed() < self.config.drain;
        let region = match self.region(at, client) {
            Ok(region) => region,
            Err(error) => return self.stays(id, ("no-memory", error.to_string())),
        };
        let largest = self.clients.get(&client).map_or(0, |program| program.limits(&self.config).1);
        let begun = Instant::now();
        match self.out_of_kernel(id, Terms { largest, settled }) {
            Ok((captured, file)) => {
                self.lines.get_mut(&id).expect("it is there").stood_still = Some(begun);
                self.bring(id, region, captured, file);
            }
            // It goes on meanwhile.
            Err(aborted) if settled && is_unsettled(&aborted) => self.gaps.push(id),
            Err(aborted) if matches!(aborted.outcome, Outcome::InKernel) => self.stays(id, why(&aborted.cause)),
            Err(aborted) => match without_route(*aborted) {
                Ok(captured) => {
                    self.lines.get_mut(&id).expect("it is there").captured = Some(captured);
                    self.give_back_whole(id, no_route());
                }
                Err(text) => self.lost(id, &text),
            },
        }
    }

    /// The steps of the way out.
    pub(super) fn out_of_kernel(&mut self, id: u64, terms: Terms) -> Result<Out, Box<Aborted<KernelError>>> {
        let Broker { lines, kernel, vault, sides, .. } = self;
        let line = &lines[&id];
        let plan = line.plan.expect("it was planned");
        let mut file = None;
        let mut keep = |phase, captured: &Captured| {
            if phase == Phase::Captured {
                file = write_queues(&captured.send_queue, &captured.receive_queue)?.map(Arc::new);
                if let Some(file) = &file {
                    let (send, unread) = (captured.send_queue.len() as u32, captured.receive_queue.len() as u32);
                    vault.keep(record::queues(id), &Record::Queues { id, send, unread }, &[file]);
                }
            }
            let kept = line.record(&sides[line.side].name, phase, Some(captured));
            vault.keep(record::line(id), &kept, &[&line.fd]);
            Ok(())
        };
        let (fd, way) = (line.fd.as_fd(), Direction::Out);
        let (captured, rebuilt) = (None, None);
        let stands = false;
        let mut half = Half { kernel, fd, plan, terms, captured, stands, way, keep: &mut keep, rebuilt };
        Handoff::new().hand_off(&mut half)?;
        let captured = half.captured.take().expect("what was handed off was captured");
        Ok((captured, file))
    }

    /// Brings it to its program, with a file of its queues if they hold anything.
    pub(super) fn bring(&mut self, id: u64, region: u32, mut captured: Captured, file: Option<Arc<OwnedFd>>) {
        let line = self.lines.get_mut(&id).expect("it is there");
        if let Some(before) = &line.shell {
            // A kernel that had it for a moment has measured nothing, and an engine that knows no
            // round trip waits for a second before it probes.
            let seeds = &mut captured.protocol.seeds;
            *seeds = seeds.or_round_trip_of(&before.protocol.seeds);
        }
        line.state = State::Bringing;
        line.region = region;
        line.shell = Some(baton_bridge::shell(&captured));
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
        match file.map(|file| file.try_clone()).transpose() {
            Ok(file) => self.tell_client(client, &reply, file.into_iter().collect()),
            Err(error) => self.give_back_whole(id, ("failed", error.to_string())),
        }
    }

    /// Its program has taken in what it brings along.
    pub(super) fn on_brought(&mut self, id: u64, taken: bool) {
        if !taken {
            let queues = self.lines.get(&id).and_then(|line| line.captured.as_ref());
            let (send, unread) = queues.map_or((0, 0), |it| (it.send_queue.len(), it.receive_queue.len()));
            let text = format!("the program has no buffers for {send} bytes to be sent and {unread} to be read");
            return self.give_back_whole(id, ("no-buffers", text));
        }
        let Broker { lines, sides, .. } = self;
        let line = lines.get_mut(&id).expect("it is there");
        let (Some(captured), Some(plan)) = (&line.captured, line.plan) else { return };
        let memory = sides[line.side].memory(line.client);
        let Some(memory) = memory.filter(|memory| memory.region == line.region) else {
            return self.on_not_adopted(id, "the engine has died");
        };
        let options = baton_bridge::options(captured);
        let key = memory.region;
        let adopt = baton_bridge::adoption(captured, &options, plan.way.via, baton_engine::streamer::ConsumerId(0), id);
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
        self.note(id);
        self.tell_engine(id, &order);
    }

    pub(super) fn on_adopted(&mut self, id: u64, conn: u32) {
        let gone = |line: &Line| !self.clients.contains_key(&line.client);
        let gone = self.lines.get(&id).is_some_and(gone);
        let Some(line) = self.lines.get_mut(&id).filter(|line| line.state == State::Starting) else { return };
        line.conn = Some(conn);
        line.seq = 0;
        line.arrive(State::Engine, "handed-over");
        line.is_settled(&self.sides);
        self.log_moved(id);
        let Some(line) = self.lines.get_mut(&id) else { return };
        if line.closed {
            line.state = State::Closing;
            self.sides[line.side].tell(&Order::Watch { id }, Vec::new());
        }
        let recall = if gone { Some((Goal::Close, "program-gone")) } else { line.recall.take() };
        self.note(id);
        match recall {
            // Whoever waits for it waits for it there.
            Some((goal, why)) => self.leave(id, goal, why),
            None => self.settled(id, true),
        }
    }

    /// Keeps with the guardian what is known of it now.
    pub(super) fn note(&mut self, id: u64) {
        let Broker { lines, vault, sides, .. } = self;
        let Some(line) = lines.get(&id) else { return };
        let head = line.captured.as_ref().or(line.shell.as_ref());
        let kept = line.record(&sides[line.side].name, line.phase(), head);
        vault.keep(record::line(id), &kept, &[&line.fd]);
        if line.captured.is_none() {
            vault.forget(record::queues(id));
        }
    }

    /// Looks again at those that had something beyond a gap.
    pub(super) fn go_on_taking(&mut self) {
        for id in std::mem::take(&mut self.gaps) {
            if self.lines.get(&id).is_some_and(|line| line.held.is_some()) {
                self.take(id);
            }
        }
    }

    pub(super) fn tell_engine(&mut self, id: u64, order: &Order) {
        if let Some(line) = self.lines.get(&id) {
            self.sides[line.side].tell(order, Vec::new());
        }
    }

    /// The engine does not have it: the kernel gets it back, but for what its program has
    /// taken in already.
    pub(super) fn on_not_adopted(&mut self, id: u64, text: &str) {
        self.log_engine_refused(id, text);
        let Some(line) = self.lines.get_mut(&id) else { return };
        let Some(captured) = line.captured.take() else { return };
        self.come_home_as_captured(id, captured, "engine-refused");
    }

    /// It is in the kernel as it was.
    pub(super) fn stays(&mut self, id: u64, (code, text): Why) {
        self.log_stays(id, &(code, text.clone()));
        let Some(line) = self.lines.get_mut(&id) else { return };
        (line.stood_still, line.recall) = (None, None);
        let (seq, client, side, tuple) = (line.seq, line.client, line.side, line.tuple);
        line.state = State::Kernel;
        self.unhold(side, tuple);
        self.tell_client(client, &Reply::Stays { seq, id, code: code.into(), text }, Vec::new());
        self.settled(id, false);
        if seq != 0 {
            // Its program has the socket, and no stream.
            self.forget(id);
        } else {
            self.note(id);
        }
    }

    pub(super) fn unhold(&mut self, side: usize, tuple: Tuple) {
        self.sides[side].tell(&Order::Unhold { tuple }, Vec::new());
    }
}
