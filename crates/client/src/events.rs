//! The library's thread: handles the broker's messages, the engines' completions and the readiness
//! of sockets.

use super::adoption::{Adopting, NotAdopted};
use super::connection::Connection;
use super::descriptors::lifted;
use super::direct::Ticker;
use super::location::{Away, Coming, InEngine, InKernel, Location};
use super::observing::Observed;
use super::region::Region;
use super::shared::{Inner, Shared, until};
use crate::heard;
use baton_consumer::adoption::Adoption;
use baton_consumer::consumer::{Conn, SocketEvent};
use baton_consumer::memory::WatchReader;
use baton_consumer::stream::Stream;
use baton_ipc::channel::Parcel;
use baton_ipc::message::{Loss, Reply, Request};
use baton_ipc::queues::{read_two, write_queues};
use baton_journal::tuple_of;
use baton_policy::Reason;
use baton_port::wait::WaitSet;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Delay before a message that the broker had no space for is sent again.
const RETRY: Duration = Duration::from_millis(5);

pub(super) fn run(shared: &Arc<Shared>) {
    let mut watch = Ticker::default();
    loop {
        let Some(mut inner) = watch.lock(shared) else { continue };
        inner.awake();
        inner.hear_broker(shared);
        inner.tend_engines(shared, watch.orders);
        let lost = shared.poll_devices();
        inner.hear_driven(shared, lost);
        inner.reap_engines();
        inner.hear_sockets();
        let settings_pending = inner.tell_again();
        let corks = inner.push_old();
        inner.forget_abandoned();
        inner.wake_engines();
        if inner.ended && inner.connections.is_empty() && inner.adopting.is_empty() {
            inner.hang_up();
            // Closing the devices wakes threads that still wait on them.
            inner.engines.lose(|_| true);
            return;
        }
        if !inner.may_sleep() {
            continue;
        }
        let mut set = WaitSet::new();
        set.add(&shared.wake);
        set.add(&inner.ready);
        let mut timeout = inner.next_look().map(|at| until(shared.started, at));
        if let Some(next) = inner.tend_pairs() {
            timeout = Some(timeout.map_or(next, |before| before.min(next)));
        }
        if let Some(at) = corks.map(|at| at.saturating_duration_since(Instant::now())) {
            timeout = Some(timeout.map_or(at, |before| before.min(at)));
        }
        if let Some(channel) = &inner.channel {
            set.add(channel);
            if channel.is_waiting() || settings_pending {
                timeout = Some(timeout.map_or(RETRY, |at| at.min(RETRY)));
            }
        }
        inner.last_engines().for_each(|engine| set.add(&engine));
        let timeout = watch.prepare(&mut inner, shared, &mut set, timeout);
        let controls = inner.controls();
        let completions: Vec<_> = inner.live_regions().map(|region| region.completions.clone()).collect();
        drop(inner);
        // A call that met this thread at the engines has left its work to it.
        let timeout = if shared.engines.is_rung() { Some(Duration::ZERO) } else { timeout };
        completions.iter().for_each(|completions| set.add(completions.as_ref()));
        // A signal only ends the wait early, which does no harm.
        let ready = set.wait(timeout);
        let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
        for completions in completions.iter().filter(|completions| set.is_ready(completions.as_raw_fd())) {
            let _ = rustix::io::read(completions, &mut [0; 8]);
        }
        watch.finish(shared, &set, ready, &controls);
    }
}

