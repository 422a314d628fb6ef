//! Loads and attaches the programs, or takes them over from a predecessor.

use std::collections::BTreeMap;

use aya::programs::links::{FdLink, LinkOrder};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};

use super::error::{SteerError, os_error};
use super::maps::{Maps, NAMES};
use super::pins::{self, Pins};
use super::{Kind, Mode, Options, Steering};

const TC: &str = "steer_tc";
/// The guards of engines' TAP devices: the one for any engine, and the one for the interface's own
/// engine, for kernels that do not load the first.
const TAP: &str = "steer_tap";
const TAP_OWN: &str = "steer_tap_own";
const XDP: &str = "steer_xdp";
const ATTACHING: &str = "attaching the steering program";

/// Steers `interface` by a `kind` that has been decided.
pub fn attach(interface: &str, index: u32, kind: Kind, options: Options) -> Result<Steering, SteerError> {
    let found = if options.outlive { Some(Pins::make(interface)?) } else { Pins::find(interface)? };
    let left = found.as_ref().and_then(Pins::mode);
    if let Some(left) = left {
        let fits = (left == Mode::Tc) == (kind == Kind::Tc);
        if !(options.outlive && fits) {
            return Err(SteerError::LeftOver { interface: interface.to_owned(), left: pins::name(left) });
        }
    }
    // Without `outlive`, an empty directory may have been found, which nobody uses.
    let pins = found.filter(|_| options.outlive);
    let result = load(options, pins.as_ref()).and_then(|mut ebpf| {
        let (link, mode, taken_up) = match kind {
            Kind::Tc => attach_tc(&mut ebpf, interface, pins.as_ref().filter(|_| left.is_some()))?,
            _ => attach_xdp(&mut ebpf, interface, index, pins.as_ref(), left)?,
        };
        let mut maps = Maps::open(&mut ebpf, index)?;
        if taken_up {
            return Ok((link, mode, maps, ebpf));
        }
        maps.clear()?;
        let link = match &pins {
            Some(pins) => pins.keep_link(link, mode)?,
            None => link,
        };
        Ok((link, mode, maps, ebpf))
    });
    match result {
        Ok((link, mode, maps, ebpf)) => {
            Ok(Steering { link, interface: interface.to_owned(), mode, maps, ebpf, pins, guards: BTreeMap::new() })
        }
        Err(e) => {
            // Pins that existed before stay.
            if let (Some(pins), None) = (&pins, left) {
                pins.remove();
            }
            Err(e)
        }
    }
}

/// Loads the object. With `pins`, the maps are those pinned there, or are pinned there.
fn load(options: Options, pins: Option<&Pins>) -> Result<Ebpf, SteerError> {
    let object = baton_bpf::steer().ok_or(SteerError::NotBuilt)?;
    let mut loader = EbpfLoader::new();
    loader.map_max_entries("TUPLES", options.tuples_max);
    for name in NAMES {
        if let Some(pins) = pins {
            loader.map_pin_path(name, pins.path(name));
        }
    }
    loader.load(object).map_err(|e| SteerError::kernel("loading the steering programs", e))
}

/// The link, its mode, and whether a predecessor left it in `left`.
fn attach_tc(ebpf: &mut Ebpf, interface: &str, left: Option<&Pins>) -> Result<(FdLink, Mode, bool), SteerError> {
    let (_, there) =
        SchedClassifier::query_tcx(interface, TcAttachType::Ingress).map_err(|e| explain_tc(interface, e))?;
    if let Some(pins) = left {
        let link = pins.link(Mode::Tc)?;
        let info = link.info().map_err(|e| SteerError::kernel("looking at the pinned link", e))?;
        // The interface may be gone, and another with its name may have taken its place.
        if there.iter().any(|program| program.id() == info.program_id()) {
            load_guard(ebpf)?;
            return Ok((link, Mode::Tc, true));
        }
    }
    if there.iter().any(|program| program.name() == TC.as_bytes()) {
        return Err(pins::occupied(interface));
    }
    load_guard(ebpf)?;
    load_classifier(ebpf, TC)?;
    let link = attach_classifier(ebpf, TC, interface).map_err(|e| explain_tc(interface, e))?;
    Ok((link, Mode::Tc, false))
}

