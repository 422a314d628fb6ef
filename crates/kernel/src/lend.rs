//! Lends an interface's addresses and routes to another device. While that device exists, what the
//! kernel sends over the interface leaves over the device.
//!
//! The interface keeps everything. The device gets the same link address, MTU and addresses, and
//! routes that take precedence over the interface's: IPv4 routes are placed before them (the kernel
//! takes the first of several equal ones), and IPv6 routes get a metric that is lower by one. All
//! of this belongs to the device and disappears with it, however its owner ends. Then the
//! interface's own routes apply again. Connections survive both changes, because their addresses
//! are always present.
//!
//! Later changes on the interface are not followed. Routes through several interfaces, and through
//! next-hop objects, are not lent ([`Lent::left`]).

use crate::hops::netlink::{Asker, Purpose};
use baton_port::link;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteType};
use std::io;

/// `RT_TABLE_LOCAL`: the routes that the kernel creates for addresses.
const TABLE_LOCAL: u32 = 255;
/// The metric of an IPv6 route without one (`IP6_RT_PRIO_USER`).
const METRIC: u32 = 1024;

/// A step of lending that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub struct LendError {
    /// The step that failed, as a phrase.
    pub what: &'static str,
    /// The operating system's error.
    pub source: io::Error,
}

/// Counts of the addresses and routes that were lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lent {
    /// The number of addresses.
    pub addresses: usize,
    /// The number of routes.
    pub routes: usize,
    /// The number of routes that still lead over the interface.
    pub left: usize,
}

fn at(what: &'static str) -> impl Fn(io::Error) -> LendError {
    move |source| LendError { what, source }
}

/// Gives `device` what `interface` has, and brings it up. The device must be down, and must be an
/// Ethernet device in the same network namespace. Needs `CAP_NET_ADMIN`.
///
/// # Errors
/// The step that failed. Earlier steps are undone when the device is removed.
pub fn lend(interface: &str, device: &str) -> Result<Lent, LendError> {
    let mut asker = Asker::open().map_err(at("asking the kernel"))?;
    let from = link::index(interface).map_err(at("finding the interface"))?;
    let to = link::index(device).map_err(at("finding the device"))?;
    let mac = link::address(interface).map_err(at("reading the link address"))?;
    let mtu = link::mtu(interface).map_err(at("reading the MTU"))?;
    link::set_address(device, mac).map_err(at("setting the link address"))?;
    link::set_mtu(device, mtu).map_err(at("setting the MTU"))?;
    let mut lent = Lent::default();
    let addresses = asker.dump(Message::GetAddress(AddressMessage::default())).map_err(at("listing addresses"))?;
    let routes = list_routes(&mut asker).map_err(at("listing routes"))?;
    for address in addresses {
        let Message::NewAddress(address) = address else { continue };
        if let Some(address) = same_address(address, from, to) {
            add(&mut asker, Message::NewAddress(address)).map_err(at("adding an address"))?;
            lent.addresses += 1;
        }
    }
    link::set_up(device).map_err(at("bringing the device up"))?;
    // Gateways are reached by routes without a gateway, which therefore come first.
    let (direct, indirect): (Vec<_>, Vec<_>) =
        routes.into_iter().partition(|route| !route.attributes.iter().any(|a| matches!(a, RouteAttribute::Gateway(_))));
    for route in direct.into_iter().chain(indirect) {
        match same_route(route, from, to) {
            Some(Ok(route)) => {
                add(&mut asker, Message::NewRoute(route)).map_err(at("adding a route"))?;
                lent.routes += 1;
            }
            Some(Err(())) => lent.left += 1,
            None => {}
        }
    }
    Ok(lent)
}

