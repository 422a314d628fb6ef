//! The death of the whole service: broker and guardian were killed, so nobody can
//! restore a connection to the kernel.
//!
//! An engine that is still alive keeps its connections. Once that engine has ended too, its
//! connections have ended: calls on them fail with `ConnectionReset`, as if the peer had sent a
//! reset.

use super::adoption::NotAdopted;
use super::location::{Coming, InEngine, Location};
use super::region::Region;
use super::shared::Inner;
use baton_consumer::adoption::Adoption;
use baton_journal::{Kind, Level, tell};
use baton_policy::Reason;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

fn reset() -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, "the service and its engine were killed")
}

/// True if the process behind this pidfd has ended.
fn has_ended(process: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

impl Inner {
    pub(super) fn on_service_gone(&mut self) {
        // After the handle is dropped nobody minds.
        if !self.ended {
            tell(Level::Error, Kind::SERVICE, |event| event.reason(Reason::ServiceKilled).text("the service has gone"));
        }
        self.hang_up();
        self.end_watching();
        let gone = || io::Error::new(ErrorKind::NotConnected, "the service has gone");
        for adopting in self.adopting.values_mut().filter(|adopting| adopting.outcome.is_none()) {
            let fd = adopting.fd.take();
            adopting.settle(Err(NotAdopted::broken(fd, &gone())));
        }
        for (id, connection) in &mut self.connections {
            let lost = match connection.location() {
                Location::Away(_) => true,
                Location::Coming(Coming { region, .. }) => {
                    let region = self.regions.get_mut(region);
                    region.into_iter().for_each(|region| region.consumer.forget_adoption(Adoption(*id)));
                    true
                }
                // A live engine keeps serving its connections, except those that it has suspended for their way
                // home.
                Location::Engine(InEngine { region, stands, .. }) => {
                    *stands || self.regions.get(region).is_none_or(|region| region.dead)
                }
                // A pair needs no service, but nobody can bring it home.
                Location::Kernel(_) | Location::Pair(_) | Location::Ended(_) => false,
            };
            // Bytes that were to travel with it stay readable, as they do before a reset.
            match lost.then(|| connection.end(Some(reset()))) {
                Some(Location::Coming(Coming { unread, .. })) => connection.unread.extend(unread),
                Some(Location::Engine(InEngine { region, conn, .. })) => {
                    if let Some(region) = self.regions.get_mut(&region) {
                        let left = region.consumer.standing_at(conn, u64::MAX, 0).unwrap_or_default();
                        connection.unread.extend(left.unread);
                        region.leave(conn);
                    }
                }
                _ => {}
            }
            if connection.restoring {
                connection.refusal = Some(gone().to_string());
            }
            connection.wake();
        }
        self.askers.wake();
        self.reap_engines();
        // Nobody will report the end of these, so they are closed now.
        let closed: Vec<u64> =
            self.connections.iter().filter(|(_, connection)| connection.closed).map(|(id, _)| *id).collect();
        closed.into_iter().for_each(|id| self.close(id));
    }

    /// Pidfds of the engines that are still running although the service has gone.
    pub(super) fn last_engines(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let gone = self.channel.is_none();
        self.live_regions().filter(move |_| gone).filter_map(|region| region.engine.as_ref()).map(AsFd::as_fd)
    }

    /// Once the service has gone, ends the connections of engines that have ended.
    pub(super) fn reap_engines(&mut self) {
        if self.channel.is_some() {
            return;
        }
        let Inner { regions, engines, .. } = self;
        let engines = engines.lock();
        let ended = |number: u32, region: &Region| match &region.engine {
            Some(process) => has_ended(process.as_fd()),
            None => !engines.iter().any(|local| local.drives(number)),
        };
        let live = regions.iter().filter(|(_, region)| !region.dead);
        let dead: Vec<u32> =
            live.filter(|(number, region)| ended(**number, region)).map(|(number, _)| *number).collect();
        drop(engines);
        for number in dead {
            self.on_dead(number);
            self.end_all_in(number);
        }
        self.forget_dead_regions();
    }

    /// Ends a connection whose way home the service did not live to finish, and closes it if the
    /// program has.
    pub(super) fn end_without_service(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.end(Some(reset()));
        connection.wake();
        if connection.closed {
            self.close(id);
        }
    }

    fn end_all_in(&mut self, number: u32) {
        let Inner { connections, regions, .. } = self;
        let Some(region) = regions.get_mut(&number) else { return };
        let mut closed = Vec::new();
        for (id, connection) in connections.iter_mut() {
            let Some((at, conn)) = connection.in_engine() else { continue };
            if at != number {
                continue;
            }
            // Bytes received before the end stay readable, as they do before a reset from the peer.
            let left = region.consumer.standing_at(conn, u64::MAX, 0).unwrap_or_default();
            connection.unread.extend(left.unread);
            region.leave(conn);
            connection.end(Some(reset()));
            connection.watchers.news += 1;
            connection.wake();
            closed.extend(connection.closed.then_some(*id));
        }
        closed.into_iter().for_each(|id| self.close(id));
    }
}
