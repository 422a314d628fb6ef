//! Engines inside programs: an interface's beside its own, each with a device, a ledger and
//! memory, for one program.
//!
//! The program has the device's only descriptor, so that the device goes with it. What it
//! holds of the ledger it can write: whatever is read there is checked, and it can harm its
//! own connections only. Nor is it to be killed where an engine of ours would be. Its device is
//! taken away instead: from then on it neither hears nor sends anything, and what its ledger
//! says stands still, but for what it goes on doing with frames that it has read before. The
//! program takes that back when it is told how far its connections had come
//! (`Line::skip` in `baton_socket`).

use super::Broker;
use super::engine_slot::{EngineSlot, EngineStart, Process};
use crate::guardian;
use baton_kernel::kernel_side::KernelError;
use baton_kernel::steer::ENGINES_MAX;
use baton_port::SteeredPort;
use baton_socket::service::channel::Channel;
use baton_socket::service::message::Reply;
use std::io::{self, ErrorKind};

/// An engine's number and its program, if it is in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    /// None for one that a predecessor gave away.
    pub client: Option<u32>,
    /// As of [`Steering::open_engine`](baton_kernel::steer::Steering::open_engine).
    pub number: u32,
}

impl Broker {
    /// Where a program's connection goes that is to leave by this interface, given by its own
    /// engine's place: the program's engine there, made if there is none, or that one.
    pub(super) fn slot_for(&mut self, client: u32, interface: usize) -> usize {
        let index = self.slots[interface].index;
        let is_direct = self.clients.get(&client).is_some_and(|program| program.direct && program.raw.is_none());
        if !is_direct || !self.kernel.lends_engines(index) {
            return interface;
        }
        let its = |slot: &EngineSlot| slot.is_of(client) && slot.index == index && slot.engine.is_some();
        match self.slots.iter().position(its) {
            Some(at) => at,
            // It is served all the same.
            None => self.give_engine(client, interface).unwrap_or(interface),
        }
    }

    fn give_engine(&mut self, client: u32, interface: usize) -> Result<usize, KernelError> {
        let failed = |source| baton_kernel::Failed { during: "giving a program an engine", source };
        let at = self.free_slot().ok_or_else(|| failed(ErrorKind::QuotaExceeded.into()))?;
        let number = self.free_number(at).ok_or_else(|| failed(ErrorKind::QuotaExceeded.into()))?;
        let Broker { slots, config, checkpoints, .. } = self;
        let owner = Owner { client: Some(client), number };
        let slot = EngineSlot::of_program(&slots[interface], at, owner, config, checkpoints).map_err(failed)?;
        if at == slots.len() {
            slots.push(slot)
        } else {
            slots[at] = slot
        }
        let started = self.start_in_program(at);
        if started.is_err() {
            // As if it had died at once.
            self.on_engine_dead(at, "engine-died");
        }
        started.map(|()| at)
    }

    /// A place that is nobody's any more, or a new one.
    fn free_slot(&self) -> Option<usize> {
        let is_free = |at: &usize| {
            let slot = &self.slots[*at];
            slot.owner.is_some()
                && slot.engine.is_none()
                && self.connections.values().all(|connection| connection.slot != *at)
        };
        (0..self.slots.len()).find(is_free).or(Some(self.slots.len()))
    }

    fn free_number(&self, at: usize) -> Option<u32> {
        let others = || self.slots.iter().enumerate().filter(|(other, _)| *other != at);
        let is_used = |number: u32| others().any(|(_, slot)| slot.owner.is_some_and(|owner| owner.number == number));
        (1..ENGINES_MAX).find(|number| !is_used(*number))
    }

    /// Its device, and how it begins.
    fn start_in_program(&mut self, at: usize) -> Result<(), KernelError> {
        let Broker { slots, kernel, clients, config, base, .. } = self;
        let slot = &mut slots[at];
        let failed = |source: io::Error| baton_kernel::Failed { during: "giving a program an engine", source };
        let client = slot.owner.and_then(|owner| clients.get_mut(&owner.client?));
        let program = client.ok_or_else(|| failed(ErrorKind::NotConnected.into()))?;
        let port = kernel.steering(slot.index)?.open_engine(slot.number())?;
        let link = kernel.link(slot.index)?;
        let (ours, theirs) = guardian::pair().map_err(failed)?;
        let mut channel = Channel::new(ours);
        let tap = port.device().map(|(tap, _)| tap);
        let connections = slot.ledger.ledger().len();
        let start = EngineStart { config, base: *base, connections, user: None, link, xdp: None };
        slot.send_start(&mut channel, tap, &start).map_err(failed)?;
        program.channel.send(Reply::Engine {}.to_bytes(), vec![theirs]).map_err(failed)?;
        slot.engine = Some(Process::in_program(channel, link.mtu));
        drop::<SteeredPort>(port);
        Ok(())
    }

    /// A program's engine has hung up. Most likely the program is about to be seen to have gone;
    /// then its connections are closed as its end finds them.
    pub(super) fn on_program_hung_up(&mut self, at: usize) {
        self.slots[at].engine.iter_mut().for_each(Process::hang_up);
    }

    /// Those that hung up, and whose programs go on.
    pub(super) fn reap_hung_up(&mut self) {
        for at in 0..self.slots.len() {
            let engine = self.slots[at].engine.as_mut();
            // It may have hung up just now.
            let over = engine.is_some_and(|engine| engine.hung_up && engine.silent > 0);
            if over {
                self.on_engine_dead(at, "engine-died");
            }
        }
    }

    /// A program has gone, and its engines with it.
    pub(super) fn reap_engines_of(&mut self, client: u32) {
        for at in 0..self.slots.len() {
            if self.slots[at].is_of(client) {
                self.on_engine_dead(at, "program-gone");
            }
        }
    }
}
