//! The table of costs: instructions of each step, each entry with its source.
//!
//! An entry is *calibrated* (from the rows of [`crate::calibration`] alone), or *estimated* and then
//! read by no row of the paper. Memory references of the host come on top ([`crate::cache`]).

/// Instructions of each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// NIC: a packet passed between wire and host. Calibrated: 62 % idle at 23,031 requests/s (CH
    /// table 1, first row).
    pub nic_host_packet: u64,
    /// NIC: a packet of a connection that it has, received or sent. Calibrated: 1 Gb/s of one
    /// connection beside 1 Gb/s of the host at 400 MIPS (CH §4.1).
    pub nic_tcp_packet: u64,
    /// NIC: the lookup of a received packet. Estimated: a hash and a compare (CH §2: "a small
    /// amount").
    pub nic_lookup: u64,
    /// NIC: a command from the host, or a message to it. Estimated: a descriptor and its DMA.
    pub nic_message: u64,
    /// NIC: taking a connection over. Estimated: 1 KB of state (CH §2), a word an instruction and as
    /// many again.
    pub nic_handoff: u64,
    /// Host: a packet through driver, IP and TCP. Calibrated: 57 % of the cycles below the system
    /// calls (CH §5.1).
    pub host_packet: u64,
    /// Host: system calls and server program for a request. Calibrated: 23,031 requests/s.
    pub host_request: u64,
    /// Host: a message of the bypass layer, either way. Estimated: a third of a packet, as it has a
    /// driver and a socket but no IP and TCP.
    pub host_bypass: u64,
    /// Host: handing a connection off. Estimated: twice a packet.
    pub host_handoff: u64,
}

/// One cost: its name, and access to it.
pub type Entry = (&'static str, fn(&mut Costs) -> &mut u64);

impl Costs {
    /// All costs by name, for the sensitivity table.
    pub const ENTRIES: [Entry; 9] = [
        ("nic_host_packet", |c| &mut c.nic_host_packet),
        ("nic_tcp_packet", |c| &mut c.nic_tcp_packet),
        ("nic_lookup", |c| &mut c.nic_lookup),
        ("nic_message", |c| &mut c.nic_message),
        ("nic_handoff", |c| &mut c.nic_handoff),
        ("host_packet", |c| &mut c.host_packet),
        ("host_request", |c| &mut c.host_request),
        ("host_bypass", |c| &mut c.host_bypass),
        ("host_handoff", |c| &mut c.host_handoff),
    ];
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            nic_host_packet: 543,
            nic_tcp_packet: 2698,
            nic_lookup: 60,
            nic_message: 200,
            nic_handoff: 512,
            host_packet: 3709,
            host_request: 36_928,
            host_bypass: 1236,
            host_handoff: 7418,
        }
    }
}
