//! A program's part in the moves of its connections.

use crate::app::{App, Violation};
use baton_engine::event::Wish;
use baton_engine::options;
use baton_engine::region::{ConsumerRegion, Request};
use baton_engine::streamer::Suspended;
use baton_wire::addr::Tuple;

impl App {
    /// Connections that could move: engine, queue pair, tuple.
    pub fn movable(&self) -> Vec<(usize, u32, Tuple)> {
        let movable = self.ends.iter().filter(|(_, end)| end.is_movable());
        movable
            .map(|(&(side, qp), _)| {
                let identity = self.regions[side].qp(qp).identity();
                let tuple = Tuple {
                    local: identity.local,
                    remote: identity.remote,
                    local_port: identity.local_port,
                    remote_port: identity.remote_port,
                };
                (side, qp, tuple)
            })
            .collect()
    }

    /// The program's calls for this connection wait.
    pub fn freeze(&mut self, side: usize, qp: u32) {
        if let Some(end) = self.ends.get_mut(&(side, qp)) {
            end.frozen = true;
        }
    }

    /// They go on.
    pub fn thaw(&mut self, side: usize, qp: u32) {
        if let Some(end) = self.ends.get_mut(&(side, qp)) {
            end.frozen = false;
            self.dirty.insert((side, qp));
            self.woken = true;
        }
    }

    /// The engine knows of all that was posted, and of all that was read.
    pub fn check_parcel(&mut self, side: usize, qp: u32, suspended: &Suspended) {
        let Some(end) = self.ends.get(&(side, qp)) else { return };
        let posted = end.posted();
        let lies: u64 = suspended.send.iter().map(|extent| u64::from(extent.len())).sum();
        let snapshot = &suspended.snapshot;
        let queued = u64::from(snapshot.unacked_bytes()) + u64::from(snapshot.unsent_bytes());
        let unread = self.regions[side].qp(qp).rcv_done() - end.read_here();
        if suspended.tail_pos != posted
            || suspended.una_pos + lies != posted
            || queued != lies
            || u64::from(snapshot.unread_bytes()) != unread
            || snapshot.check().is_err()
        {
            let what = format!("posted {posted}, unread {unread}, but the engine says {suspended:?}");
            self.wrong.get_or_insert(Violation::Leak(what));
        }
    }

    /// A connection went from one queue pair to another, `bytes` being those that
    /// the peer has not acknowledged.
    pub fn change_sides(
        &mut self,
        from: (usize, u32),
        to: (usize, u32),
        una_pos: u64,
        bytes: Vec<u8>,
        wishes: Vec<Wish>,
    ) {
        let early = self.early.remove(&to).unwrap_or_default() | self.regions[to.0].qp(to.1).take_events();
        let Some(mut end) = self.ends.remove(&from) else { return };
        let before = self.regions[from.0].qp(from.1).take_events();
        end.on_events(&self.regions[from.0], before);
        let buffers = self.buffers_of(to.1);
        if let Err(wrong) = end.pack(&self.regions[from.0], to.1, buffers, una_pos, bytes) {
            let role = if end.client { "client's send queue" } else { "server's send queue" };
            self.wrong.get_or_insert(Violation::WrongByte { id: end.id, end: role, wrong });
        }
        end.on_events(&self.regions[to.0], early);
        end.frozen = false;
        self.ends.insert(to, end);
        self.dirty.insert(to);
        self.woken = true;
        self.readdress(from, to);
        self.pending[from.0].push_back(Request::Close { qp: from.1 });
        let again = wishes.into_iter().filter_map(|wish| request_for(wish, to.1));
        self.pending[to.0].extend(again);
    }

    /// Repeats the program's requests for a connection whose engine died: nobody else knows
    /// them. `shut`: its FIN is known already.
    pub fn wish_again(&mut self, (side, qp): (usize, u32), shut: bool) {
        let Some(end) = self.ends.get(&(side, qp)) else { return };
        let wishes = end.wishes(shut);
        self.pending[side].extend(wishes);
    }

    /// A dead engine's region is not needed any more.
    pub fn use_region(&mut self, side: usize, region: ConsumerRegion) {
        self.regions[side] = region;
        self.pending[side].clear();
        self.early.retain(|place, _| place.0 != side);
    }

    /// Queue pairs at an engine whose connections could move, and all others there.
    pub fn at(&self, side: usize) -> (Vec<u32>, usize) {
        let here = self.ends.iter().filter(|(place, _)| place.0 == side);
        let (movable, others): (Vec<_>, Vec<_>) = here.partition(|(_, end)| end.is_movable());
        (movable.into_iter().map(|(place, _)| place.1).collect(), others.len())
    }

    /// Requests for the old queue pair that have not been made yet are for the new one.
    fn readdress(&mut self, from: (usize, u32), to: (usize, u32)) {
        let mut kept = std::mem::take(&mut self.pending[from.0]);
        kept.retain(|request| {
            let moved = match *request {
                Request::Shutdown { qp } if qp == from.1 => Some(Request::Shutdown { qp: to.1 }),
                Request::SetOption { token, qp, option, value } if qp == from.1 => {
                    Some(Request::SetOption { token, qp: to.1, option, value })
                }
                _ => None,
            };
            let stays = moved.is_none();
            self.pending[to.0].extend(moved);
            stays
        });
        self.pending[from.0] = kept;
    }
}

/// The request by which the program had expressed a wish to the engine that it left.
fn request_for(wish: Wish, qp: u32) -> Option<Request> {
    match wish {
        Wish::Shutdown => Some(Request::Shutdown { qp }),
        Wish::Close => Some(Request::Close { qp }),
        Wish::Abort => Some(Request::Abort { qp }),
        Wish::Option(option) => {
            let (option, value) = options::encode(option);
            Some(Request::SetOption { token: crate::end::OPTION, qp, option, value })
        }
        Wish::Info { .. } => None,
    }
}
