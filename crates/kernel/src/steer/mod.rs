//! Steering: decides which connections of a kernel interface go to the engine.
//!
//! ```text
//!   wire --> program: is the frame's 4-tuple in the map?
//!              no   --> kernel, at once
//!              yes  --> the engine's port (TAP device or AF_XDP socket)
//!              yes, and no engine is up --> dropped: the husk would answer wrongly
//! ```
//!
//! An ICMP error counts as having the 4-tuple of the segment that it quotes.
//!
//! There are two kinds with the same map layout ([`Kind`]). The programs are in `bpf/programs/steer.c`:
//!
//! * **tc**: on the interface's ingress (a TCX link, Linux 6.6), matching frames are redirected to
//!   the egress of a TAP device. Its reader gets them, including super-frames and unfilled
//!   checksums, as they are. Frames that the engine writes come in at the device's ingress. Only
//!   frames of the engine's own tuples are redirected from there to the interface, and only if they
//!   request no checksum other than TCP's own. Host packets keep their offloads, and an XDP program
//!   that is attached already stays.
//! * **xdp**: matching frames are redirected to the AF_XDP socket of their queue. This is for
//!   drivers that receive into packet memory. It takes the interface's only XDP slot. AF_XDP
//!   bypasses every hook on sending, so what the engine sends is not checked.
//!
//! The owner of the [`Steering`] (a broker) configures the kernel. The engine needs only the
//! [`SteeredPort`]. When an engine dies, its device or its sockets disappear, and its frames are
//! dropped until there is another engine. With [`Options::outlive`] the owner may die too: programs
//! and maps stay, pinned under `/sys/fs/bpf/baton`. The next [`Steering::attach`] continues with
//! them, or [`Steering::reap_all`] ends the connections and removes them ([`Steering::clean`] only
//! removes them). Without that option, the kernel removes everything with the process, and frames
//! go to the husks.
//!
//! XDP does not see a VLAN tag that the device has removed from the frame. Turn that off (`ethtool
//! -K IFACE rxvlan off`), or such frames pass to the kernel.
//!
//! In addition to the interface's own engine there may be others, identified by numbers (kind tc
//! only), each with a device of its own. A tuple says which engine it belongs to, and its frames
//! leave by no other engine's device.
//!
//! Call everything except map operations in the interface's network namespace.

mod arrive;
mod attach;
mod bpf_fs;
mod error;
mod findings;
mod gap;
mod maps;
mod notes;
mod orphans;
mod pins;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use aya::Ebpf;
use aya::programs::links::FdLink;
use baton_port::tap::{Tap, TapOptions};
use baton_port::xdp::driver_features;
use baton_port::{SteeredPort, XdpOptions, XdpPort, link};

pub use arrive::Arrivals;
pub use error::SteerError;
pub(crate) use error::os_error;
pub use findings::findings;
pub use gap::Gaps;
pub use maps::{Counters, ENGINES_MAX, SteeredTuple};
pub use orphans::Reaped;

use maps::{ENGINE, Maps, State};
use pins::Pins;

/// How Baton steers an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Own {
    /// By the TCX program with this id.
    Tc(u32),
    /// By XDP.
    Xdp,
}

/// How frames get to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// xdp if the driver receives into packet memory and no XDP program is attached, else tc.
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
        /// It runs in the driver. If false, it runs in the kernel's generic hook.
        driver: bool,
    },
}

/// How an interface is steered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The number of connections that can be steered at once, at least 1. Each takes 112 bytes of
    /// kernel memory. A map that a predecessor left keeps its size.
    pub tuples_max: u32,
    /// Steering continues after the death of this process, until another takes it over or removes
    /// it.
    pub outlive: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { tuples_max: 65_536, outlive: false }
    }
}

/// A steered interface. Dropping this removes everything from it.
pub struct Steering {
    // Dropped first, so that nothing is redirected any more.
    link: FdLink,
    interface: String,
    mode: Mode,
    maps: Maps,
    ebpf: Ebpf,
    pins: Option<Pins>,
    /// The links on the devices of programs' engines.
    guards: BTreeMap<u32, FdLink>,
}