impl Inner {
    pub(super) fn live_regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values().filter(|region| !region.dead)
    }

    /// Tells all engines that this process is going to sleep. Returns false if there is something
    /// to do.
    fn may_sleep(&self) -> bool {
        let may = self.live_regions().all(|region| region.consumer.region().prepare_sleep());
        if !may {
            self.awake();
        }
        may
    }

    fn awake(&self) {
        self.live_regions().for_each(|region| region.consumer.region().awake());
    }

    fn hear_broker(&mut self, shared: &Shared) {
        loop {
            let Some(channel) = &mut self.channel else { return };
            let _ = channel.flush();
            match channel.receive() {
                Ok(Some(parcel)) => self.on_parcel(shared, parcel),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // A broker that hung up with unread messages may have sent its reason before.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionReset) => {}
                Ok(None) | Err(_) => return self.on_service_gone(),
            }
        }
    }

    fn on_parcel(&mut self, shared: &Shared, parcel: Parcel) {
        let mut fds = parcel.fds.into_iter().map(lifted);
        // Both sides agreed on a version, so only a broken broker sends anything else.
        let Some(reply) = Reply::from_bytes(&parcel.bytes) else { return };
        heard::tell_of(&reply, |id| tuple_of(&self.connections.get(&id)?.fd));
        if let Reply::Stays { id, .. } | Reply::Stand { id, .. } | Reply::Home { id, .. } | Reply::Gone { id, .. } =
            reply
        {
            self.arrive_first(id);
        }
        match reply {
            // The program declines connections for memory that it cannot use (`on_bring`).
            Reply::Region { region, sizes } => {
                if let (Some(file), Some(doorbell), Some(completions)) = (fds.next(), fds.next(), fds.next())
                    && let Ok(made) = Region::map(file, doorbell, completions, sizes)
                {
                    self.regions.insert(region, Region { engine: fds.next(), ..made });
                }
            }
            Reply::Bring { incoming } => {
                let taken = self.take_in(&incoming, fds.next());
                let _ = self.say(&Request::Brought { id: incoming.id, taken }, Vec::new());
            }
            Reply::BringToEngine { incoming, order } => self.on_bring_to_engine(&incoming, fds.next(), &order),
            Reply::Stays { seq, id, code, text } => self.on_stays(seq, id, code, text),
            Reply::Prepare { id } => self.on_prepare(id),
            Reply::Stand { id, rcv_pos, tail_pos } => self.on_stand(id, rcv_pos, tail_pos),
            Reply::Home { id, rcv_pos, tail_pos, whole } => self.on_home(id, rcv_pos, tail_pos, whole),
            Reply::Gone { seq, id, loss } => self.on_gone(seq, id, loss),
            Reply::Dead { region } => {
                self.lose_engine_of(shared, region);
                self.on_dead(region);
                self.observing.end(region);
            }
            Reply::Watch { region } => self.stamp_calls(region, fds.next()),
            Reply::Observed { region, program, name, engine, calls, fresh } => {
                let memory = fds.next().and_then(|file| WatchReader::open(&file).ok());
                let observed = |memory| Observed { region, program, name, engine, calls, fresh, memory };
                self.observing.begin(memory.map(observed));
            }
            Reply::Followed { pair } => self.following.begin(pair, [fds.next(), fds.next()]),
            Reply::Unfollowed { number, written, home } => self.following.end(number, written, home),
            Reply::Engine {} => self.on_engine(shared, fds.next(), 0),
            Reply::LocalEngine { engine } => self.on_engine(shared, fds.next(), engine),
            Reply::Refused { text } => self.refused = Some(text),
            Reply::Policy { len } => self.policy = read_two(fds.next(), len, 0).ok().map(|(text, _)| text),
            Reply::Ruled { id, rule } => drop(rule.parse().map(|rule| self.ruled.insert(id, rule))),
            Reply::Link { link, first } => {
                let fds = [fds.next(), fds.next(), fds.next(), fds.next()];
                self.on_link(shared, (link, first), fds);
            }
            Reply::Unlink { link, first } => self.pairs.forget((link, first)),
            Reply::Waits { seq, id } => self.on_waits(seq, id),
            Reply::Pair { incoming, first, slot, number } => {
                self.on_pair(incoming, first, (slot, number));
            }
            Reply::GivenBack { id, code } => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.why_back = Reason::from_code(&code);
                }
            }
            Reply::Info { id, bytes } => self.on_info(id, bytes),
            answer @ (Reply::Welcome { .. }
            | Reply::Entry { .. }
            | Reply::Load { .. }
            | Reply::Event { .. }
            | Reply::Expected { .. }
            | Reply::Done { .. }
            | Reply::Failed { .. }
            | Reply::Restarted {}) => {
                if answer == (Reply::Restarted {}) {
                    self.observing.end_all();
                    self.report();
                }
                self.answers.push_back(answer);
                self.askers.wake();
            }
        }
    }

    /// Lists the connections and pending adoptions here for a new broker, which knows only what its
    /// predecessor recorded.
    fn report(&mut self) {
        let connections = self.connections.keys().map(|id| Request::Has { id: *id });
        let waits = |adopting: &&Adopting| adopting.fd.is_some() && adopting.outcome.is_none();
        let pending = self.adopting.iter().filter(|(_, adopting)| waits(adopting));
        let pending = pending.map(|(seq, _)| Request::Pending { seq: *seq });
        let all = connections.chain(pending);
        let all: Vec<Request> = all.chain(self.observing.question()).chain(self.following.question()).collect();
        for request in all {
            let _ = self.say(&request, Vec::new());
        }
    }

    /// Processes the engine's completions first if the connection is still arriving. The engine may
    /// have announced the adoption in shared memory before the broker sent the present message. If
    /// the adoption were forgotten now, that announcement would be taken for the next adoption and
    /// release its connection.
    fn arrive_first(&mut self, id: u64) {
        if let Some(region) = self.connections.get(&id).and_then(Connection::coming_to) {
            self.hear_engine(region, baton_tcp::time::Instant(0));
        }
    }

    fn on_stays(&mut self, seq: u64, id: u64, code: String, text: String) {
        self.ruled.remove(&id);
        if let Some(region) = self.connections.get(&id).and_then(Connection::coming_to)
            && let Some(region) = self.regions.get_mut(&region)
        {
            region.consumer.forget_adoption(Adoption(id));
        }
        let refused = |fd| NotAdopted { fd: Some(fd), code: code.clone(), text: text.clone() };
        let held = self.adopting.get_mut(&seq).and_then(|adopting| adopting.held.take());
        self.let_frames_go(held, None);
        if let Some(adopting) = self.adopting.get_mut(&seq) {
            let brought = self.connections.get(&id).is_some_and(|connection| connection.seq == seq);
            let connection = if brought { self.connections.remove(&id) } else { None };
            let fd = adopting.fd.take().or_else(|| connection.map(|connection| connection.into_fd(self.ready.as_fd())));
            if let Some(fd) = fd {
                adopting.settle(Err(refused(fd)));
            }
            return;
        }
        // The program has closed it since.
        let Some(connection) = self.connections.get_mut(&id) else { return };
        // A connection in an engine stays there: the kernel refused to take it back.
        if matches!(connection.location(), Location::Away(_) | Location::Coming(_)) {
            connection.enter_kernel();
        }
        connection.stand(false);
        connection.refusal = connection.restoring.then_some(text);
        self.settle(id);
    }

    /// The broker wants to hand the connection over. Bytes that are queued here travel with it.
    fn on_prepare(&mut self, id: u64) {
        let may = |connection: &&Connection| {
            let is_plain = matches!(connection.location(), Location::Kernel(InKernel { skip: 0 }));
            is_plain && !connection.closed && !connection.restoring
        };
        let connection = self.connections.get(&id).filter(may);
        let free = connection.is_some_and(|connection| self.no_buffers_for(connection.fd.as_fd()).is_none());
        if let Some(connection) = self.connections.get_mut(&id).filter(|_| free) {
            connection.leave_kernel();
        }
        let _ = self.say(&Request::Ready { id, free }, Vec::new());
    }

    fn on_stand(&mut self, id: u64, rcv_pos: u64, tail_pos: u64) {
        let Inner { connections, regions, .. } = self;
        // The program has closed it since, which it has told the broker.
        let Some(connection) = connections.get_mut(&id) else { return };
        // It has left the engine since, or has ended, and another message says so.
        let Some((region, conn)) = connection.in_engine() else { return };
        let left = regions.get_mut(&region).and_then(|region| region.consumer.standing_at(conn, tail_pos, rcv_pos));
        let left = left.unwrap_or_default();
        connection.shut |= left.shut;
        // A copy stays here until the bytes are in the kernel.
        let unread: Vec<u8> = connection.unread.iter().copied().chain(left.unread).collect();
        let unsent: Vec<u8> = left.unsent.into_iter().chain(connection.unsent.iter().copied()).collect();
        match write_queues(&unread, &unsent) {
            Ok(file) => {
                connection.stand(true);
                let (unread, unsent) = (unread.len() as u32, unsent.len() as u32);
                let _ = self.say(&Request::LeftBehind { id, unread, unsent }, file.into_iter().collect());
            }
            // Without the file there is no way to restore the connection.
            Err(error) => connection.refusal = Some(error.to_string()),
        }
    }

    fn on_home(&mut self, id: u64, rcv_pos: u64, tail_pos: u64, whole: bool) {
        let Inner { connections, regions, pairs, ready, .. } = self;
        // The program has closed it since.
        let Some(connection) = connections.get_mut(&id) else { return };
        match connection.enter_kernel() {
            Some(Location::Engine(InEngine { region, conn, .. })) => {
                if let Some(region) = regions.get_mut(&region) {
                    let left = region.consumer.standing_at(conn, tail_pos, rcv_pos).filter(|_| !whole);
                    // An engine in this process may have received more while the broker was
                    // capturing.
                    let received = region.consumer.stream(conn).map_or(0, Stream::received_total);
                    connection.skip_next(if whole { 0 } else { received.saturating_sub(rcv_pos) });
                    left.into_iter().for_each(|left| connection.take_left(left));
                    region.leave(conn);
                }
            }
            Some(Location::Coming(Coming { region, unread })) => {
                connection.unread.extend(unread);
                if let Some(region) = regions.get_mut(&region) {
                    region.consumer.forget_adoption(Adoption(id));
                }
            }
            // If the kernel has the whole connection, it has these bytes too.
            Some(Location::Away(Away { remains, declined })) => {
                let remains = remains.filter(|_| !whole);
                remains.into_iter().for_each(|remains| connection.take_left(remains.beyond(tail_pos)));
                match declined.filter(|_| !whole && rcv_pos > 0) {
                    Some(Ok(unread)) => connection.unread.extend(unread),
                    // Nobody has these bytes any more.
                    Some(Err(error)) => drop(connection.end(Some(io::Error::new(ErrorKind::ConnectionAborted, error)))),
                    None => {}
                }
            }
            Some(Location::Pair(pair)) => {
                let end = pairs.leave(*pair).filter(|_| !whole);
                end.into_iter().for_each(|end| connection.take_from_pair(&end, (rcv_pos, tail_pos)));
                // All of them are there. A program may end without another call.
                let _ = connection.skip_known(id, ready.as_fd());
            }
            // Nothing of it is elsewhere: the kernel had it already, or it has ended.
            Some(Location::Kernel(_) | Location::Ended(_)) | None => {}
        }
        if whole {
            (connection.unread, connection.unsent) = Default::default();
            connection.given_back.store(!connection.restoring, Ordering::Release);
        }
        self.settle(id);
        self.forget_dead_regions();
    }

    fn on_gone(&mut self, seq: u64, id: u64, Loss(loss): Loss) {
        self.ruled.remove(&id);
        let held = self.adopting.get_mut(&seq).and_then(|adopting| adopting.held.take());
        self.let_frames_go(held, None);
        let Inner { connections, regions, adopting, pairs, .. } = self;
        // It was lost before it arrived, so nobody owns what is left of the socket.
        if let Some(adopting) = adopting.get_mut(&seq).filter(|_| !connections.contains_key(&id)) {
            adopting.fd = None;
            let text = loss.as_deref().unwrap_or("it ended on the way");
            adopting.settle(Err(NotAdopted::because(Reason::Lost, None, text)));
        }
        // The program has closed it since.
        let Some(connection) = connections.get_mut(&id) else { return };
        let lost = || loss.map(|text| io::Error::new(ErrorKind::ConnectionAborted, text));
        let error_of = |(region, conn)| regions.get(&region)?.consumer.error(conn);
        let error = connection.in_engine().and_then(error_of).or_else(|| connection.reset_in_pair());
        match connection.end(error.or_else(lost)) {
            Location::Engine(InEngine { region, conn, .. }) => {
                if let Some(region) = regions.get_mut(&region) {
                    let left = region.consumer.standing_at(conn, u64::MAX, 0).unwrap_or_default();
                    connection.unread.extend(left.unread);
                    region.leave(conn);
                }
            }
            Location::Coming(Coming { region, unread }) => {
                connection.unread.extend(unread);
                // If the engine adopts it later, the consumer aborts it.
                if let Some(region) = regions.get_mut(&region) {
                    region.consumer.forget_adoption(Adoption(id));
                }
            }
            Location::Pair(pair) => {
                if let Some(mut end) = pairs.leave(*pair) {
                    connection.unread.extend(end.unread().unwrap_or_default());
                }
            }
            // No region has any of its bytes.
            Location::Kernel(_) | Location::Away(_) | Location::Ended(_) => {}
        }
        self.settle(id);
        self.forget_dead_regions();
    }

    pub(super) fn on_dead(&mut self, number: u32) {
        self.hear_engine(number, baton_tcp::time::Instant(0));
        if let Some(region) = self.regions.get_mut(&number) {
            region.dead = true;
            region.leaving.clear();
        }
        self.forget_dead_regions();
    }

    /// Drops dead regions that no connection uses any more.
    pub(super) fn forget_dead_regions(&mut self) {
        let Inner { connections, regions, .. } = self;
        let uses = |connection: &Connection, number: u32| match connection.location() {
            Location::Engine(InEngine { region, .. }) | Location::Coming(Coming { region, .. }) => *region == number,
            Location::Kernel(_) | Location::Away(_) | Location::Pair(_) | Location::Ended(_) => false,
        };
        regions
            .retain(|number, region| !region.dead || connections.values().any(|connection| uses(connection, *number)));
    }

    /// A connection has reached a location: wakes those who wait for it, and carries out pending
    /// work.
    pub(super) fn settle(&mut self, id: u64) {
        let Inner { connections, adopting, ready, .. } = self;
        // The program has closed it since.
        let Some(connection) = connections.get_mut(&id) else { return };
        if let Some(adopting) = adopting.get_mut(&connection.seq) {
            adopting.settle(Ok(id));
        }
        connection.forget_inquiry();
        connection.watchers.news += 1;
        if connection.is_in_kernel() {
            connection.tell_socket();
            // Bytes that do not fit are written when the socket is ready.
            let _ = connection.flush(id, ready.as_fd());
        }
        connection.wake();
        if connection.closed {
            self.close(id);
        }
    }

    /// Takes in what the engines completed.
    pub(super) fn take_completions(&mut self, shared: &Shared) {
        self.hear_pairs(shared);
        let time = baton_tcp::time::Instant(self.clock.saturating_sub(shared.started));
        let mut next = 0;
        while let Some((&number, region)) = self.regions.range(next..).next() {
            if !region.dead {
                self.hear_engine(number, time);
            }
            next = number + 1;
        }
    }

    fn hear_engine(&mut self, number: u32, time: baton_tcp::time::Instant) {
        let Some(region) = self.regions.get_mut(&number) else { return };
        region.consumer.poll(time);
        while let Some(event) = self.regions.get_mut(&number).and_then(|region| region.consumer.next_event()) {
            match event {
                SocketEvent::Adopted { adoption, conn } => self.on_adopted(number, adoption.0, conn),
                SocketEvent::Ready { conn } => self.on_ready(number, conn),
                SocketEvent::Parted { conn, remains } => self.on_parted(number, conn, remains),
                // This library asks for no other events.
                _ => {}
            }
        }
    }

    fn on_adopted(&mut self, number: u32, id: u64, conn: Conn) {
        let Inner { connections, regions, .. } = self;
        // The consumer reports only adoptions that it still expects, and forgets those of connections
        // that have gone.
        let (Some(connection), Some(region)) = (connections.get_mut(&id), regions.get_mut(&number)) else { return };
        connection.enter_engine(number, conn);
        connection.begin_cork();
        // Bytes that do not fit are written when there is space.
        let _ = connection.flush_to(&mut region.consumer, conn);
        connection.tell_engine(&mut region.consumer, conn);
        self.settings_pending |= connection.settings_pending;
        let restoring = connection.restoring;
        // The queue pair's previous connection was closed and has ended.
        if let Some(before) = region.names.insert(conn, id).and_then(|before| connections.get_mut(&before)) {
            before.end(None);
        }
        if restoring {
            let _ = self.say(&Request::Restore { id }, Vec::new());
        }
        heard::tell_of_arrival(id, || tuple_of(&self.connections.get(&id)?.fd));
        self.settle(id);
    }

    fn on_ready(&mut self, number: u32, conn: Conn) {
        let Inner { connections, regions, .. } = self;
        let Some(region) = regions.get_mut(&number) else { return };
        if region.leaving.contains(&conn) && region.consumer.leave(conn).is_some() {
            region.leaving.remove(&conn);
        } else if let Some(connection) = region.names.get(&conn).and_then(|id| connections.get_mut(id)) {
            if !connection.unsent.is_empty() {
                let _ = connection.flush_to(&mut region.consumer, conn);
            }
            connection.wake();
        }
    }
}
