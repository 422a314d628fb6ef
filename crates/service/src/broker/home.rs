//! From the engine to the kernel.

use super::Broker;
use super::left::NotBack;
use super::lines::{Goal, Line, State};
use super::recover::recover;
use super::take::{Direction, Half, Terms, Why};
use baton_consumer::adoption::LeftBehind;
use baton_ipc::message::Reply;
use baton_ipc::order::Order;
use baton_ipc::record;
use baton_kernel::Captured;
use baton_kernel::handoff::{Aborted, Handoff, Outcome, Steps};
use baton_kernel::steer::Mode;
use baton_policy::Refusal;
use baton_tcp::snapshot::Seeds;
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use rustix::net::sockopt::{set_socket_linger, socket_linger};
use std::os::fd::AsFd;
use std::time::Duration;

impl Broker {
    fn engine_time(&self) -> Instant {
        Instant(baton_ipc::engine::monotonic().saturating_sub(self.base))
    }

    /// A connection that is in the engine is to leave it.
    pub(super) fn leave(&mut self, id: u64, goal: Goal, why: &'static str) {
        let drain = if goal == Goal::Close { Duration::ZERO } else { self.config.drain };
        self.leave_within(id, goal, why, drain);
    }

    /// It would be refused now.
    pub(super) fn on_refused(&mut self, tuple: Tuple, refusal: Refusal) {
        let Some(&id) = self.tuples.get(&tuple) else { return };
        let why = if refusal == Refusal::NotSteerable { "homeless" } else { refusal.code() };
        // Nothing is acknowledged to one whose frames are dropped.
        let drain = if refusal.forbids_frames() { Duration::ZERO } else { self.config.drain };
        self.leave_within(id, Goal::Home, why, drain);
    }