impl Steering {
    /// Attaches the program to an interface. Without tuples, every frame passes. With
    /// [`Options::outlive`], the steering of a dead predecessor is taken over with its tuples.
    ///
    /// # Errors
    /// [`SteerError`] with the remedy. Nothing was changed then.
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

    /// Removes what a killed process left on an interface. Returns true if there was anything.
    ///
    /// # Errors
    /// [`SteerError::Occupied`] if a living process steers the interface.
    pub fn clean(interface: &str) -> Result<bool, SteerError> {
        Pins::clean(interface)
    }

    /// The kind that was obtained.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Which of the interface's programs is ours.
    pub(crate) fn own(&self) -> Result<Own, SteerError> {
        let failed = |e| SteerError::kernel("looking at the steering program's link", e);
        match self.mode {
            Mode::Tc => Ok(Own::Tc(self.link.info().map_err(failed)?.program_id())),
            Mode::Xdp { .. } => Ok(Own::Xdp),
        }
    }

    /// Opens the engine's port. A port opened before gets nothing any more.
    ///
    /// # Errors
    /// [`SteerError`] with the remedy.
    pub fn open_port(&mut self) -> Result<SteeredPort, SteerError> {
        match self.mode {
            Mode::Tc => self.open_tap(ENGINE).map(|(tap, guard, mtu)| SteeredPort::tap(tap, guard, mtu)),
            Mode::Xdp { driver } => self.open_sockets(driver),
        }
    }

    /// Returns true if there may be engines in addition to the interface's own.
    pub fn lends_engines(&self) -> bool {
        self.mode == Mode::Tc && attach::guards_programs(&self.ebpf)
    }

    /// Opens the port of another engine, with a number below [`ENGINES_MAX`]. Its frames are those
    /// of tuples entered by [`Steering::insert_for`]. The programs are not told yet that this
    /// engine is there.
    ///
    /// # Errors
    /// [`SteerError`]; `Unsuitable` with the kind xdp, because a queue has one socket, and on a
    /// kernel that does not show the guard which checksum a frame requests.
    pub fn open_engine(&mut self, number: u32) -> Result<SteeredPort, SteerError> {
        let unsuitable = |what: &str, remedy| SteerError::Unsuitable {
            interface: self.interface.clone(),
            what: what.into(),
            remedy,
        };
        if self.mode != Mode::Tc {
            let what = "it is steered by xdp, where a queue's frames go to one engine";
            return Err(unsuitable(what, "use the kind tc for engines inside programs"));
        }
        if !attach::guards_programs(&self.ebpf) {
            let what = "this kernel does not show which checksums a program's engine requests";
            return Err(unsuitable(
                what,
                "use one with CONFIG_DEBUG_INFO_BTF that is not locked down (confidentiality)",
            ));
        }
        let (tap, guard, mtu) = self.open_tap(number)?;
        self.guards.insert(number, guard);
        Ok(SteeredPort::lent(tap, mtu))
    }

    /// Removes an engine's device even while a process has it open: it neither receives nor sends
    /// a frame from now on. Its tuples stay, and their frames are dropped.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn close_engine(&mut self, number: u32) -> Result<(), SteerError> {
        self.maps.set_up(number, false)?;
        if let device @ 1.. = self.maps.device(number)? {
            // The device may have disappeared with its last owner.
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
        let tap = Tap::open("baton%d", TapOptions::new().merge(false))?;
        let name = tap.name().to_owned();
        let explain = |e| SteerError::interface(&name, e);
        // The device is guarded before it is up, so the kernel never gets a frame out of it.
        let guard = attach::tap(&mut self.ebpf, &name, number, self.pins.as_ref())?;
        // The kernel must not use the device itself, for example for solicitations. If this cannot
        // be set, such packets are not TCP, and the engine ignores them.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let mtu = link::mtu(&self.interface).map_err(|e| SteerError::interface(&self.interface, e))?;
        let mtu = mtu.min(u16::MAX.into()) as u16;
        link::set_up(&name).map_err(explain)?;
        self.maps.set_device(number, link::index(&name).map_err(explain)?)?;
        Ok((tap, guard, mtu))
    }

