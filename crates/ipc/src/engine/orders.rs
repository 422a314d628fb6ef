//! Carries out the broker's orders.

use super::{Attached, Connection, Runner};
use crate::order::{Order, Report};
use baton_consumer::memory::SharedMemory;
use baton_engine::event::ConnId;
use baton_engine::options::{self, IpFields};
use baton_engine::region::EngineRegion;
use baton_engine::streamer::{Adopt, AdoptError, MAX_OPTIONS, SuspendError};
use baton_engine::tce::{add_carried, tcp_info_bytes, tcp_info_of_closed};
use baton_journal::{Kind, Level, tell};
use baton_tcp::options::SocketOption;
use baton_tcp::snapshot::{Snapshot, Words};
use baton_tcp::time::Instant;
use baton_wire::addr::Tuple;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;

impl Runner {
    /// Receives and carries out the broker's orders.
    pub fn hear(&mut self) {
        for order in std::mem::take(&mut self.again) {
            self.carry_out(order, Vec::new());
        }
        while !self.orphan {
            match self.control.receive() {
                Ok(Some(parcel)) => {
                    if let Some(order) = Order::from_bytes(&parcel.bytes) {
                        tell(Level::Trace, Kind::MESSAGE, |event| event.text(format!("heard {order:?}")));
                        self.carry_out(order, parcel.fds);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => {
                    self.orphan = true;
                    self.observe_nothing();
                }
            }
        }
    }

    /// Keeps the frames of a connection that the broker is about to be asked for.
    pub fn hold(&mut self, tuple: Tuple) {
        self.engine.streamer().hold(tuple);
    }

    /// Stops keeping the frames of a connection that does not come to this engine.
    pub fn unhold(&mut self, tuple: &Tuple) {
        self.engine.streamer().unhold(tuple);
    }

    /// Adopts a connection that came with its order ([`Reply::BringToEngine`]). The broker's orders
    /// before it have to be heard first.
    ///
    /// [`Reply::BringToEngine`]: crate::message::Reply::BringToEngine
    pub fn adopt_brought(&mut self, order: &[u8]) {
        if let Some(order @ Order::Adopt { .. }) = Order::from_bytes(order) {
            self.carry_out(order, Vec::new());
        }
    }

    /// Tells the broker that a connection is not adopted for lack of its consumer's memory. A broker
    /// that expects nothing of this engine about it ignores that.
    pub fn refuse(&mut self, id: u64) {
        self.say(Report::NotAdopted { id, text: "the engine cannot map the program's memory".into() }, Vec::new());
    }

    pub(super) fn carry_out(&mut self, order: Order, fds: Vec<OwnedFd>) {
        let now = self.now();
        match order {
            Order::Start { .. } => {}
            Order::Consumer { key } => self.attach(key, fds),
            Order::Forget { key } => self.forgotten.push(key),
            Order::Hold { id, tuple } => {
                self.engine.streamer().hold(tuple);
                self.say(Report::Held { id }, Vec::new());
            }
            Order::Unhold { tuple } => self.engine.streamer().unhold(&tuple),
            Order::Adopt { .. } => self.adopt(now, order),
            Order::Suspend { id, drain_ms } => self.suspend(now, id, drain_ms),
            Order::Resume { id } => {
                if let Some(load) = &mut self.load {
                    load.stays(id);
                }
                let called = self.called(id);
                if called
                    .is_some_and(|(conn, tuple)| self.engine.streamer().resume(conn, &tuple) == Err(SuspendError::Busy))
                {
                    self.again.push_back(order);
                }
            }
            Order::LetGo { id } => self.let_go(now, id),
            Order::Watch { id } => self.watched.push_back(id),
            Order::Neighbour { neighbour, mac } => self.engine.streamer().learn_neighbour(now, neighbour, mac),
            Order::Reroute { id, via } => {
                let called = self.called(id);
                if !called.is_some_and(|(conn, tuple)| self.engine.streamer().reroute(now, conn, &tuple, via)) {
                    self.say(Report::Homeless { id }, Vec::new());
                }
            }
            Order::Info { id } => {
                let bytes = self.tcp_info(now, id);
                self.say(Report::Info { id, bytes }, Vec::new());
            }
            Order::Load { fixed } => self.control_load(fixed),
            Order::Observe { key, which } => self.observe(key, which, fds),
            Order::Ask {} => self.say(Report::Here {}, Vec::new()),
            Order::Mac { mac } => self.engine.streamer().set_mac(mac),
        }
    }

    /// Returns `TCP_INFO` of a connection; empty if the connection is not here yet.
    fn tcp_info(&mut self, now: Instant, id: u64) -> Vec<u8> {
        let found = self.called(id).and_then(|(conn, tuple)| {
            let mut bytes = tcp_info_bytes(&self.engine.tce().info(now, conn)?);
            let carried = self.engine.streamer().carried(conn, &tuple);
            carried.iter().for_each(|carried| add_carried(&mut bytes, carried));
            Some(bytes.to_vec())
        });
        let has_ended = self.connections.get(&id).is_some_and(|connection| connection.conn.is_some());
        found.unwrap_or_else(|| if has_ended { tcp_info_of_closed().to_vec() } else { Vec::new() })
    }

    fn attach(&mut self, key: u32, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let (Some(file), Some(doorbell), Some(completions)) = (fds.next(), fds.next(), fds.next()) else { return };
        let Ok(memory) = SharedMemory::open(file) else { return };
        let id = self.engine.streamer().attach_consumer(EngineRegion::new(memory.region().clone()));
        self.consumers.insert(key, Attached { id, doorbell, completions, observed: false });
    }

    fn adopt(&mut self, now: Instant, order: Order) {
        let Order::Adopt { id, key, tuple, ref snapshot, ip, via, mac, ref options } = order else { return };
        let mut words = Words::default();
        if snapshot.len() == words.len() {
            words.copy_from_slice(snapshot);
        }
        let consumer = self.consumers.get(&key).map(|consumer| consumer.id);
        let (Some(snapshot), Some(consumer)) = (Snapshot::from_words(&words), consumer) else {
            return self.say(
                Report::NotAdopted { id, text: "the engine does not know the connection's program".into() },
                Vec::new(),
            );
        };
        let options = options.iter().filter_map(|(number, value)| options::decode(*number, *value));
        // The program's library holds bytes back itself and would never uncork the engine.
        let options = options.filter(|option| !matches!(option, SocketOption::Cork(_)));
        let options: Vec<_> = options.take(MAX_OPTIONS).collect();
        let adopt = Adopt {
            consumer,
            token: id,
            tuple,
            snapshot: &snapshot,
            ip: IpFields::from_bits(ip),
            via: Some(via),
            options: &options,
        };
        match self.engine.streamer().adopt(now, &adopt) {
            Ok(_) => {
                if let Some(mac) = mac {
                    self.engine.streamer().learn_neighbour(now, via, mac);
                }
                self.connections.insert(id, Connection { tuple, conn: None, drain: None });
                if let Some(load) = &mut self.load {
                    load.came(self.connections.len());
                }
            }
            Err(AdoptError::Busy) => self.again.push_back(order),
            Err(error) => self.say(Report::NotAdopted { id, text: error.to_string() }, Vec::new()),
        }
    }

    fn suspend(&mut self, now: Instant, id: u64, drain_ms: u32) {
        let Some(connection) = self.connections.get_mut(&id) else { return self.say(Report::Ended { id }, Vec::new()) };
        if connection.conn.is_none() {
            return self.again.push_back(Order::Suspend { id, drain_ms });
        }
        connection.drain = Some(now + baton_tcp::time::Duration::from_millis(drain_ms.into()));
        self.leaving.push(id);
        if let Some((conn, tuple)) = self.called(id).filter(|_| drain_ms > 0) {
            self.engine.streamer().quiesce(conn, &tuple, true);
        }
    }

    fn let_go(&mut self, now: Instant, id: u64) {
        let Some(&Connection { tuple, .. }) = self.connections.get(&id) else { return };
        let gone = self.called(id).map(|(conn, tuple)| self.engine.streamer().let_go(now, conn, &tuple));
        match gone {
            Some(Err(SuspendError::Busy)) => self.again.push_back(Order::LetGo { id }),
            // Otherwise it ended while it was suspended, for example because the program reset it.
            _ => {
                self.engine.streamer().unhold(&tuple);
                self.forget(id);
            }
        }
    }

    /// Returns a connection's place in the engine and its tuple; `None` if it has ended and the
    /// place belongs to another.
    pub(super) fn called(&mut self, id: u64) -> Option<(ConnId, Tuple)> {
        let &Connection { conn: Some(conn), tuple, .. } = self.connections.get(&id)? else { return None };
        (self.engine.streamer().name(conn) == Some(tuple)).then_some((conn, tuple))
    }

    pub(super) fn forget(&mut self, id: u64) {
        if let Some(Connection { conn: Some(conn), .. }) = self.connections.remove(&id)
            && self.names.get(&conn.0) == Some(&id)
        {
            self.names.remove(&conn.0);
        }
        if let Some(load) = &mut self.load {
            load.left(id, self.connections.len());
        }
    }
}
