//! How connections begin: listeners, SYN cookies, active opens, and resets for
//! segments that belong to nothing (RFC 9293 §3.10.7.1, §3.10.7.2).

use super::{Commands, Slot, Tce, push};
use crate::options::IpFields;
use crate::region::Completion;
use crate::seam::event::ConnId;
use crate::seam::kinds::{Errno, Queues, Unused};
use crate::seam::order::{Open, Order};
use baton_tcp::command::Command;
use baton_tcp::handshake;
use baton_tcp::listen::{Arrival, Disposition, Listener};
use baton_tcp::path::Path;
use baton_tcp::reset::reset_for;
use baton_tcp::segment::{Placement, Segment};
use baton_tcp::tcb::{Context, Tcb};
use baton_tcp::time::Instant;
use baton_wire::addr::{Addr, Tuple};
use std::collections::BTreeMap;

/// A listener and the consumer that owns it.
struct Entry {
    /// Never 0 and never used again.
    id: u32,
    consumer: u16,
    qp: u32,
    options: u64,
    listener: Listener,
}

/// Listeners by port and address; an unspecified address takes all.
#[derive(Default)]
pub(super) struct Listeners {
    by_name: BTreeMap<(u16, Addr), Entry>,
    last_id: u32,
}

impl Listeners {
    fn find(&mut self, tuple: &Tuple) -> Option<&mut Entry> {
        let any = if tuple.local.is_v4() { Addr::v4([0; 4]) } else { Addr::UNSPECIFIED };
        let names = [(tuple.local_port, tuple.local), (tuple.local_port, any), (tuple.local_port, Addr::UNSPECIFIED)];
        let name = names.into_iter().find(|name| self.by_name.contains_key(name))?;
        self.by_name.get_mut(&name)
    }

    /// A half-open connection of listener `id` is established or gone.
    pub(super) fn half_open_done(&mut self, id: u32) {
        if let Some(entry) = self.by_name.values_mut().find(|entry| entry.id == id) {
            entry.listener.on_half_open_done();
        }
    }
}

impl Tce {
    /// A segment to no connection: a listener's, or to be reset.
    pub(super) fn handle_unknown(&mut self, now: Instant, segment: &Segment, placement: Placement) {
        let tuple = self.tuple;
        if let Some(conn) = self.newborn.find(&tuple).filter(|conn| self.holds(*conn)) {
            return self.handle_early(now, conn, segment, placement);
        }
        let path = self.path();
        let Some(entry) = self.listeners.find(&tuple) else {
            self.dispose(ConnId::NONE, placement);
            if let Some(reset) = reset_for(segment) {
                self.reply(&tuple, reset, None);
                self.counters.resets_sent += 1;
            }
            return;
        };
        let path = path.with_mss(crate::options::most_mss_of(entry.options));
        let arrival = Arrival { now, config: &self.config.tcp, key: &self.key, tuple: &tuple, path };
        let (id, consumer, qp, options) = (entry.id, entry.consumer, entry.qp, entry.options);
        match entry.listener.handle_segment(&arrival, segment) {
            Disposition::Ignore => {}
            Disposition::Reset(reset) => {
                self.counters.resets_sent += 1;
                self.reply(&tuple, reset, None);
            }
            Disposition::Cookie { reply, ts_val } => {
                self.counters.cookies_sent += 1;
                self.reply(&tuple, reply, Some(ts_val));
            }
            Disposition::Accept => {
                self.counters.passive_opens += 1;
                let begin = Begin { consumer, listener: qp, options, ..Begin::default() };
                match self.begin(now, &tuple, &begin, |cx, open, out| Tcb::accept(cx, segment, &open, out)) {
                    Some(conn) => self.slots[conn.0].half_open_at = id,
                    None => self.listeners.half_open_done(id),
                }
            }
            Disposition::Established(decoded) => {
                self.counters.cookies_accepted += 1;
                let begin = Begin { consumer, listener: qp, options, ..Begin::default() };
                let conn = self
                    .begin(now, &tuple, &begin, |cx, open, out| Tcb::from_cookie(cx, segment, &decoded, &open, out));
                if let Some(conn) = conn {
                    // Data that came with the last ACK of the handshake.
                    if segment.seg_len() > 0 {
                        let park = placement;
                        self.with(now, conn, |tcb, cx, out| {
                            tcb.handle_segment(cx, segment, park, out);
                        });
                        return;
                    }
                }
            }
        }
        self.dispose(ConnId::NONE, placement);
    }

    /// A segment of a connection that the Streamer did not know of. Payload that it
    /// therefore did not keep is lost, as if by the network.
    fn handle_early(&mut self, now: Instant, conn: ConnId, segment: &Segment, placement: Placement) {
        if segment.lengths.len > 0 && placement == Placement::Empty {
            return;
        }
        self.with(now, conn, |tcb, cx, out| {
            tcb.handle_segment(cx, segment, placement, out);
        });
    }

