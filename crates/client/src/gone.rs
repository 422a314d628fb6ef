//! The service has gone: broker and guardian were killed, and nobody brings a connection home.
//!
//! An engine that lives goes on with what it has. When it has ended too, so have its connections:
//! calls fail with `ConnectionReset` from then on, as if the peer had sent a reset.

use super::adopting::NotAdopted;
use super::line::Whereabouts;
use super::shared::{Inner, Region};
use baton_consumer::adoption::Adoption;
use baton_journal::{Kind, Level, tell};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

fn reset() -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, "the service was killed, and its engine")
}

/// Whether the process of a pidfd has ended.
fn has_ended(process: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

impl Inner {
    pub(super) fn on_service_gone(&mut self) {
        // After the handle is dropped nobody minds.
        if !self.ended {
            tell(Level::Error, Kind::SERVICE, |event| event.reason("service-gone").text("the service has gone"));
        }
        self.hang_up();
        let gone = || io::Error::new(ErrorKind::NotConnected, "the service has gone");
        for adopting in self.adopting.values_mut().filter(|adopting| adopting.outcome.is_none()) {
            let fd = adopting.fd.take();
            adopting.settle(Err(NotAdopted::broken(fd, &gone())));
        }
        for (id, line) in &mut self.lines {
            let lost = match &line.at {
                Whereabouts::Away => true,
                Whereabouts::Coming { region, .. } => {
                    let region = self.regions.get_mut(region);
                    region.into_iter().for_each(|region| region.consumer.forget_adoption(Adoption(*id)));
                    true
                }
                // An engine that lives goes on.
                Whereabouts::Engine { region, .. } => self.regions.get(region).is_none_or(|region| region.dead),
                Whereabouts::Kernel | Whereabouts::Ended(_) => false,
            };
            if lost {
                line.at = Whereabouts::Ended(Some(reset()));
            }
            if line.restoring {
                line.refusal = Some(gone().to_string());
            }
            line.wake();
        }
        self.askers.wake();
        self.bury_engines();
        // Nobody says any more when they have ended.
        let closed: Vec<u64> = self.lines.iter().filter(|(_, line)| line.closed).map(|(id, _)| *id).collect();
        closed.into_iter().for_each(|id| self.close(id));
    }

    /// Processes of engines that go on without a service.
    pub(super) fn last_engines(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let gone = self.channel.is_none();
        self.live_regions().filter(move |_| gone).filter_map(|region| region.engine.as_ref()).map(AsFd::as_fd)
    }

    /// Ends the connections of engines that have ended since the service has gone.
    pub(super) fn bury_engines(&mut self) {
        if self.channel.is_some() {
            return;
        }
        let Inner { regions, own, .. } = self;
        let ended = |number: u32, region: &Region| match &region.engine {
            Some(process) => has_ended(process.as_fd()),
            None => !own.iter().any(|own| own.drives(number)),
        };
        let live = regions.iter().filter(|(_, region)| !region.dead);
        let dead: Vec<u32> =
            live.filter(|(number, region)| ended(**number, region)).map(|(number, _)| *number).collect();
        for number in dead {
            self.on_dead(number);
            self.end_all_in(number);
        }
        self.forget_dead_regions();
    }

    fn end_all_in(&mut self, number: u32) {
        let Inner { lines, regions, .. } = self;
        let Some(region) = regions.get_mut(&number) else { return };
        let mut closed = Vec::new();
        for (id, line) in lines.iter_mut() {
            let Whereabouts::Engine { region: at, conn } = line.at else { continue };
            if at != number {
                continue;
            }
            // What came before can be read, as before a peer's reset.
            let left = region.consumer.standing_at(conn, u64::MAX, 0).unwrap_or_default();
            line.unread.extend(left.unread);
            region.leave(conn);
            line.at = Whereabouts::Ended(Some(reset()));
            line.watchers.news += 1;
            line.wake();
            closed.extend(line.closed.then_some(*id));
        }
        closed.into_iter().for_each(|id| self.close(id));
    }
}
