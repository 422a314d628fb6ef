//! Steering: which connections of a kernel interface go to the engine.
//!
//! ```text
//!   wire --> program: is the frame's 4-tuple in the map?
//!              no   --> kernel, at once
//!              yes  --> the engine's port (TAP device or AF_XDP socket)
//!              yes, and no engine is up --> dropped: the husk would answer wrongly
//! ```
//!
//! An ICMP error has the 4-tuple of the segment that it quotes.
//!
//! Two kinds with one map layout ([`Kind`]); the programs are `bpf/steer.c`:
//!
//! * **tc**: on the interface's ingress (a TCX link, Linux 6.6) hits are redirected to
//!   the egress of a TAP device, so that its reader gets them, super-frames and unfilled
//!   checksums as they are. What the engine writes comes in at the device's ingress,
//!   where only frames of its own tuples are redirected to the interface, and of these only
//!   such as ask for no checksum but TCP's own. Host packets keep their offloads, and an XDP
//!   program that is there already keeps its place.
//! * **xdp**: hits are redirected to the AF_XDP socket of their queue. For drivers that
//!   receive into packet memory. It takes the interface's one XDP slot, and AF_XDP sends
//!   past every hook: what the engine sends is not checked.
//!
//! Who holds the [`Steering`] (a broker) configures the kernel; the engine only needs the
//! [`SteeredPort`]. An engine that dies takes its device or sockets along, and its frames
//! are dropped until there is another. With [`Options::outlive`] the holder may die too:
//! programs and map stay, pinned under `/sys/fs/bpf/baton`, and the next
//! [`Steering::attach`] goes on with them, or [`Steering::reap_all`] ends the connections and
//! removes them ([`Steering::clean`] removes them only). Without,
//! the kernel takes everything off with the process, and frames go to the husks.
//!
//! Not seen by XDP: a VLAN tag that the device has taken off the frame. Switch that off
//! (`ethtool -K IFACE rxvlan off`), or such frames pass to the kernel.
//!
//! Beside the interface's own engine there may be others, by number (tc kind only), each with
//! a device of its own: a tuple says whose it is, and its frames leave by no other's device.
//!
//! Everything but map operations has to be called in the interface's network namespace.

mod arrive;
mod attach;
mod bpf_fs;
mod error;
mod findings;
mod gap;
mod maps;
mod orphans;
mod pins;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use aya::Ebpf;
use aya::programs::links::FdLink;
use baton_port::tap::{Tap, TapOptions};
use baton_port::xdp::{CopyMode, driver_features};
use baton_port::{SteeredPort, XdpOptions, XdpPort, link};

pub use arrive::Arrivals;
pub use error::SteerError;
pub use findings::findings;
pub use gap::Gaps;
pub use maps::{Counters, ENGINES_MAX, SteeredTuple};
pub use orphans::Reaped;

use crate::beside::Own;
use maps::{ENGINE, Maps, State};
use pins::Pins;

/// Frames that may wait in an engine's TAP device. The kernel's 500 are fewer than a thousand
/// connections with a segment each in flight, of which then a fifth was lost, again and again.
/// At worst, of super-frames for an engine that has stopped, 256 MB.
const WAITING: u32 = 4096;

/// How frames get to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// xdp if the driver receives into packet memory and no XDP program is there, else tc.
    #[default]
    Auto,
    /// AF_XDP sockets.
    Xdp,
    /// A TAP device.
    Tc,
}

/// The kind that was obtained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The tc program.
    Tc,
    /// The XDP program.
    Xdp {
        /// It runs in the driver; else in the kernel's generic hook.
        driver: bool,
    },
}

/// How an interface is steered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Connections that can be steered at once, at least 1; 112 bytes of kernel memory each.
    /// What a predecessor left keeps its size.
    pub tuples_max: u32,
    /// Steering goes on after the death of this process, until it is taken up or removed.
    pub outlive: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { tuples_max: 65_536, outlive: false }
    }
}

/// An interface that is steered. Dropped, everything is taken off it.
pub struct Steering {
    // First: nothing is redirected any more.
    link: FdLink,
    interface: String,
    mode: Mode,
    maps: Maps,
    ebpf: Ebpf,
    pins: Option<Pins>,
    /// On the devices of programs' engines.
    guards: BTreeMap<u32, FdLink>,
}

