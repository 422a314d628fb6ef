//! The connections that the broker knows, by number and by address.

use super::connection::Connection;
use baton_journal::{Journal, Kind, Level};
use baton_wire::addr::Tuple;
use std::collections::BTreeMap;

/// All connections.
pub(super) struct Connections {
    all: BTreeMap<u64, Connection>,
    by_tuple: BTreeMap<Tuple, u64>,
    journal: Journal,
}

impl Connections {
    /// No connections. `journal` is told of lost ones.
    pub fn new(journal: Journal) -> Connections {
        Connections { all: BTreeMap::new(), by_tuple: BTreeMap::new(), journal }
    }

    /// A connection that may be gone: its number came from a program or an engine, or an earlier
    /// step may have ended the connection.
    pub fn get(&self, id: u64) -> Option<&Connection> {
        self.all.get(&id)
    }

    /// As [`get`](Connections::get), to be changed.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Connection> {
        self.all.get_mut(&id)
    }

    /// A connection in the middle of a step. If it is gone nevertheless, the broker is at fault: the
    /// journal is told, and the step ends.
    pub fn known(&self, id: u64) -> Option<&Connection> {
        self.tell_if_missing(id, self.all.get(&id))
    }

    /// As [`known`](Connections::known), to be changed.
    pub fn known_mut(&mut self, id: u64) -> Option<&mut Connection> {
        if !self.all.contains_key(&id) {
            self.tell_if_missing(id, None::<()>);
        }
        self.all.get_mut(&id)
    }

    /// The number of the connection between these addresses and ports.
    pub fn id_of(&self, tuple: &Tuple) -> Option<u64> {
        self.by_tuple.get(tuple).copied()
    }

    pub fn insert(&mut self, connection: Connection) {
        self.by_tuple.insert(connection.tuple(), connection.id);
        self.all.insert(connection.id, connection);
    }

    /// Removes a connection in the middle of a step.
    pub fn remove(&mut self, id: u64) -> Option<Connection> {
        let removed = self.all.remove(&id);
        if let Some(connection) = self.tell_if_missing(id, removed.as_ref()) {
            self.by_tuple.remove(&connection.tuple());
        }
        removed
    }

    pub fn all(&self) -> impl Iterator<Item = &Connection> {
        self.all.values()
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.all.values_mut()
    }

    /// The numbers of the connections that `wanted` accepts.
    pub fn ids(&self, wanted: impl Fn(&Connection) -> bool) -> Vec<u64> {
        self.all().filter(|connection| wanted(connection)).map(|connection| connection.id).collect()
    }

    /// The connections of a program.
    pub fn of_client(&self, client: u32) -> impl Iterator<Item = &Connection> {
        self.all().filter(move |connection| connection.client == client)
    }

    fn tell_if_missing<T>(&self, id: u64, found: Option<T>) -> Option<T> {
        if found.is_none() {
            self.journal.tell(Level::Debug, Kind::BROKER, |event| {
                event.text(format!("connection {id} is gone in the middle of a step"))
            });
        }
        found
    }
}
