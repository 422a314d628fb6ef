//! Reports of engines.

use super::Broker;
use super::engine_slot::Process;
use super::state::Goal;
use baton_ipc::message::Reply;
use baton_ipc::order::{Order, Report};
use baton_journal::{Kind, Level};
use baton_kernel::kernel_side::KernelError;
use baton_policy::Reason;
use std::io::ErrorKind;
use std::mem::discriminant;
use std::os::fd::OwnedFd;

/// The reports read from a program's engine before the others get a turn.
const TURN: usize = 64;

impl Broker {
    pub(super) fn hear_engine(&mut self, at: usize) {
        let owner = self.slots[at].owner.and_then(|owner| owner.client);
        for _ in 0..owner.map_or(usize::MAX, |_| TURN) {
            let Some(channel) = self.slots[at].engine.as_ref().and_then(Process::channel) else { return };
            match channel.receive() {
                Ok(Some(parcel)) => {
                    let report = Report::from_bytes(&parcel.bytes);
                    let fds = match owner {
                        None => parcel.fds,
                        // A program must not hand in descriptors here.
                        Some(client) => {
                            self.discard(client, parcel.fds);
                            Vec::new()
                        }
                    };
                    if let Some(report) = report {
                        self.on_report(at, report, &fds);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(None) | Err(_) => match owner {
                    Some(_) => return self.on_program_hung_up(at),
                    None => return self.on_engine_dead(at, Reason::EngineDied),
                },
            }
        }
    }

    /// Lets frames go to the engine from now on.
    fn lead_to_engine(&mut self, at: usize, sockets: &[OwnedFd]) -> Result<(), KernelError> {
        let Broker { kernel, slots, .. } = self;
        let slot = &mut slots[at];
        let steering = kernel.steering(slot.index)?;
        steering.set_sockets(sockets)?;
        steering.set_engine_up(slot.number(), true)?;
        if let Some(engine) = &mut slot.engine {
            engine.started = true;
        }
        Ok(())
    }

    fn on_report(&mut self, at: usize, report: Report, fds: &[OwnedFd]) {
        if let Some(engine) = &mut self.slots[at].engine {
            engine.silent = 0;
        }
        // An engine may report on its own connections only.
        let id = report.id();
        if id.is_some_and(|id| self.connections.get(id).is_none_or(|connection| connection.slot != at)) {
            return;
        }
        let state = |broker: &Broker| id.and_then(|id| Some(discriminant(&broker.connections.get(id)?.state)));
        let before = state(self);
        self.go_on_with(at, report, fds);
        if state(self) != before
            && let Some(engine) = &mut self.slots[at].engine
        {
            engine.unanswering = 0;
        }
    }

    fn go_on_with(&mut self, at: usize, report: Report, fds: &[OwnedFd]) {
        match report {
            Report::Started {} => {
                if let Err(error) = self.lead_to_engine(at, fds) {
                    self.log(Level::Warn, Kind::STEERING, |event| {
                        event.text(format!("frames of {} cannot be led to its engine: {error}", self.slots[at].name))
                    });
                    return self.on_engine_dead(at, Reason::EngineDied);
                }
                self.log_engine_started(at);
                self.on_engine_started();
            }
            Report::Held { id } => self.capture(id),
            Report::Adopted { id, conn } => self.on_adopted(id, conn),
            Report::NotAdopted { id, text } => self.on_not_adopted(id, &text),
            Report::Suspended { id, srtt_us, rttvar_us, min_rtt_us } => {
                self.on_measured(id, [srtt_us, rttvar_us, min_rtt_us]);
                self.on_suspended(id);
            }
            Report::Stays { id } => self.on_stays(id),
            Report::Ended { id } => self.on_ended(id),
            Report::Reopened { id, syn } => self.on_reopened(id, &syn),
            Report::Info { id, bytes } => {
                if let Some(client) = self.connections.known(id).map(|connection| connection.client) {
                    self.tell_client(client, &Reply::Info { id, bytes }, Vec::new());
                }
            }
            Report::Question { neighbour } => {
                // If there is no answer, the engine asks again.
                if let Ok(Some(mac)) = self.kernel.neighbour(self.slots[at].index, neighbour) {
                    self.slots[at].tell(&Order::Neighbour { neighbour, mac }, Vec::new());
                }
            }
            Report::Urgent { id } => self.on_urgent(id),
            Report::Homeless { id } => self.evict(id, Goal::Home, Reason::Homeless),
            Report::Overloaded { id } => self.on_overloaded(id),
            Report::Load { load } => self.on_load(at, load),
            Report::Here {} | Report::Failed { .. } => {}
        }
    }
}