impl Steering {
    /// Attaches the program to an interface: without tuples, every frame passes. With
    /// [`Options::outlive`], what a dead predecessor left is taken up with its tuples.
    ///
    /// # Errors
    /// [`SteerError`] with the remedy; then nothing was changed.
    pub fn attach(interface: &str, kind: Kind, options: Options) -> Result<Self, SteerError> {
        let index = link::index(interface).map_err(|e| SteerError::interface(interface, e))?;
        if !link::is_ethernet(interface).map_err(|e| SteerError::interface(interface, e))? {
            return Err(SteerError::Unsuitable {
                interface: interface.to_owned(),
                what: "it has no Ethernet headers".into(),
                remedy: "connections over it stay with the kernel",
            });
        }
        let wanted = match kind {
            Kind::Xdp => Kind::Xdp,
            Kind::Tc => Kind::Tc,
            Kind::Auto if driver_features(index).is_ok_and(|f| f.driver && f.zero_copy) => Kind::Xdp,
            Kind::Auto => Kind::Tc,
        };
        match attach::attach(interface, index, wanted, options) {
            Err(SteerError::Occupied { .. }) if kind == Kind::Auto && wanted == Kind::Xdp => {
                attach::attach(interface, index, Kind::Tc, options)
            }
            result => result,
        }
    }

    /// Removes what a killed process left on an interface; whether there was anything.
    ///
    /// # Errors
    /// [`SteerError::Occupied`] if a living process steers it.
    pub fn clean(interface: &str) -> Result<bool, SteerError> {
        Pins::clean(interface)
    }

    /// The kind that was obtained.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What of it stands among the interface's programs.
    pub(crate) fn own(&self) -> Result<Own, SteerError> {
        let failed = |e| SteerError::kernel("looking at the steering program's link", e);
        match self.mode {
            Mode::Tc => Ok(Own::Tc(self.link.info().map_err(failed)?.program_id())),
            Mode::Xdp { .. } => Ok(Own::Xdp),
        }
    }

    /// Opens the engine's port. A port that was opened before gets nothing any more.
    ///
    /// # Errors
    /// [`SteerError`] with the remedy.
    pub fn open_port(&mut self) -> Result<SteeredPort, SteerError> {
        match self.mode {
            Mode::Tc => self.open_tap(ENGINE).map(|(tap, guard, mtu)| SteeredPort::tap(tap, guard, mtu)),
            Mode::Xdp { driver } => self.open_sockets(driver),
        }
    }

    /// Whether there may be others beside the interface's own engine.
    pub fn lends_engines(&self) -> bool {
        self.mode == Mode::Tc && attach::guards_programs(&self.ebpf)
    }

    /// Opens the port of another engine, of a number below [`ENGINES_MAX`], whose frames are
    /// those of tuples entered by [`Steering::insert_for`]. No engine of that number is said
    /// to be there yet.
    ///
    /// # Errors
    /// [`SteerError`]; `Unsuitable` where the kind is xdp, for a queue has one socket, and where
    /// the kernel does not show the guard which checksum a frame asks for.
    pub fn open_engine(&mut self, number: u32) -> Result<SteeredPort, SteerError> {
        let unsuitable = |what: &str, remedy| SteerError::Unsuitable {
            interface: self.interface.clone(),
            what: what.into(),
            remedy,
        };
        if self.mode != Mode::Tc {
            let what = "it is steered by xdp, and a queue's frames go to one engine";
            return Err(unsuitable(what, "use the kind tc for engines of programs' own"));
        }
        if !attach::guards_programs(&self.ebpf) {
            let what = "this kernel does not show which checksums a program's engine asks for";
            return Err(unsuitable(
                what,
                "use one with CONFIG_DEBUG_INFO_BTF that is not locked down (confidentiality)",
            ));
        }
        let (tap, guard, mtu) = self.open_tap(number)?;
        self.guards.insert(number, guard);
        Ok(SteeredPort::lent(tap, mtu))
    }

