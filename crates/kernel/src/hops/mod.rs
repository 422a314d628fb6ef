//! Where the frames of moved connections go. The interface and the neighbour are the kernel's: this
//! module queries them and follows their changes through netlink.
//!
//! ```text
//!   Query ----RTM_GETROUTE----> Way (interface, neighbour)
//!   neighbour --RTM_GETNEIGH--> link address       --NTF_USE--> the kernel keeps it alive
//!
//!   RTM_NEWNEIGH ------------------------------------> Change::Neighbour
//!   RTM_NEWLINK, RTM_DELLINK ------------------------> Change::Link, Change::LinkGone
//!   routes, rules, addresses, links --query again----> Change::Way, Change::Refused
//! ```
//!
//! A route is queried as for the connection's own segments: with its source, mark, user, type of
//! service, device and ports, so that rules and multipath choose in the same way. Any change of the
//! tables makes every followed route doubtful. Each poll queries a limited number of doubtful ones
//! again. Only the kernel resolves and probes neighbours: `NTF_USE` tells it that one is needed, as
//! sending a packet there would.
//!
//! Open everything in the network namespace of the connections, with CAP_NET_ADMIN.

pub(crate) mod netlink;

use baton_policy::Refusal;
use baton_wire::addr::{Addr, Tuple};
use netlink::{Asker, Listener, Purpose};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// The most routes that one poll queries again. Each takes some µs.
const DOUBTS_PER_POLL: usize = 64;

/// A link address.
pub type Mac = [u8; 6];

/// Everything that the route of a connection depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// The connection's addresses and ports.
    pub tuple: Tuple,
    /// `SO_MARK`.
    pub mark: u32,
    /// The index of the device to which the socket is bound, or to which its link-local addresses
    /// refer; 0 for none.
    pub device: u32,
    /// The user that the socket belongs to.
    pub uid: u32,
    /// `IP_TOS` or `IPV6_TCLASS`.
    pub tos: u8,
}

/// Where a connection's segments go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The index of the interface.
    pub interface: u32,
    /// The next hop: the peer itself, or a gateway.
    pub via: Addr,
}

/// An interface as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// The interface's index.
    pub index: u32,
    /// Its link address; all zeros if it has none.
    pub mac: Mac,
    /// The size of the largest IP packet, in bytes.
    pub mtu: u32,
    /// It is up and, as far as is known, running.
    pub up: bool,
    /// It belongs to a bridge, bond or VRF.
    pub enslaved: bool,
    /// It may lead to another network namespace of this machine: veth, bridge, macvlan, ipvlan, netkit.
    pub leads_elsewhere: bool,
}

/// A change of something that is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A neighbour's link address has changed, or (`None`) the neighbour does not answer or was
    /// forgotten.
    Neighbour {
        /// The index of its interface.
        interface: u32,
        /// The neighbour's IP address.
        neighbour: Addr,
        /// Its link address.
        mac: Option<Mac>,
    },
    /// An interface has changed. These are its properties now.
    Link(Link),
    /// The interface with this index is gone.
    LinkGone(u32),
    /// A followed connection has another route.
    Way {
        /// Addresses and ports of the connection.
        tuple: Tuple,
        /// The new route.
        way: Way,
    },
    /// A followed connection would be refused now, so it has to come home. It is still followed.
    Refused {
        /// Addresses and ports of the connection.
        tuple: Tuple,
        /// The reason. [`Refusal::NotSteerable`] means that its route or its address is gone.
        why: Refusal,
    },
    /// The firewall's rules have changed, which may affect any connection that is away.
    Rules,
}

/// Removes a virtual interface, even if somebody has it open.
///
/// # Errors
/// Errors from the kernel; `ENODEV` if there is no interface with that index.
pub(crate) fn remove_link(index: u32) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    Asker::open()?.ask(Message::DelLink(link), Purpose::Change).map(drop)
}

/// Queries routes and neighbours, and follows their changes.
pub struct Hops {
    asker: Asker,
    listener: Listener,
    followed: BTreeMap<Tuple, (Query, Result<Way, Refusal>)>,
    /// Followed connections whose routes have to be queried again.
    doubts: BTreeSet<Tuple>,
}

