//! Connections that the broker brings.

use super::connection::Connection;
use super::location::Location;
use super::region::Region;
use super::shared::Inner;
use baton_consumer::adoption::Adoption;
use baton_ipc::message::{Incoming, Request};
use baton_ipc::queues::read_queues;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::OwnedFd;

impl Inner {
    /// A connection arrives for an engine in this program, which adopts it now. If the bytes that came
    /// along cannot be taken in, the broker hears that instead.
    pub fn on_bring_to_engine(&mut self, incoming: &Incoming, file: Option<OwnedFd>, order: &[u8]) {
        if !self.take_in(incoming, file) {
            let _ = self.say(&Request::Brought { id: incoming.id, taken: false }, Vec::new());
            return;
        }
        self.hear_orders();
        let mut engines = self.engines.lock();
        match engines.iter_mut().find(|local| local.drives(incoming.region)) {
            Some(local) => local.runner.adopt_brought(order),
            // Either the engine has gone, and the broker sees that its channel is closed, or it could not
            // map the region. Then the program keeps the bytes, as if the engine had refused.
            None => engines.iter_mut().for_each(|local| local.runner.refuse(incoming.id)),
        }
    }

    /// Takes in the bytes that a connection brings along. Returns false if it cannot be brought.
    pub fn take_in(&mut self, incoming: &Incoming, file: Option<OwnedFd>) -> bool {
        let Incoming { seq, id, region, send, unread, shut, window } = *incoming;
        let queues = read_queues(file, send, unread, shut);
        let held = self.adopting.get_mut(&seq).and_then(|adopting| adopting.held.take());
        self.let_frames_go(held, Some(region));
        // Ids are never reused.
        if let Entry::Vacant(place) = self.connections.entry(id)
            && let Some(adopting) = self.adopting.get_mut(&seq)
            && let Some(fd) = adopting.fd.take()
        {
            place.insert(Connection::new(fd, seq, std::mem::take(&mut adopting.before)));
        }
        match (self.connections.get_mut(&id), self.regions.get_mut(&region)) {
            (Some(connection), Some(Region { consumer, .. })) if matches!(connection.location(), Location::Away(_)) => {
                let adoption = Adoption(id);
                let unread = queues.as_ref().map(|brought| brought.unread.clone());
                let unread = unread.map_err(|error| io::Error::new(error.kind(), error.to_string()));
                let taken = queues.and_then(|brought| {
                    consumer.expect(adoption);
                    consumer.bring(adoption, brought, window).inspect_err(|_| consumer.forget_adoption(adoption))
                });
                match (taken, unread) {
                    (Ok(()), Ok(unread)) => {
                        connection.come(region, unread);
                        true
                    }
                    (_, unread) => {
                        connection.decline(unread);
                        false
                    }
                }
            }
            // An earlier broker brought it and died before it noted the answer. If the connection is
            // neither there nor on the way, it has ended, or the memory could not be used.
            (Some(connection), _) => {
                connection.decline(queues.map(|brought| brought.unread));
                matches!(connection.location(), Location::Coming(_) | Location::Engine(_))
            }
            // The program has closed it since.
            (None, _) => false,
        }
    }
}