    fn leave_within(&mut self, id: u64, goal: Goal, why: &'static str, drain: Duration) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        match line.state {
            State::Engine => {}
            // Its program has let go of it.
            State::Closing => line.closed = true,
            State::Holding | State::Bringing | State::Starting => return line.recall = Some((goal, why)),
            State::Kernel | State::Preparing | State::Leaving(_) | State::Standing => return,
            // Nobody waits for it.
            State::Left { .. } => return self.settled(id, false),
        }
        line.state = State::Leaving(goal);
        line.why = why;
        let order = Order::Suspend { id, drain_ms: drain.as_millis() as u32 };
        self.sides[line.side].tell(&order, Vec::new());
    }

    /// Where all of it is to be the kernel's. What a program holds in buffers of its own it goes on
    /// with.
    fn whole(&self, id: u64) -> Goal {
        let client = self.lines.get(&id).and_then(|line| self.clients.get(&line.client));
        if client.is_some_and(|program| program.raw.is_some()) { Goal::Home } else { Goal::Whole }
    }

    /// Its peer sends urgent data, of which the engine takes nothing. All that its program has not
    /// read goes home too: the kernel counts from there to the mark.
    pub(super) fn on_urgent(&mut self, id: u64) {
        self.leave(id, self.whole(id), "urgent-data");
    }

    /// Its program wants all of it in the kernel.
    pub(super) fn restore_whole(&mut self, id: u64) {
        let goal = self.whole(id);
        let Some(line) = self.lines.get_mut(&id) else { return };
        match line.state {
            // Its program may know sooner than we that the engine has it.
            State::Engine | State::Starting => self.leave(id, goal, "asked-for"),
            State::Leaving(Goal::Home) if goal == Goal::Whole => {
                (line.state, line.why) = (State::Leaving(goal), "asked-for");
            }
            // It is there, or its program is about to hear of it.
            _ => {}
        }
    }

    /// The engine's last word of the round trip, in microseconds: smoothed, its deviation, the
    /// smallest. A kernel takes none of it; the next engine does.
    pub(super) fn on_measured(&mut self, id: u64, measured_us: [u32; 3]) {
        let Some(shell) = self.lines.get_mut(&id).and_then(|line| line.shell.as_mut()) else { return };
        let seeds = &mut shell.protocol.seeds;
        let [srtt, rttvar, min_rtt] = measured_us.map(|us| baton_tcp::time::Duration::from_micros(us.into()));
        *seeds = Seeds { srtt, rttvar, min_rtt, ..*seeds }.or_round_trip_of(seeds);
    }

    /// It stands still.
    pub(super) fn on_suspended(&mut self, id: u64) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let State::Leaving(goal) = line.state else { return };
        line.stop();
        let Some(found) = self.find(id) else {
            let Some(line) = self.lines.get_mut(&id) else { return };
            let why = line.why;
            // Its program never took in what it brought along: it is as it was captured.
            return match line.captured.take() {
                Some(captured) => self.come_home_as_captured(id, captured, why),
                None => self.lost(id, "the engine's ledger does not have it"),
            };
        };
        let (rcv_pos, tail_pos) = found.positions();
        let line = self.lines.get_mut(&id).expect("it is there");
        if goal == Goal::Whole {
            line.recovered = Some(found);
            line.state = State::Standing;
            let client = line.client;
            return self.tell_client(client, &Reply::Stand { id, rcv_pos, tail_pos }, Vec::new());
        }
        self.come_home(id, found);
    }

    /// What the ledger says of it.
    fn find(&self, id: u64) -> Option<super::recover::Found> {
        let line = self.lines.get(&id)?;
        let side = self.sides.get(line.side)?;
        recover(&side.ledger, line.conn?, &line.tuple, self.engine_time(), &side.memory(line.client)?.memory)
    }

    /// Home, with what its program holds left to its program.
    pub(super) fn come_home(&mut self, id: u64, found: super::recover::Found) {
        let Some(line) = self.lines.get(&id) else { return };
        let why = line.why;
        let Some(shell) = &line.shell else { return self.lost(id, "nothing is known of its socket") };
        let (positions, unread) = (found.positions(), found.unread);
        let captured = found.into_captured(shell, LeftBehind::default());
        self.rebuild(id, captured, Some(positions), unread > 0, why);
    }

    /// Home as it was captured, but for what its program has taken in.
    pub(super) fn come_home_as_captured(&mut self, id: u64, mut captured: Captured, why: &'static str) {
        let unread = captured.receive_queue.len();
        let positions = (unread as u64, captured.send_queue.len() as u64);
        captured.receive_queue.clear();
        captured.protocol.copied_seq += unread as u32;
        self.rebuild(id, captured, Some(positions), unread > 0, why);
    }

    /// Its program has said what it holds: all of it goes home.
    pub(super) fn on_left_behind(&mut self, id: u64, left: LeftBehind) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let (Some(found), Some(shell)) = (line.recovered.take(), &line.shell) else { return };
        let unread = found.unread > 0;
        let captured = found.into_captured(shell, left);
        let why = line.why;
        self.rebuild(id, captured, None, unread, why);
    }

    /// Back, all of it: the engine never had it, nor its program.
    pub(super) fn give_back_whole(&mut self, id: u64, (code, text): Why) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let Some(captured) = line.captured.take() else { return };
        let (client, unread) = (line.client, !captured.receive_queue.is_empty());
        match self.back_in_kernel(id, captured, false, Direction::Out) {
            Ok(()) => {}
            Err(NotBack::NoRoute(captured)) => return self.leave_behind(id, *captured, None, unread),
            Err(_) => return self.lost(id, &text),
        }
        let Some(line) = self.lines.get_mut(&id) else { return };
        let seq = std::mem::take(&mut line.seq);
        line.arrive(State::Kernel, code);
        self.log_stays(id, &(code, text.clone()));
        let Some(line) = self.lines.get_mut(&id) else { return };
        let (side, tuple) = (line.side, line.tuple);
        self.unhold(side, tuple);
        let reply = Reply::Stays { seq, id, code: code.into(), text };
        self.tell_client(client, &reply, Vec::new());
        self.settled(id, false);
        if !self.clients.contains_key(&client) {
            self.close_in_kernel(id, unread);
        } else if seq != 0 {
            self.forget(id);
        } else {
            self.note(id);
        }
    }

    /// Rebuilds it and tells everybody. `positions`: what its program holds is told by them;
    /// else the kernel has all of it.
    pub(super) fn rebuild(
        &mut self,
        id: u64,
        captured: Captured,
        positions: Option<(u64, u64)>,
        unread: bool,
        why: &'static str,
    ) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        // A connection that the engine never had does not stand there.
        let stands = matches!(line.state, State::Leaving(_) | State::Standing | State::Closing)
            && self.sides[line.side].memory(line.client).is_some_and(|memory| memory.region == line.region);
        let closing = line.state == State::Closing || line.closed;
        let (side, client, conn) = (line.side, line.client, line.conn.filter(|_| stands));
        let (rcv_pos, tail_pos) = positions.unwrap_or_default();
        let told = (rcv_pos, tail_pos, positions.is_none());
        match self.back_in_kernel(id, captured, stands, Direction::Home(told)) {
            Ok(()) => {}
            Err(NotBack::GoesOn) => {
                self.sides[side].tell(&Order::Resume { id }, Vec::new());
                let why = ("failed", "the kernel does not take it back now".to_owned());
                return self.goes_on(id, "kernel-refused", closing, why);
            }
            Err(NotBack::NoRoute(captured)) => {
                self.leave_behind(id, *captured, Some(told), unread);
                // An engine that lives lets go of it once the kernel has it.
                if let Some(line) = self.lines.get_mut(&id) {
                    line.conn = line.conn.or(conn);
                }
                return;
            }
            Err(NotBack::Lost(text)) => return self.lost(id, &text),
        }
        let line = self.lines.get_mut(&id).expect("it is there");
        line.arrive(State::Kernel, why);
        (line.conn, line.captured, line.seq, line.recall) = (None, None, 0, None);
        line.home = Some(told);
        let tuple = line.tuple;
        self.log_home(id);
        let home = Reply::Home { id, rcv_pos, tail_pos, whole: positions.is_none() };
        self.tell_client(client, &home, Vec::new());
        self.sides[side].tell(&Order::LetGo { id }, Vec::new());
        self.unhold(side, tuple);
        self.note(id);
        self.settled(id, true);
        if closing || !self.clients.contains_key(&client) {
            self.close_in_kernel(id, unread);
        }
    }

    /// The steps of the way home.
    pub(super) fn back_in_kernel(
        &mut self,
        id: u64,
        captured: Captured,
        stands: bool,
        way: Direction,
    ) -> Result<(), NotBack> {
        let Broker { lines, kernel, vault, sides, .. } = self;
        let Some(line) = lines.get(&id) else { return Ok(()) };
        let Some(plan) = line.plan else { return Ok(()) };
        let mut keep = |phase, captured: &Captured| {
            let kept = line.record(&sides[line.side].name, phase, Some(captured));
            vault.keep(record::line(id), &kept, &[&line.fd]);
            Ok(())
        };
        let (captured, rebuilt) = (Some(captured), None);
        let fd = line.fd.as_fd();
        let mut half = Half { kernel, fd, plan, terms: Terms::NONE, captured, stands, way, keep: &mut keep, rebuilt };
        match Handoff::in_engine().restore(&mut half) {
            Ok(()) => Ok(()),
            Err(Aborted { outcome: Outcome::InEngine, cause, .. }) => {
                let captured = half.captured.take();
                // By xdp nothing but standing still keeps an engine from sending.
                let is_xdp = matches!(kernel.mode(plan.way.interface), Some(Mode::Xdp { .. }));
                match captured.filter(|_| is_xdp && cause.is_no_route()) {
                    Some(captured) => Err(NotBack::NoRoute(Box::new(captured))),
                    None => Err(NotBack::GoesOn),
                }
            }
            // There is no way back; forward, then, once more.
            Err(Aborted { outcome: Outcome::Lost { captured: Some(captured), .. }, cause, .. }) => {
                match half.rebuild(&captured) {
                    Ok(()) if half.unsteer().is_ok() && half.resume(&captured).is_ok() => Ok(()),
                    Err(error) if error.is_no_route() => Err(NotBack::NoRoute(captured)),
                    _ => Err(NotBack::Lost(cause.to_string())),
                }
            }
            Err(aborted) => Err(NotBack::Lost(aborted.to_string())),
        }
    }

    /// As the kernel closes a socket whose program has gone: what was not read makes it a
    /// reset; what was not sent is sent still.
    fn close_in_kernel(&mut self, id: u64, unread: bool) {
        if let Some(line) = self.lines.get(&id) {
            if unread {
                let _ = set_socket_linger(&line.fd, Some(Duration::ZERO));
            } else if socket_linger(&line.fd).is_ok_and(|span| span.is_some_and(|span| !span.is_zero())) {
                // The program's end did not linger either.
                let _ = set_socket_linger(&line.fd, None);
            }
        }
        self.forget(id);
    }

    /// It cannot leave: both sides have closed. The engine ends it.
    pub(super) fn on_stays(&mut self, id: u64) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let State::Leaving(goal) = line.state else { return };
        let ends = goal == Goal::Close || line.closed;
        self.goes_on(id, "closing", ends, ("closing", "the connection is closing on both sides".to_owned()));
    }

    /// It goes on in the engine, which, if its program has let go of it, `ends` it.
    fn goes_on(&mut self, id: u64, why: &'static str, ends: bool, (code, text): Why) {
        self.log_goes_on(id, why, &text);
        let Some(line) = self.lines.get_mut(&id) else { return };
        let (side, client) = (line.side, line.client);
        line.why = why;
        line.state = if ends { State::Closing } else { State::Engine };
        if ends {
            self.sides[side].tell(&Order::Watch { id }, Vec::new());
        }
        self.tell_client(client, &Reply::Stays { seq: 0, id, code: code.into(), text }, Vec::new());
        self.settled(id, false);
    }

    /// Those whose programs have gone, and that the kernel would not close then.
    pub(super) fn close_orphans(&mut self) {
        let orphan = |line: &&Line| line.state == State::Engine && !self.clients.contains_key(&line.client);
        let orphans: Vec<u64> = self.lines.values().filter(orphan).map(|line| line.id).collect();
        orphans.into_iter().for_each(|id| self.leave(id, Goal::Close, "program-gone"));
    }

    /// Its program wants to know what its engine knows. Where no engine has it, the program is
    /// about to hear where it is; that one has it the program may have heard before we do.
    pub(super) fn ask_info(&mut self, id: u64) {
        let Some(line) = self.lines.get(&id) else { return };
        if matches!(line.state, State::Starting | State::Engine | State::Leaving(_) | State::Closing) {
            self.sides[line.side].tell(&Order::Info { id }, Vec::new());
        }
    }

    /// The engine has it no longer.
    pub(super) fn on_ended(&mut self, id: u64) {
        let Some(line) = self.lines.get(&id) else { return };
        if matches!(line.state, State::Leaving(_) | State::Closing) {
            self.lost(id, "");
        }
    }

    /// It waited in TIME-WAIT, and a new one of its name is to be the kernel's from its SYN on.
    pub(super) fn on_reopened(&mut self, id: u64, syn: &[u8]) {
        let is_there = |line: &&Line| matches!(line.state, State::Engine | State::Leaving(_) | State::Closing);
        let Some(Line { tuple, side, fd, .. }) = self.lines.get(&id).filter(is_there) else { return };
        let (tuple, interface, fd) = (*tuple, self.sides[*side].index, fd.clone());
        // Its program, it may be, has not let go of the husk yet.
        let vacated = baton_kernel::vacate(&fd);
        self.lost(id, "");
        if vacated.is_ok() {
            // Without, it comes again.
            let arrived = self.kernel.arrive(interface, &tuple, syn);
            self.log_failed("giving the kernel the SYN of a new connection", arrived);
        }
    }

    /// Its program let go of it.
    pub(super) fn on_close(&mut self, id: u64) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        match line.state {
            // Closed where it arrives.
            State::Leaving(_) | State::Left { .. } => {
                line.closed = true;
                self.note(id);
            }
            State::Engine => {
                line.state = State::Closing;
                self.note(id);
                self.tell_engine(id, &Order::Watch { id });
            }
            State::Kernel | State::Preparing | State::Holding => self.forget(id),
            // Its program knows sooner than we that the engine has it.
            State::Starting => line.closed = true,
            // Its program says it once more where it arrives.
            State::Bringing | State::Standing | State::Closing => {}
        }
    }

    /// It is no more: ended by itself, or, with a reason, lost.
    pub(super) fn lost(&mut self, id: u64, text: &str) {
        self.log_over(id, text);
        if let Some(line) = self.lines.get(&id) {
            let (client, seq, side, tuple) = (line.client, line.seq, line.side, line.tuple);
            if line.conn.is_some() {
                self.sides[side].tell(&Order::LetGo { id }, Vec::new());
            }
            self.tell_client(client, &Reply::Gone { seq, id, text: text.to_owned() }, Vec::new());
            self.unhold(side, tuple);
        }
        self.settled(id, text.is_empty());
        self.forget(id);
    }

    /// Nothing is known of it any more; closing a husk sends nothing.
    pub(super) fn forget(&mut self, id: u64) {
        let Some(line) = self.lines.remove(&id) else { return };
        self.vault.forget(record::line(id));
        self.vault.forget(record::queues(id));
        self.tuples.remove(&line.tuple);
        if let Some(plan) = line.plan.filter(|_| line.is_away()) {
            // The interface, it may be, has gone, and its map with it.
            let _ = match line.ending(&self.sides) {
                Some(ending) => self.kernel.unsteer_ended(&plan, ending),
                None => self.kernel.unsteer(&plan),
            };
        }
        if let Some(program) = self.clients.get_mut(&line.client) {
            program.lines = program.lines.saturating_sub(1);
        }
        let client = line.client;
        self.closers.add(line.program.1, line.fd);
        self.settled(id, true);
        self.forget_memory(client);
    }
}