impl Hops {
    /// Opens the sockets, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn open() -> io::Result<Hops> {
        // Listen first, so that no change is missed between an answer and the first poll.
        let listener = Listener::open()?;
        Ok(Hops { asker: Asker::open()?, listener, followed: BTreeMap::new(), doubts: BTreeSet::new() })
    }

    /// Where the segments of a connection go. The refusal is [`Refusal::NotSteerable`] if the
    /// kernel has no unicast route, does not have the source address, or needs a gateway of the
    /// other IP version, and [`Refusal::Encapsulated`] if the route adds headers.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn way(&mut self, query: &Query) -> io::Result<Result<Way, Refusal>> {
        let Some(route) = self.route(route_request(query))? else { return Ok(Err(Refusal::NotSteerable)) };
        let way = way_of(&route, query.tuple.remote);
        // An IPv6 route is also found for an address that the host does not have.
        if way.is_ok() && !query.tuple.local.is_v4() && !self.is_ours(query)? {
            return Ok(Err(Refusal::NotSteerable));
        }
        Ok(way)
    }

    fn is_ours(&mut self, query: &Query) -> io::Result<bool> {
        let mut request = RouteMessage::default();
        request.header.address_family = AddressFamily::Inet6;
        request.header.destination_prefix_length = 128;
        request.attributes = vec![RouteAttribute::Destination(route_address(query.tuple.local))];
        if query.device != 0 {
            request.attributes.push(RouteAttribute::Oif(query.device));
        }
        Ok(self.route(request)?.is_some_and(|route| route.header.kind == RouteType::Local))
    }

    /// The kernel's answer, or `None` if it has no route.
    fn route(&mut self, request: RouteMessage) -> io::Result<Option<RouteMessage>> {
        match self.asker.ask(Message::GetRoute(request), Purpose::Ask) {
            Ok(Some(Message::NewRoute(route))) => Ok(Some(route)),
            Ok(_) => Ok(None),
            // An answer that cannot be parsed in full counts as no route.
            Err(error) if is_no_route(&error) || error.raw_os_error().is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where this namespace forwards packets to an address. The refusals are those of [`Hops::way`].
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn way_to(&mut self, address: Addr) -> io::Result<Result<Way, Refusal>> {
        let route = self.route(request_for(address))?;
        Ok(route.map_or(Err(Refusal::NotSteerable), |route| way_of(&route, address)))
    }

    /// Returns true if an address belongs to this namespace.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn is_local(&mut self, address: Addr) -> io::Result<bool> {
        let request = request_for(address);
        match self.asker.ask(Message::GetRoute(request), Purpose::Ask) {
            Ok(Some(Message::NewRoute(route))) => Ok(route.header.kind == RouteType::Local),
            Ok(_) => Ok(false),
            Err(error) if is_no_route(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A neighbour's link address, if the kernel knows it. If the kernel does not, or has not
    /// verified it for long, the kernel asks the neighbour, and [`Change::Neighbour`] follows.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn neighbour(&mut self, interface: u32, neighbour: Addr) -> io::Result<Option<Mac>> {
        let mut used = neighbour_message(interface, neighbour);
        used.header.flags = NeighbourFlags::Use;
        match self.asker.ask(Message::NewNeighbour(used), Purpose::Change) {
            Ok(_) => {}
            // The interface is gone or down, so nothing is known.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENETDOWN)) => return Ok(None),
            Err(error) => return Err(error),
        }
        let request = Message::GetNeighbour(neighbour_message(interface, neighbour));
        match self.asker.ask(request, Purpose::Ask) {
            Ok(Some(Message::NewNeighbour(found))) => Ok(mac_of(&found)),
            Ok(_) => Ok(None),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The present properties of an interface.
    ///
    /// # Errors
    /// Errors from the kernel; `ENODEV` if there is no interface with this index.
    pub fn link(&mut self, index: u32) -> io::Result<Link> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        match self.asker.ask(Message::GetLink(request), Purpose::Ask)? {
            Some(Message::NewLink(link)) => Ok(link_of(&link)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Reports changes of a connection's route from now on.
    pub fn follow(&mut self, query: Query, way: Way) {
        self.followed.insert(query.tuple, (query, Ok(way)));
    }

    /// Stops following a connection.
    pub fn forget(&mut self, tuple: &Tuple) {
        self.followed.remove(tuple);
        self.doubts.remove(tuple);
    }

    /// Reports what has changed, without waiting.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn poll(&mut self, mut tell: impl FnMut(Change)) -> io::Result<()> {
        let mut doubtful = false;
        let whole = self.listener.drain(|message| match message {
            Message::NewNeighbour(found) => tell_neighbour(&found, mac_of(&found), &mut tell),
            Message::DelNeighbour(found) => tell_neighbour(&found, None, &mut tell),
            // Links of the bridge family describe a bridge's ports.
            Message::NewLink(link) if link.header.interface_family == AddressFamily::Unspec => {
                doubtful = true;
                tell(Change::Link(link_of(&link)));
            }
            Message::DelLink(link) if link.header.interface_family == AddressFamily::Unspec => {
                doubtful = true;
                tell(Change::LinkGone(link.header.index));
            }
            Message::NewRoute(_)
            | Message::DelRoute(_)
            | Message::NewAddress(_)
            | Message::DelAddress(_)
            | Message::NewRule(_)
            | Message::DelRule(_) => doubtful = true,
            _ => {}
        })?;
        if doubtful || !whole {
            self.doubts.extend(self.followed.keys());
        }
        for _ in 0..DOUBTS_PER_POLL {
            let Some(tuple) = self.doubts.pop_first() else { break };
            let Some((query, before)) = self.followed.get(&tuple).copied() else { continue };
            let way = self.way(&query)?;
            if way == before {
                continue;
            }
            self.followed.insert(tuple, (query, way));
            tell(match way {
                Ok(way) => Change::Way { tuple, way },
                Err(why) => Change::Refused { tuple, why },
            });
        }
        Ok(())
    }
}

impl AsFd for Hops {
    /// Readable when [`Hops::poll`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn family(addr: Addr) -> AddressFamily {
    if addr.is_v4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn prefix(addr: Addr) -> u8 {
    if addr.is_v4() { 32 } else { 128 }
}

fn route_address(addr: Addr) -> RouteAddress {
    match addr.ip() {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    }
}

/// Asks for the route to an address, whatever else it may depend on.
fn request_for(address: Addr) -> RouteMessage {
    let mut request = RouteMessage::default();
    request.header.address_family = family(address);
    request.header.destination_prefix_length = prefix(address);
    request.attributes = vec![RouteAttribute::Destination(route_address(address))];
    request
}

fn route_request(query: &Query) -> RouteMessage {
    let Tuple { local, remote, local_port, remote_port } = query.tuple;
    let mut request = request_for(remote);
    request.header.source_prefix_length = prefix(local);
    // Without the ECN bits, which no rule examines.
    request.header.tos = query.tos & !3;
    let more = [
        RouteAttribute::Source(route_address(local)),
        RouteAttribute::IpProto(libc::IPPROTO_TCP as u8),
        RouteAttribute::Sport(local_port),
        RouteAttribute::Dport(remote_port),
        RouteAttribute::Uid(query.uid),
    ];
    request.attributes.extend(more);
    if query.mark != 0 {
        request.attributes.push(RouteAttribute::Mark(query.mark));
    }
    if query.device != 0 {
        request.attributes.push(RouteAttribute::Oif(query.device));
    }
    request
}

/// Returns true if the error means that there is no route: unreachable, prohibited, or a source
/// address that the host does not have.
fn is_no_route(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(
        code,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL | libc::ENETDOWN | libc::ENODEV)
    )
}

fn way_of(route: &RouteMessage, remote: Addr) -> Result<Way, Refusal> {
    if route.header.kind != RouteType::Unicast {
        return Err(Refusal::NotSteerable);
    }
    let (mut interface, mut via) = (None, remote);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(ip)) => via = (*ip).into(),
            RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => via = (*ip).into(),
            RouteAttribute::Encap(_) | RouteAttribute::EncapType(_) => return Err(Refusal::Encapsulated),
            RouteAttribute::Via(_) => return Err(Refusal::NotSteerable),
            _ => {}
        }
    }
    Ok(Way { interface: interface.ok_or(Refusal::NotSteerable)?, via })
}

fn neighbour_message(interface: u32, neighbour: Addr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(neighbour);
    message.header.ifindex = interface;
    message.attributes = vec![NeighbourAttribute::Destination(match neighbour.ip() {
        IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
        IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
    })];
    message
}

/// The link address, if the neighbour's state makes it reliable.
fn mac_of(found: &NeighbourMessage) -> Option<Mac> {
    if !matches!(
        found.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
            | NeighbourState::Noarp
    ) {
        return None;
    }
    found.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok(),
        _ => None,
    })
}