/// Attaches the guard of an engine's TAP device.
pub fn tap(ebpf: &mut Ebpf, device: &str, engine: u32, pins: Option<&Pins>) -> Result<FdLink, SteerError> {
    let name = if guards_programs(ebpf) { TAP } else { TAP_OWN };
    let link = attach_classifier(ebpf, name, device).map_err(|e| explain_tc(device, e))?;
    match pins {
        Some(pins) => pins.keep_guard(link, engine),
        None => Ok(link),
    }
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut SchedClassifier {
    let program = ebpf.program_mut(name).expect("steer.c has a program of that name");
    program.try_into().expect("the program is a classifier")
}

fn load_classifier(ebpf: &mut Ebpf, name: &str) -> Result<(), SteerError> {
    classifier(ebpf, name).load().map_err(|e| SteerError::kernel("loading the steering programs", e))
}

/// The first guard reads the kernel's own sk_buff, whose layout the loader takes from the kernel's
/// BTF. If that fails, no kernel loads this guard.
fn load_guard(ebpf: &mut Ebpf) -> Result<(), SteerError> {
    load_classifier(ebpf, TAP).or_else(|_| load_classifier(ebpf, TAP_OWN))
}

/// Returns true if engines inside programs may send too.
pub fn guards_programs(ebpf: &Ebpf) -> bool {
    ebpf.program(TAP).is_some_and(|guard| guard.fd().is_ok())
}

/// Loads the guard for engines inside programs, and drops it.
///
/// # Errors
/// [`SteerError`]: engines inside programs cannot be allowed to send.
pub(super) fn try_guard() -> Result<(), SteerError> {
    load(Options::default(), None).and_then(|mut ebpf| load_classifier(&mut ebpf, TAP))
}

/// Attaches the program before all others there, so that nothing else changes the frames first.
fn attach_classifier(ebpf: &mut Ebpf, name: &str, interface: &str) -> Result<FdLink, ProgramError> {
    let program = classifier(ebpf, name);
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    let id = program.attach_with_options(interface, TcAttachType::Ingress, order)?;
    Ok(program.take_link(id)?.try_into().expect("a TCX link has a descriptor"))
}

fn explain_tc(interface: &str, error: ProgramError) -> SteerError {
    match os_error(&error) {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => SteerError::Unsuitable {
            interface: interface.to_owned(),
            what: "this kernel has no TCX links".into(),
            remedy: "use Linux 6.6 or later with CONFIG_NET_XGRESS, or the kind xdp",
        },
        _ => SteerError::kernel(ATTACHING, error),
    }
}

/// The link, its mode, and whether it is one that a predecessor `left` in `pins`.
fn attach_xdp(
    ebpf: &mut Ebpf,
    interface: &str,
    index: u32,
    pins: Option<&Pins>,
    left: Option<Mode>,
) -> Result<(FdLink, Mode, bool), SteerError> {
    let program = ebpf.program_mut(XDP).expect("steer.c has a program of that name");
    let program: &mut Xdp = program.try_into().expect("the program is an XDP program");
    program.load().map_err(|e| SteerError::kernel("loading the steering programs", e))?;
    let mut error = None;
    for (driver, mode) in [(true, XdpMode::Driver), (false, XdpMode::Skb)] {
        match program.attach_to_if_index(index, mode).and_then(|id| program.take_link(id)) {
            Ok(link) => {
                let link = link.try_into().map_err(|_| SteerError::Unsuitable {
                    interface: interface.to_owned(),
                    what: "this kernel has no XDP links".into(),
                    remedy: "use Linux 5.9 or later",
                })?;
                return Ok((link, Mode::Xdp { driver }, false));
            }
            Err(e) => match os_error(&e) {
                Some(libc::EBUSY | libc::EEXIST) => match (pins, left) {
                    // The link that was left occupies the slot. Otherwise the interface has been
                    // replaced since, and the slot was free.
                    (Some(pins), Some(left)) => return Ok((pins.link(left)?, left, true)),
                    _ => return Err(xdp_occupied(interface)),
                },
                // The driver has no hook, or none for this MTU or these queues.
                Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE | libc::ENOSPC) => error = Some(e),
                _ => return Err(SteerError::kernel(ATTACHING, e)),
            },
        }
    }
    Err(SteerError::kernel(ATTACHING, error.expect("both modes were refused")))
}

fn xdp_occupied(interface: &str) -> SteerError {
    SteerError::Occupied {
        interface: interface.to_owned(),
        by: "another XDP program is attached, and an interface has room for one",
        remedy: "use the kind tc, which coexists with it, or remove it (see: bpftool net)",
    }
}