fn add(asker: &mut Asker, message: Message) -> io::Result<()> {
    match asker.ask(message, Purpose::Add) {
        // The kernel created a link-local address by itself.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

fn list_routes(asker: &mut Asker) -> io::Result<Vec<RouteMessage>> {
    let mut routes = Vec::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut question = RouteMessage::default();
        question.header.address_family = family;
        let answers = asker.dump(Message::GetRoute(question))?;
        routes.extend(answers.into_iter().filter_map(|answer| match answer {
            Message::NewRoute(route) => Some(route),
            _ => None,
        }));
    }
    Ok(routes)
}

/// The same address for the other device. `None` if the address is not the interface's, or not in
/// use.
fn same_address(mut address: AddressMessage, from: u32, to: u32) -> Option<AddressMessage> {
    let unused = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    if address.header.index != from || address.header.flags.intersects(unused) {
        return None;
    }
    address.header.index = to;
    // The interface has verified the address already, and routes are added below.
    let flags = AddressFlags::Nodad | AddressFlags::Noprefixroute;
    address.header.flags = AddressHeaderFlags::Nodad;
    address.attributes.retain(|attribute| {
        matches!(attribute, AddressAttribute::Address(_) | AddressAttribute::Local(_) | AddressAttribute::Broadcast(_))
    });
    address.attributes.push(AddressAttribute::Flags(flags));
    Some(address)
}

/// The same route over the other device, with precedence over the first. `None` if the route is not
/// the interface's, `Err` if it cannot be lent.
fn same_route(mut route: RouteMessage, from: u32, to: u32) -> Option<Result<RouteMessage, ()>> {
    let table = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    if table.unwrap_or(route.header.table.into()) == TABLE_LOCAL || route.header.kind != RouteType::Unicast {
        return None;
    }
    let several = route.attributes.iter().any(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => hops.iter().any(|hop| hop.interface_index == from),
        _ => false,
    });
    let ours = route.attributes.contains(&RouteAttribute::Oif(from));
    let by_object = route.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::NhId(_)));
    if several || (ours && by_object) {
        return Some(Err(()));
    }
    if !ours {
        return None;
    }
    route.header.flags &= RouteFlags::Onlink;
    route.attributes.retain(|attribute| {
        !matches!(
            attribute,
            RouteAttribute::CacheInfo(_)
                | RouteAttribute::Expires(_)
                | RouteAttribute::Other(_)
                | RouteAttribute::Oif(_)
        )
    });
    route.attributes.push(RouteAttribute::Oif(to));
    if route.header.address_family == AddressFamily::Inet6 {
        let metric = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Priority(metric) => Some(*metric),
            _ => None,
        });
        // A metric of 0 would mean the largest, so nothing precedes 1.
        let Some(metric) = metric.unwrap_or(METRIC).checked_sub(1).filter(|&metric| metric > 0) else {
            return Some(Err(()));
        };
        route.attributes.retain(|attribute| !matches!(attribute, RouteAttribute::Priority(_)));
        route.attributes.push(RouteAttribute::Priority(metric));
    }
    Some(Ok(route))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::route::RouteNextHop;

    fn route(family: AddressFamily, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut route = RouteMessage::default();
        route.header.address_family = family;
        route.header.table = 254;
        route.header.kind = RouteType::Unicast;
        route.attributes = attributes;
        route
    }

    #[test]
    fn a_route_is_lent_with_all_but_its_device_and_of_ipv6_its_metric() {
        use RouteAttribute::{Oif, Priority};
        let v4 = same_route(route(AddressFamily::Inet, vec![Priority(7), Oif(2)]), 2, 9).unwrap().unwrap();
        assert_eq!(v4.attributes, [Priority(7), Oif(9)]);
        let v6 = same_route(route(AddressFamily::Inet6, vec![Priority(256), Oif(2)]), 2, 9).unwrap().unwrap();
        assert_eq!(v6.attributes, [Oif(9), Priority(255)]);
    }

    #[test]
    fn what_cannot_be_preferred_is_left() {
        use RouteAttribute::{MultiPath, NhId, Oif, Priority, Table};
        let mut hop = RouteNextHop::default();
        hop.interface_index = 2;
        for attributes in [vec![MultiPath(vec![hop])], vec![Oif(2), NhId(1)], vec![Oif(2), Priority(1)]] {
            let route = route(AddressFamily::Inet6, attributes);
            assert_eq!(same_route(route.clone(), 2, 9), Some(Err(())), "{route:?}");
        }
        for attributes in [vec![Oif(3)], vec![Oif(2), Table(TABLE_LOCAL)]] {
            assert_eq!(same_route(route(AddressFamily::Inet, attributes), 2, 9), None);
        }
    }

    #[test]
    fn addresses_of_the_interface_are_lent_without_their_own_routes() {
        let mut address = AddressMessage::default();
        address.header.index = 2;
        let lent = same_address(address.clone(), 2, 9).unwrap();
        assert_eq!(lent.header.index, 9);
        assert_eq!(lent.attributes, [AddressAttribute::Flags(AddressFlags::Nodad | AddressFlags::Noprefixroute)]);
        assert_eq!(same_address(address.clone(), 3, 9), None);
        address.header.flags = AddressHeaderFlags::Dadfailed;
        assert_eq!(same_address(address, 2, 9), None);
    }
}