fn tell_neighbour(found: &NeighbourMessage, mac: Option<Mac>, tell: &mut impl FnMut(Change)) {
    let address = found.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some(Addr::from(*ip)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some(Addr::from(*ip)),
        _ => None,
    });
    if let Some(neighbour) = address {
        tell(Change::Neighbour { interface: found.header.ifindex, neighbour, mac });
    }
}

fn link_of(link: &LinkMessage) -> Link {
    let (mut mac, mut mtu, mut enslaved, mut leads_elsewhere) = ([0; 6], 0, false, false);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().unwrap_or_default(),
            LinkAttribute::Mtu(bytes) => mtu = *bytes,
            LinkAttribute::Controller(index) => enslaved = *index != 0,
            LinkAttribute::LinkInfo(info) => leads_elsewhere = info.iter().any(is_of_namespaces),
            _ => {}
        }
    }
    let up = link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
    Link { index: link.header.index, mac, mtu, up, enslaved, leads_elsewhere }
}

/// True for the kinds of interfaces with which namespaces of one machine are joined.
fn is_of_namespaces(info: &LinkInfo) -> bool {
    use InfoKind::{Bridge, IpVlan, MacVlan, Netkit, Veth};
    matches!(info, LinkInfo::Kind(Veth | Bridge | MacVlan | IpVlan | Netkit))
}