    /// An active open (RFC 9293 §3.10.1).
    pub(super) fn connect(&mut self, now: Instant, consumer: u16, qp: u32, token: u64, hop: u16, options: u64) {
        let tuple = self.tuple;
        let unused = Unused { qp: Some(qp), hop: Some(hop) };
        if self.newborn.find(&tuple).is_some() {
            return self.answer(consumer, Completion::Failed { token, errno: Errno::ADDRESS_IN_USE }, unused);
        }
        let begin =
            Begin { consumer, qp: Some(qp), token, listener: u32::MAX, hop: Some(hop), options, ..Begin::default() };
        if self.begin(now, &tuple, &begin, |cx, open, out| Tcb::connect(cx, &open, out)).is_some() {
            self.counters.active_opens += 1;
        } else {
            self.answer(consumer, Completion::Failed { token, errno: Errno::NO_BUFFERS }, unused);
        }
    }

    /// Makes a connection: the Streamer hears of it before its first command.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        begin: &Begin,
        make: impl FnOnce(&mut Context<'_>, handshake::Open, &mut Commands<'_>) -> Tcb,
    ) -> Option<ConnId> {
        let Some(conn) = self.take_index() else {
            self.counters.table_full += 1;
            return None;
        };
        let ts_offset = begin.ts_offset.unwrap_or_else(|| self.key.ts_offset(tuple));
        // MUST-45 (RFC 9293 §3.9.1.1): the Streamer makes its header template of this
        // tuple, and no order changes it.
        push(&mut self.orders, Order::Tuple(*tuple));
        push(
            &mut self.orders,
            Order::Open(Open {
                conn,
                consumer: begin.consumer,
                qp: begin.qp,
                token: begin.token,
                listener: begin.listener,
                ts_offset,
                hop: begin.hop,
                ip: IpFields::from_bits(begin.options),
                adopted: begin.adopted,
            }),
        );
        self.newborn.add(*tuple, conn, self.orders.position());
        let path = self.path().with_mss(crate::options::most_mss_of(begin.options));
        let open = handshake::Open { iss: self.key.iss(now, tuple), path, rcv_space: 0, ts_offset };
        let mut cx = Context { now, config: &self.config.tcp, challenge: &mut self.challenge };
        let mut out = Commands { conn, orders: &mut self.orders, released: false };
        let tcb = make(&mut cx, open, &mut out);
        self.slots[conn.0] = Slot { tcb: Some(tcb), ..Slot::default() };
        self.open += 1;
        let options = begin.options;
        self.with(now, conn, |tcb, cx, out| {
            for option in crate::options::from_bits(options) {
                tcb.set_option(cx, option, out);
            }
        });
        Some(conn)
    }

    fn take_index(&mut self) -> Option<ConnId> {
        let index = self.free.pop().or_else(|| {
            (self.used < self.config.max_connections).then(|| {
                self.used += 1;
                self.used - 1
            })
        })?;
        self.slots.grow_to(index);
        Some(ConnId(index))
    }

    /// Starts to listen, unless the name is taken.
    pub(super) fn listen(&mut self, consumer: u16, qp: u32, token: u64, backlog: u32, options: u64) {
        // MUST-41, MUST-42 (RFC 9293 §3.9.1.1): connections, in whatever state, are in
        // the flow table and found there first; a listener's name does not meet them.
        let name = (self.tuple.local_port, self.tuple.local);
        if self.listeners.by_name.contains_key(&name) {
            let unused = Unused { qp: Some(qp), hop: None };
            return self.answer(consumer, Completion::Failed { token, errno: Errno::ADDRESS_IN_USE }, unused);
        }
        self.listeners.last_id += 1;
        let id = self.listeners.last_id;
        let entry = Entry { id, consumer, qp, options, listener: Listener::new(backlog) };
        self.listeners.by_name.insert(name, entry);
        push(&mut self.orders, Order::Tuple(self.tuple));
        push(&mut self.orders, Order::Listening { consumer, qp, token });
    }

    /// Stops listening; half-open connections finish, and are the consumer's to close.
    pub(super) fn unlisten(&mut self, consumer: u16, qp: u32) {
        self.listeners.by_name.retain(|_, entry| (entry.consumer, entry.qp) != (consumer, qp));
        push(&mut self.orders, Order::Unlistened { consumer, qp });
    }

    fn reply(&mut self, tuple: &Tuple, command: Command, ts_val: Option<u32>) {
        let Command::Control { flags, seq, ack, wnd, syn, ts_ecr } = command else { return };
        let ts = ts_val.zip(ts_ecr);
        push(&mut self.orders, Order::Tuple(*tuple));
        push(&mut self.orders, Order::Reply { flags, seq, ack, wnd, syn, ts });
    }

    /// The path of the tuple at hand.
    fn path(&self) -> Path {
        Path { mtu: self.config.mtu, ipv6: !self.tuple.remote.is_v4(), on_link: self.on_link }
    }
}

/// The facts known of a connection before its Tcb exists.
#[derive(Default)]
pub(super) struct Begin {
    pub consumer: u16,
    pub qp: Option<u32>,
    pub token: u64,
    pub listener: u32,
    pub hop: Option<u16>,
    pub options: u64,
    /// Offset of our timestamps, if another stack began them.
    pub ts_offset: Option<u32>,
    pub adopted: Option<Queues>,
}