    /// Takes an engine's device away, whoever has it: it neither gets nor sends a frame from
    /// now on. Its tuples stay, and their frames are dropped.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn close_engine(&mut self, number: u32) -> Result<(), SteerError> {
        self.maps.set_up(number, false)?;
        if let device @ 1.. = self.maps.device(number)? {
            // It may have gone with its last holder.
            let _ = crate::hops::remove_link(device);
        }
        self.guards.remove(&number);
        if let Some(pins) = &self.pins {
            pins.forget_guard(number);
        }
        self.maps.set_device(number, 0)
    }

    /// A device, its guard, and the MTU of the interface.
    fn open_tap(&mut self, number: u32) -> Result<(Tap, FdLink, u16), SteerError> {
        let tap = Tap::open("baton%d", TapOptions { vnet_hdr: true, merge: false })?;
        let name = tap.name().to_owned();
        let explain = |e| SteerError::interface(&name, e);
        link::set_tx_queue_len(&name, WAITING).map_err(explain)?;
        // Guarded before it is up: the kernel never gets a frame out of it.
        let guard = attach::tap(&mut self.ebpf, &name, number, self.pins.as_ref())?;
        // It is no interface of the kernel's: no solicitations of its own. What slips out
        // where this cannot be set is no TCP, and the engine ignores it.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let mtu = link::mtu(&self.interface).map_err(|e| SteerError::interface(&self.interface, e))?;
        let mtu = mtu.min(u16::MAX.into()) as u16;
        link::set_up(&name).map_err(explain)?;
        self.maps.set_device(number, link::index(&name).map_err(explain)?)?;
        Ok((tap, guard, mtu))
    }

    fn open_sockets(&mut self, driver: bool) -> Result<SteeredPort, SteerError> {
        let options = XdpOptions { generic: !driver, copy: CopyMode::Auto, queues: None };
        let port = XdpPort::open_sockets(&self.interface, options)?;
        for (queue, socket) in (0..).zip(port.sockets()) {
            self.maps.set_socket(queue, &socket)?;
        }
        Ok(SteeredPort::xdp(port))
    }

    /// Has each queue's frames go to one of these AF_XDP sockets, which another process
    /// opened; none of them where the kind has none.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn set_sockets(&mut self, sockets: &[OwnedFd]) -> Result<(), SteerError> {
        for (queue, socket) in (0..).zip(sockets) {
            self.maps.set_socket(queue, socket)?;
        }
        Ok(())
    }

    /// From now on the connection's frames go to the engine.
    ///
    /// # Errors
    /// [`SteerError::Full`] with as many tuples as there may be.
    pub fn insert(&mut self, tuple: impl Into<SteeredTuple>) -> Result<(), SteerError> {
        self.maps.insert(&tuple.into(), ENGINE, State::Steer)
    }

    /// The same for the engine of that number.
    ///
    /// # Errors
    /// As for [`Steering::insert`].
    pub fn insert_for(&mut self, tuple: impl Into<SteeredTuple>, engine: u32) -> Result<(), SteerError> {
        self.maps.insert(&tuple.into(), engine, State::Steer)
    }

    /// From now on the connection's frames go to nobody, neither way: for the moment in
    /// which it is on neither side.
    ///
    /// # Errors
    /// [`SteerError::Full`] with as many tuples as there may be.
    pub fn hold_back(&mut self, tuple: impl Into<SteeredTuple>) -> Result<(), SteerError> {
        self.maps.insert(&tuple.into(), ENGINE, State::Drop)
    }

    /// From now on the connection's frames go to the kernel; whether they did not before.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn remove(&mut self, tuple: impl Into<SteeredTuple>) -> Result<bool, SteerError> {
        self.maps.remove(&tuple.into())
    }

    /// The connections in the map: those of a predecessor, too, if its left-overs were
    /// taken up.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn tuples(&self) -> Result<Vec<SteeredTuple>, SteerError> {
        self.maps.tuples()
    }

    /// Whether there is an engine. While there is none, frames of steered connections are
    /// dropped, also those that an engine still sends. At first there is none.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn set_engine(&mut self, up: bool) -> Result<(), SteerError> {
        self.maps.set_up(ENGINE, up)
    }

    /// The same of the engine of that number.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn set_engine_up(&mut self, number: u32, up: bool) -> Result<(), SteerError> {
        self.maps.set_up(number, up)
    }

    /// What became of frames so far, on all CPUs.
    ///
    /// # Errors
    /// As the kernel's.
    pub fn counters(&self) -> Result<Counters, SteerError> {
        self.maps.counters()
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        // Nobody is left with a device that is not guarded.
        for number in self.guards.keys().copied().collect::<Vec<_>>() {
            let _ = self.close_engine(number);
        }
        if let Some(pins) = &self.pins {
            pins.remove();
        }
    }
}
