//! The privileged side of moves: what a broker does, without an engine.
//!
//! ```text
//!   add_interface(..)    steered from now on; open_port gives the engine's port
//!   plan(socket)         may it move, over which interface, to which neighbour?
//!   steer, capture       its frames are held; it is read        -> Captured, plain data
//!   make_husk            nothing is left to be sent
//!   rebuild, unsteer, resume                                    <- Captured
//!   poll                 neighbours, routes and links that changed
//!   keep_tracked         keeps conntrack's entries of connections that are away
//! ```
//!
//! [`handoff`](crate::handoff) has the order of the steps. Nothing here knows the engine: the
//! caller that drives the engine is told what to adopt, and says what is to be rebuilt. Here a
//! connection is one map entry and one followed route. Its descriptor belongs to the caller.

mod between;
mod elsewhere;
mod sockets;

use crate::beside::Beside;
use crate::conntrack::{Conntrack, Ending};
use crate::error::{During, Failed};
use crate::examine::{Examined, examine};
use crate::firewall::{Connection, Firewall, Rules};
use crate::hops::{Change, Hops, Link, Mac, Query};
pub use crate::kernel_error::KernelError;
pub use crate::plan::{Between, Plan};
use crate::steer::{Arrivals, Gaps, Kind, Mode, Options, SteerError, Steering};
use crate::sys;
use baton_policy::{Refusal, Refusals};
use baton_port::{SteeredPort, link};
use baton_wire::addr::Tuple;
use elsewhere::Elsewhere;
use rustix::event::epoll;
use rustix::fs::fstat;
use rustix::net::netdevice::index_to_name;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

struct Interface {
    index: u32,
    steering: Steering,
}

/// Steered interfaces of one network namespace, and the kernel's answers about them and about sockets of others.
pub struct KernelSide {
    interfaces: Vec<Interface>,
    hops: Hops,
    conntrack: Conntrack,
    firewall: Firewall,
    rules: Rules,
    beside: Beside,
    /// An epoll set of all descriptors that report changes.
    told: OwnedFd,
    refusals: Refusals,
    /// `None` if the kernel does not show gaps.
    gaps: Option<Gaps>,
    /// `None` if the kernel does not let the program be loaded.
    arrivals: Option<Arrivals>,
    /// Other network namespaces that have sockets of connections between programs here, by their numbers.
    elsewhere: BTreeMap<u64, Elsewhere>,
}

