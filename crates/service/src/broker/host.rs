//! Changes of the host: links, routes, neighbours, and the firewall's rules.

use super::state::Goal;
use super::{Broker, BrokerError};
use baton_ipc::order::Order;
use baton_journal::{Kind, Level};
use baton_kernel::hops::{Change, Way};
use baton_policy::Reason;
use baton_wire::addr::Tuple;

impl Broker {
    pub(super) fn follow_changes(&mut self) -> Result<(), BrokerError> {
        let mut changes = Vec::new();
        self.kernel.poll(|change| changes.push(change))?;
        let mut elsewhere = Vec::new();
        self.kernel.poll_elsewhere(|net, change| elsewhere.push((net, change)))?;
        for (net, change) in elsewhere {
            match change {
                Change::Rules => self.on_rules_changed(Some(net)),
                Change::Refused { tuple, why } => self.on_refused(net, tuple, why),
                // A pair needs no way before it comes home.
                _ => {}
            }
        }
        for change in changes {
            match change {
                Change::Neighbour { interface, neighbour, mac: Some(mac) } => {
                    self.tell_slots(interface, &Order::Neighbour { neighbour, mac });
                }
                Change::Link(link) => {
                    self.tell_slots(link.index, &Order::Mac { mac: link.mac });
                    self.on_mtu(link.index, link.mtu);
                }
                Change::LinkGone(index) => {
                    let homeless =
                        self.connections.ids(|it| it.plan.way.interface == index && it.plan.between.is_none());
                    self.log(Level::Warn, Kind::HOST, |event| {
                        let text = format!("interface {index} has gone; {} connections come home", homeless.len());
                        event.reason(Reason::Homeless).text(text)
                    });
                    homeless.into_iter().for_each(|id| self.evict(id, Goal::Home, Reason::Homeless));
                }
                Change::Way { tuple, way } => self.change_way(tuple, way),
                Change::Rules => self.on_rules_changed(None),
                Change::Refused { tuple, why } => self.on_refused(0, tuple, why),
                // The engine asks again for a lost neighbour. The kernel could do no better.
                Change::Neighbour { mac: None, .. } => {}
            }
        }
        Ok(())
    }

    /// An engine keeps the MTU that its interface had when the engine started.
    fn on_mtu(&mut self, interface: u32, mtu: u32) {
        let here = self.slots.iter_mut().filter(|slot| slot.index == interface);
        let engine = here.filter_map(|slot| slot.engine.as_mut()).find(|engine| engine.mtu != mtu);
        if let Some(engine) = engine.filter(|_| !self.stopping) {
            engine.mtu = mtu;
            self.log(Level::Info, Kind::HOST, |event| {
                event.reason(Reason::MtuChanged).text(format!("interface {interface} has an MTU of {mtu} bytes now"))
            });
            self.replace_engines(None, Reason::MtuChanged);
        }
    }

    fn change_way(&mut self, tuple: Tuple, way: Way) {
        // The kernel may have noticed the change before it was told that the connection is gone.
        let Some(id) = self.connections.id_of(&tuple) else { return };
        let Some(connection) = self.connections.known_mut(id) else { return };
        let plan = &mut connection.plan;
        if plan.way.interface != way.interface {
            return self.evict(id, Goal::Home, Reason::Homeless);
        }
        plan.way = way;
        self.tell_slots(way.interface, &Order::Reroute { id, via: way.via });
    }

    fn tell_slots(&mut self, interface: u32, order: &Order) {
        for slot in self.slots.iter_mut().filter(|slot| slot.index == interface) {
            slot.tell(order, Vec::new());
        }
    }
}
