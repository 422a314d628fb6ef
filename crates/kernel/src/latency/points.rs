//! The points: which program runs where, and which of them this kernel has.

use super::Wanted;
use super::error::LatencyError;
use crate::steer::os_error;
use aya::programs::{BtfTracePoint, FEntry, FExit, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use baton_latency::Direction;
use baton_port::doctor::Finding;
use baton_port::error::chain;

const LOADING: &str = "loading the programs that measure the kernel";
const ATTACHING: &str = "attaching the programs that measure the kernel";

/// How a program is attached.
#[derive(Clone, Copy)]
enum Hook {
    /// Where a kernel function begins.
    Entry,
    /// Where it returns.
    Return,
    Tracepoint,
}

use Hook::{Entry, Return, Tracepoint};

/// A program, how it is attached, and to which kernel function or tracepoint.
struct Point(&'static str, Hook, &'static str);

/// Sets of points of a way. A set serves if all its points are there. Their order is that of attaching: a
/// message is followed only once the points that it passes later are there.
struct Sets {
    way: Direction,
    functions: &'static [Point],
    /// IPv6's, beside the functions. Without them only its layers are missing.
    ipv6: &'static [Point],
    tracepoints: &'static [Point],
    /// With either set. Without them one layer is missing.
    arrival: &'static [Point],
    /// With the second set: which layers are part of which.
    joined: &'static str,
}

const CLOSED: Point = Point("closed", Tracepoint, "inet_sock_set_state");

const SETS: [Sets; 2] = [
    Sets {
        way: Direction::Transmit,
        functions: &[
            Point("t_device", Tracepoint, "net_dev_start_xmit"),
            Point("t_built_v4", Entry, "ip_queue_xmit"),
            Point("t_taken_up", Entry, "__tcp_transmit_skb"),
            Point("t_copied", Entry, "tcp_push"),
            Point("t_call", Entry, "tcp_sendmsg"),
        ],
        ipv6: &[Point("t_built_v6", Entry, "inet6_csk_xmit")],
        tracepoints: &[
            Point("t_device", Tracepoint, "net_dev_start_xmit"),
            Point("t_queued_tp", Tracepoint, "net_dev_queue"),
            Point("t_returned_tp", Tracepoint, "sock_send_length"),
            Point("t_call_tp", Tracepoint, "tcp_sendmsg_locked"),
        ],
        arrival: &[],
        joined: "write includes segment and IP's output, or send-queue does if the call returned before; output is \
                 the device's queue",
    },
    Sets {
        way: Direction::Receive,
        functions: &[
            Point("r_returned", Return, "tcp_recvmsg"),
            Point("r_call", Entry, "tcp_recvmsg"),
            Point("r_waited", Return, "sk_wait_data"),
            Point("r_told", Return, "tcp_data_ready"),
            Point("r_decided", Entry, "tcp_data_ready"),
            Point("r_placed", Return, "tcp_queue_rcv"),
            Point("r_found", Entry, "sk_filter_trim_cap"),
            Point("r_parsed_v4", Entry, "tcp_v4_rcv"),
            Point("r_taken", Tracepoint, "netif_receive_skb"),
        ],
        ipv6: &[Point("r_parsed_v6", Entry, "tcp_v6_rcv")],
        tracepoints: &[
            Point("r_returned_tp", Tracepoint, "sock_recv_length"),
            Point("r_copies_tp", Tracepoint, "skb_copy_datagram_iovec"),
            Point("r_told_tp", Tracepoint, "sk_data_ready"),
            Point("r_found_tp", Tracepoint, "tcp_probe"),
            Point("r_taken", Tracepoint, "netif_receive_skb"),
        ],
        arrival: &[
            Point("r_arrived", Tracepoint, "netif_rx"),
            Point("r_arrived_napi", Tracepoint, "napi_gro_receive_entry"),
        ],
        joined: "parse includes lookup and the socket's backlog, place includes decide, wake-up includes tell and the \
                 way into the call",
    },
];

/// The points by which a way is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// By the kernel's functions: every layer.
    Functions,
    /// By tracepoints: some layers are part of others.
    Tracepoints,
    /// Not at all.
    Nothing,
}

/// How a way is seen, and why not better.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sight {
    /// The way that is meant.
    pub way: Direction,
    /// The points that serve.
    pub by: By,
    /// Which points are not to be had and why, and which layers are part of others for that. Empty if every
    /// layer is seen.
    pub note: String,
}

/// Loads the programs that watch these connections, `slots` of them at most.
///
/// # Errors
/// [`LatencyError`]
pub(super) fn load(wanted: &[u8], slots: u32) -> Result<Ebpf, LatencyError> {
    let object = baton_bpf::latency().ok_or(LatencyError::NotBuilt)?;
    let mut loader = EbpfLoader::new();
    for map in ["SPANS", "CONNECTIONS", "FREE"] {
        loader.map_max_entries(map, slots);
    }
    loader.map_max_entries("SLOWEST", slots * 2);
    loader.override_global("WANTED", wanted, true);
    loader.load(object).map_err(|error| LatencyError::of(LOADING, &error))
}

/// The sets that serve, and how each way is seen by them.
pub(super) struct Chosen {
    points: Vec<&'static Point>,
    pub sights: Vec<Sight>,
}