impl KernelSide {
    /// Opens the kernel side of the calling thread's network namespace, with no interface yet.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn open() -> Result<KernelSide, Failed> {
        let hops = Hops::open().during("opening netlink sockets")?;
        let beside = Beside::open().during("asking what else handles packets")?;
        let told = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from);
        let told = told.during("making an epoll set")?;
        let firewall = Firewall::open().during("opening netfilter's netlink sockets")?;
        let side = KernelSide {
            interfaces: Vec::new(),
            hops,
            conntrack: Conntrack::open(),
            firewall,
            rules: Rules::default(),
            beside,
            told,
            refusals: Refusals::default(),
            gaps: None,
            arrivals: None,
            elsewhere: BTreeMap::new(),
        };
        side.hear(&side.hops).during("listening to netlink")?;
        side.firewall.events().map_or(Ok(()), |events| side.hear(events)).during("listening to netfilter")?;
        side.beside.tellers().try_for_each(|teller| side.hear(teller)).during("listening to netlink")?;
        Ok(side)
    }

    /// Makes [`KernelSide`] readable when `teller` is.
    fn hear(&self, teller: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.told, teller, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
    }

    /// Loads the programs that detect gaps and inject SYNs, if the kernel allows it. Call it before
    /// a connection leaves the kernel, otherwise no gap is detected. It took 75 ms where it was
    /// measured, and the connections of a dead broker's engine do not have to wait for that.
    pub fn load_programs(&mut self) {
        (self.gaps, self.arrivals) = (Gaps::open().ok(), Arrivals::open().ok());
    }

    /// Sets what happens to connections that firewall rules act on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Steers one more interface and returns its index. The programs are not told of an engine yet.
    ///
    /// # Errors
    /// [`SteerError`] with the remedy.
    pub fn add_interface(&mut self, name: &str, kind: Kind, options: Options) -> Result<u32, SteerError> {
        let steering = Steering::attach(name, kind, options)?;
        let index = link::index(name).map_err(|_| SteerError::Missing { interface: name.to_owned() })?;
        let failed = |source| SteerError::kernel("asking what else is on the interface", source);
        let enslaved = self.hops.link(index).map_err(failed)?.enslaved;
        self.beside.add_interface(index, steering.own()?, enslaved).map_err(failed)?;
        self.interfaces.push(Interface { index, steering });
        Ok(index)
    }

    /// Removes the steering from an interface, or drops what is left of it if the interface is
    /// gone.
    pub fn remove_interface(&mut self, index: u32) {
        self.interfaces.retain(|interface| interface.index != index);
        self.beside.remove_interface(index);
    }

    fn interface(&mut self, index: u32) -> Result<&mut Interface, Refusal> {
        self.interfaces.iter_mut().find(|interface| interface.index == index).ok_or(Refusal::NotSteerable)
    }

    /// An interface's steering, for its port, its counters, and what a predecessor left.
    ///
    /// # Errors
    /// [`Refusal::NotSteerable`] if no interface with that index is steered.
    pub fn steering(&mut self, interface: u32) -> Result<&mut Steering, Refusal> {
        self.interface(interface).map(|interface| &mut interface.steering)
    }

    /// Opens the port of an interface's engine and tells the programs that the engine is there.
    ///
    /// # Errors
    /// [`SteerError`]; [`Refusal::NotSteerable`] if the interface is not steered.
    pub fn open_port(&mut self, interface: u32) -> Result<SteeredPort, KernelError> {
        let steering = self.steering(interface)?;
        let port = steering.open_port()?;
        steering.set_engine(true)?;
        Ok(port)
    }

    /// The kind of steering obtained for an interface.
    pub fn mode(&mut self, interface: u32) -> Option<Mode> {
        self.interface(interface).ok().map(|interface| interface.steering.mode())
    }

    /// Returns true if programs may have engines of their own on an interface.
    pub fn lends_engines(&mut self, interface: u32) -> bool {
        self.interface(interface).is_ok_and(|interface| interface.steering.lends_engines())
    }

    /// The present properties of an interface.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn link(&mut self, interface: u32) -> Result<Link, Failed> {
        self.hops.link(interface).during("asking for the interface")
    }

    /// Plans where a connection would go. Changes nothing.
    ///
    /// # Errors
    /// The [`Refusal`] if the connection has to stay. It is counted.
    pub fn plan(&mut self, fd: impl AsFd) -> Result<Plan, KernelError> {
        let planned = self.try_plan(fd.as_fd());
        self.counted(planned)
    }

    fn try_plan(&mut self, fd: BorrowedFd<'_>) -> Result<Plan, KernelError> {
        let Examined { local, remote, cgroup } = self.examine_here(fd)?;
        let query = query_of(fd, local, remote).during("asking what the route depends on")?;
        if is_transparent(fd) && !self.hops.is_local(query.tuple.local).during("asking for the local address")? {
            // A TPROXY rule directs the connection here.
            return Err(Refusal::Translated.into());
        }
        let way = self.hops.way(&query).during("asking for the route")??;
        self.interface(way.interface)?;
        let tracked = self.conntrack.look(query.tuple)?;
        self.pass_firewall(&query, way.interface, tracked.is_some())?;
        let mac = self.hops.neighbour(way.interface, way.via).during("asking for the neighbour")?;
        let plan = Plan { query, way, mac, engine: 0, tracked, cgroup, between: None };
        self.beside.check(&plan).during("asking what else handles its packets")??;
        Ok(plan)
    }

    /// Examines a socket of this network namespace.
    fn examine_here(&mut self, fd: BorrowedFd<'_>) -> Result<Examined, KernelError> {
        // The same addresses and ports may mean another connection in another namespace.
        if self.is_here(fd).is_ok_and(|here| !here) {
            return Err(Refusal::NotSteerable.into());
        }
        Ok(examine(fd)?)
    }

    /// Refuses a connection that a firewall rule keeps in the kernel.
    fn pass_firewall(&mut self, query: &Query, interface: u32, tracked: bool) -> Result<(), KernelError> {
        let name = index_to_name(&self.hops, interface).map_err(io::Error::from);
        let connection = Connection {
            tuple: query.tuple,
            interface,
            interface_name: name.during("asking for the interface's name")?,
            mark: query.mark,
            tracked,
        };
        let hit = self.firewall.check(self.rules, &connection).during("reading the firewall's rules")?;
        hit.map_or(Ok(()), |hit| Err(KernelError::Firewall(hit)))
    }

    /// Counts a refusal and returns it as an error.
    pub fn refuse(&mut self, refusal: Refusal) -> KernelError {
        self.refusals.count(refusal);
        refusal.into()
    }

    /// How often each refusal occurred.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    fn counted<T>(&mut self, result: Result<T, impl Into<KernelError>>) -> Result<T, KernelError> {
        result.map_err(|error| {
            let error = error.into();
            if let Some(refusal) = error.refusal() {
                self.refusals.count(refusal);
            }
            error
        })
    }

    /// Lets a connection's frames go to the engine, and follows its route. Conntrack is told first.
    /// Whatever happens then, it accepts the connection's packets when the kernel has the
    /// connection again.
    ///
    /// # Errors
    /// [`SteerError::Full`]; [`Refusal::NotSteerable`] if the interface or the IPv6 route is gone;
    /// [`Refusal::Conntrack`].
    pub fn steer(&mut self, plan: &Plan) -> Result<(), KernelError> {
        if plan.net() != 0 {
            return self.let_go_elsewhere(plan);
        }
        self.steer_here(plan)
    }

    fn steer_here(&mut self, plan: &Plan) -> Result<(), KernelError> {
        let routed = self.is_still_routed(plan);
        self.counted(routed)?;
        let told = plan.tracked.map_or(Ok(()), |tracked| self.conntrack.let_go(plan.tuple(), tracked));
        self.counted(told)?;
        let steered = self.steer_frames(plan);
        if steered.is_err() {
            self.conntrack.forget(&plan.tuple());
        }
        steered
    }

    /// The route may have disappeared since the plan was made. Without an IPv6 route a captured
    /// connection could neither become a husk nor be rebuilt.
    fn is_still_routed(&mut self, plan: &Plan) -> Result<(), KernelError> {
        if !plan.tuple().remote.is_v4() && !plan.between.is_some_and(|between| between.stays) {
            self.hops.way(&plan.query).during("asking for the route")??;
        }
        Ok(())
    }

    fn steer_frames(&mut self, plan: &Plan) -> Result<(), KernelError> {
        if plan.between.is_some() {
            self.beside.follow(plan);
            return Ok(());
        }
        let inserted = self.steering(plan.way.interface).map_err(KernelError::from);
        let inserted = inserted.and_then(|steering| Ok(steering.insert_for(plan.tuple(), plan.engine)?));
        self.counted(inserted)?;
        self.hops.follow(plan.query, plan.way);
        self.beside.follow(plan);
        Ok(())
    }

    /// Like [`steer`](KernelSide::steer), but fails while the kernel holds payload of the
    /// connection beyond a gap, which a capture would lose ([`Gaps`]). If the kernel does not show
    /// gaps, the check is skipped.
    ///
    /// # Errors
    /// Errors from [`steer`](KernelSide::steer); [`Refusal::Unsettled`], which is not counted. Nothing
    /// was done then.
    pub fn steer_settled(&mut self, plan: &Plan) -> Result<(), KernelError> {
        self.has_no_gap(plan)?;
        self.steer(plan)?;
        // Payload may have arrived just before the frames were steered.
        self.has_no_gap(plan).or_else(|gap| self.unsteer(plan).and(Err(gap)))
    }

    fn has_no_gap(&self, plan: &Plan) -> Result<(), KernelError> {
        let has = |gaps: &Gaps| gaps.has(&plan.tuple(), plan.way.interface).unwrap_or(false);
        if self.gaps.as_ref().is_some_and(has) { Err(Refusal::Unsettled.into()) } else { Ok(()) }
    }

    /// Makes the kernel receive a SYN, given from its TCP header on. Its tuple must no longer be
    /// steered, and the connection that had it must be gone ([`vacate`](crate::vacate)).
    ///
    /// # Errors
    /// Errors from the kernel. The SYN is then lost, as if the network had dropped it.
    pub fn arrive(&mut self, interface: u32, tuple: &Tuple, syn: &[u8]) -> Result<(), KernelError> {
        let mac = self.link(interface)?.mac;
        self.arrivals.iter().try_for_each(|arrivals| arrivals.syn(interface, mac, tuple, syn))?;
        Ok(())
    }

    /// Lets a connection's frames go to the kernel again.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn unsteer(&mut self, plan: &Plan) -> Result<(), KernelError> {
        if plan.net() != 0 {
            return self.take_back_elsewhere(plan);
        }
        self.unsteer_here(plan)
    }

    fn unsteer_here(&mut self, plan: &Plan) -> Result<(), KernelError> {
        self.hops.forget(&plan.tuple());
        self.conntrack.forget(&plan.tuple());
        self.beside.forget(&plan.tuple());
        // The programs disappear with the interface.
        if plan.between.is_none()
            && let Ok(steering) = self.steering(plan.way.interface)
        {
            steering.remove(plan.tuple())?;
        }
        Ok(())
    }

    /// Like [`unsteer`](KernelSide::unsteer), for a connection that ended while it was away.
    ///
    /// # Errors
    /// Errors from [`unsteer`](KernelSide::unsteer).
    pub fn unsteer_ended(&mut self, plan: &Plan, ending: Ending) -> Result<(), KernelError> {
        self.end_tracked(plan, ending);
        self.unsteer(plan)
    }

    /// Sets conntrack's entry for a connection to the state in which the kernel would have it by
    /// now. The connection may still be steered (TIME-WAIT).
    pub fn end_tracked(&mut self, plan: &Plan, ending: Ending) {
        if plan.net() != 0 {
            return self.end_tracked_elsewhere(plan, ending);
        }
        self.conntrack.end(&plan.tuple(), ending);
    }

    /// Keeps the conntrack entry of a connection that a predecessor steered.
    pub fn inherit_tracked(&mut self, plan: &Plan) {
        if plan.between.is_some() {
            // If an entry cannot be changed now, it was changed before, or does not check windows.
            let _ = self.steer(plan);
        } else if let Ok(Some(tracked)) = self.conntrack.look(plan.tuple()) {
            let _ = self.conntrack.let_go(plan.tuple(), tracked);
        }
    }

    /// Keeps conntrack's entries of connections that are away from timing out, a few at a time.
    /// Call it several times per second. Connections whose entries somebody deleted are returned, each
    /// with the number of its network namespace (0 for the own), and have to go home, where conntrack may pick
    /// them up or not.
    pub fn keep_tracked(&mut self, now: Instant) -> Vec<(u64, Tuple)> {
        let gone = self.conntrack.keep(now);
        let mut gone: Vec<_> = gone.into_iter().map(|tuple| self.behind(tuple)).collect();
        self.keep_tracked_elsewhere(now, &mut gone);
        gone
    }

    /// Answers an engine's question for a neighbour, if the kernel knows the answer. A link address that
    /// the kernel learns later is reported by [`KernelSide::poll`].
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn neighbour(&mut self, interface: u32, neighbour: baton_wire::addr::Addr) -> Result<Option<Mac>, Failed> {
        self.hops.neighbour(interface, neighbour).during("asking for the neighbour")
    }

    /// Reports what has changed since the last call, without waiting. Call it when this is
    /// readable, and once per second, because legacy iptables and programs of control groups cause
    /// no events. If a connection may send nothing in its present situation
    /// ([`Refusal::forbids_frames`]), none of its frames leave or arrive until it is home, or may
    /// send again.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn poll(&mut self, mut tell: impl FnMut(Change)) -> Result<(), Failed> {
        if self.firewall.poll().during("listening to netfilter")? {
            tell(Change::Rules);
        }
        let KernelSide { hops, beside, .. } = self;
        let followed = hops.poll(|change| {
            beside.hear(&change);
            // A refusal is reported below, once.
            if !matches!(change, Change::Refused { .. }) {
                tell(change);
            }
        });
        followed.during("listening to netlink")?;
        for (plan, silent) in beside.poll(tell).during("asking what else handles packets")? {
            // The programs disappear with the interface.
            if plan.between.is_none()
                && let Ok(steering) = self.steering(plan.way.interface)
            {
                // The connection's entry was in the map, so there is room.
                let _ = if silent {
                    steering.hold_back(plan.tuple())
                } else {
                    steering.insert_for(plan.tuple(), plan.engine)
                };
            }
        }
        Ok(())
    }
}

impl AsFd for KernelSide {
    /// Readable when [`KernelSide::poll`] has something to report.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }
}

/// Returns true if the socket may have an address that the host does not have (`IP_TRANSPARENT`,
/// which also covers IPv6).
fn is_transparent(fd: BorrowedFd<'_>) -> bool {
    sys::get_int(fd, libc::SOL_IP, libc::IP_TRANSPARENT).is_ok_and(|on| on != 0)
}

/// Reads everything that the route of a socket's connection depends on.
fn query_of(fd: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr) -> io::Result<Query> {
    let number = |name| sys::get_int(fd, libc::SOL_SOCKET, name).map_or(0, |number| number as u32);
    let scope = match remote {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let bound = number(sys::SO_BINDTOIFINDEX);
    let device = if bound != 0 { bound } else { scope };
    let tuple = Tuple::new(local, remote);
    let (level, name) =
        if tuple.local.is_v4() { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
    let tos = sys::get_int(fd, level, name)? as u8;
    Ok(Query { tuple, mark: number(libc::SO_MARK), device, uid: fstat(fd)?.st_uid, tos })
}
