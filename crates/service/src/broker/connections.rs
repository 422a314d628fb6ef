//! The connections that the broker knows, by number and by address.

use super::connection::Connection;
use super::state::{Picked, State};
use baton_journal::{Journal, Kind, Level};
use baton_kernel::kernel_side::Plan;
use baton_wire::addr::Tuple;
use std::collections::{BTreeMap, BTreeSet};

/// All connections.
pub(super) struct Connections {
    all: BTreeMap<u64, Connection>,
    /// By network namespace and name there.
    by_tuple: BTreeMap<(u64, Tuple), u64>,
    /// Those whose other ends may be on this machine, by all names that they have on their way.
    by_name: BTreeSet<(Tuple, u64)>,
    journal: Journal,
}

impl Connections {
    /// No connections. `journal` is told of lost ones.
    pub fn new(journal: Journal) -> Connections {
        Connections { all: BTreeMap::new(), by_tuple: BTreeMap::new(), by_name: BTreeSet::new(), journal }
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

    /// Takes the data of a state out of a connection in the middle of a step. If the connection is
    /// in another state, the broker is at fault, as in [`known`](Connections::known).
    pub fn take<T>(&mut self, id: u64, pick: impl FnOnce(State) -> Picked<T>) -> Option<(&mut Connection, T)> {
        let Connections { all, journal, .. } = self;
        let Some(connection) = all.get_mut(&id) else {
            tell_fault(journal, id, "is gone");
            return None;
        };
        let data = connection.take(pick);
        if data.is_none() {
            tell_fault(journal, id, "is in another state");
        }
        data.map(|data| (connection, data))
    }

    /// The number of the connection between these addresses and ports of the service's network namespace.
    pub fn id_of(&self, tuple: &Tuple) -> Option<u64> {
        self.id_in(0, tuple)
    }

    /// The number of the connection between these addresses and ports of a network namespace.
    pub fn id_in(&self, net: u64, tuple: &Tuple) -> Option<u64> {
        self.by_tuple.get(&(net, *tuple)).copied()
    }

    /// The connections whose other end may be one with this plan.
    pub fn facing(&self, plan: &Plan) -> BTreeSet<u64> {
        let named = |name: Tuple| self.by_name.range((name, 0)..=(name, u64::MAX)).map(|(_, id)| *id);
        plan.names().into_iter().flat_map(|name| named(name.mirrored())).collect()
    }

    pub fn insert(&mut self, connection: Connection) {
        self.by_tuple.insert((connection.plan.net(), connection.tuple()), connection.id);
        self.by_name.extend(names(&connection));
        self.all.insert(connection.id, connection);
    }

    /// Replaces a connection's plan by another for the same socket.
    pub fn replan(&mut self, id: u64, plan: Plan) {
        let Connections { all, by_name, .. } = self;
        let Some(connection) = all.get_mut(&id) else { return };
        for name in names(connection) {
            by_name.remove(&name);
        }
        connection.plan = plan;
        by_name.extend(names(connection));
    }

    /// Removes a connection in the middle of a step.
    pub fn remove(&mut self, id: u64) -> Option<Connection> {
        let removed = self.all.remove(&id);
        if let Some(connection) = self.tell_if_missing(id, removed.as_ref()) {
            let name = (connection.plan.net(), connection.tuple());
            self.by_tuple.remove(&name);
        }
        for name in removed.iter().flat_map(names) {
            self.by_name.remove(&name);
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
            tell_fault(&self.journal, id, "is gone");
        }
        found
    }
}

/// All names of a connection whose other end may be on this machine.
fn names(connection: &Connection) -> impl Iterator<Item = (Tuple, u64)> + use<> {
    let id = connection.id;
    let between = connection.plan.between.map(|_| connection.plan.names());
    between.into_iter().flatten().map(move |name| (name, id))
}

fn tell_fault(journal: &Journal, id: u64, what: &str) {
    journal.tell(Level::Debug, Kind::BROKER, |event| {
        event.text(format!("connection {id} {what} in the middle of a step"))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_told_of_a_connection_that_is_missing_in_a_step_and_only_then() {
        let journal = Journal::after(0);
        let mut connections = Connections::new(journal.clone());
        let told = || journal.since(0, 10, |_| true).0.len();
        assert!(connections.get(7).is_none() && connections.get_mut(7).is_none());
        assert_eq!(told(), 0);
        assert!(connections.known(7).is_none());
        assert!(connections.known_mut(7).is_none());
        assert!(connections.take(7, State::in_kernel).is_none());
        assert!(connections.remove(7).is_none());
        assert_eq!(told(), 4);
    }
}