    fn open_sockets(&mut self, driver: bool) -> Result<SteeredPort, SteerError> {
        let options = XdpOptions::new().generic(!driver);
        let port = XdpPort::open_sockets(&self.interface, options)?;
        for (queue, socket) in (0..).zip(port.sockets()) {
            self.maps.set_socket(queue, &socket)?;
        }
        Ok(SteeredPort::xdp(port))
    }

    /// Directs each queue's frames to one of these AF_XDP sockets, which another process opened.
    /// There are none if the kind has none.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn set_sockets(&mut self, sockets: &[OwnedFd]) -> Result<(), SteerError> {
        for (queue, socket) in (0..).zip(sockets) {
            self.maps.set_socket(queue, socket)?;
        }
        Ok(())
    }

    /// Lets the connection's frames go to the engine from now on.
    ///
    /// # Errors
    /// [`SteerError::Full`] if the map is full.
    pub fn insert(&mut self, tuple: impl Into<SteeredTuple>) -> Result<(), SteerError> {
        self.maps.insert(&tuple.into(), ENGINE, State::Steer)
    }

    /// Like [`Steering::insert`], for the engine with that number.
    ///
    /// # Errors
    /// Errors from [`Steering::insert`].
    pub fn insert_for(&mut self, tuple: impl Into<SteeredTuple>, engine: u32) -> Result<(), SteerError> {
        self.maps.insert(&tuple.into(), engine, State::Steer)
    }

    /// Drops the connection's frames in both directions from now on, while neither side has the
    /// connection.
    ///
    /// # Errors
    /// [`SteerError::Full`] if the map is full.
    pub fn hold_back(&mut self, tuple: impl Into<SteeredTuple>) -> Result<(), SteerError> {
        self.maps.insert(&tuple.into(), ENGINE, State::Drop)
    }

    /// Lets the connection's frames go to the kernel from now on. Returns true if they did not
    /// before.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn remove(&mut self, tuple: impl Into<SteeredTuple>) -> Result<bool, SteerError> {
        self.maps.remove(&tuple.into())
    }

    /// The connections in the map, including those of a predecessor whose steering was taken over.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn tuples(&self) -> Result<Vec<SteeredTuple>, SteerError> {
        self.maps.tuples()
    }

    /// Says whether there is an engine. While there is none, which is so at first, frames of
    /// steered connections are dropped, including those that an engine still sends.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn set_engine(&mut self, up: bool) -> Result<(), SteerError> {
        self.maps.set_up(ENGINE, up)
    }

    /// Like [`Steering::set_engine`], for the engine with that number.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn set_engine_up(&mut self, number: u32, up: bool) -> Result<(), SteerError> {
        self.maps.set_up(number, up)
    }

    /// Has the programs note when segments for the engine with that number arrive, until
    /// [`Steering::end_notes`], or until the engine is said to be down. Returns a descriptor of the notes for
    /// its port ([`Notes::open`](baton_port::notes::Notes::open)). Its holder can spoil them, but sees no other
    /// engine's.
    ///
    /// # Errors
    /// Errors from the kernel. Nothing is noted then.
    pub fn begin_notes(&mut self, number: u32) -> Result<OwnedFd, SteerError> {
        self.maps.begin_notes(number)
    }

    /// Ends [`Steering::begin_notes`], if that is so. An array that a port still reads stays as it is, and serves
    /// again.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn end_notes(&mut self, number: u32) -> Result<(), SteerError> {
        self.maps.end_notes(number)
    }

    /// The numbers of frames so far, on all CPUs.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn counters(&self) -> Result<Counters, SteerError> {
        self.maps.counters()
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        // Nobody may keep a device without a guard.
        for number in self.guards.keys().copied().collect::<Vec<_>>() {
            let _ = self.close_engine(number);
        }
        if let Some(pins) = &self.pins {
            pins.remove();
        }
    }
}