impl Chosen {
    /// Loads programs, which attaches none, and takes for each way the first set that this kernel has.
    ///
    /// # Errors
    /// [`LatencyError`] if programs cannot be loaded at all, or neither way can be seen.
    pub fn of(programs: &mut Ebpf, btf: &Btf) -> Result<Chosen, LatencyError> {
        // If not even this one may be loaded, the user lacks the right.
        match CLOSED.load(programs, btf) {
            Err(error) if os_error(&error) == Some(libc::EPERM) => {
                return Err(LatencyError::NotPermitted { during: LOADING });
            }
            Err(error) => return Err(LatencyError::of(LOADING, &error)),
            Ok(()) => {}
        }
        let mut points = vec![&CLOSED];
        let mut sights = Vec::new();
        for Sets { way, functions, ipv6, tracepoints, arrival, joined } in &SETS {
            let (by, note) = match first_refused(functions, programs, btf) {
                None => {
                    points.extend(ipv6.iter().filter(|point| point.load(programs, btf).is_ok()).chain(*functions));
                    (By::Functions, String::new())
                }
                Some(refused) => match first_refused(tracepoints, programs, btf) {
                    None => {
                        points.extend(*tracepoints);
                        (By::Tracepoints, format!("only tracepoints are to be had ({refused}): {joined}"))
                    }
                    Some(also) => (By::Nothing, format!("not to be had: {refused}; {also}")),
                },
            };
            points.extend(arrival.iter().filter(|point| by != By::Nothing && point.load(programs, btf).is_ok()));
            sights.push(Sight { way: *way, by, note });
        }
        if sights.iter().all(|sight| sight.by == By::Nothing) {
            let what = sights.iter().map(|sight| format!("{}: {}", sight.way.name(), sight.note));
            return Err(LatencyError::NoPoints { what: what.collect::<Vec<_>>().join("; ") });
        }
        Ok(Chosen { points, sights })
    }

    /// Attaches the programs.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn attach(&self, programs: &mut Ebpf) -> Result<(), LatencyError> {
        self.points
            .iter()
            .try_for_each(|point| point.attach(programs).map_err(|error| LatencyError::of(ATTACHING, &error)))
    }
}

/// The first point that the kernel does not have, and why; `None` if it has all.
fn first_refused(points: &[Point], programs: &mut Ebpf, btf: &Btf) -> Option<String> {
    points.iter().find_map(|point| {
        let error = point.load(programs, btf).err()?;
        let why = match &error {
            // The way has it from the other set.
            ProgramError::AlreadyLoaded => return None,
            ProgramError::Btf(_) => "this kernel has none, or has it inlined".to_owned(),
            _ if os_error(&error) == Some(libc::EPERM) => "this kernel permits it to nobody".to_owned(),
            // The verifier's log follows the first line.
            other => chain(other).lines().next().unwrap_or_default().to_owned(),
        };
        Some(format!("{}: {why}", point.2))
    })
}

impl Point {
    fn load(&self, programs: &mut Ebpf, btf: &Btf) -> Result<(), ProgramError> {
        let Point(name, hook, at) = self;
        let program = programs.program_mut(name).expect("latency.c has a program of that name");
        match hook {
            Entry => <&mut FEntry>::try_from(program)?.load(at, btf),
            Return => <&mut FExit>::try_from(program)?.load(at, btf),
            Tracepoint => <&mut BtfTracePoint>::try_from(program)?.load(at, btf),
        }
    }

    fn attach(&self, programs: &mut Ebpf) -> Result<(), ProgramError> {
        let Point(name, hook, _) = self;
        let program = programs.program_mut(name).expect("latency.c has a program of that name");
        match hook {
            Entry => <&mut FEntry>::try_from(program)?.attach().map(drop),
            Return => <&mut FExit>::try_from(program)?.attach().map(drop),
            Tracepoint => <&mut BtfTracePoint>::try_from(program)?.attach().map(drop),
        }
    }
}

/// How each way can be seen on this kernel. It attaches nothing.
///
/// # Errors
/// [`LatencyError`] if no point is to be had.
pub fn sights() -> Result<Vec<Sight>, LatencyError> {
    let mut programs = load(&Wanted::Pid(std::process::id()).as_program_reads()?, 1)?;
    Chosen::of(&mut programs, &super::btf()?).map(|chosen| chosen.sights)
}

/// The line of `baton doctor` about the points.
pub fn finding() -> Finding {
    const NAME: &str = "latency by layer of kernel connections";
    match sights() {
        Ok(sights) if sights.iter().all(|sight| sight.by == By::Functions) => {
            Finding::yes(NAME, "all points are to be had: baton latency shows every layer")
        }
        Ok(sights) => {
            let how = |sight: &Sight| match sight.by {
                By::Functions => format!("{}: every layer", sight.way.name()),
                By::Tracepoints => format!("{}: by tracepoints, some layers as part of others", sight.way.name()),
                By::Nothing => format!("{}: {}", sight.way.name(), sight.note),
            };
            let detail = sights.iter().map(how).collect::<Vec<_>>().join("; ");
            if sights.iter().all(|sight| sight.by != By::Nothing) {
                Finding::yes(NAME, detail)
            } else {
                Finding::no(NAME, detail, "use Linux 6.15 or later, or one with BPF trampolines")
            }
        }
        Err(error) => {
            let text = error.to_string();
            let (detail, remedy) = text.split_once("; ").unwrap_or((&text, "see above"));
            Finding::no(NAME, detail, remedy)
        }
    }
}
