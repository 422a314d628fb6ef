//! Engines inside programs, in addition to the interfaces' own. Each serves one program, with a
//! device, a ledger and memory of its own.
//!
//! The program holds the only descriptor of the device, so the device disappears with the program.
//! The program can write to its ledger, so everything read from there is checked, and the program
//! can harm only its own connections. The broker must not kill the program where it would kill an
//! engine of its own. It takes the device away instead. From then on the engine neither receives
//! nor sends, and its ledger stands still, except for frames that the engine had already read. The
//! program undoes their effects when it is told how far its connections had come (`InKernel::skip` in
//! `baton_client`).

use super::Broker;
use super::engine_slot::{EngineSlot, EngineStart, Owner, Process};
use crate::guardian;
use baton_engine::tuning::EngineTuning;
use baton_ipc::channel::Channel;
use baton_ipc::message::Reply;
use baton_journal::{Kind, Level};
use baton_kernel::kernel_side::KernelError;
use baton_kernel::steer::ENGINES_MAX;
use baton_policy::Reason;
use baton_port::SteeredPort;
use std::io::{self, ErrorKind};

impl Broker {
    /// The slot to which a program's connection on an interface goes. `interface` is the slot of
    /// the interface's own engine. The result is the slot of the program's engine there, which is
    /// created if there is none, or `interface`.
    pub(super) fn slot_for(&mut self, client: u32, interface: usize) -> usize {
        let index = self.slots[interface].index;
        let is_direct = self.clients.get(&client).is_some_and(|program| program.direct && program.raw.is_none());
        if !is_direct || !self.kernel.lends_engines(index) {
            return interface;
        }
        let its = |slot: &EngineSlot| slot.is_of(client) && slot.index == index && slot.engine.is_some();
        match self.slots.iter().position(its) {
            Some(at) => at,
            None => self.give_engine(client, interface).unwrap_or_else(|error| {
                self.log_client(Level::Warn, Kind::FAILED, client, |event| {
                    event.text(format!("it gets no engine of its own, and uses the interface's: {error}"))
                });
                // The interface's own engine serves it instead.
                interface
            }),
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
            // Treat it as an engine that died at once.
            self.on_engine_dead(at, Reason::EngineDied);
        }
        started.map(|()| at)
    }

    /// The index of a slot that nobody uses any more, or of a new one.
    fn free_slot(&self) -> Option<usize> {
        let is_free = |at: &usize| {
            let slot = &self.slots[*at];
            slot.owner.is_some()
                && !slot.is_between()
                && slot.engine.is_none()
                && self.connections.all().all(|connection| connection.slot != *at)
        };
        (0..self.slots.len()).find(is_free).or(Some(self.slots.len()))
    }

    fn free_number(&self, at: usize) -> Option<u32> {
        let others = || self.slots.iter().enumerate().filter(|(other, _)| *other != at);
        let is_used = |number: u32| others().any(|(_, slot)| slot.owner.is_some_and(|owner| owner.number == number));
        (1..ENGINES_MAX).find(|number| !is_used(*number))
    }

    /// Opens the engine's device and tells the program how to start the engine.
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
        let tuning = EngineTuning { connections: slot.ledger.ledger().len(), ..config.tuning };
        let start = EngineStart { tuning, base: *base, run_as: None, link, xdp: None };
        slot.send_start(&mut channel, tap, &start).map_err(failed)?;
        // The clock goes on after this broker, so a successor's numbers are higher.
        let engine = if program.adopts_at_once() { baton_ipc::engine::monotonic() } else { 0 };
        let reply = if engine == 0 { Reply::Engine {} } else { Reply::LocalEngine { engine } };
        program.channel.send(reply.to_bytes(), vec![theirs]).map_err(failed)?;
        slot.engine = Some(Process::in_program(channel, link.mtu, engine));
        drop::<SteeredPort>(port);
        Ok(())
    }

    /// A program's engine has closed its channel. Most likely the broker is about to see that the
    /// program has gone, and its connections are then closed as for any program that ends.
    pub(super) fn on_program_hung_up(&mut self, at: usize) {
        self.slots[at].engine.iter_mut().for_each(Process::hang_up);
    }

    /// Reaps engines that closed their channel although their programs still run.
    pub(super) fn reap_hung_up(&mut self) {
        for at in 0..self.slots.len() {
            let engine = self.slots[at].engine.as_mut();
            // The engine may have closed it only just now.
            let over = engine.is_some_and(|engine| engine.hung_up && engine.silent > 0);
            if over {
                self.on_engine_dead(at, Reason::EngineDied);
            }
        }
    }

    /// A program has gone, and its engines with it.
    pub(super) fn reap_engines_of(&mut self, client: u32) {
        for at in 0..self.slots.len() {
            if self.slots[at].is_of(client) {
                self.on_engine_dead(at, Reason::ProgramGone);
            }
        }
    }
}
